"""Readers that stay, sleep, or lose their right: how a stream ends that did not end by itself."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx
import pytest

from app.api import ApiConfig, ApiDeps, create_app
from app.errors import StoreUnavailable
from app.ids import RunId, TenantId
from app.ports.records import LogPage
from app.ports.store import TenantStore, TenantTx
from app.store.signals import LocalFeed
from tests.api.harness import (
    AS_STREAM,
    Service,
    eventually,
    raw_request,
    read_frames,
    read_until,
    serve,
    with_key,
)
from tests.wrapped_store import WrappedStore


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.1, poll_seconds=0.5, send_seconds=0.5, drain_seconds=3)


@pytest.fixture
def feed() -> LocalFeed:
    return LocalFeed(buffer_signals=8)


def open_streams(service: Service) -> tuple[int, int]:
    return service.deps.streams.count, service.feed.readers


async def test_a_silent_stream_is_kept_alive_with_comments(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        await anext(frames)
        pings = [await anext(frames) for _ in range(3)]
    assert [frame.raw for frame in pings] == [": ping"] * 3


async def test_a_stream_ends_with_its_key(
    service: Service, live: httpx.AsyncClient, revoke: Callable[[str], Awaitable[None]]
) -> None:
    run_id = await service.submit()
    reader = with_key(service.keys.reader)
    key_id = (await live.get("/me", headers=reader)).json()["key_id"]
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM | reader) as response:
        frames = read_frames(response)
        await anext(frames)
        await revoke(key_id)
        rest = [frame.comment async for frame in frames]
    assert rest[-1] == "key no longer valid"
    assert set(rest[:-1]) <= {"ping"}


async def test_a_reader_that_is_slower_than_its_buffer_is_told_so_and_dropped(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    dropped = count_drops(service)
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        await anext(frames)
        say_at_once(service, run_id, times=20)
        rest = await read_until(frames, lambda frame: frame.comment not in (None, "ping"))
        assert [frame async for frame in frames] == []
    assert rest[-1].comment == "reader too slow, reconnect"
    assert len(dropped) == 1


def count_drops(service: Service) -> list[None]:
    """Grows by one for each reader that is dropped from now on."""
    drops: list[None] = []
    service.deps.streams.dropped = lambda: drops.append(None)
    return drops


def say_at_once(service: Service, run_id: str, *, times: int) -> None:
    """More than the buffer holds, and no chance to take any of it."""
    for _ in range(times):
        service.feed.announce_text(RunId(run_id), iteration=1, attempt=1, text="x")


async def test_a_reader_that_takes_nothing_at_all_is_cut_off(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    dropped = count_drops(service)
    request = raw_request("GET", f"/runs/{run_id}/events", AS_STREAM | with_key(service.keys.service))
    host, port = live.base_url.host, live.base_url.port
    assert port is not None
    with socket.create_connection((host, port)) as sleeper:
        sleeper.sendall(request)
        await eventually(lambda: open_streams(service) == (1, 1))
        await flood(service, run_id)
        await eventually(lambda: open_streams(service) == (0, 0))
        await eventually(lambda: len(dropped) == 1)


async def flood(service: Service, run_id: str) -> None:
    """More text than all buffers between the two hold."""
    for _ in range(40):
        service.feed.announce_text(RunId(run_id), iteration=1, attempt=1, text="x" * 1_000_000)
        await asyncio.sleep(0.01)


async def test_streams_say_farewell_when_the_process_goes_away(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        await anext(frames)
        service.deps.drain.begin()
        rest = [frame.comment async for frame in frames]
    assert rest[-1] == "server going away, reconnect"


async def test_a_server_that_is_told_to_stop_lets_its_streams_go_by_itself(service: Service) -> None:
    run_id = await service.submit()
    async with (
        serve(service.app) as (address, server),
        httpx.AsyncClient(base_url=address, headers=with_key(service.keys.service)) as client,
        AsyncExitStack() as stack,
    ):
        streams = [client.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) for _ in range(3)]
        readers = [read_frames(await stack.enter_async_context(stream)) for stream in streams]
        await asyncio.gather(*(anext(reader) for reader in readers))
        server.should_exit = True
        async with asyncio.timeout(5):
            farewells = [[frame.comment async for frame in reader][-1] for reader in readers]
    assert farewells == ["server going away, reconnect"] * 3
    assert service.deps.drain.is_draining


class StoreThatGoesAway(WrappedStore):
    """The real store, until it is told to be away."""

    def __init__(self, store: TenantStore) -> None:
        super().__init__(store)
        self.is_away = False

    @asynccontextmanager
    async def begin(self, tenant_id: TenantId, *, actor: str | None = None) -> AsyncIterator[TenantTx]:
        self._check()
        async with self.store.begin(tenant_id, actor=actor) as tx:
            yield tx

    async def read_logs(
        self, tenant_id: TenantId, places: Sequence[tuple[RunId, int]], *, limit: int
    ) -> Mapping[tuple[RunId, int], LogPage]:
        self._check()
        return await self.store.read_logs(tenant_id, places, limit=limit)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the tests took it away")


@pytest.fixture
def deps_that_go_away(deps: ApiDeps) -> tuple[ApiDeps, StoreThatGoesAway]:
    store = StoreThatGoesAway(deps.store)
    return replace(deps, store=store), store


async def test_a_stream_whose_database_went_away_ends_with_a_reason_and_comes_back_by_id(
    service: Service, deps_that_go_away: tuple[ApiDeps, StoreThatGoesAway]
) -> None:
    deps, store = deps_that_go_away
    run_id = await service.submit()
    async with (
        serve(create_app(deps)) as (address, _),
        httpx.AsyncClient(base_url=address, headers=with_key(service.keys.service)) as client,
    ):
        path = f"/runs/{run_id}/events"
        async with client.stream("GET", path, headers=AS_STREAM) as response:
            frames = read_frames(response)
            await anext(frames)
            store.is_away = True
            rest = [frame.comment async for frame in frames]
        refused = await client.get(path, headers=AS_STREAM | {"Last-Event-ID": "1"})
        store.is_away = False
        await service.scribe.end(run_id)
        back = await client.get(path, headers=AS_STREAM | {"Last-Event-ID": "1"})
    assert rest[-1] == "database unavailable, reconnect"
    assert (refused.status_code, back.status_code) == (503, 200)
    assert "event: terminated" in back.text


async def test_closing_a_stream_cancels_nothing(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        await anext(read_frames(response))
    await eventually(lambda: open_streams(service) == (0, 0))
    await service.scribe.end(run_id, output_text="Done.")
    run = (await live.get(f"/runs/{run_id}")).json()
    assert (run["state"], run["cancel_requested_at"]) == ("completed", None)


async def test_a_reader_that_leaves_between_two_frames_is_forgotten_at_once(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    with contextlib.suppress(httpx.ReadTimeout):
        await live.get(f"/runs/{run_id}/events", headers=AS_STREAM, timeout=0.05)
    await eventually(lambda: open_streams(service) == (0, 0))
