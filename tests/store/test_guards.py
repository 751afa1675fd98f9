"""What the database itself refuses, also to a superuser who goes round the service."""

import asyncpg
import pytest

from app.events import RunState
from app.execution.system import SystemClock
from app.ids import RunId, TenantId, WorkerId
from app.store.database import Database
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import new_run, query, submit, terminated, update

TENANT = TenantId("ten_a")
INSERT_EVENT = """
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    SELECT tenant_id, run_day, run_id, last_seq + 1, $2, clock_timestamp(), fence, '{}' FROM runs WHERE run_id = $1
"""


@pytest.fixture
async def ended(empty_database: Database) -> RunId:
    run = new_run(TENANT)
    await submit(empty_database, run)
    store = PostgresWorkStore(empty_database, SystemClock())
    [claim] = await store.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await store.append_if_owner(claim, [terminated()], update(RunState.COMPLETED))
    return run.run_id


@pytest.mark.parametrize("state", ["queued", "running", "failed"])
async def test_a_run_that_has_ended_keeps_its_state(empty_urls: DatabaseUrls, ended: RunId, state: str) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="stays so"):
        await query(empty_urls.superuser_url, "UPDATE runs SET state = $2 WHERE run_id = $1", ended, state)


async def test_other_columns_of_a_run_that_has_ended_may_change(empty_urls: DatabaseUrls, ended: RunId) -> None:
    statement = "UPDATE runs SET input = '\"erased\"' WHERE run_id = $1 RETURNING state"
    assert (await query(empty_urls.superuser_url, statement, ended))[0]["state"] == "completed"


async def test_no_event_follows_the_terminated_one(empty_urls: DatabaseUrls, ended: RunId) -> None:
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="has ended"):
        await query(empty_urls.superuser_url, INSERT_EVENT, ended, "warning")


async def test_no_second_terminated_event_is_stored_even_without_triggers(
    empty_urls: DatabaseUrls, ended: RunId
) -> None:
    connection = await asyncpg.connect(empty_urls.superuser_url)
    try:
        await connection.execute("SET session_replication_role = replica")
        with pytest.raises(asyncpg.UniqueViolationError, match="tenant_id_run_day_run_id"):
            await connection.execute(INSERT_EVENT, ended, "terminated")
    finally:
        await connection.close()


async def test_an_unknown_state_is_refused(empty_urls: DatabaseUrls, empty_database: Database) -> None:
    run = new_run(TENANT)
    await submit(empty_database, run)
    with pytest.raises(asyncpg.CheckViolationError):
        await query(empty_urls.superuser_url, "UPDATE runs SET state = 'paused' WHERE run_id = $1", run.run_id)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET payload = '{}'",
        "DELETE FROM events",
        "DELETE FROM runs",
        "DELETE FROM run_metadata",
        "DELETE FROM idempotency_keys",
        "DELETE FROM sessions",
        "DELETE FROM session_items",
        "UPDATE session_items SET messages = '[]'",
        "DELETE FROM approvals",
        "DELETE FROM approval_changes",
        "UPDATE approvals SET arguments_digest = ''",
        "UPDATE approvals SET run_id = 'run_x'",
        "UPDATE approval_changes SET status = 'denied'",
        "SELECT names FROM lanes",
        "DELETE FROM lanes",
        "UPDATE lanes SET names = '{}'",
        "SELECT names FROM workers",
        "INSERT INTO workers (worker_id, names, seen_at) VALUES ('w', '{}', now())",
        "DELETE FROM artifacts",
        "UPDATE artifacts SET data = ''",
        "UPDATE agent_versions SET definition = '{}'",
        "SELECT * FROM keys",
        "INSERT INTO tenants (tenant_id, name) VALUES ('ten_x', 'x')",
        "SELECT admin_add_key('key_x', NULL, NULL, ARRAY['operator'], '\\x00')",
        "SELECT admin_ensure_tenant('ten_x', 'x')",
        "UPDATE tenant_queue SET virtual_time = 0",
        "DELETE FROM tenant_queue",
        "INSERT INTO pauses SELECT * FROM pauses",
        "DELETE FROM pauses",
        "UPDATE tenant_rates SET full_at = now()",
        "UPDATE ceilings SET limit_amount = 1",
        "INSERT INTO ceilings VALUES ('ten_x', 'cost', 60, 1)",
        "DELETE FROM ceilings",
        "UPDATE tenants SET weight = 1000",
        "UPDATE audit SET actor = 'somebody'",
        "DELETE FROM audit",
        "INSERT INTO audit (actor, action, target, details) VALUES ('a', 'b', 'c', '{}')",
        "SELECT write_audit(NULL, 'a', 'b', NULL, NULL, NULL)",
        "SELECT ask_runs_to_end('{ten_x}', '{run_x}', NULL, NULL)",
        "SELECT count_request('ten_x')",
        "SELECT setval('claim_turns', 1)",
        "CREATE TABLE mine (i int)",
        "SELECT guard_by_tenant('runs')",
        "SET ROLE runwright_scheduler",
        "SET ROLE runwright_owner",
        "ALTER TABLE events DISABLE ROW LEVEL SECURITY",
    ],
)
async def test_the_service_may_not(shared_urls: DatabaseUrls, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await query(shared_urls.app_url, statement)
