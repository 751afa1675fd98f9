"""The outermost layer, as plain ASGI: the request's id, the body's limit, and what becomes of unexpected errors."""

import asyncio
import contextlib
import logging
import re
from dataclasses import dataclass
from typing import Final

from starlette import status
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from app.api.problems import problem_of
from app.errors import Draining, MalformedRequest, NotFound, RequestError, TooLarge
from app.ports.clock import IdSource

_log: Final = logging.getLogger(__name__)
_SANE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_BEGINNINGS: Final = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
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
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope.get("method") == "HEAD":
            scope = _as_get(scope)
        headers = Headers(scope=scope)
        answer = Answer(send, request_id=choose_id(headers, self._ids))
        scope.setdefault("state", {})["request_id"] = answer.request_id
        try:
            if scope["type"] == "http":
                limit = self._limit_of(scope)
                _check_declared_length(headers, limit)
                receive = _LimitedBody(receive, limit).receive
            await self._app(scope, receive, answer.send)
        except (ClientDisconnect, WebSocketDisconnect):
            return
        except asyncio.CancelledError:
            # The process goes away and waits no longer. What was asked for may have happened, so nothing is claimed.
            if answer.is_open_socket:
                await answer.close(status.WS_1001_GOING_AWAY)
                return
            if answer.started:
                raise
            await self._answer_error(Draining("this process is going away"), answer, scope, receive)
        except Exception as error:  # noqa: BLE001 - the top of a request: whatever it was becomes an answer
            await self._answer_error(error, answer, scope, receive)

    async def _answer_error(self, error: Exception, answer: "Answer", scope: Scope, receive: Receive) -> None:
        if not isinstance(error, RequestError):
            _log.error("request %s failed unexpectedly", answer.request_id, exc_info=error)
        if answer.is_open_socket:
            await answer.close(status.WS_1011_INTERNAL_ERROR)
        elif not answer.started:
            with contextlib.suppress(WebSocketDisconnect):
                await problem_of(error, request_id=answer.request_id)(scope, receive, answer.send)

    def _limit_of(self, scope: Scope) -> BodyLimit:
        is_artifact = scope["method"] == "PUT" and _ARTIFACT.fullmatch(scope["path"])
        return self._artifacts if is_artifact else self._requests


def choose_id(headers: Headers, ids: IdSource) -> str:
    """The request's id: its client's, where that is a sane one."""
    given = headers.get("x-request-id", "")
    return given if _SANE_ID.fullmatch(given) else ids.new("req")


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


class Answer:
    """Adds to every answer what every answer has. ``is_open_socket``: a WebSocket was accepted, and is not closed."""

    def __init__(self, send: Send, *, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.started = False
        self.is_open_socket = False

    async def send(self, message: Message) -> None:
        if message["type"] in _BEGINNINGS:
            self.started = True
            self.is_open_socket = message["type"] == "websocket.accept"
            message.setdefault("headers", [])
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.request_id
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        if message["type"] == "websocket.close":
            if not self.started:
                # No route of ours closes what it has not accepted: there is none.
                raise NotFound("there is nothing at this address")
            self.is_open_socket = False
        try:
            await self._send(message)
        except OSError:
            # So the server says that a WebSocket's client has left, also before it was answered.
            raise WebSocketDisconnect(status.WS_1006_ABNORMAL_CLOSURE) from None

    async def close(self, code: int) -> None:
        """Of a WebSocket. Its client may have left."""
        with contextlib.suppress(WebSocketDisconnect):
            await self.send({"type": "websocket.close", "code": code, "reason": ""})
