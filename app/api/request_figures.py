"""Tells the figures of every request: which route, how it was answered, and when the answer began.

What it tells is bounded: a route is told by its template, and methods are those of HTTP.
"""

import time
from collections.abc import Sequence
from typing import Final, Protocol

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OTHER: Final = "other"
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REPLAYED: Final = (b"idempotency-replayed", b"true")


class RequestListener(Protocol):
    """Never raises, never blocks."""

    def request_answered(self, *, method: str, route: str, status: int, seconds: float) -> None:
        """``seconds`` from the request's head to the beginning of the answer: a stream's end is its reader's."""
        ...

    def request_replayed(self) -> None:
        """It was answered as an earlier request with its Idempotency-Key."""
        ...

    def events_replayed(self, count: int) -> None:
        """A reader was sent so many events that had been stored before it came."""
        ...


class NobodyListens:
    """Satisfies RequestListener."""

    def request_answered(self, *, method: str, route: str, status: int, seconds: float) -> None: ...

    def request_replayed(self) -> None: ...

    def events_replayed(self, count: int) -> None: ...


class RequestFigures:
    """The outermost layer: also what the layers below refuse is counted. A request whose client left before there was
    an answer is not."""

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute], listener: RequestListener) -> None:
        self._app = app
        self._routes = routes
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at = time.monotonic()

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._tell(scope, message, seconds=time.monotonic() - began_at)
            await send(message)

        await self._app(scope, receive, send_on)

    def _tell(self, scope: Scope, start: Message, *, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._listener.request_answered(
            method=method, route=self._template(scope), status=start["status"], seconds=seconds
        )
        if _REPLAYED in start["headers"]:
            self._listener.request_replayed()

    def _template(self, scope: Scope) -> str:
        route = scope.get("route") or self._search(scope)
        return getattr(route, "path", OTHER)

    def _search(self, scope: Scope) -> BaseRoute | None:
        """For what was refused before it was routed, and for HEAD, which is routed as another request."""
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        return next((route for route in self._routes if route.matches(asked)[0] is not Match.NONE), None)
