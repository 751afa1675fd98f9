"""The stream of a tenant's events hears of them at once; here no poll would tell of them within a test's time."""

import asyncio
from functools import partial

import asyncpg
import httpx
import pytest

from app.api import ApiConfig
from app.events import Warned
from tests.api.harness import Service
from tests.api.tenant_streams import EVENTS
from tests.conftest import DatabaseUrls


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=3600, poll_seconds=3600)


async def test_a_submission_is_told_at_once(service: Service, live: httpx.AsyncClient) -> None:
    await service.put_agent()
    [frame] = await EVENTS.follow_while(service, live, service.submit, 1)
    newest = (await service.client.get("/runs?limit=1")).json()["items"][0]
    assert (frame.event, frame.json["run_id"]) == ("run_queued", newest["id"])


async def test_so_is_one_with_an_idempotency_key(service: Service, live: httpx.AsyncClient) -> None:
    await service.put_agent()
    body, headers = {"agent": "planner", "input": "Hello."}, {"Idempotency-Key": "k"}
    submit = partial(service.client.post, "/runs", json=body, headers=headers)
    [frame] = await EVENTS.follow_while(service, live, submit, 1)
    assert frame.event == "run_queued"


async def test_so_is_a_run_that_is_made_again(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    [frame] = await EVENTS.follow_while(service, live, lambda: service.client.post(f"/runs/{run_id}/rerun"), 1)
    assert frame.event == "run_queued"
    assert frame.json["run_id"] != run_id


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

    [frame] = await EVENTS.follow_while(service, live, write_behind_an_older_one, 1)
    await older.close()
    assert (frame.event, frame.json["run_id"]) == ("warning", run_id)
