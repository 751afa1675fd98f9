"""A bound on what a request may send before its content: the server library has none."""

import json
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# As much as common proxies let through.
MAX_HEAD_BYTES: Final = 65_536
_LINGER_SECONDS: Final = 1.0

_PROBLEM: Final = json.dumps(
    {
        "type": "urn:runwright:problem:request_head_too_large",
        "title": "Request header fields too large",
        "status": 431,
        "detail": f"the request's line and headers are over {MAX_HEAD_BYTES} bytes",
        "code": "request_head_too_large",
    }
).encode()
_ANSWER: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: application/problem+json\r\n"
    b"content-length: " + str(len(_PROBLEM)).encode() + b"\r\nconnection: close\r\n\r\n" + _PROBLEM
)


class BoundedHeadProtocol(HttpToolsProtocol):
    """Ends a connection whose request has not come to the end of its headers within the bound: a header is kept in
    memory until it is whole."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._is_in_head = True
        self._is_refused = False

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse()

    def _refuse(self) -> None:
        self._is_refused = True
        self.transport.write(_ANSWER)
        # What is still on its way is taken and dropped for a moment: closing on it at once would reset the connection,
        # and the answer could be lost with it.
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()
