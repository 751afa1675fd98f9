"""The stream of a tenant's events hears of them at once; here no poll would tell of them within a test's time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import httpx
import pytest

from app.api import ApiConfig
from app.events import Warned
from tests.api.harness import AS_STREAM, Service, SseFrame, eventually, read_frames, stored
from tests.conftest import DatabaseUrls


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=3600, poll_seconds=3600)


async def told(
    service: Service, live: httpx.AsyncClient, act: Callable[[], Awaitable[Any]], number: int
) -> list[tuple[str | None, str]]:
    """So many events that come once a reader is there and something was done: kinds, and whose they are."""
    async with live.stream("GET", "/events", headers=AS_STREAM) as response:
        await eventually(lambda: service.feed.readers == 1)
        await act()
        return [(frame.event, frame.json["run_id"]) for frame in await take(read_frames(response), number)]


async def take(frames: AsyncIterator[SseFrame], number: int) -> list[SseFrame]:
    async with asyncio.timeout(10):
        return stored([await anext(frames) for _ in range(number)])


async def test_a_submission_is_told_at_once(service: Service, live: httpx.AsyncClient) -> None:
    await service.put_agent()
    submitted: list[str] = []

    async def submit() -> None:
        submitted.append(await service.submit())

    assert await told(service, live, submit, 1) == [("run_queued", run_id) for run_id in submitted]


async def test_so_is_one_with_an_idempotency_key(service: Service, live: httpx.AsyncClient) -> None:
    await service.put_agent()
    body, headers = {"agent": "planner", "input": "Hello."}, {"Idempotency-Key": "k"}
    [(kind, _)] = await told(service, live, lambda: service.client.post("/runs", json=body, headers=headers), 1)
    assert kind == "run_queued"


async def test_so_is_a_run_that_is_made_again(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    [(kind, again)] = await told(service, live, lambda: service.client.post(f"/runs/{run_id}/rerun"), 1)
    assert kind == "run_queued"
    assert again != run_id


async def test_what_an_older_transaction_held_back_is_told_soon_after_it(
    service: Service, live: httpx.AsyncClient, api_urls: DatabaseUrls
) -> None:
    older = await asyncpg.connect(api_urls.superuser_url)
    run_id = await service.submit()

    async def write_behind_an_older_one() -> None:
        async with older.transaction():
            await older.execute("SELECT pg_current_xact_id()")
            await service.scribe.write(run_id, Warned(code="w", detail=""))
            await asyncio.sleep(0.3)

    assert await told(service, live, write_behind_an_older_one, 1) == [("warning", run_id)]
    await older.close()
