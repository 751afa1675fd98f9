"""WebSocket connections as this service wants them: refusals are problems, no address is logged, and whoever takes
nothing is cut off. The server library bounds none of it."""

import logging
import re
from asyncio import Task, TimerHandle
from collections.abc import Sequence
from typing import Any, Final

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidHandshake, InvalidMessage
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request

from app.wiring.refusals import refusal

MAX_MESSAGE_BYTES: Final = 4_096
_MAX_FRAGMENTS: Final = 64
# A client has little to say beside answers to pings. The smallest frames cost as much as others, and of these there are
# thousands in what arrives at once.
_MOST_FRAMES: Final = 256
_FRAMES_PER_SECOND: Final = 16
_PIECE_BYTES: Final = 1_024
_CLOSE_SECONDS: Final = 5.0
_KEY: Final = re.compile(rb"[A-Za-z0-9+/]{22}==")
_NO_REQUEST: Final = "this is no HTTP request"
_ONCE: Final = ("Origin", "Host")

# The library's own logger tells the whole address of each connection, in which a ticket may stand.
_log: Final = logging.getLogger(__name__)
_log.setLevel(logging.WARNING)


def is_handshake(method: str, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request asks for a WebSocket in the way of RFC 6455, 4.2.1. One that does not is a request as any
    other."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    keys = values.get(b"sec-websocket-key", [])
    return (
        method == "GET"
        and [value.lower() for value in values.get(b"upgrade", [])] == [b"websocket"]
        and values.get(b"sec-websocket-version") == [b"13"]
        and len(keys) == 1
        and _KEY.fullmatch(keys[0]) is not None
        and not values.keys() & {b"content-length", b"transfer-encoding"}
    )


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class BoundedSocket(WebSocketsSansIOProtocol):
    """What the application leaves to the connection: the handshake's own refusals, pings, and the end. Make one by
    ``bounded_socket``."""

    request_seconds = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = self.conn.logger = _log
        self.conn.debug = False
        self.close_timeout = min(_CLOSE_SECONDS, self.request_seconds)
        self._departure: TimerHandle | None = None
        self._has_failed = False
        self._frames_free = float(_MOST_FRAMES)
        self._counted_at = self.loop.time()

    # --- the handshake ---

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated:
            self._take_frames(data)
            return
        try:
            super().data_received(data)
        except UnicodeError:
            # The address of a request is ASCII.
            self._refuse(400, _NO_REQUEST)
        if not self.handshake_initiated:
            # Its head comes at once, so there is nothing to wait for.
            if isinstance(self.conn.handshake_exc, InvalidMessage):
                self._refuse(400, _NO_REQUEST)
            else:
                self._refuse(431, "the request's line, a header, or the number of headers is over what is taken")

    def handle_connect(self, event: Request) -> None:
        if any(len(event.headers.get_all(name)) > 1 for name in _ONCE):
            self._refuse(400, "a header that there is one of was sent twice")
            return
        try:
            self.conn.process_request(event)
        except InvalidHandshake:
            # What the library would answer is no problem of ours.
            self._refuse(400, "the handshake can't be read")
            return
        super().handle_connect(event)

    def _refuse(self, status: int, detail: str) -> None:
        if not self.close_sent:
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            self.transport.write(refusal(status, detail))
            self._leave()

    # --- what the client sends ---

    def _take_frames(self, data: bytes) -> None:
        if not self.handshake_complete:
            # RFC 6455, 4.1: a client waits for the answer. The library could not even close properly here.
            self.transport.abort()
            return
        for start in range(0, len(data), _PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + _PIECE_BYTES])

    def handle_events(self) -> None:
        if self._has_room_for(len(self.conn.events)):
            super().handle_events()
        else:
            self._fail(CloseCode.POLICY_VIOLATION, "too much was sent")

    def _has_room_for(self, frames: int) -> bool:
        now = self.loop.time()
        free = self._frames_free + _FRAMES_PER_SECOND * (now - self._counted_at)
        self._frames_free, self._counted_at = min(_MOST_FRAMES, free) - frames, now
        return self._frames_free >= 0

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            # The library would tell the log, with where in the text it is wrong.
            self._fail(CloseCode.INVALID_DATA, "no UTF-8")
        else:
            super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        answers = self.conn.data_to_send()
        # RFC 6455, 5.5.3: of several pings the last one may be answered alone. Who takes nothing gets no more.
        if self.writable.is_set():
            self.transport.write(b"".join(answers))

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < _MAX_FRAGMENTS:
            super().handle_cont(event)
        else:
            # Empty ones cost nothing to send, and would be kept.
            self._fail(CloseCode.MESSAGE_TOO_BIG, "too many fragments")

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.conn.fail(code, reason)
        if not self.close_sent:
            self.handle_parser_exception()

    # --- the end ---

    async def send(self, message: ASGISendEvent) -> None:
        if self._has_failed:
            # The library would call it a fault of the application, which has not heard of it yet.
            raise ClientDisconnected
        await super().send(message)

    def shutdown(self) -> None:
        """The application was told to drain, says farewell with a reason of its own, and is cut off where it does
        not."""
        if self.close_sent:
            super().shutdown()

    def keepalive_timeout(self) -> None:
        self._has_failed = True
        super().keepalive_timeout()
        self.transport.abort()

    def handle_parser_exception(self) -> None:
        self._has_failed = True
        super().handle_parser_exception()
        self._watch_departure()

    def on_task_complete(self, task: Task[None]) -> None:
        super().on_task_complete(task)
        if not self.close_sent and self.transport.get_write_buffer_size():
            # The application could not even say farewell.
            self.transport.abort()
        else:
            self._watch_departure()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._departure is not None:
            self._departure.cancel()
        super().connection_lost(exc)

    def _leave(self) -> None:
        self.transport.close()
        self._watch_departure()

    def _watch_departure(self) -> None:
        """What was written last may lie untaken, and a connection closes only behind it."""
        if self._departure is None and not self.disconnected:
            self._departure = self.loop.call_later(self.request_seconds, self.transport.abort)


def bounded_socket(request_seconds: float) -> type[BoundedSocket]:
    """The protocol with its time, as the server library wants it: a class."""
    return type("BoundedSocket", (BoundedSocket,), {"request_seconds": request_seconds})
