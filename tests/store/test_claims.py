"""How the database hands out runs: how many a tenant may have at once, what a lane is, and along which index."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest

from app.events import RunState
from app.execution.system import SystemClock
from app.ids import TenantId, WorkerId
from app.ports.records import CancelWish, Claim, NewRun
from app.store.database import Database, DatabaseConfig
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from benchmarks.support.plans import plans_of
from tests.conftest import DatabaseUrls
from tests.store.support import new_run, query, question, submit, terminated, update, wait_for_rows, warned

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
WORKER = WorkerId("w")
LOAD = """
    INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, budget, max_llm_calls,
        priority, metadata, created_at, queued_at, ended_at, lane)
    SELECT 'ten_' || n % 10, $1 || n, current_date, $1, 'clerk', 1, '"hi"', '{}', '{}', 10, n % 3, '{}', now(), now(),
        CASE WHEN $1 = 'completed' THEN now() END, 'lane_' || n % 3
    FROM generate_series(1, $2::integer) AS n
"""
ASK = """
    INSERT INTO approvals (tenant_id, approval_id, run_id, root_run_id, agent, tool, call_id, kind, dispatch,
        arguments_digest, summary, reason, flagged, requested_at, expires_at)
    SELECT r.tenant_id, r.run_id, r.run_id, r.run_id, 'clerk', 'pay', 'call_1', 'call', 1, '', '{}', '', false, now(),
        now() + interval '1 day'
    FROM runs r WHERE r.state = 'suspended'
"""
SOMEBODY_WAITS = """
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
FUNCTIONS = ["claim_runs", "claim_ending_runs", "sweep_waiting_runs"]


@pytest.fixture
async def database(empty_urls: DatabaseUrls) -> AsyncIterator[Database]:
    database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=20, pool_timeout_seconds=30))
    yield database
    await database.close()


@pytest.fixture
def work(database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(database, SystemClock())


async def allow(urls: DatabaseUrls, tenant_id: TenantId, max_running: int | None) -> None:
    await query(
        urls.superuser_url,
        "INSERT INTO tenants (tenant_id, name, max_running) VALUES ($1, $1, $2)"
        " ON CONFLICT (tenant_id) DO UPDATE SET max_running = excluded.max_running",
        tenant_id,
        max_running,
    )


async def queue(database: Database, *tenants: TenantId) -> list[NewRun]:
    runs = [new_run(tenant_id) for tenant_id in tenants]
    for run in runs:
        await submit(database, run)
    return runs


async def take(work: PostgresWorkStore, limit: int = 9) -> Sequence[Claim]:
    return await work.claim(WORKER, limit=limit, lease_seconds=60)


async def end(work: PostgresWorkStore, claim: Claim) -> None:
    await work.append_if_owner(claim, [terminated()], update(RunState.COMPLETED))


# --- how many at once ------------------------------------------------------------------------------------------------


async def test_a_tenant_has_no_more_running_runs_than_it_may(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, 2)
    runs = await queue(database, *[TENANT] * 4)
    claims = await take(work)
    assert [claim.run_id for claim in claims] == [run.run_id for run in runs[:2]]
    assert await take(work) == []
    await end(work, claims[0])
    assert [claim.run_id for claim in await take(work)] == [runs[2].run_id]


async def test_a_tenant_that_may_have_any_number_has_them(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, None)
    await queue(database, *[TENANT] * 4)
    assert len(await take(work)) == 4


async def test_a_tenant_that_may_have_none_waits(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, 0)
    await queue(database, TENANT)
    assert await take(work) == []


async def test_a_full_tenant_stands_in_no_other_ones_way(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, 1)
    await queue(database, TENANT, TENANT)
    [held] = await take(work, 1)
    [theirs] = await queue(database, OTHER)
    assert [claim.run_id for claim in await take(work, 1)] == [theirs.run_id]
    assert held.tenant_id == TENANT


async def test_what_one_tenant_may_not_have_another_one_gets(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, 1)
    await queue(database, *[TENANT] * 4, *[OTHER] * 4)
    assert sorted(claim.tenant_id for claim in await take(work, 4)) == [TENANT, OTHER, OTHER, OTHER]


async def test_runs_below_others_and_suspended_ones_take_no_place(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, 2)
    await queue(database, *[TENANT] * 3)
    first, second = await take(work)
    await work.adopt(first, new_run(TENANT, parent_run_id=first.run_id))
    await work.append_if_owner(second, [warned()], update(RunState.SUSPENDED, asked=(question(),)))
    assert len(await take(work)) == 1


async def test_runs_that_only_need_to_end_take_no_turn(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, 1)
    _, second = await queue(database, TENANT, TENANT)
    await take(work, 1)
    async with PostgresTenantStore(database).begin(TENANT) as tx:
        await tx.request_cancel(second.run_id, CancelWish(reason=None, requested_by=None))
    [ending] = await work.claim_ending(WORKER, limit=9, lease_seconds=60)
    assert ending.run_id == second.run_id


async def test_a_claim_waits_for_another_one_of_the_same_tenant_and_counts_what_that_took(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, 2)
    await queue(database, *[TENANT] * 5)
    await end(work, (await take(work, 1))[0])
    first = await asyncpg.connect(empty_urls.app_url)
    async with first.transaction():
        await first.execute("SELECT claim_runs('v', 1, 60)")
        late = asyncio.ensure_future(take(work))
        await wait_for_rows(empty_urls.superuser_url, SOMEBODY_WAITS)
    await first.close()
    assert len(await late) == 1


async def test_workers_that_claim_at_once_do_not_pass_the_bound_together(
    empty_urls: DatabaseUrls, database: Database, work: PostgresWorkStore
) -> None:
    await allow(empty_urls, TENANT, 3)
    await queue(database, *[TENANT] * 30)
    barrier = asyncio.Barrier(15)

    async def claim() -> Sequence[Claim]:
        await barrier.wait()
        return await take(work, 2)

    claimed = [claim.run_id for claims in await asyncio.gather(*(claim() for _ in range(15))) for claim in claims]
    assert len(claimed) == len(set(claimed)) == 3


async def test_workers_that_claim_and_end_at_once_never_take_the_same_run(
    database: Database, work: PostgresWorkStore
) -> None:
    store = PostgresTenantStore(database)
    for run in await queue(database, *[TENANT] * 20):
        async with store.begin(TENANT) as tx:
            await tx.request_cancel(run.run_id, CancelWish(reason=None, requested_by=None))
    barrier = asyncio.Barrier(10)

    async def claim(ending: bool) -> Sequence[Claim]:
        await barrier.wait()
        claiming = work.claim_ending if ending else work.claim
        return await claiming(WORKER, limit=20, lease_seconds=60)

    claims = await asyncio.gather(*(claim(n % 2 == 0) for n in range(10)))
    taken = [(claim.run_id, claim.fence) for some in claims for claim in some]
    assert len(taken) == len({run_id for run_id, _ in taken}) == 20
    assert {fence for _, fence in taken} == {1}


# --- lanes -----------------------------------------------------------------------------------------------------------


async def test_runs_that_need_the_same_share_a_lane(empty_urls: DatabaseUrls, database: Database) -> None:
    for needs in ({"b", "a"}, {"a", "b"}, {"a"}, set()):
        await submit(database, new_run(TENANT, needs=frozenset(needs)))
    rows = await query(empty_urls.superuser_url, "SELECT names FROM lanes ORDER BY names")
    lanes = await query(empty_urls.superuser_url, "SELECT lane FROM runs ORDER BY created_at")
    assert [row["names"] for row in rows] == [["a"], ["a", "b"]]
    assert lanes[0] == lanes[1]
    assert len(set(lanes)) == 3
    assert lanes[3]["lane"] == ""


async def test_a_lane_is_what_its_names_hash_to(empty_urls: DatabaseUrls, database: Database) -> None:
    await submit(database, new_run(TENANT, needs=frozenset({"tool:pay", "model:x"})))
    [row] = await query(empty_urls.superuser_url, "SELECT lane FROM runs")
    # The first half of SHA-256 of "model:x\ntool:pay", as every release has to make it.
    assert row["lane"] == "c5222e946806a7c4"


async def test_many_who_submit_to_a_new_lane_at_once_make_it_once(empty_urls: DatabaseUrls, database: Database) -> None:
    runs = [new_run(TenantId(f"ten_{n}"), needs=frozenset({"a", "b"})) for n in range(10)]
    await asyncio.gather(*(submit(database, run) for run in runs))
    assert len(await query(empty_urls.superuser_url, "SELECT FROM lanes")) == 1


async def test_a_worker_that_was_silent_for_an_hour_is_forgotten(
    empty_urls: DatabaseUrls, work: PostgresWorkStore
) -> None:
    await work.hello(WorkerId("old"), frozenset())
    await query(empty_urls.superuser_url, "UPDATE workers SET seen_at = now() - interval '2 hours'")
    await work.hello(WorkerId("new"), frozenset({"b", "a"}))
    rows = await query(empty_urls.superuser_url, "SELECT worker_id, names FROM workers")
    assert [tuple(row) for row in rows] == [("new", ["a", "b"])]


async def test_a_worker_is_known_by_what_it_said_last(empty_urls: DatabaseUrls, work: PostgresWorkStore) -> None:
    await work.hello(WORKER, frozenset({"a"}))
    await work.hello(WORKER, frozenset({"b"}))
    assert [row["names"] for row in await query(empty_urls.superuser_url, "SELECT names FROM workers")] == [["b"]]


# --- along the index -------------------------------------------------------------------------------------------------


@pytest.fixture
async def loaded(empty_urls: DatabaseUrls) -> AsyncIterator[asyncpg.Connection]:
    """Runs that have ended, and fewer that wait for a worker or for people."""
    connection = await asyncpg.connect(empty_urls.superuser_url)
    await connection.execute(LOAD, "completed", 20_000)
    await connection.execute(LOAD, "queued", 3000)
    await connection.execute(LOAD, "suspended", 500)
    await connection.execute(ASK)
    await connection.execute("ANALYZE runs, approvals")
    # What it has read is told now, and not when somebody counts.
    await connection.execute("SELECT pg_stat_force_next_flush()")
    yield connection
    await connection.close()


@pytest.mark.parametrize("function", FUNCTIONS)
async def test_a_claim_is_planned_along_indexes(loaded: asyncpg.Connection, function: str) -> None:
    plans = "\n".join(await plans_of(loaded, function))
    assert "Seq Scan on runs" not in plans
    assert " on runs" in plans


async def test_a_claim_looks_for_runs_along_the_index_of_the_queue(loaded: asyncpg.Connection) -> None:
    first, *_, last = await plans_of(loaded, "claim_runs")
    assert "Index Only Scan using ix_runs_queued" in first
    assert "Index Only Scan using ix_runs_queued on runs" in last
    assert "Index Scan using pk_runs" in last


async def test_a_look_for_runs_to_end_stops_at_the_present(loaded: asyncpg.Connection) -> None:
    plan, *_ = await plans_of(loaded, "claim_ending_runs")
    assert "Index Scan using ix_runs_ending" in plan
    assert "Index Cond: (LEAST(cancel_requested_at, deadline_at) <=" in plan


async def test_a_look_for_runs_that_were_lost_too_often_reads_only_those(loaded: asyncpg.Connection) -> None:
    _, plan, _ = await plans_of(loaded, "claim_ending_runs")
    assert "Index Scan using ix_runs_recovered" in plan
    assert "Index Cond: ((recoveries > 0) AND (recoveries > $3))" in plan


async def test_claims_and_sweeps_read_no_table_of_runs_from_end_to_end(
    loaded: asyncpg.Connection, empty_database: Database
) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    before = await sequential_scans(loaded, empty_database)
    for _ in range(3):
        assert len(await take(work, 16)) == 16
        await work.claim(WORKER, limit=1, lease_seconds=60, has=frozenset({"x"}))
        await work.claim_ending(WORKER, limit=1, lease_seconds=60, max_recoveries=3)
        await work.sweep_waiting()
    assert await sequential_scans(loaded, empty_database) == before


async def sequential_scans(connection: asyncpg.Connection, by: Database) -> int:
    """Of runs, so far, also by that pool's connection that was used last, which tells its own now."""
    await by.fetch("SELECT pg_stat_force_next_flush()")
    count: int = await connection.fetchval("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'runs'")
    return count
