"""WebSocket connections at their edges: what becomes one, what is refused, and when one is cut."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected

from app.api import SOCKET_PATH
from app.wiring.bounds import bounded_protocol
from app.wiring.sockets import MAX_MESSAGE_BYTES, bounded_socket

PATH = "/runs/run_1/ws"
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")
WHOLE = (*UPGRADE, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
REQUEST_SECONDS = 0.5
TEXT, CONTINUATION, CLOSE, PING, PONG = 1, 0, 8, 9, 10


@dataclass
class Spoken:
    """An application that accepts every WebSocket and waits for its end; ``sends`` first, then one text more, as one
    does that has not heard of the end yet. Over HTTP it answers 200."""

    sends: list[str] = field(default_factory=list)
    late: type[BaseException] | None = None
    kinds: list[str] = field(default_factory=list)
    heard: list[str | None] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    accepts: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.accepts.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.kinds.append(scope["type"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        await receive()
        self.asked.set()
        try:
            await self.accepts.wait()
            await send({"type": "websocket.accept"})
            async with asyncio.timeout(2):
                for text in self.sends:
                    await send({"type": "websocket.send", "text": text})
            while (message := await receive())["type"] != "websocket.disconnect":
                self.heard.append(message.get("text"))
            await send({"type": "websocket.send", "text": "late"})
        except OSError as error:
            self.late = type(error)
        finally:
            self.ended.set()


@dataclass
class Wire:
    """A client's connection, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, *lines: str, method: str = "GET", path: str = PATH, body: bytes = b"") -> int:
        """Sends a request; the status of its answer, whose head is read."""
        self.ask_for(*lines, method=method, path=path, body=body)
        return await self.status()

    def ask_for(self, *lines: str, method: str = "GET", path: str = PATH, body: bytes = b"") -> None:
        """The same without waiting for the answer."""
        head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines])
        self.writer.write(f"{head}\r\n\r\n".encode() + body)

    async def status(self) -> int:
        async with asyncio.timeout(5):
            head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1])

    def say(self, opcode: int, payload: bytes = b"", *, is_last: bool = True) -> None:
        """A frame as clients send it: masked, by zeros."""
        self.say_often(1, opcode, payload, is_last=is_last)

    def say_often(self, times: int, opcode: int, payload: bytes = b"", *, is_last: bool = True) -> None:
        """The same over and over, in one piece: of what comes behind a connection's end the system would tell the
        client by a reset, and what was said to it before that would be lost."""
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
        frame = bytes([opcode | (0x80 if is_last else 0)]) + length + bytes(4) + payload
        self.writer.write(times * frame)

    async def hear(self) -> tuple[int, bytes]:
        """The next frame: its opcode and its payload, of at most 125 bytes."""
        async with asyncio.timeout(5):
            first, length = await self.reader.readexactly(2)
            return first & 0x0F, await self.reader.readexactly(length)

    async def end(self) -> bytes:
        """What comes until the connection ends."""
        rest = b""
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                while piece := await self.reader.read(65_536):
                    rest += piece
        return rest


@pytest.fixture
def spoken() -> Spoken:
    return Spoken()


@pytest.fixture
async def server(spoken: Spoken) -> AsyncIterator[uvicorn.Server]:
    config = uvicorn.Config(
        spoken,
        port=0,
        http=bounded_protocol(REQUEST_SECONDS, SOCKET_PATH),
        ws=bounded_socket(REQUEST_SECONDS),
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=0.2,
        ws_ping_timeout=REQUEST_SECONDS,
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:  # noqa: ASYNC110 - the library tells nobody
        await asyncio.sleep(0.01)
    yield server
    server.should_exit = True
    await serving
    listening.close()


@pytest.fixture
async def wire(server: uvicorn.Server) -> AsyncIterator[Wire]:
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield Wire(reader, writer)
    writer.transport.abort()


async def test_a_whole_handshake_at_the_right_place_makes_a_websocket(wire: Wire, spoken: Spoken) -> None:
    assert (await wire.ask(*WHOLE), spoken.kinds) == (101, ["websocket"])


@pytest.mark.parametrize(
    "path", ["/", "/livez", "/runs", "/runs/run_1", "/runs/run_1/ws/", "/runs/a/b/ws", f"/x{PATH}"]
)
async def test_everywhere_else_another_protocol_is_not_spoken(wire: Wire, spoken: Spoken, path: str) -> None:
    assert (await wire.ask(*WHOLE, path=path), spoken.kinds) == (200, ["http"])


@pytest.mark.parametrize(
    "lines",
    [
        WHOLE[:3],
        (*UPGRADE, WHOLE[3]),
        (*UPGRADE, "Sec-WebSocket-Version: 8", WHOLE[3]),
        (*WHOLE[:3], "Sec-WebSocket-Key: short"),
        (*WHOLE, WHOLE[3]),
        (*WHOLE, WHOLE[2]),
        ("Connection: Upgrade", "Upgrade: h2c", *WHOLE[2:]),
        (*WHOLE, "Upgrade: h2c"),
        (*WHOLE, "Content-Length: 0"),
        ("Upgrade: websocket", *WHOLE[2:]),
    ],
)
async def test_half_a_handshake_is_a_request_as_any_other(wire: Wire, spoken: Spoken, lines: tuple[str, ...]) -> None:
    assert (await wire.ask(*lines), spoken.kinds) == (200, ["http"])


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS"])
async def test_only_get_asks_for_a_websocket(wire: Wire, spoken: Spoken, method: str) -> None:
    assert (await wire.ask(*WHOLE, method=method), spoken.kinds) == (200, ["http"])


async def test_a_connection_that_was_used_before_can_become_one(wire: Wire, spoken: Spoken) -> None:
    assert [await wire.ask(path="/"), await wire.ask(*WHOLE)] == [200, 101]
    assert spoken.kinds == ["http", "websocket"]


async def test_a_connection_with_an_answer_on_its_way_can_not(wire: Wire, spoken: Spoken) -> None:
    first = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    second = "\r\n".join([f"GET {PATH} HTTP/1.1", "Host: x", *WHOLE])
    wire.writer.write(f"{first}{second}\r\n\r\n".encode())
    assert [await wire.status(), await wire.status()] == [200, 200]
    assert spoken.kinds == ["http", "http"]


@pytest.mark.parametrize("path", [f"{PATH}?after={'1' * 9_000}"])
async def test_a_line_that_is_too_long_is_refused_by_a_problem(wire: Wire, path: str) -> None:
    assert await wire.ask(*WHOLE, path=path) == 431
    assert json.loads(await wire.end())["code"] == "request_head_too_large"


@pytest.mark.parametrize("lines", [[f"X: {'x' * 9_000}"], [f"X{number}: x" for number in range(130)]])
async def test_headers_that_are_too_many_are_refused_by_a_problem(wire: Wire, lines: list[str]) -> None:
    assert await wire.ask(*WHOLE, *lines) == 431
    assert json.loads(await wire.end())["code"] == "request_head_too_large"


@pytest.mark.parametrize("line", ["Origin: https://a.example", "Host: y"])
async def test_what_may_be_said_once_is_refused_when_it_is_said_twice(wire: Wire, line: str) -> None:
    assert await wire.ask(*WHOLE, line, line) == 400
    assert json.loads(await wire.end())["code"] == "malformed_request"


async def test_no_line_of_the_log_has_the_address(wire: Wire, caplog: pytest.LogCaptureFixture, loud: None) -> None:
    await wire.ask(*WHOLE, path=f"{PATH}?ticket=a-secret")
    wire.say(TEXT, b"another-secret")
    wire.say(CLOSE, b"\x03\xe8")
    await wire.end()
    assert "secret" not in caplog.text


@pytest.fixture
def loud(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, logger="uvicorn.error"):
        yield


async def test_a_reader_is_pinged_and_one_that_answers_stays(wire: Wire, spoken: Spoken) -> None:
    await wire.ask(*WHOLE)
    for _ in range(4):
        opcode, payload = await wire.hear()
        assert opcode == PING
        wire.say(PONG, payload)
    assert not spoken.ended.is_set()


async def test_a_reader_that_answers_no_ping_is_cut(wire: Wire, spoken: Spoken) -> None:
    await wire.ask(*WHOLE)
    await wire.end()
    async with asyncio.timeout(5):
        await spoken.ended.wait()


async def test_pings_of_who_takes_nothing_are_not_kept(wire: Wire, server: uvicorn.Server, spoken: Spoken) -> None:
    spoken.sends = ["x" * 200_000] * 50
    await wire.ask(*WHOLE)
    [connection] = server.server_state.connections
    before = connection.transport.get_write_buffer_size()
    wire.say_often(200, PING, b"y" * 120)
    await wire.writer.drain()
    await asyncio.sleep(0.1)
    assert connection.transport.get_write_buffer_size() <= before + 1_000


@pytest.mark.parametrize(("opcode", "payload"), [(TEXT, b"x"), (PING, b""), (CLOSE, b"\x03\xe8"), (3, b"")])
async def test_who_does_not_wait_for_the_answer_is_cut(
    wire: Wire, spoken: Spoken, caplog: pytest.LogCaptureFixture, opcode: int, payload: bytes
) -> None:
    spoken.accepts.clear()
    wire.ask_for(*WHOLE)
    await spoken.asked.wait()
    wire.say(opcode, payload)
    assert await wire.end() == b""
    spoken.accepts.set()
    async with asyncio.timeout(5):
        await spoken.ended.wait()
    assert caplog.records == []


@pytest.mark.parametrize("opcode", [TEXT, PING, PONG])
async def test_who_floods_it_with_small_frames_is_cut_off(wire: Wire, spoken: Spoken, opcode: int) -> None:
    await wire.ask(*WHOLE)
    wire.say_often(300, opcode)
    close = (await wire.end()).partition(b"\x88")[2]
    assert (int.from_bytes(close[1:3], "big"), close[3:]) == (1008, b"too much was sent")
    assert len(spoken.heard) <= 256


@pytest.mark.parametrize(("opcode", "payload"), [(TEXT, b"\xff"), (3, b""), (CLOSE, b"\x03\xe8")])
async def test_an_application_that_is_still_sending_then_is_told_that_its_client_has_left(
    wire: Wire, spoken: Spoken, caplog: pytest.LogCaptureFixture, opcode: int, payload: bytes
) -> None:
    await wire.ask(*WHOLE)
    wire.say(opcode, payload)
    await wire.end()
    async with asyncio.timeout(5):
        await spoken.ended.wait()
    assert (spoken.late, caplog.records) == (ClientDisconnected, [])


async def test_a_text_that_is_no_utf8_ends_it_and_is_not_logged(
    wire: Wire, spoken: Spoken, caplog: pytest.LogCaptureFixture
) -> None:
    await wire.ask(*WHOLE)
    wire.say(TEXT, b"\xff")
    opcode, payload = await wire.hear()
    assert (opcode, int.from_bytes(payload[:2], "big")) == (CLOSE, 1007)
    assert (spoken.heard, caplog.records) == ([], [])


@pytest.mark.parametrize("line", ["Sec-WebSocket-Protocol: ,@", "Sec-WebSocket-Protocol: "])
async def test_a_handshake_that_can_not_be_read_is_refused_by_a_problem(wire: Wire, spoken: Spoken, line: str) -> None:
    assert await wire.ask(*WHOLE, line) == 400
    assert json.loads(await wire.end())["code"] == "malformed_request"
    assert spoken.kinds == []


async def test_a_message_of_endless_empty_pieces_ends_it(wire: Wire, spoken: Spoken) -> None:
    await wire.ask(*WHOLE)
    wire.say(TEXT, is_last=False)
    wire.say_often(70, CONTINUATION, is_last=False)
    opcode, payload = await wire.hear()
    assert (opcode, int.from_bytes(payload[:2], "big")) == (CLOSE, 1009)
    assert spoken.heard == []


async def test_who_takes_nothing_is_cut_off_when_the_application_gives_up(
    wire: Wire, server: uvicorn.Server, spoken: Spoken
) -> None:
    server.config.ws_ping_interval = None
    spoken.sends = ["x" * 1_000_000] * 50
    await wire.ask(*WHOLE)
    async with asyncio.timeout(5):
        await spoken.ended.wait()
        while server.server_state.connections:  # noqa: ASYNC110 - the library tells nobody
            await asyncio.sleep(0.01)


async def test_a_server_that_stops_waits_for_the_application_to_say_farewell(
    wire: Wire, server: uvicorn.Server, spoken: Spoken
) -> None:
    # Who answers no ping is cut, which may be before the server stops.
    server.config.ws_ping_interval = None
    await wire.ask(*WHOLE)
    server.should_exit = True
    while server.servers[0].is_serving():  # noqa: ASYNC110 - the library tells nobody
        await asyncio.sleep(0.01)
    assert not spoken.ended.is_set()
    async with asyncio.timeout(5):
        await spoken.ended.wait()
