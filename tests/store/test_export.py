"""All that the database keeps of one tenant is told, whatever table it lies in, and nothing of another one."""

import base64
import json
from typing import Any

import asyncpg
import pytest

from app.execution.system import Uuid7Ids
from app.ids import TenantId
from app.ports.tenancy import PauseKind
from app.store.database import Database, DatabaseConfig
from app.store.export import read_tenant
from app.store.operator import PostgresOperatorStore
from tests.conftest import DatabaseUrls
from tests.store.ageing import Aged
from tests.store.everywhere import find_rows, furnish
from tests.store.operating import new_key, pause_of
from tests.store.support import new_run, query

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
COLUMNS = """
    SELECT c.relname AS name, array_agg(a.attname::text) AS columns FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    GROUP BY c.relname
"""


@pytest.fixture
async def aged(empty_urls: DatabaseUrls, empty_database: Database) -> Aged:
    made = Aged(url=empty_urls.superuser_url, database=empty_database)
    await made.tenant(TENANT)
    return made


@pytest.fixture
def operator(aged: Aged) -> PostgresOperatorStore:
    return PostgresOperatorStore(aged.database, Uuid7Ids())


async def export(aged: Aged, tenant_id: TenantId = TENANT) -> dict[str, list[dict[str, Any]]]:
    """The rows by table."""
    lines = [json.loads(line) async for line in read_tenant(aged.database, tenant_id)]
    return {table: [line["row"] for line in lines if line["table"] == table] for table in {ln["table"] for ln in lines}}


async def test_every_table_that_has_a_row_of_the_tenant_is_in_it(aged: Aged, operator: PostgresOperatorStore) -> None:
    filled = await furnish(aged, operator, TENANT)
    assert await find_rows(aged.url, TENANT) == filled
    assert sorted(await export(aged)) == filled


async def test_every_row_and_every_column_is_in_it_but_what_a_secret_is_tried_against(
    aged: Aged, operator: PostgresOperatorStore
) -> None:
    await furnish(aged, operator, TENANT)
    exported = await export(aged)
    columns = {row["name"]: set(row["columns"]) for row in await query(aged.url, COLUMNS)}
    columns["keys"] -= {"secret_hash"}
    assert {name: set(rows[0]) for name, rows in exported.items()} == {name: columns[name] for name in exported}
    counts = {name: await aged.count(name, TENANT) for name in exported}
    assert {name: len(rows) for name, rows in exported.items()} == counts


async def test_nothing_of_another_tenant_is_in_it(aged: Aged, operator: PostgresOperatorStore) -> None:
    await aged.tenant(OTHER)
    await furnish(aged, operator, OTHER)
    await operator.add_key(new_key(None), actor="ops")
    await operator.add_pause(pause_of(PauseKind.TOOL, "pay"), actor="ops")
    exported = await export(aged)
    assert sorted(exported) == ["agent_versions", "agents", "audit", "tenants"]
    assert {row["tenant_id"] for rows in exported.values() for row in rows} == {TENANT}


async def test_a_table_that_the_service_may_not_read_fails_it(fresh_urls: DatabaseUrls) -> None:
    await query(fresh_urls.superuser_url, 'CREATE TABLE later (tenant_id text COLLATE "C" NOT NULL)')
    database = Database(DatabaseConfig(url=fresh_urls.app_url, pool_size=1))
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="later"):
        [line async for line in read_tenant(database, TENANT)]
    await database.close()


async def test_row_security_and_no_condition_of_a_statement_keeps_tenants_apart(aged: Aged) -> None:
    await aged.tenant(OTHER)
    async with aged.database.enter_tenant(TENANT) as driver:
        seen = await driver.fetch("SELECT tenant_id FROM audit")
    assert {row["tenant_id"] for row in seen} == {TENANT}


async def test_bytes_come_as_base64_and_texts_as_they_were_written(aged: Aged) -> None:
    await aged.session(TENANT)
    exported = await export(aged)
    assert base64.b64decode(exported["artifacts"][0]["data"]) == b"\x00\xff"
    assert exported["sessions"][0]["title"] == "a\x00b"
    assert (exported["state_entries"][0]["key"], exported["state_entries"][0]["value"]) == ("k", 0.1)


async def test_json_is_told_as_values_and_amounts_keep_every_digit(aged: Aged, operator: PostgresOperatorStore) -> None:
    await operator.set_tenant(TENANT, {"tools": ["a\x00b"]}, actor="ops")
    await aged.ended_run(TENANT)
    await query(aged.url, "UPDATE runs SET cost = 0.12345678901234567890")
    exported = await export(aged)
    assert exported["runs"][0]["cost"] == "0.12345678901234567890"
    assert exported["tenants"][0]["tools"] == ["a\x00b"]
    assert exported["agent_versions"][0]["definition"]["name"] == "clerk"
    assert {type(row["payload"]) for row in exported["events"]} == {dict}


async def test_a_key_is_told_without_its_hash(aged: Aged, operator: PostgresOperatorStore) -> None:
    key = new_key(TENANT)
    await operator.add_key(key, actor="ops")
    lines = [line async for line in read_tenant(aged.database, TENANT)]
    assert any(key.key_id in line for line in lines)
    assert not any(key.secret_hash.hex() in line for line in lines)
    assert not any(base64.b64encode(key.secret_hash).decode() in line for line in lines)


async def test_what_is_written_meanwhile_is_not_in_it(aged: Aged) -> None:
    lines = read_tenant(aged.database, TENANT)
    first = await anext(lines)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(new_run(TENANT))
    rest = [json.loads(line)["table"] async for line in lines]
    assert json.loads(first)["table"] == "agent_versions"
    assert "runs" not in rest


async def test_more_rows_than_come_at_once_all_come(aged: Aged) -> None:
    await aged.many_runs(TENANT, 700)
    exported = await export(aged)
    assert (len(exported["runs"]), len(exported["events"])) == (700, 2100)
