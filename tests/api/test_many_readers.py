"""Many readers, with the service as it is by default: what an open stream holds, and what is left when it is gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from app.api import ApiConfig
from app.events import Warned
from app.store.database import Database
from tests.api.conftest import POOL_SIZE
from tests.api.harness import (
    AS_STREAM,
    Service,
    SseFrame,
    eventually,
    raw_request,
    read_frames,
    read_until,
    send_and_reset_many,
    with_key,
)


def open_streams(service: Service) -> tuple[int, int]:
    return service.deps.streams.count, service.feed.readers


async def read_first_frame(live: httpx.AsyncClient, run_id: str) -> None:
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        await anext(read_frames(response))


async def test_readers_that_reset_before_the_first_byte_leave_nothing_behind(
    service: Service, live: httpx.AsyncClient, database: Database
) -> None:
    run_id = await service.submit()
    request = raw_request("GET", f"/runs/{run_id}/events", AS_STREAM | with_key(service.keys.service))
    # One stream beforehand: sse-starlette then begins to watch for the server's end, with one task for all streams.
    await read_first_frame(live, run_id)
    await eventually(lambda: open_streams(service) == (0, 0))
    before = len(asyncio.all_tasks())
    await send_and_reset_many(str(live.base_url), request, bursts=20, size=10)
    await eventually(lambda: open_streams(service) == (0, 0) and len(asyncio.all_tasks()) <= before, seconds=30)
    assert (await live.get(f"/runs/{run_id}")).status_code == 200
    assert database.pool.borrowed == 0


async def test_open_streams_hold_no_connection_and_leave_room_for_other_requests(
    service: Service, live: httpx.AsyncClient, database: Database
) -> None:
    run_id = await service.submit()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with AsyncExitStack() as stack:
        many = await stack.enter_async_context(
            httpx.AsyncClient(base_url=live.base_url, headers=with_key(service.keys.service), limits=limits, timeout=30)
        )
        streams = [many.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) for _ in range(50)]
        opened = [await stack.enter_async_context(stream) for stream in streams]
        assert {response.status_code for response in opened} == {200}
        await eventually(lambda: open_streams(service) == (50, 50))
        assert POOL_SIZE == 5
        async with asyncio.timeout(20 * 0.2):
            answers = [(await live.get(f"/runs/{run_id}")).status_code for _ in range(20)]
        assert answers == [200] * 20
        await eventually(lambda: database.pool.borrowed == 0)
    await eventually(lambda: open_streams(service) == (0, 0))


@pytest.fixture
def statements(database: Database, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent by itself, and BEGIN for each transaction of a tenant, from here on."""
    sent: list[str] = []
    fetch, enter = database.fetch, database.enter_tenant

    async def listen(statement: str, *arguments: Any) -> Any:
        sent.append(statement)
        return await fetch(statement, *arguments)

    def listen_within(*arguments: Any, **more: Any) -> Any:
        sent.append("BEGIN")
        return enter(*arguments, **more)

    monkeypatch.setattr(database, "fetch", listen)
    monkeypatch.setattr(database, "enter_tenant", listen_within)
    return sent


def count(statements: list[str], name: str) -> int:
    return sum(name in statement for statement in statements)


@asynccontextmanager
async def many_readers(
    service: Service, live: httpx.AsyncClient, run_id: str, number: int, *, query: str = ""
) -> AsyncIterator[list[AsyncIterator[SseFrame]]]:
    """That many streams of one run, all of which have shown its first event."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with AsyncExitStack() as stack:
        many = await stack.enter_async_context(
            httpx.AsyncClient(base_url=live.base_url, headers=with_key(service.keys.service), limits=limits, timeout=30)
        )
        streams = [many.stream("GET", f"/runs/{run_id}/events{query}", headers=AS_STREAM) for _ in range(number)]
        readers = [read_frames(await stack.enter_async_context(stream)) for stream in streams]
        await asyncio.gather(*(anext(reader) for reader in readers))
        yield readers


async def read_pings(reader: AsyncIterator[SseFrame], count: int) -> list[str | None]:
    return [(await anext(reader)).comment for _ in range(count)]


async def test_an_event_is_read_once_for_all_readers_of_its_run(
    service: Service, live: httpx.AsyncClient, request: pytest.FixtureRequest
) -> None:
    run_id = await service.submit()
    async with many_readers(service, live, run_id, 40) as readers:
        statements: list[str] = request.getfixturevalue("statements")
        await service.scribe.say(run_id)
        seen = await asyncio.gather(*(read_until(reader, lambda frame: frame.id == "2") for reader in readers))
    assert {frames[-1].raw for frames in seen} == {seen[0][-1].raw}
    assert count(statements, "read_logs") <= 4


class TestTrees:
    @pytest.fixture
    def config(self) -> ApiConfig:
        return ApiConfig(ping_seconds=1000.0, poll_seconds=1000.0)

    async def test_an_event_of_a_child_is_read_for_50_readers_about_as_often_as_for_one(
        self, service: Service, live: httpx.AsyncClient, request: pytest.FixtureRequest
    ) -> None:
        run_id = await service.submit()
        child_id = await service.scribe.open_child(run_id)
        async with many_readers(service, live, run_id, 50, query="?include=children") as readers:
            await asyncio.gather(*(read_until(reader, lambda frame: frame.id == "2.1") for reader in readers))
            statements: list[str] = request.getfixturevalue("statements")
            await service.scribe.write(child_id, Warned(code="w", detail=""))
            told = await asyncio.gather(*(read_until(reader, lambda frame: frame.id == "2.2") for reader in readers))
        assert {frames[-1].raw for frames in told} == {told[0][-1].raw}
        # For one it is two, and one look; each by itself would make them 100 and 50.
        assert 1 <= count(statements, "read_logs") <= 10
        assert 1 <= count(statements, "look_at_run") <= 10
        assert count(statements, "BEGIN") == 0


class TestPings:
    @pytest.fixture
    def config(self) -> ApiConfig:
        return ApiConfig(ping_seconds=0.4, poll_seconds=1000.0)

    async def test_readers_with_one_key_have_it_looked_up_once_a_second(
        self, service: Service, live: httpx.AsyncClient, request: pytest.FixtureRequest
    ) -> None:
        run_id = await service.submit()
        async with many_readers(service, live, run_id, 40) as readers:
            statements: list[str] = request.getfixturevalue("statements")
            began_at = asyncio.get_running_loop().time()
            pings = await asyncio.gather(*(read_pings(reader, 4) for reader in readers))
            seconds = asyncio.get_running_loop().time() - began_at
        assert pings == [["ping"] * 4] * 40
        # Of 160, which take two seconds, or some more on a machine that has much else to do.
        assert 1 <= count(statements, "find_key") <= 2 * seconds + 4
        assert 1 <= count(statements, "look_at_run") <= 2 * seconds + 4
