"""What a request may send before its content, how long it may take to arrive, and how long its answer may lie."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from app.wiring.bounds import MAX_HEAD_BYTES, bounded_protocol

REQUEST_SECONDS = 0.4
LONGER_SECONDS = 2 * REQUEST_SECONDS
# Whoever is not to be cut off must not be where the machine has much else to do.
PATIENT_SECONDS = 30.0
LEISURELY_SECONDS = 2.0
GET = b"GET / HTTP/1.1\r\nhost: x\r\n"
LAST = b"connection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
MEBIBYTE = 2**20
# As Java's client does by itself; and what nobody may take for a request of its own.
OTHER = b"host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n"
INNER = GET + b"\r\n"
ASKING_POST = b"POST / HTTP/1.1\r\n" + OTHER + b"content-length: %d\r\n\r\n" % len(INNER)


@dataclass
class Hello:
    """Reads a request and answers it: ``/slow`` after a while, ``/large`` with 32 MiB, ``/whole`` with as much in one
    piece, ``/early`` before it is read."""

    has_left: threading.Event = field(default_factory=threading.Event)
    headers: list[bytes] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces, piece = {"/large": (32, MEBIBYTE), "/whole": (1, 32 * MEBIBYTE)}.get(scope["path"], (0, 0))
        content = b""
        if scope["path"] != "/early":
            while (message := await receive()).get("more_body"):
                content += message["body"]
            content += message.get("body", b"")
        self.contents.append(content)
        if scope["path"] == "/slow":
            await asyncio.sleep(LONGER_SECONDS)
        self.headers += [name for name, _ in scope["headers"]]
        length = str(2 + pieces * piece).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for _ in range(pieces):
            await send({"type": "http.response.body", "body": b"x" * piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"hi"})
        if pieces:
            self.has_left.set()


@pytest.fixture
def hello() -> Hello:
    return Hello()


@pytest.fixture
def request_seconds() -> float:
    return REQUEST_SECONDS


@pytest.fixture
def port(hello: Hello, request_seconds: float) -> Iterator[int]:
    config = uvicorn.Config(
        hello,
        port=0,
        http=bounded_protocol(request_seconds),
        lifespan="off",
        log_config=None,
        timeout_keep_alive=max(1, int(request_seconds)),
        timeout_graceful_shutdown=5,
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


@asynccontextmanager
async def _connect(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _exchange(port: int, *pieces: bytes, every: float = 0.0) -> bytes:
    """All that is answered until the connection is closed, while the pieces are sent one after the other."""
    async with _connect(port) as (reader, writer):
        sending = asyncio.create_task(_drip(writer, pieces, every))
        answer = await asyncio.wait_for(reader.read(), 10)
        await asyncio.wait_for(sending, 10)
        return answer


async def _drip(writer: asyncio.StreamWriter, pieces: Sequence[bytes], every: float) -> None:
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(every)


async def _read_slowly(reader: asyncio.StreamReader) -> int:
    """The number of bytes, taken mebibyte by mebibyte over one and a half times the limit."""
    count = 0
    with contextlib.suppress(asyncio.IncompleteReadError):
        while piece := await reader.readexactly(MEBIBYTE):
            count += len(piece)
            await asyncio.sleep(1.5 * LEISURELY_SECONDS / 32)
    return count


def _send_all_and_read(port: int, request: bytes) -> bytes:
    """As most clients do: who can't send any more has lost what was answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def _code(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["code"])


# --- sizes ---


async def test_a_request_within_the_bound_is_answered(port: int) -> None:
    assert (await _exchange(port, GET + LAST)).startswith(b"HTTP/1.1 200")


async def test_headers_without_an_end_are_cut_off_with_a_problem(port: int) -> None:
    answer = await _exchange(port, GET + b"x: " + b"a" * (8 * MAX_HEAD_BYTES))
    assert (answer[:12], _code(answer)) == (b"HTTP/1.1 431", "request_head_too_large")


async def test_many_small_headers_are_cut_off_as_a_large_one_is(port: int) -> None:
    answer = await _exchange(port, GET + b"x:y\r\n" * MAX_HEAD_BYTES)
    assert (answer[:12], _code(answer)) == (b"HTTP/1.1 431", "request_head_too_large")


async def test_a_large_head_that_comes_at_once_with_its_end_is_refused(port: int) -> None:
    answer = await _exchange(port, GET + b"x: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n" + GET + LAST)
    assert (answer[:12], _code(answer)) == (b"HTTP/1.1 431", "request_head_too_large")


async def test_a_head_just_within_the_bound_is_answered(port: int) -> None:
    answer = await _exchange(port, GET + b"x: " + b"a" * (MAX_HEAD_BYTES - 100) + b"\r\n" + LAST)
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_large_content_is_no_large_head(port: int) -> None:
    size = 8 * MAX_HEAD_BYTES
    head = POST + f"content-length: {size}\r\n\r\n".encode()
    assert (await _exchange(port, head + b"a" * size)).startswith(b"HTTP/1.1 200")


async def test_trailers_without_an_end_are_cut_off(port: int) -> None:
    answer = await _exchange(port, CHUNKED + b"1\r\na\r\n0\r\n" + b"x: y\r\n" * (4 * MAX_HEAD_BYTES))
    assert (answer[:12], _code(answer)) == (b"HTTP/1.1 431", "request_head_too_large")


async def test_an_extension_of_a_chunk_without_an_end_is_cut_off(port: int) -> None:
    answer = await _exchange(port, CHUNKED + b"1;" + b"x" * (8 * MAX_HEAD_BYTES))
    assert (answer[:12], _code(answer)) == (b"HTTP/1.1 431", "request_head_too_large")


async def test_a_trailer_is_no_header(port: int, hello: Hello) -> None:
    await _exchange(port, CHUNKED + b"0\r\nauthorization: x\r\n\r\n")
    assert hello.headers == [b"host", b"connection", b"transfer-encoding"]


# --- arrival ---


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(GET, id="in the head"),
        pytest.param(POST + b"content-length: 10\r\n\r\nhalf", id="in the body"),
        pytest.param(CHUNKED + b"4\r\nhalf\r\n", id="between two chunks"),
        pytest.param(CHUNKED + b"0\r\nx: y\r\n", id="in the trailers"),
    ],
)
async def test_a_request_that_stops_on_its_way_is_timed_out(port: int, request_: bytes) -> None:
    answer = await _exchange(port, request_)
    assert (answer[:12], _code(answer)) == (b"HTTP/1.1 408", "request_timeout")


async def test_a_head_that_trickles_is_timed_out(port: int) -> None:
    answer = await _exchange(port, GET, *[b"x: y\r\n"] * 10, every=REQUEST_SECONDS / 5)
    assert answer.startswith(b"HTTP/1.1 408")


async def test_a_body_that_trickles_is_timed_out(port: int) -> None:
    head = POST + b"content-length: 1000\r\n\r\n"
    assert (await _exchange(port, head, *[b"a"] * 10, every=REQUEST_SECONDS / 5)).startswith(b"HTTP/1.1 408")


async def test_a_connection_that_asks_nothing_is_closed(port: int) -> None:
    assert await _exchange(port) == b""


async def test_a_connection_that_sends_only_empty_lines_is_closed(port: int) -> None:
    assert await _exchange(port, *[b"\r\n"] * 10, every=REQUEST_SECONDS / 5) == b""


async def test_a_request_may_take_longer_to_be_answered_than_to_arrive(port: int) -> None:
    assert (await _exchange(port, b"GET /slow HTTP/1.1\r\nhost: x\r\n" + LAST)).startswith(b"HTTP/1.1 200")


async def test_an_empty_line_behind_a_request_does_not_end_its_answer(port: int) -> None:
    answer = await _exchange(port, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


async def test_half_a_request_behind_another_waits_for_the_others_answer(port: int) -> None:
    answer = await _exchange(port, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n" + GET)
    first, _, second = answer.partition(b"\r\n\r\nhi")
    assert (first[:12], second[:12]) == (b"HTTP/1.1 200", b"HTTP/1.1 408")


async def test_a_body_that_nobody_waits_for_any_more_gets_no_second_answer(port: int) -> None:
    answer = await _exchange(port, b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
    assert (answer[:12], answer[-6:]) == (b"HTTP/1.1 200", b"\r\n\r\nhi")


async def test_an_answer_that_comes_before_the_end_of_its_request_is_not_lost(port: int) -> None:
    head = b"POST /early HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 50000000\r\n\r\n"
    answer = await asyncio.to_thread(_send_all_and_read, port, head + b"x" * (20 * MEBIBYTE))
    assert (answer[:12], answer[-6:]) == (b"HTTP/1.1 200", b"\r\n\r\nhi")


# --- what is no HTTP ---


async def test_what_is_no_request_is_answered_with_a_problem(port: int) -> None:
    answer = await _exchange(port, b"\x16\x03\x01 hello\r\n\r\n")
    assert (answer[:12], _code(answer)) == (b"HTTP/1.1 400", "malformed_request")


async def test_what_is_no_request_is_not_answered_in_the_place_of_one_before_it(port: int) -> None:
    assert await _exchange(port, b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n\x16\x03\x01\r\n\r\n") == b""


@pytest.mark.parametrize("request_seconds", [PATIENT_SECONDS])
@pytest.mark.parametrize(
    "pieces",
    [
        (ASKING_POST + INNER, GET + LAST),
        (ASKING_POST, INNER, GET + LAST),
        (ASKING_POST[:50], ASKING_POST[50:] + INNER[:10], INNER[10:] + GET + LAST),
        (ASKING_POST + INNER + GET + LAST,),
    ],
)
async def test_the_content_of_who_asks_for_another_protocol_is_content(
    port: int, hello: Hello, pieces: Sequence[bytes]
) -> None:
    answer = await _exchange(port, *pieces, every=0.05)
    assert (answer.count(b"HTTP/1.1 200"), hello.contents) == (2, [INNER, b""])


async def test_who_asks_for_another_protocol_may_close_behind_the_answer(port: int) -> None:
    lines = b"host: x\r\nconnection: upgrade, close\r\nupgrade: h2c\r\n\r\n"
    assert (await _exchange(port, b"GET / HTTP/1.1\r\n" + lines)).startswith(b"HTTP/1.1 200")


async def test_many_who_ask_for_another_protocol_at_once_are_all_answered(port: int) -> None:
    asking = b"GET / HTTP/1.1\r\n" + OTHER + b"\r\n"
    assert (await _exchange(port, asking * 300 + GET + LAST)).count(b"HTTP/1.1 200") == 301


async def test_a_large_head_that_asks_for_another_protocol_is_refused(port: int) -> None:
    head = b"GET / HTTP/1.1\r\n" + OTHER + b"x: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n"
    assert _code(await _exchange(port, head)) == "request_head_too_large"


# --- departure ---


async def test_a_reader_that_takes_nothing_loses_its_connection(port: int, hello: Hello) -> None:
    async with _connect(port) as (_, writer):
        writer.write(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await asyncio.to_thread(hello.has_left.wait, 10)


@pytest.mark.parametrize("request_seconds", [LEISURELY_SECONDS])
@pytest.mark.parametrize("path", [b"/large", b"/whole"])
async def test_a_reader_that_takes_a_little_at_a_time_gets_all_of_it(port: int, path: bytes) -> None:
    async with _connect(port) as (reader, writer):
        writer.write(b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n" + LAST)
        assert await _read_slowly(reader) == 32 * MEBIBYTE
