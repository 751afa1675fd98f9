"""The application: routes, the outer layer, and one answer to every error."""

from enum import StrEnum
from typing import Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.deps import ApiDeps
from app.api.middleware import Edge
from app.api.problems import answer_problem
from app.api.routes import (
    again,
    agents,
    approvals,
    artifacts,
    events,
    operations,
    operator,
    operator_controls,
    operator_keys,
    runs,
    sessions,
    usage,
    users,
    webhooks,
)
from app.errors import AdkError

_ALL: Final = (
    runs,
    events,
    again,
    approvals,
    sessions,
    artifacts,
    users,
    agents,
    usage,
    webhooks,
    operator,
    operator_keys,
    operator_controls,
    operations,
)


class Surface(StrEnum):
    """Which routes a process answers. OPERATIONS: health, metrics, and what the key is; no run can be reached."""

    ALL = "all"
    OPERATIONS = "operations"


def create_app(deps: ApiDeps, surface: Surface = Surface.ALL) -> FastAPI:
    """Builds the HTTP side around its ports. Starts nothing; ``deps`` live as long as the process."""
    app = describe_only(surface)
    app.state.deps = deps
    app.add_middleware(
        Edge,
        ids=deps.ids,
        max_request_bytes=deps.config.max_request_bytes,
        max_artifact_bytes=deps.config.max_artifact_bytes,
    )
    for expected in (AdkError, HTTPException, RequestValidationError):
        app.add_exception_handler(expected, answer_problem)
    return app


def describe_only(surface: Surface = Surface.ALL) -> FastAPI:
    """An app that has its routes and no ports: enough to write ``openapi.yaml``."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for routes in _ALL if surface is Surface.ALL else (operations,):
        app.include_router(routes.router)
    return app
