"""Requests per minute of a tenant: a tenth of them at once, then evenly, and what is refused costs nothing."""

import asyncio
import math

import pytest

from app.execution.system import Uuid7Ids
from app.ids import TenantId
from app.store.database import Database
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_key, new_tenant
from tests.store.support import query

# At the first rate a test sees no second request come free by itself: one more every minute. At the other one it is
# every three seconds, behind two at once.
ONE, MANY = 1, 20


@pytest.fixture
def operator(shared_database: Database) -> PostgresOperatorStore:
    return PostgresOperatorStore(shared_database, Uuid7Ids())


@pytest.fixture
def keys(shared_database: Database) -> PostgresKeyStore:
    return PostgresKeyStore(shared_database)


async def limited(operator: PostgresOperatorStore, requests_per_minute: int | None) -> TenantId:
    tenant = await new_tenant(operator)
    await operator.set_tenant(tenant.tenant_id, {"requests_per_minute": requests_per_minute}, actor=ACTOR)
    return tenant.tenant_id


async def wait_of(keys: PostgresKeyStore, tenant_id: TenantId) -> float | None:
    record = await keys.admit_tenant(tenant_id)
    assert record is not None
    return record.retry_after_seconds


async def pass_time(urls: DatabaseUrls, tenant_id: TenantId, seconds: float) -> None:
    """As if that long had passed since the last request."""
    statement = "UPDATE tenant_rates SET full_at = full_at - make_interval(secs => $2) WHERE tenant_id = $1"
    await query(urls.superuser_url, statement, tenant_id, seconds)


async def test_a_tenant_without_a_limit_makes_any_number_and_leaves_no_row(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, shared_urls: DatabaseUrls
) -> None:
    tenant_id = await limited(operator, None)
    assert {await wait_of(keys, tenant_id) for _ in range(20)} == {None}
    rows = await query(shared_urls.superuser_url, "SELECT FROM tenant_rates WHERE tenant_id = $1", tenant_id)
    assert rows == []


async def test_a_tenth_of_the_rate_comes_in_at_once(operator: PostgresOperatorStore, keys: PostgresKeyStore) -> None:
    tenant_id = await limited(operator, MANY)
    waits = [await wait_of(keys, tenant_id) for _ in range(4)]
    assert [wait is None for wait in waits] == [True] * 2 + [False] * 2


async def test_at_least_one_comes_in(operator: PostgresOperatorStore, keys: PostgresKeyStore) -> None:
    tenant_id = await limited(operator, ONE)
    assert [await wait_of(keys, tenant_id) is None for _ in range(2)] == [True, False]


async def test_the_wait_is_the_time_until_the_next_one_is_let_in(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, shared_urls: DatabaseUrls
) -> None:
    tenant_id = await limited(operator, ONE)
    await wait_of(keys, tenant_id)
    wait = await wait_of(keys, tenant_id)
    assert wait is not None
    assert wait == pytest.approx(60, abs=5)
    await pass_time(shared_urls, tenant_id, wait - 30)
    assert await wait_of(keys, tenant_id) == pytest.approx(30, abs=5)
    await pass_time(shared_urls, tenant_id, 30)
    assert await wait_of(keys, tenant_id) is None


async def test_what_is_refused_costs_nothing(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, shared_urls: DatabaseUrls
) -> None:
    tenant_id = await limited(operator, ONE)
    await wait_of(keys, tenant_id)
    before = await query(shared_urls.superuser_url, "SELECT * FROM tenant_rates WHERE tenant_id = $1", tenant_id)
    refused = [await wait_of(keys, tenant_id) for _ in range(10)]
    assert None not in refused
    after = await query(shared_urls.superuser_url, "SELECT * FROM tenant_rates WHERE tenant_id = $1", tenant_id)
    assert after == before


async def test_time_without_requests_saves_up_no_more_than_the_burst(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, shared_urls: DatabaseUrls
) -> None:
    tenant_id = await limited(operator, MANY)
    await wait_of(keys, tenant_id)
    await pass_time(shared_urls, tenant_id, 86_400)
    waits = [await wait_of(keys, tenant_id) for _ in range(4)]
    assert [wait is None for wait in waits] == [True] * 2 + [False] * 2


async def test_requests_at_once_are_counted_one_by_one(operator: PostgresOperatorStore, keys: PostgresKeyStore) -> None:
    tenant_id = await limited(operator, MANY)
    waits = await asyncio.gather(*(wait_of(keys, tenant_id) for _ in range(30)))
    assert waits.count(None) == 2


async def test_all_keys_of_a_tenant_share_its_rate_and_no_other_tenants(
    operator: PostgresOperatorStore, keys: PostgresKeyStore
) -> None:
    first, second = await limited(operator, ONE), await limited(operator, ONE)
    made = [new_key(owner) for owner in (first, first, second)]
    for key in made:
        await operator.add_key(key, actor=ACTOR)
    found = [await keys.admit_key(key.secret_hash) for key in made]
    waits = [record.retry_after_seconds for record in found if record is not None]
    assert [wait is None for wait in waits] == [True, False, True]


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_key_that_is_not_valid_costs_its_tenant_nothing(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, shared_urls: DatabaseUrls, how: str
) -> None:
    tenant_id = await limited(operator, ONE)
    key = new_key(tenant_id)
    await operator.add_key(key, actor=ACTOR)
    column = {"revoked": "revoked_at", "expired": "expires_at"}[how]
    await query(shared_urls.superuser_url, f"UPDATE keys SET {column} = now() WHERE key_id = $1", key.key_id)
    records = [await keys.admit_key(key.secret_hash) for _ in range(3)]
    assert [record.retry_after_seconds for record in records if record is not None] == [None] * 3
    assert await wait_of(keys, tenant_id) is None


async def test_looking_a_key_up_again_costs_nothing(operator: PostgresOperatorStore, keys: PostgresKeyStore) -> None:
    tenant_id = await limited(operator, ONE)
    key = new_key(tenant_id)
    await operator.add_key(key, actor=ACTOR)
    await keys.find_key(key.secret_hash)
    found = await keys.admit_key(key.secret_hash)
    assert found is not None
    assert found.retry_after_seconds is None


async def test_a_new_rate_holds_for_the_next_request(operator: PostgresOperatorStore, keys: PostgresKeyStore) -> None:
    tenant_id = await limited(operator, ONE)
    await wait_of(keys, tenant_id)
    assert await wait_of(keys, tenant_id) is not None
    await operator.set_tenant(tenant_id, {"requests_per_minute": None}, actor=ACTOR)
    assert await wait_of(keys, tenant_id) is None


@pytest.mark.parametrize("rate", [1, 7, 59, 60, 1000, 60_000, 10**9])
async def test_every_rate_lets_its_burst_in_and_no_more(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, shared_urls: DatabaseUrls, rate: int
) -> None:
    tenant_id = await limited(operator, rate)
    assert await wait_of(keys, tenant_id) is None
    # All but the one: the burst is used up.
    burst = max(1, math.floor(rate / 10)) * 60 / rate
    statement = "UPDATE tenant_rates SET full_at = clock_timestamp() + make_interval(secs => $2) WHERE tenant_id = $1"
    await query(shared_urls.superuser_url, statement, tenant_id, burst + 30.0)
    assert await wait_of(keys, tenant_id) == pytest.approx(30 + 60 / rate, abs=5)
