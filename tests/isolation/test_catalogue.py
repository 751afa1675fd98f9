"""Every table and every function of the database, found in its catalogue: who may see and call what."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.conftest import DatabaseUrls
from tests.isolation.catalogue import (
    SEARCH_PATH,
    find_unguarded,
    list_functions,
    list_tables,
    list_unique_indexes,
)

OF_NO_TENANT = {
    "alembic_version": "which migration the database is at",
    "audit_key": "what digests in the audit trail are keyed with; the service may not read it",
    "lanes": "names of the operator's tools and models that runs need together; the service may only add to it",
    "workers": "which processes were alive lately; the service may not read it",
}
# Under FORCE a definer function of the owner sees one tenant's rows, as the service does.
OWNED_BY_THE_OWNER = {
    "audit_agent_version": "a trigger: the service may not write the audit trail",
    "drop_empty_event_partition": "only a table's owner can drop one",
    "empty_turns": "empties what the service may not change",
    "ensure_event_partitions": "only a table's owner can give it a partition",
    "erase_run": "deletes what the service may not delete",
    "erase_session": "deletes what the service may not delete",
    "erase_tenant_portion": "deletes what the service may not delete, of a tenant that was given up",
    "erase_user": "deletes what the service may not delete",
    "export_keys": "reads keys of the tenant that is set, without what a secret could be tried against",
    "retain_run": "deletes what the service may not delete",
    "retain_session": "deletes what the service may not delete",
}
UNIQUE_OVER_ALL_TENANTS = {
    "pk_audit": "numbers of entries are made by the database; the service may not write the table",
    "pk_keys": "ids of keys are made here; the service may not write the table",
    "pk_pauses": "ids of pauses are made here; the service may not write the table",
    "uq_keys_secret_hash": "a key is looked up before its tenant is known; the service may not write the table",
    "uq_pauses_thing": "the tenant is in it; only one of no tenant is everybody's, and the operator's",
    "uq_tenants_name": "the operator's names of tenants; the service may not write the table",
}
SERVICE_IS = "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = 'runwright_app'"
MEMBERSHIPS = """
    SELECT r.rolname FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid
    WHERE m.member = (SELECT oid FROM pg_roles WHERE rolname = 'runwright_app')
"""
OWNED = """
    SELECT c.relname FROM pg_class c WHERE c.relowner IN
        (SELECT oid FROM pg_roles WHERE rolname IN ('runwright_app', 'runwright_scheduler'))
"""
# A view reads as its owner, whom the policies of tenants don't hold.
VIEWS = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('v', 'm', 'f')"
MAY_CREATE = """
    SELECT rolname FROM pg_roles WHERE rolname IN ('runwright_app', 'runwright_scheduler')
        AND has_schema_privilege(rolname, 'public', 'CREATE')
"""


@pytest.fixture
async def connection(shared_urls: DatabaseUrls) -> AsyncIterator[asyncpg.Connection]:
    """A superuser's, in a transaction that is undone."""
    opened = await asyncpg.connect(shared_urls.superuser_url)
    transaction = opened.transaction()
    await transaction.start()
    yield opened
    await transaction.rollback()
    await opened.close()


async def test_every_table_with_tenants_rows_is_under_forced_row_security_by_tenant(
    connection: asyncpg.Connection,
) -> None:
    assert await find_unguarded(connection) == []


async def test_every_table_without_a_tenant_is_one_that_needs_none(connection: asyncpg.Connection) -> None:
    tables = await list_tables(connection)
    assert {table.name for table in tables if not table.of_tenants} == set(OF_NO_TENANT)


async def test_a_partition_that_is_made_later_is_guarded_as_its_table_is(connection: asyncpg.Connection) -> None:
    before = {table.name for table in await list_tables(connection)}
    await connection.execute("SELECT ensure_event_partitions(40)")
    made = {table.name for table in await list_tables(connection) if table.partition} - before
    assert len(made) > 20
    assert await find_unguarded(connection) == []


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE forgotten (tenant_id text)",
        "CREATE TABLE forgotten (tenant_id text); ALTER TABLE forgotten ENABLE ROW LEVEL SECURITY",
        "CREATE TABLE forgotten (tenant_id text); ALTER TABLE forgotten FORCE ROW LEVEL SECURITY",
        "CREATE TABLE forgotten (tenant_id text); SELECT guard_by_tenant('forgotten');"
        " ALTER TABLE forgotten NO FORCE ROW LEVEL SECURITY",
        "CREATE TABLE forgotten (tenant_id text); SELECT guard_by_tenant('forgotten');"
        " CREATE POLICY more ON forgotten FOR SELECT USING (true)",
        "CREATE TABLE forgotten (tenant_id text); SELECT guard_by_tenant('forgotten');"
        " CREATE POLICY more ON forgotten FOR INSERT TO runwright_app WITH CHECK (true)",
        "CREATE TABLE forgotten (tenant_id text); ALTER TABLE forgotten ENABLE ROW LEVEL SECURITY;"
        " ALTER TABLE forgotten FORCE ROW LEVEL SECURITY;"
        " CREATE POLICY other ON forgotten USING (tenant_id = current_setting('app.tenant_id'))",
    ],
)
async def test_a_table_whose_guard_lacks_something_is_found(connection: asyncpg.Connection, statement: str) -> None:
    await connection.execute(statement)
    assert await find_unguarded(connection) == ["forgotten"]


async def test_no_function_can_be_called_by_everybody(connection: asyncpg.Connection) -> None:
    # One that belongs to a trigger can't be called at all.
    functions = [function for function in await list_functions(connection) if not function.of_trigger]
    assert len(functions) > 30
    assert [function.signature for function in functions if function.open] == []


async def test_no_function_follows_its_callers_search_path(connection: asyncpg.Connection) -> None:
    functions = await list_functions(connection)
    assert [function.signature for function in functions if SEARCH_PATH not in function.settings] == []


async def test_functions_that_run_as_somebody_else_are_the_schedulers_or_listed(
    connection: asyncpg.Connection,
) -> None:
    definers = [function for function in await list_functions(connection) if function.definer]
    owners = {function.name for function in definers if function.owner != "runwright_scheduler"}
    assert owners == set(OWNED_BY_THE_OWNER)


async def test_nothing_that_two_tenants_write_has_to_be_unique_over_both(connection: asyncpg.Connection) -> None:
    indexes = [index for index in await list_unique_indexes(connection) if index.first != "tenant_id"]
    assert {index.index for index in indexes} == set(UNIQUE_OVER_ALL_TENANTS)


async def test_the_services_role_is_held_by_every_policy(connection: asyncpg.Connection) -> None:
    assert [tuple(row) for row in await connection.fetch(SERVICE_IS)] == [(False, False, False, False)]
    assert await connection.fetch(MEMBERSHIPS) == []


async def test_neither_the_service_nor_the_scheduler_owns_a_table_or_makes_one(connection: asyncpg.Connection) -> None:
    assert await connection.fetch(OWNED) == []
    assert await connection.fetch(MAY_CREATE) == []


async def test_nobody_logs_in_as_the_scheduler_and_row_security_holds_for_it(connection: asyncpg.Connection) -> None:
    asked = "SELECT rolcanlogin, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = 'runwright_scheduler'"
    assert [tuple(row) for row in await connection.fetch(asked)] == [(False, False, False)]


async def test_there_is_no_view_that_reads_as_its_owner(connection: asyncpg.Connection) -> None:
    assert await connection.fetch(VIEWS) == []


# Row security says nothing of TRUNCATE; a foreign key or a trigger of one's own would look past it.
PAST_ROW_SECURITY = """
    SELECT c.relname, r.rolname, p.name FROM pg_class c, pg_roles r,
        unnest(ARRAY['TRUNCATE', 'REFERENCES', 'TRIGGER']) AS p (name)
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
        AND r.rolname IN ('runwright_app', 'runwright_scheduler') AND has_table_privilege(r.oid, c.oid, p.name)
"""
# Texts, where they are not among the ids and names that machines choose: those compare by bytes.
SCHEDULER_READS = """
    SELECT c.relname || '.' || a.attname AS name
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND a.attnum > 0 AND NOT a.attisdropped AND coalesce(l.collname, '') <> 'C'
        AND format_type(a.atttypid, NULL) IN ('text', 'text[]', 'bytea', 'json', 'jsonb', 'character varying')
        AND c.relname <> ALL ($1) AND has_column_privilege('runwright_scheduler', c.oid, a.attnum, 'SELECT')
"""
# What the operator writes, of whom the scheduler is a part.
OPERATORS_OWN = ["audit", "ceilings", "keys", "lanes", "pauses", "tenants", "workers"]
TOLD_WITH_A_CANCEL = {"runs.cancel_reason", "runs.cancel_requested_by", "approvals.decided_by"}
NEEDED_FOR_A_LEASE = {"runs.worker_id"}
MADE_BY_THE_DATABASE = {"audit_key.inner_key", "audit_key.outer_key"}


async def test_no_role_has_a_right_that_row_security_does_not_hold(connection: asyncpg.Connection) -> None:
    assert await connection.fetch(PAST_ROW_SECURITY) == []


async def test_who_works_over_all_tenants_reads_no_text_that_people_wrote(connection: asyncpg.Connection) -> None:
    found = {row["name"] for row in await connection.fetch(SCHEDULER_READS, OPERATORS_OWN)}
    assert found <= TOLD_WITH_A_CANCEL | NEEDED_FOR_A_LEASE | MADE_BY_THE_DATABASE
