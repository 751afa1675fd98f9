"""A tenant's requests per minute: of all routes together, and with an honest time to come again."""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import httpx
import pytest

from app.api import ApiConfig
from app.auth import Uses, keep_uses
from app.ports.tenancy import OperatorStore
from app.testing import FakeClock
from tests.api.harness import AS_STREAM, Service, SseFrame, read_frames, read_until, with_key
from tests.conftest import DatabaseUrls

Limit = Callable[[int | None], Awaitable[None]]


@pytest.fixture
def limit(service: Service, admin: OperatorStore) -> Limit:
    """Sets the first tenant's requests per minute."""

    async def limit(requests_per_minute: int | None) -> None:
        await admin.set_tenant(service.keys.tenant_id, {"requests_per_minute": requests_per_minute}, actor="tests")

    return limit


@pytest.fixture
def pass_time(service: Service, api_urls: DatabaseUrls) -> Callable[[float], Awaitable[None]]:
    """Lets so many seconds have gone by since the first tenant's last request."""

    async def pass_time(seconds: float) -> None:
        connection = await asyncpg.connect(api_urls.superuser_url)
        await connection.execute(
            "UPDATE tenant_rates SET full_at = full_at - make_interval(secs => $1) WHERE tenant_id = $2",
            seconds,
            service.keys.tenant_id,
        )
        await connection.close()

    return pass_time


async def ask(client: httpx.AsyncClient, *, times: int, path: str = "/me") -> list[int]:
    return [(await client.get(path)).status_code for _ in range(times)]


async def test_a_tenth_of_the_rate_is_served_at_once_and_the_next_is_told_when_to_come(
    client: httpx.AsyncClient, limit: Limit
) -> None:
    await limit(10)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    refused = [await client.get("/me") for _ in range(2)][1]
    waited = loop.time() - began_at
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    # One more every six seconds, of which the two requests themselves may have taken some.
    assert 5 - waited <= int(refused.headers["retry-after"]) <= 6


async def test_who_comes_when_told_to_is_served(
    client: httpx.AsyncClient, limit: Limit, pass_time: Callable[[float], Awaitable[None]]
) -> None:
    await limit(10)
    await ask(client, times=5)
    await pass_time(6)
    assert await ask(client, times=2) == [200, 429]


async def test_all_routes_and_keys_of_a_tenant_are_counted_together(
    service: Service, client: httpx.AsyncClient, limit: Limit
) -> None:
    await limit(20)
    await client.get("/agents")
    await client.get("/runs", headers=with_key(service.keys.colleague))
    assert await ask(client, times=1) == [429]


async def test_another_tenant_and_operators_are_served(
    service: Service, client: httpx.AsyncClient, limit: Limit
) -> None:
    await limit(10)
    await ask(client, times=3)
    other = await client.get("/me", headers=with_key(service.others_keys.service))
    operator = await client.get("/me", headers=with_key(service.keys.operator))
    assert (other.status_code, operator.status_code) == (200, 200)


async def test_a_request_without_a_valid_key_is_on_nobodys_account(
    service: Service, client: httpx.AsyncClient, limit: Limit
) -> None:
    await limit(10)
    await client.get("/me", headers={"Authorization": "Bearer none"})
    assert await ask(client, times=1) == [200]


async def test_a_limit_that_is_lifted_holds_no_longer(client: httpx.AsyncClient, limit: Limit) -> None:
    await limit(10)
    await ask(client, times=3)
    await limit(None)
    assert await ask(client, times=5) == [200] * 5


class TestStreams:
    @pytest.fixture
    def config(self) -> ApiConfig:
        return ApiConfig(ping_seconds=0.02)

    async def test_a_stream_is_one_request_however_long_it_is(
        self, service: Service, live: httpx.AsyncClient, limit: Limit
    ) -> None:
        run_id = await service.submit()
        await limit(60)
        async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
            await read_until(read_frames(response), _after_pings(5))
        assert await ask(live, times=5) == [200] * 5


async def test_the_last_use_of_a_key_reaches_the_operator(
    service: Service, client: httpx.AsyncClient, admin: OperatorStore
) -> None:
    me = (await client.get("/me")).json()
    clock = FakeClock()
    await _flush(service.deps.uses, service, clock)
    used = {key.key_id: key.last_used_at is not None for key in await admin.list_keys(service.keys.tenant_id)}
    assert used.pop(me["key_id"])
    assert not any(used.values())


async def _flush(uses: Uses, service: Service, clock: FakeClock) -> None:
    """What the job does when the process stops."""
    job = asyncio.create_task(keep_uses(uses, service.deps.keys, clock, every_seconds=3600))
    await asyncio.sleep(0)
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)


def _after_pings(number: int) -> Callable[[SseFrame], bool]:
    seen: list[SseFrame] = []

    def is_last(frame: SseFrame) -> bool:
        seen.append(frame)
        return len([frame for frame in seen if frame.comment == "ping"]) == number

    return is_last
