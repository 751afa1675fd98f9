"""Answers, expiry, cancels and suspensions that meet: one of them counts, and none is overlooked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from app.events import RunState
from app.execution.system import SystemClock
from app.ids import SessionId, TenantId, WorkerId
from app.ports.desk import ApprovalStatus, Decided, NewApproval
from app.ports.records import CancelWish, Claim, NewRun
from app.ports.sessions import NewSession
from app.store.database import Database, DatabaseConfig
from app.store.tenant import PostgresTenantStore, PostgresTenantTx
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import PAST, new_run, query, question, read, submit, terminated, update, wait_for_rows, warned

TENANT = TenantId("ten_a")
APPROVE = Decided(decision="approve", decided_by="bob")
WISH = CancelWish(reason=None, requested_by="ada")
SOMEBODY_WAITS = """
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
async def database(empty_urls: DatabaseUrls) -> AsyncIterator[Database]:
    """Room for everybody who comes at once."""
    database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=25, pool_timeout_seconds=30))
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(database)


@pytest.fixture
def work(database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(database, SystemClock())


@pytest.fixture
async def root(database: Database, work: PostgresWorkStore) -> Claim:
    await submit(database, new_run(TENANT))
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    return claim


async def ask(work: PostgresWorkStore, claim: Claim, state: RunState, **changes: Any) -> NewApproval:
    asked = question(**changes)
    await work.append_if_owner(claim, [warned()], update(state, asked=(asked,)))
    return asked


async def suspend(work: PostgresWorkStore, claim: Claim) -> None:
    await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED))


async def decide(store: PostgresTenantStore, asked: NewApproval, by: str = "bob") -> bool:
    """Whether this answer counted."""
    async with store.begin(TENANT) as tx:
        return await decide_in(tx, asked, by)


async def decide_in(tx: PostgresTenantTx, asked: NewApproval, by: str = "bob") -> bool:
    found = await tx.lock_approval(asked.approval_id)
    assert found is not None
    if found.status is not ApprovalStatus.PENDING:
        return False
    await tx.decide_approval(asked.approval_id, Decided(decision="approve", decided_by=by))
    return True


async def status(work: PostgresWorkStore, asked: NewApproval) -> ApprovalStatus:
    found = await work.find_approval(TENANT, asked.approval_id)
    assert found is not None
    return found.status


@contextlib.asynccontextmanager
async def meanwhile(urls: DatabaseUrls, late: Awaitable[Any]) -> AsyncIterator["asyncio.Future[Any]"]:
    """Somebody else who begins before the block's end, and waits for what the block holds."""
    waiting = asyncio.ensure_future(late)
    await wait_for_rows(urls.superuser_url, SOMEBODY_WAITS)
    yield waiting


async def cancel(store: PostgresTenantStore, run: Claim) -> None:
    async with store.begin(TENANT) as tx:
        await tx.request_cancel(run.run_id, WISH)


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_of_twenty_who_answer_at_once_one_counts(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = await ask(work, root, RunState.SUSPENDED)
    barrier = asyncio.Barrier(20)

    async def answer(by: str) -> bool:
        async with store.begin(TENANT) as tx:
            await barrier.wait()
            return await decide_in(tx, asked, by)

    counted = await asyncio.gather(*(answer(f"person {n}") for n in range(20)))
    found = await work.find_approval(TENANT, asked.approval_id)
    changes = await query(empty_urls.superuser_url, "SELECT status FROM approval_changes ORDER BY change_id")
    assert found is not None
    assert (sum(counted), found.decided_by) == (1, f"person {counted.index(True)}")
    assert [row["status"] for row in changes] == ["pending", "approved"]
    assert len(await work.claim(WorkerId("w"), limit=9, lease_seconds=60)) == 1


async def test_two_who_give_the_last_two_answers_at_once_queue_the_run(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    first, second = await ask(work, root, RunState.RUNNING), await ask(work, root, RunState.SUSPENDED)
    async with store.begin(TENANT) as tx:
        await decide_in(tx, first)
        async with meanwhile(empty_urls, decide(store, second)) as late:
            pass
    assert await late
    assert [claim.run_id for claim in await work.claim(WorkerId("w"), limit=9, lease_seconds=60)] == [root.run_id]


# --- suspension ------------------------------------------------------------------------------------------------------


async def test_an_answer_that_commits_while_the_run_is_being_suspended_is_not_overlooked(
    empty_urls: DatabaseUrls,
    database: Database,
    store: PostgresTenantStore,
    work: PostgresWorkStore,
    root: Claim,
) -> None:
    asked = await ask(work, root, RunState.RUNNING)
    async with store.begin(TENANT) as tx:
        await decide_in(tx, asked)
        async with meanwhile(empty_urls, suspend(work, root)) as late:
            pass
    await late
    assert (await read(database, TENANT, root.run_id)).state is RunState.QUEUED


async def test_a_cancel_that_commits_while_the_run_is_being_suspended_is_not_overlooked(
    empty_urls: DatabaseUrls,
    database: Database,
    store: PostgresTenantStore,
    work: PostgresWorkStore,
    root: Claim,
) -> None:
    asked = await ask(work, root, RunState.RUNNING)
    async with store.begin(TENANT) as tx:
        await tx.request_cancel(root.run_id, WISH)
        async with meanwhile(empty_urls, suspend(work, root)) as late:
            pass
    await late
    assert (await read(database, TENANT, root.run_id)).state is RunState.QUEUED
    assert await status(work, asked) is ApprovalStatus.CANCELLED


async def test_an_answer_for_a_child_that_is_ending_waits_and_is_refused(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    child = (await work.adopt(root, new_run(TENANT, parent_run_id=root.run_id))).claim
    asked = await ask(work, child, RunState.RUNNING)
    async with store.begin(TENANT) as tx:
        await tx.lock_approval(asked.approval_id)
        ended = work.append_if_owner(child, [terminated()], update(RunState.COMPLETED))
        async with meanwhile(empty_urls, ended) as late:
            await tx.decide_approval(asked.approval_id, APPROVE)
    await late
    assert await status(work, asked) is ApprovalStatus.APPROVED
    assert not await decide(store, asked)


# --- expiry ----------------------------------------------------------------------------------------------------------


async def test_a_sweep_does_not_wait_for_whoever_answers_and_expires_nothing_under_him(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = await ask(work, root, RunState.SUSPENDED, expires_at=PAST)
    async with store.begin(TENANT) as tx:
        await tx.lock_approval(asked.approval_id)
        swept = await work.sweep_waiting()
        await tx.decide_approval(asked.approval_id, APPROVE)
    assert (swept.queued, swept.expired) == (0, ())
    assert await status(work, asked) is ApprovalStatus.APPROVED
    assert (await work.sweep_waiting()).expired == ()


async def test_of_sweeps_and_answers_at_once_one_counts(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = await ask(work, root, RunState.SUSPENDED, expires_at=PAST)
    barrier = asyncio.Barrier(20)

    async def answer() -> bool:
        async with store.begin(TENANT) as tx:
            await barrier.wait()
            await tx.lock_approval(asked.approval_id)
            try:
                await tx.decide_approval(asked.approval_id, APPROVE)
            except ValueError:
                return False
            return True

    async def sweep() -> bool:
        await barrier.wait()
        return bool((await work.sweep_waiting()).expired)

    counted = await asyncio.gather(*(who() for who in (answer, sweep) for _ in range(10)))
    changes = await query(empty_urls.superuser_url, "SELECT status FROM approval_changes ORDER BY change_id")
    assert sum(counted) == 1
    assert [row["status"] for row in changes] in (["pending", "approved"], ["pending", "expired"])
    await work.sweep_waiting()
    assert len(await work.claim(WorkerId("w"), limit=9, lease_seconds=60)) == 1


async def test_a_sweep_that_finds_one_root_locked_closes_the_other_ones_questions(
    database: Database, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    held = await ask(work, root, RunState.SUSPENDED, expires_at=PAST)
    await submit(database, new_run(TENANT))
    [other] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    free = await ask(work, other, RunState.SUSPENDED, expires_at=PAST)
    async with store.begin(TENANT) as tx:
        await tx.lock_approval(held.approval_id)
        swept = await work.sweep_waiting()
    assert (swept.queued, swept.expired) == (1, ((TENANT, free.approval_id),))


# --- cancel ----------------------------------------------------------------------------------------------------------


async def test_a_cancel_waits_for_an_answer_and_leaves_it(
    empty_urls: DatabaseUrls,
    database: Database,
    store: PostgresTenantStore,
    work: PostgresWorkStore,
    root: Claim,
) -> None:
    first, second = await ask(work, root, RunState.RUNNING), await ask(work, root, RunState.SUSPENDED)
    async with store.begin(TENANT) as tx:
        await decide_in(tx, first)
        async with meanwhile(empty_urls, cancel(store, root)) as late:
            pass
    await late
    record = await read(database, TENANT, root.run_id)
    assert (record.state, record.cancel_requested_by) == (RunState.QUEUED, "ada")
    assert (await status(work, first), await status(work, second)) == (
        ApprovalStatus.APPROVED,
        ApprovalStatus.CANCELLED,
    )


async def test_an_answer_waits_for_a_cancel_and_is_refused(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = await ask(work, root, RunState.SUSPENDED)
    async with store.begin(TENANT) as tx:
        await tx.request_cancel(root.run_id, WISH)
        async with meanwhile(empty_urls, decide(store, asked)) as late:
            pass
    assert not await late
    assert await status(work, asked) is ApprovalStatus.CANCELLED


async def test_interrupting_a_session_closes_the_questions_of_its_runs(
    database: Database, store: PostgresTenantStore, work: PostgresWorkStore
) -> None:
    session = SessionId("ses_1")
    async with store.begin(TENANT) as tx:
        await tx.insert_session(NewSession(session_id=session))
    await submit(database, new_run(TENANT, session_id=session))
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    child = (await work.adopt(claim, new_run(TENANT, parent_run_id=claim.run_id))).claim
    asked = await ask(work, child, RunState.RUNNING)
    async with store.begin(TENANT) as tx:
        await tx.interrupt_session(session, WISH)
    assert await status(work, asked) is ApprovalStatus.CANCELLED


# --- runs that go on from others -------------------------------------------------------------------------------------


async def test_of_two_who_go_on_from_one_run_at_once_the_second_waits_and_is_refused(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    await work.append_if_owner(root, [terminated(RunState.FAILED)], update(RunState.FAILED))
    first, second = [new_run(TENANT, resumes=root.run_id, first_run_id=root.run_id) for _ in range(2)]
    async with store.begin(TENANT) as tx:
        await tx.insert_run(first)
        async with meanwhile(empty_urls, accept(store, second)) as late:
            pass
    with pytest.raises(ValueError, match="go on from"):
        await late
    assert [claim.run_id for claim in await work.claim(WorkerId("w"), limit=9, lease_seconds=60)] == [first.run_id]


async def accept(store: PostgresTenantStore, run: NewRun) -> None:
    async with store.begin(TENANT) as tx:
        await tx.insert_run(run)
