"""What an operator does about runs and workers: runs are cancelled by a filter, a tenant goes, a worker drains."""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.events import RunState
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import RunId, TenantId, WorkerId
from app.ports.records import Claim, NewRun
from app.ports.tenancy import CancelFilter, KeyInfo, NewKey
from app.store.database import Database
from app.store.gauges import PostgresGauges
from app.store.operator import PostgresOperatorStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_key, new_tenant, trail
from tests.store.support import (
    AGENT,
    NUL,
    PAST,
    new_run,
    query,
    question,
    read,
    submit,
    terminated,
    update,
    wait_for_rows,
    warned,
)

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
WORKER = WorkerId("w")
ADD_KEY = "SELECT operator_add_key('ops', 'key_1', $1, 'somebody', '{}', '{}', '', NULL, '\\x01')"
SOMEBODY_WAITS = """
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
NEEDS = frozenset({"tool:pay", "model:scripted:demo"})


@pytest.fixture
def operator(empty_database: Database) -> PostgresOperatorStore:
    return PostgresOperatorStore(empty_database, Uuid7Ids())


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


async def take(work: PostgresWorkStore) -> Claim:
    [claim] = await work.claim(WORKER, limit=1, lease_seconds=60)
    return claim


async def asked(urls: DatabaseUrls) -> set[RunId]:
    rows = await query(urls.superuser_url, "SELECT run_id FROM runs WHERE cancel_requested_at IS NOT NULL")
    return {row["run_id"] for row in rows}


# --- a cancel by filter ----------------------------------------------------------------------------------------------


@pytest.fixture
async def runs(empty_database: Database) -> dict[str, NewRun]:
    """One for each condition, and one that no condition fits."""
    made = {
        "plain": new_run(OTHER),
        "tenant": new_run(TENANT),
        "agent": new_run(OTHER, agent=AGENT.model_copy(update={"name": "seller"})),
        "needs": new_run(OTHER, needs=NEEDS),
    }
    for run in made.values():
        await submit(empty_database, run)
    return made


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        (CancelFilter(tenant_id=TENANT), {"tenant"}),
        (CancelFilter(agent="seller"), {"agent"}),
        (CancelFilter(tool="pay"), {"needs"}),
        (CancelFilter(model="scripted:demo"), {"needs"}),
        (CancelFilter(tool="pay", model="scripted:demo", tenant_id=OTHER), {"needs"}),
        (CancelFilter(tool="pay", agent="seller"), set()),
        (CancelFilter(tool="scripted:demo"), set()),
        (CancelFilter(tool=NUL), set()),
        (CancelFilter(created_before=PAST), set()),
        (CancelFilter(created_before=4e9), {"plain", "tenant", "agent", "needs"}),
    ],
)
async def test_runs_that_fit_are_asked_to_end(
    operator: PostgresOperatorStore,
    empty_urls: DatabaseUrls,
    runs: dict[str, NewRun],
    where: CancelFilter,
    fits: set[str],
) -> None:
    assert await operator.cancel_runs(where, reason="stop", actor=ACTOR) == len(fits)
    assert await asked(empty_urls) == {runs[name].run_id for name in fits}


async def test_a_wish_is_told_with_its_reason_and_who_had_it(
    operator: PostgresOperatorStore, empty_database: Database
) -> None:
    run = new_run(TENANT)
    await submit(empty_database, run)
    await operator.cancel_runs(CancelFilter(tenant_id=TENANT), reason=NUL, actor=NUL)
    record = await read(empty_database, TENANT, run.run_id)
    assert (record.cancel_reason, record.cancel_requested_by) == (NUL, NUL)
    assert record.cancel_requested_at is not None


async def test_runs_that_were_asked_before_are_not_counted_again(
    operator: PostgresOperatorStore, empty_database: Database, runs: dict[str, NewRun]
) -> None:
    await operator.cancel_runs(CancelFilter(tenant_id=OTHER), reason="first", actor=ACTOR)
    assert await operator.cancel_runs(CancelFilter(created_before=4e9), reason="second", actor=ACTOR) == 1
    assert (await read(empty_database, OTHER, runs["plain"].run_id)).cancel_reason == "first"


async def test_a_running_run_goes_on_until_its_worker_hears_of_it(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database
) -> None:
    await submit(empty_database, new_run(TENANT))
    claim = await take(work)
    assert await operator.cancel_runs(CancelFilter(tenant_id=TENANT), reason="stop", actor=ACTOR) == 1
    renewal = (await work.renew([claim], lease_seconds=60))[claim.run_id]
    assert renewal.wish is not None
    assert renewal.wish.reason == "stop"


async def test_a_suspended_run_is_queued_and_its_questions_are_closed(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    await submit(empty_database, new_run(TENANT))
    claim = await take(work)
    await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED, asked=(question(),)))
    assert await operator.cancel_runs(CancelFilter(agent="clerk"), reason=None, actor=ACTOR) == 1
    assert (await read(empty_database, TENANT, claim.run_id)).state is RunState.QUEUED
    assert [row["status"] for row in await query(empty_urls.superuser_url, "SELECT status FROM approvals")] == [
        "cancelled"
    ]


async def test_a_run_that_has_ended_and_one_below_another_are_left_alone(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    await submit(empty_database, new_run(TENANT))
    await work.append_if_owner(await take(work), [terminated()], update(RunState.COMPLETED))
    await submit(empty_database, new_run(TENANT))
    root = await take(work)
    await work.adopt(root, new_run(TENANT, parent_run_id=root.run_id))
    assert await operator.cancel_runs(CancelFilter(tenant_id=TENANT), reason=None, actor=ACTOR) == 1
    assert await asked(empty_urls) == {root.run_id}


async def test_a_filter_without_a_condition_is_refused(
    operator: PostgresOperatorStore, empty_urls: DatabaseUrls, runs: dict[str, NewRun]
) -> None:
    with pytest.raises(ValueError, match="everything"):
        await operator.cancel_runs(CancelFilter(), reason=None, actor=ACTOR)
    assert await asked(empty_urls) == set()


# --- a tenant that goes ----------------------------------------------------------------------------------------------


async def test_a_tenant_that_is_erased_loses_its_keys_and_its_runs_are_asked_to_end(
    operator: PostgresOperatorStore, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    tenant, other = await new_tenant(operator), await new_tenant(operator)
    for owner in (tenant.tenant_id, other.tenant_id):
        await operator.add_key(new_key(owner), actor=ACTOR)
        await submit(empty_database, new_run(owner))
    assert await operator.erase_tenant(tenant.tenant_id, actor=ACTOR)
    states = await operator.list_tenants()
    [lost], [kept] = [await operator.list_keys(owner.tenant_id) for owner in (tenant, other)]
    asked_in = await query(empty_urls.superuser_url, "SELECT tenant_id FROM runs WHERE cancel_requested_at IS NOT NULL")
    assert {state.tenant_id for state in states if state.erasing} == {tenant.tenant_id}
    assert (lost.revoked_at is None, kept.revoked_at is None) == (False, True)
    assert [row["tenant_id"] for row in asked_in] == [tenant.tenant_id]


async def test_an_erasure_that_is_asked_for_again_reaches_runs_that_came_meanwhile(
    operator: PostgresOperatorStore, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    tenant = await new_tenant(operator)
    await operator.erase_tenant(tenant.tenant_id, actor=ACTOR)
    late = new_run(tenant.tenant_id)
    await submit(empty_database, late)
    assert await operator.erase_tenant(tenant.tenant_id, actor="again")
    assert await asked(empty_urls) == {late.run_id}
    assert len(await trail(operator, tenant.tenant_id, "tenant.changed")) == 1


async def add(operator: PostgresOperatorStore, old: NewKey, new: NewKey) -> KeyInfo | None:
    return await operator.add_key(new, actor=ACTOR)


async def rotate(operator: PostgresOperatorStore, old: NewKey, new: NewKey) -> KeyInfo | None:
    return await operator.rotate_key(old.key_id, old.tenant_id, new, overlap_seconds=60, actor=ACTOR)


@pytest.mark.parametrize("make", [add, rotate])
async def test_a_key_that_is_made_while_its_tenant_is_marked_is_not_valid(
    operator: PostgresOperatorStore,
    empty_urls: DatabaseUrls,
    make: Callable[[PostgresOperatorStore, NewKey, NewKey], Awaitable[KeyInfo | None]],
) -> None:
    tenant = await new_tenant(operator)
    old = new_key(tenant.tenant_id)
    await operator.add_key(old, actor=ACTOR)
    marking = await asyncpg.connect(empty_urls.app_url)
    async with marking.transaction():
        await marking.execute("SELECT operator_erase_tenant('ops', $1)", tenant.tenant_id)
        late = asyncio.ensure_future(make(operator, old, new_key(tenant.tenant_id)))
        await wait_for_rows(empty_urls.superuser_url, SOMEBODY_WAITS)
    await marking.close()
    assert await late is None
    assert [key.revoked_at is None for key in await operator.list_keys(tenant.tenant_id)] == [False]


async def test_a_tenant_is_marked_after_a_key_that_is_being_made_and_takes_that_too(
    operator: PostgresOperatorStore, empty_urls: DatabaseUrls
) -> None:
    tenant = await new_tenant(operator)
    making = await asyncpg.connect(empty_urls.app_url)
    async with making.transaction():
        await making.execute(ADD_KEY, tenant.tenant_id)
        late = asyncio.ensure_future(operator.erase_tenant(tenant.tenant_id, actor=ACTOR))
        await wait_for_rows(empty_urls.superuser_url, SOMEBODY_WAITS)
    await making.close()
    assert await late
    assert [key.revoked_at is None for key in await operator.list_keys(tenant.tenant_id)] == [False]


async def test_an_unknown_tenant_is_not_erased(operator: PostgresOperatorStore) -> None:
    assert not await operator.erase_tenant(TENANT, actor=ACTOR)


# --- workers ---------------------------------------------------------------------------------------------------------


async def test_workers_are_listed_with_what_they_have(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_urls: DatabaseUrls
) -> None:
    await work.hello(WorkerId("silent"), frozenset())
    await query(empty_urls.superuser_url, "UPDATE workers SET seen_at = seen_at - interval '3 minutes'")
    await work.hello(WORKER, frozenset({"tool:pay", NUL}))
    [told] = await operator.list_workers()
    assert (told.worker_id, told.has, told.draining) == (WORKER, frozenset({"tool:pay", NUL}), False)
    assert told.seen_at > 1e9


async def test_a_worker_that_is_to_drain_hears_of_it_and_claims_nothing(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database
) -> None:
    other = WorkerId("v")
    assert [await work.hello(worker, frozenset()) for worker in (WORKER, other)] == [False, False]
    await submit(empty_database, new_run(TENANT))
    assert await operator.drain_worker(WORKER, actor=ACTOR)
    assert [await work.hello(worker, frozenset()) for worker in (WORKER, other)] == [True, False]
    assert [worker.draining for worker in await operator.list_workers()] == [False, True]
    assert await work.claim(WORKER, limit=1, lease_seconds=60) == []
    assert len(await work.claim(other, limit=1, lease_seconds=60)) == 1


async def test_a_worker_that_drains_is_none_that_could_take_a_run(
    operator: PostgresOperatorStore, work: PostgresWorkStore, empty_database: Database
) -> None:
    await work.hello(WORKER, frozenset())
    await submit(empty_database, new_run(TENANT))
    before = (await PostgresGauges(empty_database).snapshot()).unclaimable
    await operator.drain_worker(WORKER, actor=ACTOR)
    assert (before, (await PostgresGauges(empty_database).snapshot()).unclaimable) == (0, 1)


async def test_an_unknown_worker_does_not_drain(operator: PostgresOperatorStore) -> None:
    assert not await operator.drain_worker(NUL, actor=ACTOR)


async def test_the_service_asks_no_run_to_end_past_the_operators_functions(empty_urls: DatabaseUrls) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await query(empty_urls.app_url, "SELECT ask_runs_to_end(ARRAY['ten_a'], ARRAY['run_x'], NULL, NULL)")
