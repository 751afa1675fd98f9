"""Tenants take turns by their weights, whoever joins joins those who wait, and how long a turn takes is told."""

from collections import Counter
from collections.abc import Sequence

import pytest

from app.events import RunState
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import TenantId, WorkerId
from app.ports.records import Claim
from app.store.database import Database
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_tenant
from tests.store.support import new_run, query, submit, terminated, update

WORKER = WorkerId("w")
QUEUE = """
    INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, budget, max_llm_calls,
        priority, metadata, created_at, queued_at)
    SELECT $1, $1 || '_' || n, current_date, 'queued', 'clerk', 1, '"hi"', '{}', '{}', 10, 0, '{}', clock_timestamp(),
        clock_timestamp()
    FROM generate_series(1, $2::integer) AS n
"""
TURNED = "UPDATE tenant_queue SET started_at = started_at - make_interval(secs => $2) WHERE tenant_id = $1"


@pytest.fixture
def operator(empty_database: Database) -> PostgresOperatorStore:
    return PostgresOperatorStore(empty_database, Uuid7Ids())


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


async def tenant_of(operator: PostgresOperatorStore, weight: int = 1, max_running: int | None = None) -> TenantId:
    tenant_id = (await new_tenant(operator)).tenant_id
    await operator.set_tenant(tenant_id, {"weight": weight, "max_running": max_running}, actor=ACTOR)
    return tenant_id


async def queue(urls: DatabaseUrls, tenant_id: TenantId, count: int) -> None:
    await query(urls.superuser_url, QUEUE, tenant_id, count)


async def take(work: PostgresWorkStore, limit: int = 1) -> Sequence[Claim]:
    return await work.claim(WORKER, limit=limit, lease_seconds=60)


async def order(work: PostgresWorkStore, count: int) -> list[TenantId]:
    """Whose runs are started by that many claims of one run."""
    return [(await take(work))[0].tenant_id for _ in range(count)]


@pytest.mark.parametrize("limit", [1, 7, 60])
async def test_starts_are_shared_by_weight(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls, limit: int
) -> None:
    light, heavy, mid = await tenant_of(operator), await tenant_of(operator, 3), await tenant_of(operator, 2)
    for tenant_id in (light, heavy, mid):
        await queue(empty_urls, tenant_id, 100)
    started = Counter([claim.tenant_id for _ in range(60 // limit) for claim in await take(work, limit)])
    served = sum(started.values())
    assert started[light] == pytest.approx(served / 6, abs=1)
    assert started[mid] == pytest.approx(served / 3, abs=1)
    assert started[heavy] == pytest.approx(served / 2, abs=1)


async def test_a_heavy_tenant_does_not_starve_a_light_one(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    light, heavy = await tenant_of(operator), await tenant_of(operator, 1000)
    await queue(empty_urls, heavy, 1200)
    await queue(empty_urls, light, 2)
    started = Counter([claim.tenant_id for _ in range(2) for claim in await take(work, 501)])
    assert started[light] == pytest.approx(1, abs=1)
    assert light in started


async def test_tenants_of_one_weight_take_turns(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    first, second = await tenant_of(operator), await tenant_of(operator)
    await queue(empty_urls, first, 9)
    await queue(empty_urls, second, 9)
    started = await order(work, 6)
    assert started[:2] * 3 == started
    assert set(started) == {first, second}


async def test_who_joins_does_not_catch_up_on_what_others_had_before(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    old, new = await tenant_of(operator), await tenant_of(operator)
    await queue(empty_urls, old, 60)
    await take(work, 40)
    await queue(empty_urls, new, 20)
    assert Counter(await order(work, 10)) == {old: 5, new: 5}


async def test_who_was_idle_joins_those_who_wait_too(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    busy, idle = await tenant_of(operator), await tenant_of(operator)
    await queue(empty_urls, idle, 1)
    await queue(empty_urls, busy, 60)
    await take(work, 41)
    await query(empty_urls.superuser_url, "DELETE FROM runs WHERE tenant_id = $1", idle)
    await queue(empty_urls, idle, 20)
    assert Counter(await order(work, 10)) == {busy: 5, idle: 5}


async def test_who_joins_comes_first_once(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    old, new = await tenant_of(operator), await tenant_of(operator)
    await queue(empty_urls, old, 1000)
    await take(work, 16)
    await queue(empty_urls, new, 1)
    assert (await order(work, 1)) == [new]


async def test_a_tenant_that_was_full_does_not_catch_up(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    full, other = await tenant_of(operator, max_running=1), await tenant_of(operator)
    await queue(empty_urls, full, 60)
    await queue(empty_urls, other, 60)
    await take(work, 30)
    await operator.set_tenant(full, {"max_running": None}, actor=ACTOR)
    assert Counter(await order(work, 10)) == {full: 5, other: 5}


async def test_a_new_weight_holds_at_once(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    first, second = await tenant_of(operator), await tenant_of(operator)
    await queue(empty_urls, first, 60)
    await queue(empty_urls, second, 60)
    await take(work, 10)
    await operator.set_tenant(first, {"weight": 4}, actor=ACTOR)
    assert Counter(await order(work, 20))[first] == pytest.approx(16, abs=1)


async def test_the_places_of_the_release_before_are_no_debt(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    old, new = await tenant_of(operator), await tenant_of(operator)
    await query(empty_urls.superuser_url, "SELECT setval('claim_turns', 1024 * 1000000)")
    await query(empty_urls.superuser_url, "INSERT INTO tenant_queue VALUES ($1, 1024 * 1000000 + 1000)", old)
    await queue(empty_urls, old, 20)
    await queue(empty_urls, new, 20)
    assert Counter(await order(work, 10)) == {old: 5, new: 5}


# --- how long a turn takes -------------------------------------------------------------------------------------------


async def wait_of(database: Database, tenant_id: TenantId) -> float:
    async with PostgresTenantStore(database).begin(tenant_id) as tx:
        return await tx.queue_wait_seconds()


async def turn_of(urls: DatabaseUrls, tenant_id: TenantId) -> float | None:
    [row] = await query(urls.superuser_url, "SELECT turn_seconds FROM tenant_queue WHERE tenant_id = $1", tenant_id)
    seconds: float | None = row["turn_seconds"]
    return seconds


async def test_a_tenant_that_never_had_a_turn_is_told_a_second(
    operator: PostgresOperatorStore, empty_database: Database
) -> None:
    assert await wait_of(empty_database, await tenant_of(operator)) == 1


async def test_a_turn_is_what_lies_between_two_starts_while_runs_wait(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    tenant_id = await tenant_of(operator)
    await queue(empty_urls, tenant_id, 9)
    await take(work)
    await query(empty_urls.superuser_url, "UPDATE runs SET queued_at = queued_at - interval '1 hour'")
    await query(empty_urls.superuser_url, TURNED, tenant_id, 10.0)
    await take(work)
    assert await turn_of(empty_urls, tenant_id) == pytest.approx(10, abs=1)
    assert await wait_of(empty_database, tenant_id) == pytest.approx(11, abs=1)


async def test_a_turn_of_several_is_a_part_of_it_each(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    tenant_id = await tenant_of(operator)
    await queue(empty_urls, tenant_id, 9)
    await take(work)
    await query(empty_urls.superuser_url, "UPDATE runs SET queued_at = queued_at - interval '1 hour'")
    await query(empty_urls.superuser_url, TURNED, tenant_id, 40.0)
    await take(work, 4)
    assert await turn_of(empty_urls, tenant_id) == pytest.approx(10, abs=1)


async def test_one_slow_turn_moves_the_mean_by_a_fifth(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    tenant_id = await tenant_of(operator)
    await queue(empty_urls, tenant_id, 9)
    await take(work)
    await query(empty_urls.superuser_url, "UPDATE runs SET queued_at = queued_at - interval '1 hour'")
    await query(empty_urls.superuser_url, "UPDATE tenant_queue SET turn_seconds = 10")
    await query(empty_urls.superuser_url, TURNED, tenant_id, 60.0)
    await take(work)
    assert await turn_of(empty_urls, tenant_id) == pytest.approx(20, abs=1)


async def test_time_in_which_nothing_waited_is_no_turn(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    tenant_id = await tenant_of(operator)
    await queue(empty_urls, tenant_id, 1)
    await take(work)
    await query(empty_urls.superuser_url, TURNED, tenant_id, 3000.0)
    await queue_more(empty_urls, tenant_id)
    await take(work)
    assert await turn_of(empty_urls, tenant_id) is None


async def queue_more(urls: DatabaseUrls, tenant_id: TenantId) -> None:
    await query(urls.superuser_url, QUEUE.replace("|| '_'", "|| '_more_'"), tenant_id, 1)


async def test_a_queue_that_stands_still_is_told_by_how_long_it_has_stood(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    tenant_id = await tenant_of(operator)
    await queue(empty_urls, tenant_id, 2)
    await take(work)
    await query(empty_urls.superuser_url, TURNED, tenant_id, 100.0)
    assert await wait_of(empty_database, tenant_id) == pytest.approx(101, abs=1)
    await query(empty_urls.superuser_url, TURNED, tenant_id, 86_400.0)
    assert await wait_of(empty_database, tenant_id) == 3600


async def test_another_tenants_turn_is_not_told(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    slow, other = await tenant_of(operator), await tenant_of(operator)
    await queue(empty_urls, slow, 2)
    await take(work)
    await query(empty_urls.superuser_url, TURNED, slow, 100.0)
    assert await wait_of(empty_database, other) == 1


async def test_an_ended_run_leaves_the_order_as_it_is(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database
) -> None:
    first, second = await tenant_of(operator), await tenant_of(operator)
    for tenant_id in (first, first, second, second):
        await submit(empty_database, new_run(tenant_id))
    [claim] = await take(work)
    await work.append_if_owner(claim, [terminated()], update(RunState.COMPLETED))
    assert [(await take(work))[0].tenant_id] == [({first, second} - {claim.tenant_id}).pop()]
