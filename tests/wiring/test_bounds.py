"""What a request may send before its content is bounded."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from app.wiring.bounds import MAX_HEAD_BYTES, BoundedHeadProtocol


async def _hello(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@pytest.fixture
def port() -> Iterator[int]:
    config = uvicorn.Config(
        _hello, port=0, http=BoundedHeadProtocol, lifespan="off", log_config=None, timeout_keep_alive=1
    )
    server = uvicorn.Server(config)

    # It listens already, so whoever connects before it serves is served then.
    config_socket = config.bind_socket()
    config_socket.listen()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[config_socket])))
    thread.start()
    yield config_socket.getsockname()[1]
    server.should_exit = True
    thread.join()


async def _exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


async def test_a_request_within_the_bound_is_answered(port: int) -> None:
    answer = await _exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


async def test_headers_without_an_end_are_cut_off_with_a_problem(port: int) -> None:
    answer = await _exchange(port, b"GET / HTTP/1.1\r\nx: " + b"a" * (8 * MAX_HEAD_BYTES))
    assert answer.startswith(b"HTTP/1.1 431")
    assert b'"code": "request_head_too_large"' in answer


async def test_a_large_content_is_no_large_head(port: int) -> None:
    size = 8 * MAX_HEAD_BYTES
    head = f"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n".encode()
    assert (await _exchange(port, head + b"a" * size)).startswith(b"HTTP/1.1 200")
