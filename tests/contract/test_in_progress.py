"""A request whose Idempotency-Key belongs to one that has not committed yet: waited for, but not for long."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from app.ports.store import TenantTx
from tests.api.harness import Service
from tests.contract.asking import told

KEY = "held"
BODIES = {
    "/runs": {"agent": "planner", "input": "Hello."},
    "/sessions": {"title": "Kyoto"},
    "/webhooks": {"url": "https://93.184.216.34/", "events": ["run.terminated"]},
}


@pytest.fixture
async def first(service: Service) -> AsyncIterator[TenantTx]:
    """A transaction in which a request holds the key on each route, and is not through."""
    await service.put_agent()
    owner = f"subject:{(await service.client.get('/me')).json()['subject']}"
    async with service.deps.store.begin(service.keys.tenant_id) as tx:
        taken = [
            await tx.remember(route=f"POST {path}", subject=owner, key=KEY, body_digest="another's") for path in BODIES
        ]
        assert taken == [None] * len(BODIES)
        yield tx


async def post(service: Service, path: str) -> httpx.Response:
    return await service.client.post(path, json=BODIES[path], headers={"Idempotency-Key": KEY})


@pytest.mark.parametrize("path", BODIES)
async def test_a_request_that_goes_on_for_long_is_told_of_and_nothing_is_made(
    service: Service, first: TenantTx, path: str
) -> None:
    async with asyncio.timeout(10):
        response = await post(service, path)
    assert told(response) == (409, "idempotency_in_progress")
    assert response.headers["retry-after"] == "1"
    assert (await service.client.get(path)).json()["items"] == []


async def test_a_request_that_is_soon_through_is_waited_for(service: Service) -> None:
    await service.put_agent()
    answers = await asyncio.gather(*(post(service, "/runs") for _ in range(2)))
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"]
