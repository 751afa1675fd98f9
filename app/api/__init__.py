"""The HTTP side: requests in, problems and streams out. It knows services and ports, and no database."""

from app.api.app import Surface, create_app, describe_only
from app.api.deps import ApiConfig, ApiDeps, OpenStreams
from app.api.routes.websocket import SOCKET_PATH

__all__ = ["SOCKET_PATH", "ApiConfig", "ApiDeps", "OpenStreams", "Surface", "create_app", "describe_only"]
