"""The outermost layer, as plain ASGI: the request's id, the body's limit, and what becomes of unexpected errors."""

import asyncio
import logging
import re
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import problem_of
from app.errors import Draining, MalformedRequest, RequestError, TooLarge
from app.ports.clock import IdSource

_log: Final = logging.getLogger(__name__)
_SANE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_ARTIFACT: Final = re.compile(r"/sessions/[^/]+/artifacts/[^/]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyLimit:
    """How large a body may be, and what its sender is told past it."""

    limit_bytes: int
    what: str = "a request's body"
    code: str = TooLarge.code

    def error(self) -> TooLarge:
        return TooLarge(f"{self.what} has at most {self.limit_bytes} bytes", code=self.code)


class Edge:
    """Wraps the whole application. The limits hold for declared and for chunked bodies; an artifact's is its own."""

    def __init__(self, app: ASGIApp, *, ids: IdSource, max_request_bytes: int, max_artifact_bytes: int) -> None:
        self._app = app
        self._ids = ids
        self._requests = BodyLimit(limit_bytes=max_request_bytes)
        self._artifacts = BodyLimit(limit_bytes=max_artifact_bytes, what="an artifact", code="artifact_too_large")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = _as_get(scope)
        headers = Headers(scope=scope)
        answer = _Answer(send, request_id=self._choose_id(headers))
        scope.setdefault("state", {})["request_id"] = answer.request_id
        try:
            limit = self._limit_of(scope)
            _check_declared_length(headers, limit)
            await self._app(scope, _LimitedBody(receive, limit).receive, answer.send)
        except ClientDisconnect:
            return
        except asyncio.CancelledError:
            # The process goes away and waits no longer. What was asked for may have happened, so nothing is claimed.
            if answer.started:
                raise
            await self._answer_error(Draining("this process is going away"), answer, scope, receive)
        except Exception as error:  # noqa: BLE001 - the top of a request: whatever it was becomes an answer
            await self._answer_error(error, answer, scope, receive)

    async def _answer_error(self, error: Exception, answer: "_Answer", scope: Scope, receive: Receive) -> None:
        if not isinstance(error, RequestError):
            _log.error("request %s failed unexpectedly", answer.request_id, exc_info=error)
        if not answer.started:
            await problem_of(error, request_id=answer.request_id)(scope, receive, answer.send)

    def _choose_id(self, headers: Headers) -> str:
        given = headers.get("x-request-id", "")
        return given if _SANE_ID.fullmatch(given) else self._ids.new("req")

    def _limit_of(self, scope: Scope) -> BodyLimit:
        is_artifact = scope["method"] == "PUT" and _ARTIFACT.fullmatch(scope["path"])
        return self._artifacts if is_artifact else self._requests


def _check_declared_length(headers: Headers, limit: BodyLimit) -> None:
    declared = headers.get("content-length")
    if declared is None:
        return
    if not _DIGITS.fullmatch(declared):
        raise MalformedRequest("Content-Length is no number")
    if int(declared) > limit.limit_bytes:
        raise limit.error()


def _as_get(scope: Scope) -> Scope:
    """RFC 9110: HEAD is GET without the content, which the server leaves out. A stream has no end to wait for, so the
    answer is the one to a request that names no stream."""
    headers = [(name, value) for name, value in scope["headers"] if name != b"accept"]
    return {**scope, "method": "GET", "headers": headers}


class _LimitedBody:
    """Counts what arrives: a chunked body declares no length."""

    def __init__(self, receive: Receive, limit: BodyLimit) -> None:
        self._receive = receive
        self._limit = limit
        self._seen_bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        self._seen_bytes += len(message.get("body", b""))
        if self._seen_bytes > self._limit.limit_bytes:
            raise self._limit.error()
        return message


class _Answer:
    """Adds to every answer what every answer has."""

    def __init__(self, send: Send, *, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.request_id
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)
