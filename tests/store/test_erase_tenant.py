"""A tenant that was given up is erased, whatever table its rows lie in, once its runs have ended."""

import asyncio

import pytest

from app.events import RunState
from app.execution.erasures import forget_prefixes
from app.execution.system import Uuid7Ids
from app.execution.tenant_erasure import ErasurePace, TenantErasure, erase_tenants_once
from app.ids import TenantId, WorkerId
from app.ports.erasure import Portion
from app.store.database import Database, DatabaseConfig
from app.store.erasure import PostgresTenantErasure
from app.store.operator import PostgresOperatorStore
from app.store.retention import PostgresErasures
from app.testing import FakeClock
from tests.conftest import DatabaseUrls
from tests.execution.support import RecordingSink
from tests.store.ageing import KEEPING, Aged, locked
from tests.store.everywhere import find_rows, furnish
from tests.store.operating import new_key
from tests.store.support import new_run, query, terminated, update

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
# What is left of a tenant: who did what, and by when its prompts have to be forgotten.
LEFT = ["audit", "erasures"]
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"
ACTIONS = "SELECT actor, action FROM audit WHERE tenant_id = $1 ORDER BY audit_id"


@pytest.fixture
async def aged(empty_urls: DatabaseUrls, empty_database: Database) -> Aged:
    made = Aged(url=empty_urls.superuser_url, database=empty_database)
    await made.tenant(TENANT)
    return made


@pytest.fixture
def operator(aged: Aged) -> PostgresOperatorStore:
    return PostgresOperatorStore(aged.database, Uuid7Ids())


@pytest.fixture
def store(aged: Aged) -> PostgresTenantErasure:
    return PostgresTenantErasure(aged.database)


async def run_job(store: PostgresTenantErasure, *, batch: int = 1000) -> list[TenantId]:
    """One look, after which nobody can be at work any more. Returns the tenants that are gone."""
    gone: list[TenantId] = []
    pace = ErasurePace(unused_seconds=0, batch=batch)
    await erase_tenants_once(
        TenantErasure(store=store, clock=FakeClock(), sink=RecordingSink(), tell=gone.append, pace=pace)
    )
    return gone


async def test_no_table_keeps_a_row_of_it_but_the_trail_and_the_note_for_models(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    filled = await furnish(aged, operator, TENANT)
    assert await find_rows(aged.url, TENANT) == filled
    await operator.erase_tenant(TENANT, actor="boss")
    assert await run_job(store) == [TENANT]
    assert await find_rows(aged.url, TENANT) == LEFT


async def test_another_tenant_keeps_a_row_in_every_table(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    await aged.tenant(OTHER)
    filled = await furnish(aged, operator, OTHER)
    await operator.erase_tenant(TENANT, actor="boss")
    await run_job(store)
    assert await find_rows(aged.url, OTHER) == filled


async def test_a_tenant_that_was_not_given_up_can_not_be_erased(aged: Aged, store: PostgresTenantErasure) -> None:
    await aged.ended_run(TENANT)
    assert await store.erase_portion(TENANT, limit=1000) is Portion.BUSY
    assert (await run_job(store), await aged.count("runs", TENANT)) == ([], 2)


async def test_it_is_left_alone_while_a_request_may_still_be_at_work(
    operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    await operator.erase_tenant(TENANT, actor="boss")
    assert await store.tenants_to_erase(unused_seconds=60) == []
    assert await store.tenants_to_erase(unused_seconds=0) == [TENANT]


async def test_it_waits_until_its_runs_have_ended(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(new_run(TENANT))
    [claim] = await aged.work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await operator.erase_tenant(TENANT, actor="boss")
    assert await run_job(store) == []
    assert await aged.count("events", TENANT) == 1
    await aged.work.append_if_owner(claim, [terminated(RunState.CANCELLED)], update(RunState.CANCELLED))
    assert await run_job(store) == [TENANT]


async def test_a_run_that_came_at_the_last_moment_is_asked_to_end_too(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    await operator.erase_tenant(TENANT, actor="boss")
    late = new_run(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(late)
    assert await store.erase_portion(TENANT, limit=1000) is Portion.WAITING
    async with aged.tenants.begin(TENANT) as tx:
        found = await tx.get_run(late.run_id)
    assert found is not None
    assert found.cancel_requested_at is not None
    assert found.cancel_requested_by == "boss"


async def test_it_goes_in_small_portions_and_the_tenant_last(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    await aged.many_runs(TENANT, 20)
    await operator.erase_tenant(TENANT, actor="boss")
    rows = [await aged.count("events", TENANT) + await aged.count("runs", TENANT)]
    assert await store.erase_portion(TENANT, limit=30) is Portion.MORE
    rows.append(await aged.count("events", TENANT) + await aged.count("runs", TENANT))
    assert rows[0] - rows[1] in range(25, 31)
    assert await aged.count("tenants", TENANT) == 1
    assert await run_job(store, batch=30) == [TENANT]


async def test_of_two_processes_one_erases_and_the_other_leaves_it(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    await operator.erase_tenant(TENANT, actor="boss")
    async with locked(aged.url, "SELECT FROM tenants WHERE tenant_id = 'ten_a' FOR UPDATE"), asyncio.timeout(20):
        assert await store.erase_portion(TENANT, limit=1000) is Portion.BUSY


async def test_a_row_that_somebody_holds_is_left_for_later(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    await aged.ended_run(TENANT)
    await operator.erase_tenant(TENANT, actor="boss")
    async with locked(aged.url, "SELECT FROM runs WHERE parent_run_id IS NULL FOR UPDATE"), asyncio.timeout(20):
        assert await run_job(store) == []
        assert (await aged.count("runs", TENANT), await aged.count("tenants", TENANT)) == (1, 1)
    assert await run_job(store) == [TENANT]


async def test_its_trail_stays_and_ends_with_who_gave_it_up(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    key = new_key(TENANT)
    await operator.add_key(key, actor="ops")
    await operator.erase_tenant(TENANT, actor="boss")
    await run_job(store)
    told = [(row["actor"], row["action"]) for row in await query(aged.url, ACTIONS, TENANT)]
    assert ("ops", "key.created") in told
    assert told[-1] == ("boss", "tenant.erased")


async def test_what_models_keep_of_its_prompts_is_forgotten_also_by_who_was_away(
    aged: Aged, operator: PostgresOperatorStore, store: PostgresTenantErasure
) -> None:
    await operator.erase_tenant(TENANT, actor="boss")
    await run_job(store)
    forgotten: asyncio.Queue[tuple[TenantId, float]] = asyncio.Queue()

    async def forget(tenant_id: TenantId, before: float) -> None:
        forgotten.put_nowait((tenant_id, before))

    [row] = await query(aged.url, NOW)
    async with asyncio.timeout(20):
        job = asyncio.create_task(forget_prefixes(PostgresErasures(aged.database), forget, FakeClock(), 10))
        tenant_id, before = await forgotten.get()
    job.cancel()
    assert tenant_id == TENANT
    assert row["now"] - 10 < before - 60 < row["now"]


async def test_its_name_is_free_again(operator: PostgresOperatorStore, store: PostgresTenantErasure) -> None:
    made = await operator.create_tenant("acme", actor="ops")
    assert made is not None
    await operator.erase_tenant(made.tenant_id, actor="boss")
    assert await operator.create_tenant("acme", actor="ops") is None
    assert await run_job(store) == [made.tenant_id]
    assert await operator.create_tenant("acme", actor="ops") is not None


async def test_retention_leaves_it_alone(aged: Aged, operator: PostgresOperatorStore) -> None:
    await aged.change(TENANT, **KEEPING)
    await operator.erase_tenant(TENANT, actor="boss")
    assert await aged.store.take_turn(hold_seconds=60, archives=True) is None
    assert await aged.count("retention_turns", TENANT) == 0


async def test_a_table_that_a_later_release_adds_is_erased_too(fresh_urls: DatabaseUrls) -> None:
    await query(fresh_urls.superuser_url, 'CREATE TABLE later (tenant_id text COLLATE "C" NOT NULL)')
    await query(fresh_urls.superuser_url, "SELECT guard_by_tenant('later')")
    await query(fresh_urls.superuser_url, "ALTER TABLE later OWNER TO runwright_owner")
    await query(fresh_urls.superuser_url, "INSERT INTO tenants (tenant_id, name) VALUES ('ten_a', 'a')")
    await query(fresh_urls.superuser_url, "INSERT INTO later VALUES ('ten_a'), ('ten_b')")
    database = Database(DatabaseConfig(url=fresh_urls.app_url, pool_size=1))
    await PostgresOperatorStore(database, Uuid7Ids()).erase_tenant(TENANT, actor="boss")
    assert await run_job(PostgresTenantErasure(database)) == [TENANT]
    await database.close()
    left = await query(fresh_urls.superuser_url, "SELECT tenant_id FROM later")
    assert [row["tenant_id"] for row in left] == [OTHER]
