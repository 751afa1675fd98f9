"""Pages of other origins that may read this service: those that the operator lists (the Fetch standard, CORS).

Nothing here is sent with cookies, so a page of any other origin can do no more than a program without a key.
"""

from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.middleware import Answer, choose_id
from app.api.problems import problem
from app.ports.clock import IdSource

_METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_TAKEN: Final = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "Prefer", "X-Request-Id")
_TOLD: Final = (
    "Artifact-Version",
    "Content-Disposition",
    "Content-Location",
    "ETag",
    "Idempotency-Replayed",
    "Location",
    "Preference-Applied",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-Id",
)


class Cors(CORSMiddleware):
    """Goes around ``Edge``, so that pages can read problems, too. Preflights end here; one of an origin that is not
    listed is a problem as any other."""

    def __init__(self, app: ASGIApp, *, ids: IdSource, origins: Collection[str]) -> None:
        super().__init__(app, allow_origins=origins, allow_methods=_METHODS, allow_headers=_TAKEN, expose_headers=_TOLD)
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        is_preflight = (
            scope["type"] == "http"
            and scope["method"] == "OPTIONS"
            and "origin" in headers
            and "access-control-request-method" in headers
        )
        if not is_preflight:
            await super().__call__(scope, receive, send)
            return
        answer = Answer(send, request_id=choose_id(headers, self._ids))
        await self._answer_preflight(headers["origin"], answer.request_id)(scope, receive, answer.send)

    def _answer_preflight(self, origin: str, request_id: str) -> Response:
        if not self.is_allowed_origin(origin):
            vary = {"Vary": self.preflight_headers["Vary"]}
            told = "pages of that origin may not read this service"
            return problem(request_id, "origin_not_allowed", told, status=403, headers=vary)
        # Whether the method and the headers are among these is the browser's to see.
        return Response(status_code=204, headers={**self.preflight_headers, "Access-Control-Allow-Origin": origin})
