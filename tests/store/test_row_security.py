"""Tenants are kept apart by the database: every table, found in the catalogue, not in a list."""

import asyncio
import contextlib
import json
from collections.abc import Iterator

import asyncpg
import pytest

from app.events import RunState
from app.execution.system import SystemClock
from app.ids import SessionId, TenantId, WorkerId
from app.ports.sessions import NewSession
from app.ports.webhooks import DeliveryId, NewWebhook, WebhookId
from app.store.database import Database, DatabaseConfig
from app.store.tables import metadata
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import Cluster, DatabaseUrls
from tests.store.support import AGENT, new_run, query, question, submit, terminated, update, warned

TENANT_A, TENANT_B = TenantId("ten_a"), TenantId("ten_b")
SESSION = SessionId("ses_1")
TABLES = sorted(table.name for table in metadata.tables.values() if "tenant_id" in table.c)

UNGUARDED = """
    SELECT c.relname FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
        AND NOT (c.relrowsecurity AND c.relforcerowsecurity
            AND EXISTS (SELECT FROM pg_policies p WHERE p.tablename = c.relname AND p.policyname = 'tenant_only'
                AND p.qual LIKE '%NULLIF(current_setting(''app.tenant_id''%'))
"""
OPEN_FUNCTIONS = """
    SELECT p.proname FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace AND p.prorettype <> 'trigger'::regtype
        AND (has_function_privilege('public', p.oid, 'EXECUTE')
            OR NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, public, pg_temp'], false))
"""
# Rows that only jobs over all tenants and operators write, and those of what is not done here.
WRITTEN_BY_OTHERS = [
    "INSERT INTO erasures (tenant_id, erased_at, xid) VALUES ($1, now(), 1)",
    "INSERT INTO retention_turns (tenant_id, next_at) VALUES ($1, now())",
    "INSERT INTO ceilings (tenant_id, dimension, window_seconds, limit_amount) VALUES ($1, 'cost', 60, 1)",
    "INSERT INTO tenant_rates (tenant_id, full_at) VALUES ($1, now())",
    "INSERT INTO pauses (pause_id, kind, name, tenant_id, reason, paused_by, paused_at)"
    " VALUES ('pau_1', 'agent', 'clerk', $1, '', 'ops', now())",
    "INSERT INTO ledger (tenant_id, window_seconds, stretch, cost, input_tokens, output_tokens, model_calls,"
    " tool_calls, active_us, estimated) VALUES ($1, 60, 1, 1, 1, 1, 1, 1, 1, false)",
    "INSERT INTO ledger_holds (tenant_id, run_id, cost, input_tokens, output_tokens) VALUES ($1, 'run_x', 1, 1, 1)",
    "INSERT INTO approval_votes (tenant_id, approval_id, subject, groups, decision, at)"
    " SELECT tenant_id, approval_id, 'ann', '[]', 'approve', now() FROM approvals WHERE tenant_id = $1",
]


async def fill(urls: DatabaseUrls) -> None:
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=4))
    await query(urls.superuser_url, "INSERT INTO tenants (tenant_id, name) VALUES ($1, 'a')", TENANT_A)
    await query(
        urls.superuser_url,
        "INSERT INTO keys (key_id, tenant_id, scopes, secret_hash) VALUES ('key_a', $1, '{}', '\\x01')",
        TENANT_A,
    )
    await submit(database, new_run(TENANT_A, metadata={"k": "v"}))
    work = PostgresWorkStore(database, SystemClock())
    async with PostgresTenantStore(database).begin(TENANT_A) as tx:
        await tx.remember(route="r", subject="s", key="k", body_digest="d")
        await tx.insert_session(NewSession(session_id=SESSION, state={"a": 1}))
        await tx.put_artifact(SESSION, "a", data=b"x", content_type="x/y")
        await tx.insert_webhook(NewWebhook(webhook_id=WebhookId("whk_1"), url="https://a.example", events=()))
        await tx.test_webhook(WebhookId("whk_1"), DeliveryId("dlv_1"))
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(claim, [warned()], update(asked=(question(),)))
    await work.append_if_owner(claim, [terminated()], update(RunState.COMPLETED))
    await query(
        urls.superuser_url,
        "INSERT INTO session_items (tenant_id, session_id, session_seq, run_id, messages, created_at)"
        " VALUES ($1, 'ses_1', 1, 'run_x', '[]', now())",
        TENANT_A,
    )
    for statement in WRITTEN_BY_OTHERS:
        await query(urls.superuser_url, statement, TENANT_A)
    await database.close()


@pytest.fixture
async def filled(empty_urls: DatabaseUrls) -> DatabaseUrls:
    """A row of tenant A in every table."""
    await fill(empty_urls)
    return empty_urls


@pytest.fixture(scope="module")
def kept(cluster: Cluster, template_database: str) -> Iterator[DatabaseUrls]:
    """The same for all tests that leave it as it is."""
    name = cluster.create_database(template=template_database)
    urls = cluster.database(name)
    asyncio.run(fill(urls))
    yield urls
    cluster.drop_database(name)


async def as_tenant(url: str, tenant_id: str, statement: str, *arguments: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT set_config('app.tenant_id', $1, true)", tenant_id)
            rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
            return rows
    finally:
        await connection.close()


async def test_every_table_with_a_tenant_forces_row_security(shared_urls: DatabaseUrls) -> None:
    assert await query(shared_urls.superuser_url, UNGUARDED) == []


async def test_a_new_table_without_a_policy_is_found(shared_urls: DatabaseUrls) -> None:
    connection = await asyncpg.connect(shared_urls.superuser_url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("CREATE TABLE forgotten (tenant_id text)")
    found = await connection.fetch(UNGUARDED)
    await transaction.rollback()
    await connection.close()
    assert [row["relname"] for row in found] == ["forgotten"]


async def test_no_function_is_open_to_all_or_follows_the_callers_search_path(shared_urls: DatabaseUrls) -> None:
    assert await query(shared_urls.superuser_url, OPEN_FUNCTIONS) == []


async def visible_rows(url: str, table: str, tenant_id: str) -> int:
    """How many rows the service's role sees when it is given the right to read the table. Leaves nothing changed."""
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"GRANT SELECT ON {table} TO runwright_app")
        await connection.execute("SET LOCAL ROLE runwright_app")
        await connection.execute("SELECT set_config('app.tenant_id', $1, true)", tenant_id)
        count: int = await connection.fetchval(f"SELECT count(*) FROM {table}")
        return count
    finally:
        await transaction.rollback()
        await connection.close()


@pytest.mark.parametrize("table", TABLES)
async def test_a_tenant_reads_its_rows(kept: DatabaseUrls, table: str) -> None:
    assert await visible_rows(kept.superuser_url, table, TENANT_A) > 0


@pytest.mark.parametrize("tenant", [TENANT_B, ""])
@pytest.mark.parametrize("table", TABLES)
async def test_another_tenant_and_nobody_read_nothing(kept: DatabaseUrls, table: str, tenant: str) -> None:
    assert await visible_rows(kept.superuser_url, table, tenant) == 0


@pytest.mark.parametrize("table", TABLES)
async def test_another_tenant_adds_no_row(kept: DatabaseUrls, table: str) -> None:
    [row] = await query(kept.superuser_url, f"SELECT to_json(t)::text AS row FROM {table} t LIMIT 1")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await as_tenant(
            kept.app_url,
            TENANT_B,
            f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT (json_populate_record(NULL::{table}, $1::json)).*",
            json.dumps(json.loads(row["row"])),
        )


@pytest.mark.parametrize("table", ["agents", "runs", "idempotency_keys", "sessions", "state_entries"])
async def test_another_tenant_changes_no_row(filled: DatabaseUrls, table: str) -> None:
    statement = f"UPDATE {table} SET tenant_id = tenant_id RETURNING 1"
    assert await as_tenant(filled.app_url, TENANT_B, statement) == []
    assert len(await as_tenant(filled.app_url, TENANT_A, statement)) == 1


async def test_another_tenant_deletes_no_state(filled: DatabaseUrls) -> None:
    statement = "DELETE FROM state_entries RETURNING 1"
    assert await as_tenant(filled.app_url, TENANT_B, statement) == []
    assert len(await as_tenant(filled.app_url, TENANT_A, statement)) == 1


async def test_another_tenant_answers_no_question(filled: DatabaseUrls) -> None:
    statement = "UPDATE approvals SET decision_reason = 'yes' RETURNING 1"
    assert await as_tenant(filled.app_url, TENANT_B, statement) == []
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="stays so"):
        await as_tenant(filled.app_url, TENANT_A, statement)


async def test_another_tenant_empties_no_turn(filled: DatabaseUrls) -> None:
    statement = "SELECT empty_turns($1, 'run_x')"
    await query(
        filled.superuser_url,
        "UPDATE runs SET resumes = run_id, session_id = 'ses_1', session_seq = 1, run_id = 'run_x'",
    )
    await query(filled.superuser_url, "UPDATE session_items SET messages = '[1]'")
    await as_tenant(filled.app_url, TENANT_B, statement, TENANT_B)
    [row] = await query(filled.superuser_url, "SELECT messages FROM session_items")
    assert row["messages"] == "[1]"


async def test_erasing_a_session_erases_the_tenants_own_of_two_that_are_called_alike(filled: DatabaseUrls) -> None:
    await query(
        filled.superuser_url,
        "INSERT INTO sessions (tenant_id, session_id, metadata, created_at, updated_at)"
        " VALUES ($1, 'ses_1', '{}', now(), now())",
        TENANT_B,
    )
    await as_tenant(filled.app_url, TENANT_B, "SELECT erase_session($1, 'ses_1')", TENANT_B)
    left = await query(filled.superuser_url, "SELECT tenant_id FROM sessions")
    assert [row["tenant_id"] for row in left] == [TENANT_A]


async def test_a_row_can_not_be_handed_to_another_tenant(filled: DatabaseUrls) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await as_tenant(filled.app_url, TENANT_A, "UPDATE runs SET tenant_id = 'ten_b'")


async def test_the_scheduler_reads_no_text_of_people(kept: DatabaseUrls) -> None:
    connection = await asyncpg.connect(kept.superuser_url)
    try:
        await connection.execute("SET ROLE runwright_scheduler")
        assert await connection.fetchval("SELECT count(run_id) FROM runs") == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT input FROM runs")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT payload FROM events")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT session_id FROM sessions")
    finally:
        await connection.close()


@pytest.mark.parametrize(
    "column", ["summary", "reason", "arguments", "decision_reason", "caller", "subject", "tool", "arguments_digest"]
)
async def test_the_scheduler_reads_nothing_of_what_people_are_asked(kept: DatabaseUrls, column: str) -> None:
    connection = await asyncpg.connect(kept.superuser_url)
    try:
        await connection.execute("SET ROLE runwright_scheduler")
        assert await connection.fetchval("SELECT count(approval_id) FROM approvals") == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch(f"SELECT {column} FROM approvals")
    finally:
        await connection.close()


async def test_two_tenants_share_one_connection_and_nothing_else(empty_urls: DatabaseUrls) -> None:
    database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=1))
    tenants, work = PostgresTenantStore(database), PostgresWorkStore(database, SystemClock())
    run_a, run_b = new_run(TENANT_A), new_run(TENANT_B)
    await submit(database, run_a)
    await submit(database, run_b)
    claims = await work.claim(WorkerId("w"), limit=2, lease_seconds=60)
    await work.append_if_owner(claims[0], [warned()], update())
    [left] = await database.fetch("SELECT current_setting('app.tenant_id', true) AS tenant, count(*) FROM runs")
    async with tenants.begin(TENANT_A) as tx:
        seen_by_a = [await tx.get_run(run_a.run_id) is not None, await tx.get_run(run_b.run_id) is not None]
    async with tenants.begin(TENANT_B) as tx:
        seen_by_b = [await tx.get_run(run_a.run_id) is not None, await tx.get_run(run_b.run_id) is not None]
    await database.close()
    assert (left["tenant"], left["count"]) == ("", 0)
    assert (seen_by_a, seen_by_b) == ([True, False], [False, True])


async def test_a_tenant_that_failed_leaves_nothing_of_itself_behind(empty_urls: DatabaseUrls) -> None:
    database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=1))
    tenants = PostgresTenantStore(database)
    with contextlib.suppress(RuntimeError):
        async with tenants.begin(TENANT_A) as tx:
            await tx.put_agent(AGENT)
            raise RuntimeError
    [left] = await database.fetch("SELECT current_setting('app.tenant_id', true) AS tenant")
    async with tenants.begin(TENANT_A) as tx:
        agent = await tx.get_agent(AGENT.name)
    await database.close()
    assert not left["tenant"]
    assert agent is None
