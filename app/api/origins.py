"""Who may connect from a web page. A browser lets any page open a WebSocket, and says in ``Origin`` whose it is
(RFC 6455, 10.2)."""

from collections.abc import Collection
from typing import Final

from starlette.requests import HTTPConnection

from app.errors import Forbidden

_SCHEMES: Final = {"ws": "http", "wss": "https", "http": "http", "https": "https"}
_USUAL_PORTS: Final = {"http": ":80", "https": ":443"}


def check_origin(connection: HTTPConnection, allowed: Collection[str]) -> None:
    """Lets pages of this service's own origin and of the listed ones in, and whoever is no browser. Raises Forbidden
    (``origin_not_allowed``)."""
    origins = connection.headers.getlist("origin")
    if not origins:
        return
    scheme = _SCHEMES[connection.scope["scheme"]]
    own = f"{scheme}://{connection.headers.get('host', '').lower().removesuffix(_USUAL_PORTS[scheme])}"
    if len(origins) > 1 or origins[0].lower() not in {own, *allowed}:
        raise Forbidden("pages of that origin may not connect", code="origin_not_allowed")
