"""What a tenant's setting no longer keeps is found and erased, and nothing else."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.execution.retention import Retention, retain_once
from app.ids import RunId, TenantId
from app.ports.sessions import SessionFilter
from app.store.database import Database
from app.testing import FakeClock
from tests.conftest import DatabaseUrls
from tests.execution.support import RecordingSink
from tests.store.ageing import KEEPING, Aged, locked
from tests.store.support import new_run, query, read, wait_for_rows

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
OF_RUNS = ("runs", "events", "run_metadata", "approvals", "approval_changes", "webhook_deliveries")
OF_SESSIONS = ("sessions", "session_items", "artifacts", "state_entries")


@pytest.fixture
def aged(empty_urls: DatabaseUrls, empty_database: Database) -> Aged:
    return Aged(url=empty_urls.superuser_url, database=empty_database)


@pytest.fixture
async def patient(aged: Aged) -> AsyncIterator[None]:
    """Erasing that waits for a lock would wait for a minute."""
    for name in ("retain_run", "retain_session"):
        await query(aged.url, f"ALTER FUNCTION {name} SET lock_timeout = '1min'")
    yield
    for name in ("retain_run", "retain_session"):
        await query(aged.url, f"ALTER FUNCTION {name} SET lock_timeout = '500ms'")


async def test_a_run_is_due_when_it_ended_so_many_days_ago(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    old = await aged.ended_run(TENANT, days=30.01)
    await aged.ended_run(TENANT, days=29.99)
    assert await aged.due_runs(TENANT) == [old]


@pytest.mark.parametrize("retention", [{}, {"sessions_days": 1}, {"runs_days": None, "archive": True}])
async def test_without_a_setting_runs_are_kept_for_good(aged: Aged, retention: dict[str, int | None]) -> None:
    await aged.tenant(TENANT, **retention)
    run_id = await aged.ended_run(TENANT, days=4000)
    assert await aged.due_runs(TENANT) == []
    assert not await aged.store.erase_due_run(TENANT, run_id)


async def test_the_clock_of_a_process_does_not_matter(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await aged.ended_run(TENANT, days=30.01)
    await aged.ended_run(TENANT, days=29.99)
    far_ahead = FakeClock(start_at=4_000_000_000)
    await retain_once(Retention(store=aged.store, archive=None, clock=far_ahead, sink=RecordingSink()))
    assert await aged.count("runs", TENANT) == 2


async def test_the_oldest_come_first_and_a_page_goes_on_behind_the_last(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    second = await aged.ended_run(TENANT, days=40)
    first = await aged.ended_run(TENANT, days=50)
    [page] = await aged.store.due_runs(TENANT, limit=1, after=None)
    assert page.run_id == first
    assert await aged.due_runs(TENANT, after=page) == [second]


async def test_all_that_is_kept_of_a_run_and_of_those_below_it_goes(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    before = [await aged.count(table, TENANT) for table in OF_RUNS]
    assert await aged.store.erase_due_run(TENANT, run_id)
    assert before == [2, 5, 2, 2, 2, 1]
    assert [await aged.count(table, TENANT) for table in OF_RUNS] == [0] * 6


async def test_other_runs_and_the_same_ids_of_another_tenant_stay(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await aged.tenant(OTHER, **KEEPING)
    same = RunId("run_same")
    await aged.ended_run(OTHER, days=40, run_id=same)
    kept = [await aged.count(table, OTHER) for table in OF_RUNS]
    await aged.ended_run(TENANT, days=40, run_id=same)
    await aged.ended_run(TENANT, days=40)
    assert await aged.store.erase_due_run(TENANT, same)
    assert [await aged.count(table, OTHER) for table in OF_RUNS] == kept
    assert [await aged.count(table, TENANT) for table in OF_RUNS] == kept


@pytest.mark.parametrize("state", ["queued", "running", "suspended"])
async def test_a_run_that_has_not_ended_is_never_erased_however_old(aged: Aged, state: str) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run = new_run(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(run)
    await query(aged.url, "UPDATE runs SET state = $1, created_at = now() - interval '400 days'", state)
    assert await aged.due_runs(TENANT) == []
    assert not await aged.store.erase_due_run(TENANT, run.run_id)
    async with aged.tenants.begin(TENANT) as tx:
        assert not await tx.erase_run(run.run_id)


@pytest.mark.parametrize("state", ["running", "suspended"])
async def test_a_run_with_one_below_it_that_has_not_ended_is_never_erased(aged: Aged, state: str) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    await query(aged.url, "ALTER TABLE runs DISABLE TRIGGER runs_end_once")
    await query(aged.url, "UPDATE runs SET state = $1 WHERE parent_run_id IS NOT NULL", state)
    await query(aged.url, "ALTER TABLE runs ENABLE TRIGGER runs_end_once")
    assert not await aged.store.erase_due_run(TENANT, run_id)


async def test_a_run_below_another_one_is_not_erased_alone(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    [child] = await query(aged.url, "SELECT run_id FROM runs WHERE parent_run_id = $1", run_id)
    assert await aged.due_runs(TENANT) == [run_id]
    assert not await aged.store.erase_due_run(TENANT, child["run_id"])
    async with aged.tenants.begin(TENANT) as tx:
        assert not await tx.erase_run(child["run_id"])


async def test_a_setting_that_was_changed_after_the_look_counts(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    assert await aged.due_runs(TENANT) == [run_id]
    await aged.change(TENANT, runs_days=41)
    assert not await aged.store.erase_due_run(TENANT, run_id)


@pytest.mark.usefixtures("patient")
async def test_a_locked_run_is_left_at_once(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    async with locked(aged.url, "SELECT FROM runs WHERE run_id = $1 FOR NO KEY UPDATE", run_id):
        async with asyncio.timeout(20):
            assert not await aged.store.erase_due_run(TENANT, run_id)
    assert await aged.store.erase_due_run(TENANT, run_id)


async def test_a_locked_question_of_a_run_is_not_waited_for_longer_than_the_lock_timeout(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    async with locked(aged.url, "SELECT FROM approvals WHERE run_id = $1 FOR UPDATE", run_id):
        async with asyncio.timeout(20):
            assert not await aged.store.erase_due_run(TENANT, run_id)
    assert await aged.count("events", TENANT) == 5


async def test_a_run_that_another_one_goes_on_from_stays_as_long_as_that_one(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    first = await aged.ended_run(TENANT, days=40)
    second = await aged.ended_run(TENANT, days=35)
    await query(aged.url, "UPDATE runs SET resumes = $1 WHERE run_id = $2", first, second)
    assert await aged.due_runs(TENANT) == [second]
    assert not await aged.store.erase_due_run(TENANT, first)
    assert await aged.store.erase_due_run(TENANT, second)
    assert await aged.due_runs(TENANT) == [first]


async def test_a_run_of_a_session_stays_as_long_as_the_session(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    run_id = await aged.ended_run(TENANT, session_id=session_id)
    await aged.age_session(session_id, 59)
    assert await aged.due_runs(TENANT) == []
    assert not await aged.store.erase_due_run(TENANT, run_id)


async def test_a_session_goes_with_its_runs_when_it_was_not_used_for_so_long(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    run_id = await aged.ended_run(TENANT, session_id=session_id)
    await aged.age_session(session_id, 61)
    assert await aged.due_sessions(TENANT) == [session_id]
    assert not await aged.store.erase_due_session(TENANT, session_id), "its runs go first"
    assert await aged.store.erase_due_run(TENANT, run_id)
    assert await aged.store.erase_due_session(TENANT, session_id)
    assert [await aged.count(table, TENANT) for table in OF_RUNS + OF_SESSIONS] == [0] * 10


async def test_a_session_that_is_used_again_while_its_runs_go_keeps_all_that_was_said(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    runs = [await aged.ended_run(TENANT, session_id=session_id) for _ in range(2)]
    await aged.age_session(session_id, 61)
    assert await aged.store.erase_due_run(TENANT, runs[1])
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(new_run(TENANT, session_id=session_id))
    assert not await aged.store.erase_due_run(TENANT, runs[0])
    assert not await aged.store.erase_due_session(TENANT, session_id)
    assert await aged.count("session_items", TENANT) == 2


async def test_an_old_session_that_was_used_lately_stays_with_all_its_runs(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    run_id = await aged.ended_run(TENANT, session_id=session_id)
    await aged.age_session(session_id, 61)
    await query(aged.url, "UPDATE sessions SET updated_at = clock_timestamp() - interval '1 day'")
    assert await aged.due_sessions(TENANT) == []
    assert not await aged.store.erase_due_run(TENANT, run_id)


async def test_a_new_artifact_keeps_its_session(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT, days=61)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.put_artifact(session_id, "b", data=b"", content_type="x/y")
    assert await aged.due_sessions(TENANT) == []
    assert not await aged.store.erase_due_session(TENANT, session_id)


async def test_a_session_whose_run_has_not_ended_is_not_due(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(new_run(TENANT, session_id=session_id))
    await aged.age_session(session_id, 61)
    assert await aged.due_sessions(TENANT) == []


async def test_sessions_are_looked_through_from_the_oldest_on(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    second, first = await aged.session(TENANT, days=70), await aged.session(TENANT, days=80)
    await aged.session(TENANT, days=59)
    old = await aged.store.old_sessions(TENANT, limit=10, after=None)
    assert [session.session_id for session in old] == [first, second]
    assert await aged.due_sessions(TENANT, after=old[0]) == [second]


@pytest.mark.usefixtures("patient")
async def test_a_locked_session_is_left_at_once(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    run_id = await aged.ended_run(TENANT, session_id=session_id)
    await aged.age_session(session_id, 61)
    async with locked(aged.url, "SELECT FROM sessions FOR NO KEY UPDATE"), asyncio.timeout(20):
        assert not await aged.store.erase_due_run(TENANT, run_id)
        assert not await aged.store.erase_due_session(TENANT, session_id)


async def test_runs_of_a_session_come_with_the_newest_first(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    session_id = await aged.session(TENANT)
    runs = [await aged.ended_run(TENANT, session_id=session_id) for _ in range(3)]
    assert await aged.store.runs_of_session(TENANT, session_id, limit=2) == [runs[2], runs[1]]


async def test_a_caller_erases_a_run_with_what_its_session_keeps_of_it(aged: Aged) -> None:
    await aged.tenant(TENANT)
    session_id = await aged.session(TENANT)
    run_id, kept = [await aged.ended_run(TENANT, session_id=session_id) for _ in range(2)]
    async with aged.tenants.begin(TENANT) as tx:
        await tx.remember(route="r", subject="s", key="k", body_digest="d")
        await tx.settle_key(route="r", subject="s", key="k", run_id=run_id)
        assert await tx.erase_run(run_id)
        assert await tx.get_run(run_id) is None
        assert [message.run_id for message in await tx.session_messages(session_id, limit=9, after=None)] == [kept]
        assert len(await tx.list_sessions(SessionFilter(), limit=9, before=None)) == 1
    assert await aged.count("idempotency_keys", TENANT) == 0


async def test_a_caller_erases_a_run_that_is_gone_without_complaint(aged: Aged) -> None:
    await aged.tenant(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        assert await tx.erase_run(RunId("run_none"))
    assert await aged.count("erasures", TENANT) == 0


async def test_a_run_whose_session_goes_on_after_it_is_not_erased_by_a_caller(aged: Aged) -> None:
    await aged.tenant(TENANT)
    session_id = await aged.session(TENANT)
    run_id = await aged.ended_run(TENANT, session_id=session_id)
    later = new_run(TENANT, session_id=session_id)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(later)
        assert not await tx.erase_run(run_id)
    assert (await read(aged.database, TENANT, run_id)).run_id == run_id


async def test_a_run_is_not_erased_by_a_caller_while_one_that_goes_on_from_it_has_not_ended(aged: Aged) -> None:
    await aged.tenant(TENANT)
    first, second = [await aged.ended_run(TENANT) for _ in range(2)]
    third = new_run(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(third)
    await query(aged.url, "UPDATE runs SET resumes = $1 WHERE run_id = $2", first, second)
    await query(aged.url, "UPDATE runs SET resumes = $1 WHERE run_id = $2", second, third.run_id)
    async with aged.tenants.begin(TENANT) as tx:
        assert not await tx.erase_run(first)


async def test_a_session_is_erased_while_a_question_of_it_is_being_decided_without_a_deadlock(aged: Aged) -> None:
    await aged.tenant(TENANT)
    session_id = await aged.session(TENANT)
    run_id = await aged.ended_run(TENANT, session_id=session_id)

    async def erase() -> bool:
        async with aged.tenants.begin(TENANT) as tx:
            return await tx.erase_session(session_id)

    async with locked(aged.url, "SELECT FROM runs WHERE run_id = $1 FOR NO KEY UPDATE", run_id):
        erasing = asyncio.create_task(erase())
        await wait_for_rows(aged.url, "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        free = await query(aged.url, "SELECT approval_id FROM approvals WHERE run_id = $1 FOR UPDATE NOWAIT", run_id)
    assert len(free) == 1
    assert await erasing
    assert await aged.count("approvals", TENANT) == 0


async def test_another_tenant_erases_nothing_by_a_setting_of_its_own(aged: Aged) -> None:
    await aged.tenant(TENANT)
    await aged.tenant(OTHER, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=400)
    assert not await aged.store.erase_due_run(OTHER, run_id)
    assert await aged.due_runs(OTHER) == []
    assert await aged.count("runs", TENANT) == 2
