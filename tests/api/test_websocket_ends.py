"""GET /runs/{id}/ws: what ends the connection, from either side, and what is left of it."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.api import ApiConfig, create_app
from app.errors import StoreUnavailable
from app.ids import RunId, TenantId
from app.ports.records import LogPage
from app.store.signals import LocalFeed
from tests.api.harness import Service, eventually, with_key
from tests.api.sockets import opened, read_all, read_one, serve_sockets, ticket_to
from tests.wrapped_store import WrappedStore


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.1, poll_seconds=0.3, send_seconds=0.5)


@pytest.fixture
def feed() -> LocalFeed:
    return LocalFeed(buffer_signals=8)


async def test_a_reader_is_told_when_the_process_goes_away(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    async with opened(address, f"/runs/{run_id}/ws?after=1", Authorization=key) as reader:
        service.deps.drain.begin()
        assert await read_all(reader) == ([], (1001, "server going away, reconnect"))


async def test_it_ends_with_its_key(service: Service, address: str, revoke: Callable[[str], Awaitable[None]]) -> None:
    run_id = await service.submit()
    shown = with_key(service.keys.reader)
    key_id = (await service.client.get("/me", headers=shown)).json()["key_id"]
    async with opened(address, f"/runs/{run_id}/ws?after=1", **shown) as reader:
        await revoke(key_id)
        assert (await read_all(reader))[1] == (1008, "key no longer valid")


async def test_it_ends_with_the_key_of_its_ticket(
    service: Service, address: str, revoke: Callable[[str], Awaitable[None]]
) -> None:
    path = f"/runs/{await service.submit()}/ws"
    ticket = await ticket_to(service, path, service.keys.reader)
    me = await service.client.get("/me", headers=with_key(service.keys.reader))
    async with opened(address, f"{path}?ticket={ticket}") as reader:
        await revoke(me.json()["key_id"])
        assert (await read_all(reader))[1] == (1008, "key no longer valid")


async def test_it_ends_with_its_run_where_that_is_erased(service: Service, address: str, key: str) -> None:
    session_id = await service.create_session()
    run_id = await service.submit(session_id=session_id)
    async with opened(address, f"/runs/{run_id}/ws?after=1", Authorization=key) as reader:
        await service.scribe.end_silently(run_id)
        await service.client.delete(f"/sessions/{session_id}")
        _, close = await read_all(reader)
    assert close in ((1008, "the run was erased"), (1000, ""))


async def test_a_reader_that_the_feed_is_too_fast_for_is_told(
    service: Service, address: str, key: str, feed: LocalFeed
) -> None:
    drops = count_drops(service)
    run_id = await service.submit()
    async with opened(address, f"/runs/{run_id}/ws", Authorization=key) as reader:
        await read_one(reader)
        say_at_once(feed, run_id, times=20)
        _, close = await read_all(reader)
    assert (close, len(drops)) == ((1013, "reader too slow, reconnect"), 1)


def count_drops(service: Service) -> list[None]:
    """Grows by one for each reader that is dropped from now on."""
    drops: list[None] = []
    service.deps.streams.dropped = lambda: drops.append(None)
    return drops


def say_at_once(feed: LocalFeed, run_id: str, *, times: int, length: int = 1) -> None:
    """No reader has a chance to take any of it before all was said."""
    for _ in range(times):
        feed.announce_text(RunId(run_id), iteration=1, attempt=1, text="x" * length)


async def test_what_a_client_says_is_ignored(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    async with opened(address, f"/runs/{run_id}/ws?after=1", Authorization=key) as reader:
        await reader.send("x" * 4096)
        await reader.send('{"event": "terminated"}')
        await service.scribe.end(run_id)
        messages, close = await read_all(reader)
    assert ([message["event"] for message in messages], close[0]) == (["terminated"], 1000)


# Of the pieces the last one is too many: what comes behind a connection's end resets it, and its code is lost then.
@pytest.mark.parametrize(
    ("said", "code"), [("x" * 4097, 1009), (["x"] * 64, 1009), (b"x", 1003), (b"", 1003), ([b"x", b"y"], 1003)]
)
async def test_what_is_too_long_or_no_text_ends_it(
    service: Service, address: str, key: str, said: str | bytes | list[Any], code: int
) -> None:
    run_id = await service.submit()
    async with opened(address, f"/runs/{run_id}/ws?after=1", Authorization=key) as reader:
        await reader.send(said)
        assert (await read_all(reader))[1][0] == code


async def test_a_reader_that_leaves_leaves_nothing_behind(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    async with opened(address, f"/runs/{run_id}/ws", Authorization=key) as reader:
        await read_one(reader)
        assert service.deps.streams.count == 1
    await eventually(lambda: service.deps.streams.count == 0 and service.feed.readers == 0)


async def test_a_reader_whose_connection_is_cut_leaves_nothing_behind(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    async with opened(address, f"/runs/{run_id}/ws", Authorization=key) as reader:
        await read_one(reader)
        reader.transport.abort()
        await eventually(lambda: service.deps.streams.count == 0 and service.feed.readers == 0)


async def test_a_reader_that_takes_nothing_is_cut_off(
    service: Service, address: str, key: str, feed: LocalFeed
) -> None:
    drops = count_drops(service)
    run_id = await service.submit()
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as sleeper:
        sleeper.sendall(handshake(run_id, key))
        await eventually(lambda: (service.deps.streams.count, feed.readers) == (1, 1))
        await flood(feed, run_id)
        await eventually(lambda: (service.deps.streams.count, feed.readers) == (0, 0))
        await eventually(lambda: len(drops) == 1)
        assert await asyncio.to_thread(read_to_end, sleeper) < 20_000_000


async def flood(feed: LocalFeed, run_id: str) -> None:
    """More text than all buffers between the two hold."""
    for _ in range(40):
        say_at_once(feed, run_id, times=1, length=1_000_000)
        await asyncio.sleep(0.01)


def read_to_end(connection: socket.socket) -> int:
    """How many bytes lie there before the end of the connection."""
    connection.settimeout(10)
    count = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(2**20):
            count += len(piece)
    return count


def handshake(run_id: str, key: str) -> bytes:
    lines = (
        f"GET /runs/{run_id}/ws HTTP/1.1",
        "Host: test",
        f"Authorization: {key}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class StoreThatGoesAway(WrappedStore):
    """The real store, until it is told to be away."""

    is_away = False

    async def read_logs(
        self, tenant_id: TenantId, places: Sequence[tuple[RunId, int]], *, limit: int
    ) -> Mapping[tuple[RunId, int], LogPage]:
        if self.is_away:
            raise StoreUnavailable("the tests took it away")
        return await self.store.read_logs(tenant_id, places, limit=limit)


async def test_a_database_that_goes_away_ends_it_with_a_reason(service: Service, key: str) -> None:
    store = StoreThatGoesAway(service.deps.store)
    app = create_app(replace(service.deps, store=store))
    run_id = await service.submit()
    async with serve_sockets(app) as address, opened(address, f"/runs/{run_id}/ws", Authorization=key) as reader:
        await read_one(reader)
        store.is_away = True
        assert await read_all(reader) == ([], (1013, "database unavailable, reconnect"))
