"""The proxy between the parts of the harness."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.chaos.proxy import Proxy, Target


@dataclass(frozen=True)
class Line:
    """A connection through the proxy to a server that says everything again."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def echo(self, text: bytes) -> bytes:
        self.writer.write(text)
        return await asyncio.wait_for(self.reader.readexactly(len(text)), 2)

    async def is_dead(self) -> bool:
        with suppress(ConnectionResetError):
            return await asyncio.wait_for(self.reader.read(), 2) == b""
        return True


Connect = Callable[[], Awaitable[Line]]


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.CancelledError):
        while block := await reader.read(1000):
            writer.write(block)
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    async with Proxy(Target(port=server.sockets[0].getsockname()[1])) as proxy:
        yield proxy
    server.close()


@pytest.fixture
async def connect(proxy: Proxy) -> AsyncIterator[Connect]:
    lines: list[Line] = []

    async def connect() -> Line:
        lines.append(Line(*await asyncio.open_connection("127.0.0.1", proxy.port)))
        return lines[-1]

    yield connect
    for line in lines:
        line.writer.close()


async def test_what_is_sent_gets_through_and_back(connect: Connect) -> None:
    line = await connect()

    assert await line.echo(b"hello" * 50_000) == b"hello" * 50_000


async def test_a_half_that_is_closed_leaves_the_other_open(connect: Connect) -> None:
    line = await connect()
    line.writer.write(b"last words")
    line.writer.write_eof()

    assert await asyncio.wait_for(line.reader.read(), 2) == b"last words"


async def test_a_cut_ends_what_is_open_and_nothing_later(proxy: Proxy, connect: Connect) -> None:
    line = await connect()
    await line.echo(b"hello")

    assert proxy.cut() == 1

    assert await line.is_dead()
    assert await (await connect()).echo(b"again") == b"again"
    assert proxy.count == 1


async def test_a_cut_of_some_leaves_the_others(proxy: Proxy, connect: Connect) -> None:
    lines = [await connect() for _ in range(20)]
    await asyncio.gather(*(line.echo(b"hello") for line in lines))

    cut = proxy.cut(0.5, random.Random(1))

    assert 0 < cut < 20
    answers = await asyncio.gather(*(line.echo(b"still?") for line in lines), return_exceptions=True)
    assert answers.count(b"still?") == 20 - cut


async def test_what_is_held_up_arrives_when_it_is_released(proxy: Proxy, connect: Connect) -> None:
    line = await connect()
    await line.echo(b"hello")

    proxy.hold()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(line.echo(b"late"), 0.2)
    proxy.release()

    assert await asyncio.wait_for(line.reader.readexactly(4), 2) == b"late"


async def test_without_a_target_everybody_is_turned_away(proxy: Proxy, connect: Connect) -> None:
    proxy.target = None

    assert await (await connect()).is_dead()


async def test_a_target_that_is_not_there_turns_everybody_away(proxy: Proxy, connect: Connect) -> None:
    proxy.target = Target(port=1)

    assert await (await connect()).is_dead()
