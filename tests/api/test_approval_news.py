"""The stream of approvals hears of changes at once; here no poll would tell of them within a test's time."""

import asyncio

import asyncpg
import httpx
import pytest

from app.api import ApiConfig
from tests.api.harness import Service
from tests.api.questions import ask, decide
from tests.api.tenant_streams import APPROVALS, tenant_of
from tests.conftest import DatabaseUrls


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=3600, poll_seconds=3600)


async def test_a_decision_is_told_at_once(service: Service, live: httpx.AsyncClient) -> None:
    approval_id = await ask(service, await service.submit())
    [frame] = await APPROVALS.follow_while(service, live, lambda: decide(service, approval_id), 1)
    assert (frame.event, frame.json["id"]) == ("approved", approval_id)


async def test_so_are_the_questions_that_a_cancel_withdraws(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    asked = [await ask(service, run_id, waits=False), await ask(service, run_id, call=2)]
    frames = await APPROVALS.follow_while(service, live, lambda: service.client.post(f"/runs/{run_id}/cancel"), 2)
    assert {frame.event for frame in frames} == {"cancelled"}
    assert {frame.json["id"] for frame in frames} == set(asked)


async def test_so_are_those_that_an_interrupt_withdraws(service: Service, live: httpx.AsyncClient) -> None:
    session_id = await service.create_session()
    approval_id = await ask(service, await service.submit(session_id=session_id))
    frames = await APPROVALS.follow_while(
        service, live, lambda: service.submit(session_id=session_id, on_session_busy="interrupt"), 1
    )
    assert [(frame.event, frame.json["id"]) for frame in frames] == [("cancelled", approval_id)]


async def test_what_an_older_transaction_held_back_is_told_soon_after_it(
    service: Service, live: httpx.AsyncClient, api_urls: DatabaseUrls
) -> None:
    older = await asyncpg.connect(api_urls.superuser_url)
    run_id = await service.submit()

    async def change_behind_an_older_one() -> None:
        async with older.transaction():
            await older.execute("SELECT pg_current_xact_id()")
            await ask(service, run_id)
            service.feed.announce_approvals(tenant_of(service))
            await asyncio.sleep(0.3)

    [frame] = await APPROVALS.follow_while(service, live, change_behind_an_older_one, 1)
    await older.close()
    assert (frame.event, frame.json["run_id"]) == ("pending", run_id)
