"""Audits: silent on what the service writes, and each of them able to fail."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import ConfigurationError
from app.events import ApprovalRequired, RunState
from app.execution.system import SystemClock
from app.ids import ApprovalId, SessionId, TenantId, WorkerId
from app.ports.desk import Decided
from app.ports.records import Claim
from app.ports.sessions import NewSession
from app.store.audits import AUDITS, audit
from app.store.database import Database, DatabaseConfig
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.outbox import add_webhook, send_test
from tests.store.support import new_run, query, question, submit, terminated, update, warned

TENANT = TenantId("ten_a")

# What breaks each sentence, on the runs of the fixture below.
VIOLATIONS = {
    "an ended run has exactly one terminated event, and it is the last": "DELETE FROM events WHERE kind = 'terminated'",
    "a run that goes on has no terminated event": "UPDATE events SET kind = 'terminated'"
    " WHERE run_id = 'run_running' AND seq = 2",
    "events are numbered from 1 to last_seq without a gap": "UPDATE runs SET last_seq = last_seq + 1",
    "the first event is run_queued, and there is no other": "UPDATE events SET kind = 'warning' WHERE seq = 1",
    "every event belongs to a run": "DELETE FROM runs WHERE run_id = 'run_queued'",
    "a running run has a worker, and a lease where it is no child": "UPDATE runs SET worker_id = NULL"
    " WHERE run_id = 'run_running'",
    "a run that does not run has neither": "UPDATE runs SET worker_id = 'w' WHERE run_id = 'run_queued'",
    "no lease has been left lapsed": "UPDATE runs SET lease_expires_at = now() - interval '1 hour'"
    " WHERE run_id = 'run_running'",
    "an ended run says when, and no other does": "UPDATE runs SET ended_at = NULL",
    "fences only rise along a log": "UPDATE events SET fence = 1 WHERE seq = 1 AND run_id = 'run_running';"
    "UPDATE events SET fence = 0 WHERE seq = 2 AND run_id = 'run_running'",
    "no event has a fence that its run never gave out": "UPDATE runs SET fence = 0 WHERE run_id = 'run_running'",
    "a child that goes on has a root that goes on": "UPDATE runs SET state = 'failed' WHERE run_id = 'run_running'",
    "no child is queued": "UPDATE runs SET state = 'queued' WHERE run_id = 'run_child'",
    "no child has a fence that its root never gave out": "UPDATE runs SET fence = 9 WHERE run_id = 'run_child'",
    "a session has at most one run that goes on and is not blocked": "UPDATE runs SET blocked = false",
    "only runs of a session are blocked": "UPDATE runs SET blocked = true WHERE run_id = 'run_queued'",
    "a blocked run that goes on waits for an earlier one of its session": "UPDATE runs SET blocked = true"
    " WHERE run_id = 'run_turn'",
    "an open question is of a run that goes on, and so does its root": "UPDATE approvals SET status = 'pending',"
    " decided_at = NULL, decided_by = NULL, decision = NULL WHERE run_id = 'run_answered'",
    "a suspended root has an open question": "DELETE FROM approvals WHERE run_id = 'run_waiting'",
    "a question was put by an event of its run": "UPDATE events SET kind = 'warning'"
    " WHERE run_id = 'run_waiting' AND kind = 'approval_required'",
    "no run was granted more calls than people have approved": "UPDATE events SET kind = 'approval_granted'"
    " WHERE run_id = 'run_answered' AND seq < 3",
    "readers were told of the status of every question": "DELETE FROM approval_changes WHERE status = 'approved'",
    "a notice that waits is of a webhook that is there, or is dropped when it is taken": "DELETE FROM webhooks",
    "a run that was gone on from has ended": "UPDATE runs SET resumes = 'run_running' WHERE run_id = 'run_queued'",
    "nothing is reserved for a run that has ended": "INSERT INTO ledger_holds VALUES ('ten_a', 'run_ended', 0, 0, 0)",
    "a run was driven no longer than its log tells, and in the time of its root": "UPDATE runs"
    " SET active_us = 60000000000 WHERE run_id = 'run_ended'",
}

# Sentences that more than one column can break.
MORE_VIOLATIONS = [
    ("a running run has a worker, and a lease where it is no child", "lease_expires_at = NULL", "run_running"),
    ("a running run has a worker, and a lease where it is no child", "lease_expires_at = now()", "run_child"),
    ("a child that goes on has a root that goes on", "root_run_id = 'run_none'", "run_child"),
    ("a blocked run that goes on waits for an earlier one of its session", "session_seq = 0", "run_blocked"),
    ("an open question is of a run that goes on, and so does its root", "state = 'failed'", "run_running"),
    ("an open question is of a run that goes on, and so does its root", "state = 'failed'", "run_child"),
    ("a run was driven no longer than its log tells, and in the time of its root", "active_us = 1", "run_child"),
]


@pytest.fixture
async def runs(empty_urls: DatabaseUrls, empty_database: Database) -> DatabaseUrls:
    """A notice that has waited for long. A run that waits, one that runs and has a child with an open question, one
    that has ended, a session with a run whose turn it is and one that is blocked, a run that waits for people, one
    whose question was answered, and one that goes on from it."""
    work = PostgresWorkStore(empty_database, SystemClock())
    await send_test(empty_database, await add_webhook(empty_database, TENANT))
    await query(empty_urls.superuser_url, "UPDATE webhook_deliveries SET next_attempt_at = now() - interval '1 hour'")
    await submit(empty_database, new_run(TENANT, run_id="run_ended"))
    [ended] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(ended, [terminated()], update(RunState.COMPLETED))
    await submit(empty_database, new_run(TENANT, run_id="run_running"))
    [running] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(running, [warned()], update())
    child = new_run(TENANT, run_id="run_child", parent_run_id=running.run_id)
    await ask(work, (await work.adopt(running, child)).claim, "apr_child", RunState.RUNNING)
    await ask_and_answer(empty_database, work)
    await submit(empty_database, new_run(TENANT, run_id="run_queued"))
    async with PostgresTenantStore(empty_database).begin(TENANT) as tx:
        await tx.insert_session(NewSession(session_id=SessionId("ses_1")))
    for run_id in ("run_turn", "run_blocked"):
        await submit(empty_database, new_run(TENANT, run_id=run_id, session_id="ses_1"))
    return empty_urls


async def ask(work: PostgresWorkStore, claim: Claim, approval_id: str, state: RunState) -> None:
    asked = question(approval_id=approval_id)
    event = ApprovalRequired(
        call_id=asked.call_id, name=asked.tool, approval_id=asked.approval_id, arguments_digest=asked.arguments_digest
    )
    await work.append_if_owner(claim, [event], update(state, asked=(asked,)))


async def ask_and_answer(database: Database, work: PostgresWorkStore) -> None:
    for run_id in ("run_waiting", "run_answered"):
        await submit(database, new_run(TENANT, run_id=run_id))
        [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
        await ask(work, claim, f"apr_{run_id}", RunState.SUSPENDED)
    async with PostgresTenantStore(database).begin(TENANT) as tx:
        await tx.decide_approval(ApprovalId("apr_run_answered"), Decided(decision="approve", decided_by="bob"))
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(claim, [terminated(RunState.FAILED)], update(RunState.FAILED))
    again = new_run(TENANT, run_id="run_again", resumes="run_answered", first_run_id="run_answered")
    await submit(database, again)


@pytest.fixture
async def connection(runs: DatabaseUrls) -> AsyncIterator[AsyncConnection]:
    database = Database(DatabaseConfig(url=runs.superuser_url, pool_size=1))
    async with database.begin() as connection:
        yield connection
    await database.close()


async def plant(superuser_url: str, statements: str) -> None:
    connection = await asyncpg.connect(superuser_url)
    try:
        # No trigger is in the way.
        await connection.execute(f"SET session_replication_role = replica; {statements}")
    finally:
        await connection.close()


async def test_what_the_service_wrote_passes(connection: AsyncConnection) -> None:
    assert await audit(connection) == {}


async def test_the_schedulers_role_is_enough(connection: AsyncConnection) -> None:
    await connection.execute(text("SET LOCAL ROLE runwright_scheduler"))
    assert await audit(connection) == {}


def test_every_audit_has_a_violation_here() -> None:
    assert set(VIOLATIONS) == set(AUDITS)


@pytest.mark.parametrize("sentence", AUDITS)
async def test_each_audit_can_fail(runs: DatabaseUrls, connection: AsyncConnection, sentence: str) -> None:
    await plant(runs.superuser_url, VIOLATIONS[sentence])
    await connection.execute(text("SET LOCAL ROLE runwright_scheduler"))
    assert sentence in await audit(connection)


@pytest.mark.parametrize(("sentence", "change", "run_id"), MORE_VIOLATIONS)
async def test_each_half_of_an_audit_can_fail(
    runs: DatabaseUrls, connection: AsyncConnection, sentence: str, change: str, run_id: str
) -> None:
    await plant(runs.superuser_url, f"UPDATE runs SET {change} WHERE run_id = '{run_id}'")
    assert sentence in await audit(connection)


async def test_a_notice_that_came_as_its_webhook_went_is_no_alarm(
    runs: DatabaseUrls, connection: AsyncConnection
) -> None:
    await plant(runs.superuser_url, "UPDATE webhook_deliveries SET next_attempt_at = now(); DELETE FROM webhooks")
    assert await audit(connection) == {}


async def test_an_audit_as_the_service_is_refused_because_it_would_see_nothing(
    runs: DatabaseUrls, empty_database: Database
) -> None:
    async with empty_database.begin() as connection:
        with pytest.raises(ConfigurationError, match="sees nothing"):
            await audit(connection)
