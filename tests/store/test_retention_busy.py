"""Erasing stands in nobody's way: the rest goes on while two thousand runs go."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from app.events import RunState
from app.execution.retention import Retained, Retention, RetentionPace, retain_once
from app.execution.system import SystemClock
from app.ids import TenantId, WorkerId
from app.store.database import Database, DatabaseConfig
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.execution.support import RecordingSink
from tests.store.ageing import KEEPING, Aged
from tests.store.support import new_run, query, terminated, update, warned

TENANT = TenantId("ten_a")
RUNS = 2000
PACE = RetentionPace(pause_seconds=0.001)
PLANS = """
    EXPLAIN SELECT r.run_id, r.ended_at FROM runs r
    WHERE r.tenant_id = 'ten_a' AND r.session_id IS NULL AND r.parent_run_id IS NULL
        AND r.ended_at < (SELECT kept_from('ten_a', 'runs_days'))
        AND (r.ended_at, r.run_id) > ('1970-01-01'::timestamptz, '')
        AND NOT EXISTS (SELECT FROM runs n WHERE n.tenant_id = 'ten_a' AND n.resumes = r.run_id)
    ORDER BY r.ended_at, r.run_id LIMIT 50
"""


@pytest.fixture
async def aged(fresh_urls: DatabaseUrls) -> AsyncIterator[Aged]:
    """A database in which whoever waits for a lock for longer than an erasure may fails."""
    name = urlsplit(fresh_urls.app_url).path.removeprefix("/")
    await query(fresh_urls.superuser_url, f"ALTER DATABASE {name} SET lock_timeout = '500ms'")
    database = Database(DatabaseConfig(url=fresh_urls.app_url, pool_size=4))
    yield Aged(url=fresh_urls.superuser_url, database=database)
    await database.close()


async def drive_runs(aged: Aged, tenant_id: TenantId, stop: asyncio.Event) -> int:
    """Accepts, claims, drives, lists and reads runs, one after the other. Returns how many."""
    tenants, work = PostgresTenantStore(aged.database), PostgresWorkStore(aged.database, SystemClock())
    driven = 0
    while not stop.is_set():
        async with tenants.begin(tenant_id) as tx:
            accepted = await tx.insert_run(new_run(tenant_id))
        [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
        await work.append_if_owner(claim, [warned()], update())
        await work.append_if_owner(claim, [terminated()], update(RunState.COMPLETED))
        async with tenants.begin(tenant_id) as tx:
            assert len(await tx.events_after(accepted.run_id, 0, limit=9)) == 3
        driven += 1
    return driven


async def test_claims_appends_and_reads_go_on_while_two_thousand_runs_are_erased(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await aged.many_runs(TENANT, RUNS)
    told: list[Retained] = []
    retention = Retention(
        store=aged.store, archive=None, clock=SystemClock(), sink=RecordingSink(), tell=told.append, pace=PACE
    )
    stop = asyncio.Event()
    driving = asyncio.create_task(drive_runs(aged, TENANT, stop))
    await retain_once(retention)
    stop.set()
    driven = await driving
    assert told == [Retained(tenant_id=TENANT, runs=RUNS)]
    assert driven > 20
    assert await aged.count("runs", TENANT) == driven
    assert await aged.count("events", TENANT) == 3 * driven


async def test_two_processes_share_the_work_and_erase_each_run_once(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await aged.many_runs(TENANT, 200)
    told: list[Retained] = []
    eager = Retention(
        store=aged.store,
        archive=None,
        clock=SystemClock(),
        sink=RecordingSink(),
        tell=told.append,
        # Nobody's turn is held, so that both are at the same runs.
        pace=RetentionPace(pause_seconds=0.001, hold_seconds=0),
    )
    await asyncio.gather(retain_once(eager), retain_once(eager))
    assert sum(retained.runs for retained in told) == 200
    assert await aged.count("runs", TENANT) == 0


async def test_what_is_due_is_found_along_an_index(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await aged.many_runs(TENANT, RUNS)
    await query(aged.url, "ANALYZE runs")
    async with aged.database.enter_tenant(TENANT) as driver:
        plan = "\n".join(row[0] for row in await driver.fetch(PLANS))
    assert "Index Scan using ix_runs_ended" in plan or "Index Only Scan using ix_runs_ended" in plan
    assert "Seq Scan on runs" not in plan
