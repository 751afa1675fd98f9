"""Bounds on how much a request may send before its content, how long it may take to arrive, and how long its answer may
lie untaken: the server library has none of them."""

import re
from asyncio import BaseTransport, TimerHandle, Transport
from collections.abc import Callable
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from app.wiring.refusals import refusal
from app.wiring.sockets import is_handshake

# As much as common proxies let through.
MAX_HEAD_BYTES: Final = 65_536
_LINGER_SECONDS: Final = 1.0
# Of a header: the colon and the end of the line.
_BYTES_AROUND: Final = 3


class BoundedProtocol(HttpToolsProtocol):
    """Ends a connection whose request is not wholly there within ``request_seconds`` of its first byte, or sends more
    than the bound that is no content: headers, trailers and what frames a chunk. One that asks nothing for so long, or
    takes nothing of its answers, is closed too. Make one by ``bounded_protocol``."""

    request_seconds = 30.0
    socket_path: re.Pattern[bytes] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._overhead_bytes = 0
        self._head_bytes = 0
        self._is_arriving = False
        self._is_in_head = True
        self._is_refused = False
        self._is_declined = False
        self._arrival: TimerHandle | None = None
        self._departure: TimerHandle | None = None

    # --- what arrives ---

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._expect()
        self._overhead_bytes += len(data)
        self._read(data)
        if self._overhead_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def _read(self, data: bytes) -> None:
        """As the library does, but for a request that asks for a protocol which is not spoken here: its content is read
        (RFC 9110, 7.8). The parser would take what follows the head for the other protocol's, and a part of that for
        the next request."""
        self._unset_keepalive_if_required()
        try:
            while data and not self._is_refused:
                try:
                    self.parser.feed_data(data)
                    return
                except httptools.HttpParserUpgrade as stopped:
                    if not self._is_declined:
                        if self._should_upgrade():
                            self.handle_websocket_upgrade()
                        return
                    self._is_declined = False
                    data = self._head_without_upgrade() + data[stopped.args[0] :]
                    # This one may have seen the last of its connection.
                    self.parser = httptools.HttpRequestParser(self)
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self._refuse(400, "this is no HTTP request")

    def _head_without_upgrade(self) -> bytes:
        line = b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([line, *headers, b"", b""])

    def on_message_begin(self) -> None:
        if self._is_refused:
            return
        self._is_arriving = self._is_in_head = True
        self._overhead_bytes = self._head_bytes = 0
        self._expect()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        super().on_url(url)

    def on_headers_complete(self) -> None:
        if self._head_bytes > MAX_HEAD_BYTES and not self._is_refused:
            # All of it came at once.
            self._refuse_head()
        if self._is_refused:
            return
        if self._declines_upgrade():
            self._is_declined = True
            return
        self._is_in_head = False
        self._overhead_bytes = 0
        super().on_headers_complete()
        if (latest := self._latest()) is not None:
            latest.transport = _ClosedGently(self.transport, self.close_gently)

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer is nobody's, and kept it would be one more header of a request that is being answered.
        if self._is_in_head and not self._is_refused:
            self._head_bytes += len(name) + len(value) + _BYTES_AROUND
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes = 0
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_refused or self._is_declined:
            return
        self._is_arriving = False
        self._overhead_bytes = 0
        self._stop_expecting()
        super().on_message_complete()

    def _declines_upgrade(self) -> bool:
        method = self.scope["method"] = self.parser.get_method().decode("ascii")
        # CONNECT is one without saying so.
        return self.parser.should_upgrade() and method != "CONNECT" and not self._should_upgrade()

    def _should_upgrade(self) -> bool:
        path = self.url.partition(b"?")[0]
        is_wanted = self.socket_path is not None and self.socket_path.fullmatch(path) is not None
        # A connection can't be another's while an earlier answer is on its way.
        before = self._latest()
        is_free = before is None or before.response_complete
        return is_wanted and is_free and super()._should_upgrade() and is_handshake(self.scope["method"], self.headers)

    def handle_websocket_upgrade(self) -> None:
        """From here on the connection is another protocol's: this one must not close it."""
        self._stop_expecting()
        self._stop_watching()
        super().handle_websocket_upgrade()

    def _expect(self) -> None:
        if self._arrival is None:
            self._arrival = self.loop.call_later(self.request_seconds, self._come_too_late)

    def _stop_expecting(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _come_too_late(self) -> None:
        self._arrival = None
        if self.flow.read_paused or self.pipeline or self._is_before_answered():
            # It is us who are slow, or the connection is in use.
            self._expect()
        elif self._is_arriving:
            told = f"the request was not wholly there within {self.request_seconds:g} seconds"
            self._refuse(408, told)
        else:
            self.transport.close()

    def _latest(self) -> RequestResponseCycle | None:
        """The newest request whose head was whole, and its answer."""
        return self.cycle

    def _is_latest_arriving(self) -> bool:
        return self._is_arriving and not self._is_in_head

    def _is_before_answered(self) -> bool:
        """Whether a request that came before what arrives now has no whole answer yet."""
        latest = self._latest()
        return not (latest is None or latest.response_complete or self._is_latest_arriving())

    # --- what is answered in the application's place ---

    def _refuse(self, status: int, detail: str) -> None:
        """Answers what is at fault, unless another answer is under way, and closes."""
        latest = self._latest()
        is_begun = self._is_latest_arriving() and latest is not None and latest.response_started
        if not (is_begun or self.pipeline or self._is_before_answered()):
            self.transport.write(refusal(status, detail))
        if latest is not None:
            latest.disconnected = True
            latest.message_event.set()
        self._linger()

    def _refuse_head(self) -> None:
        what = "line and headers are" if self._is_in_head else "trailers and framing are"
        self._refuse(431, f"the request's {what} over {MAX_HEAD_BYTES} bytes")

    def close_gently(self) -> None:
        """As the application closes, whose answer may come before the end of what it answers."""
        if self._is_arriving:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """What is still on its way is taken and dropped for a moment: closing on it at once would reset the connection,
        and the answer could be lost with it."""
        self._is_refused = True
        self._stop_expecting()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(_LINGER_SECONDS, self._part)

    def _part(self) -> None:
        self.transport.close()
        self._watch_departure()

    # --- what is taken of the answers ---

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_departure()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Not yet: some loops send what was written only when they come round again.
        self.loop.call_soon(self._watch_departure)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_departure()

    def _watch_departure(self) -> None:
        self._stop_watching()
        left_bytes = self.transport.get_write_buffer_size()
        if left_bytes:
            self._departure = self.loop.call_later(self.request_seconds, self._leave_if_untaken, left_bytes)

    def _stop_watching(self) -> None:
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None

    def _leave_if_untaken(self, before_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < before_bytes:
            self._watch_departure()
        else:
            self.transport.abort()


class _ClosedGently(Transport):
    """The connection as an answer writes to it."""

    def __init__(self, transport: Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._close = close

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._close()


def bounded_protocol(request_seconds: float, socket_path: re.Pattern[bytes] | None = None) -> type[BoundedProtocol]:
    """The protocol with its time, as the server library wants it: a class. Only at ``socket_path`` there are
    WebSockets."""
    made = {"request_seconds": request_seconds, "socket_path": socket_path}
    return type("BoundedProtocol", (BoundedProtocol,), made)
