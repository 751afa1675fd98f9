"""Many readers, with the service as it is by default: what an open stream holds, and what is left when it is gone."""

import asyncio
from contextlib import AsyncExitStack

import httpx

from app.store.database import Database
from tests.api.conftest import POOL_SIZE
from tests.api.harness import AS_STREAM, Service, eventually, raw_request, read_frames, send_and_reset_many, with_key


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
