"""Rows in every table that could hold something of a run, a session or a tenant, whatever tables there are."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import asyncpg

from app.ids import TenantId
from app.ports.tenancy import PauseKind
from app.store.operator import PostgresOperatorStore
from tests.store.ageing import Aged
from tests.store.operating import new_key, pause_of

_TABLES: Final = """
    SELECT c.relname AS name, array_agg(a.attname::text) AS columns FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    GROUP BY c.relname ORDER BY c.relname
"""
_NEEDED: Final = """
    SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type,
        (SELECT string_agg(pg_get_constraintdef(k.oid), ' ') FROM pg_constraint k
            WHERE k.conrelid = a.attrelid AND k.contype = 'c' AND a.attnum = ANY (k.conkey)) AS checks
    FROM pg_attribute a
    WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity = ''
        AND (a.attname = ANY ($2::text[]) OR a.attnotnull AND NOT a.atthasdef)
"""
_WORD: Final = re.compile(r"'([^']+)'::text")
_BY_TYPE: Final = {
    "bigint": "1",
    "boolean": "false",
    "bytea": "'\\x61'",
    "date": "current_date",
    "double precision": "1",
    "integer": "60",
    "numeric": "1",
    "text[]": "'{}'",
    "timestamp with time zone": "clock_timestamp()",
}


async def furnish(aged: Aged, operator: PostgresOperatorStore, tenant_id: TenantId) -> list[str]:
    """Gives the tenant a row in every table that can hold one. Returns all those tables."""
    await aged.ended_run(tenant_id, session_id=await aged.session(tenant_id))
    await operator.add_key(new_key(tenant_id), actor="ops")
    await operator.add_pause(pause_of(PauseKind.AGENT, "clerk", tenant_id), actor="ops")
    return await fill_everywhere(aged.url, tenant_id)


async def fill_everywhere(url: str, tenant_id: str, **ids: str) -> list[str]:
    """Puts a row of the tenant with these ids, by columns' names, into every table that has any of the columns and no
    row with one of them yet; without ids, into every table where the tenant has none. As a superuser, past triggers.
    Returns the names of all those tables."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SET session_replication_role = replica")
        found = []
        for table in await connection.fetch(_TABLES):
            sought = {name: ids[name] for name in table["columns"] if name in ids}
            if "tenant_id" in table["columns"] and bool(sought) == bool(ids):
                await _add_row(connection, table["name"], tenant_id, sought)
                found.append(table["name"])
        return found
    finally:
        await connection.close()


async def _add_row(connection: asyncpg.Connection, table: str, tenant_id: str, ids: Mapping[str, str]) -> None:
    alike = " OR ".join(f"{name} = '{text}'" for name, text in ids.items()) or "true"
    there = f"SELECT EXISTS (SELECT FROM {table} WHERE tenant_id = $1 AND ({alike}))"
    if await connection.fetchval(there, tenant_id):
        return
    known = {"tenant_id": tenant_id, **ids}
    values = {name: f"'{text}'" for name, text in known.items()}
    for column in await connection.fetch(_NEEDED, table, list(known)):
        values.setdefault(column["name"], _make_value(column["type"], column["checks"]))
    await connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())})")


def _make_value(kind: str, checks: str | None) -> str:
    allowed = _WORD.findall(checks or "")
    return _BY_TYPE.get(kind) or f"'{allowed[0] if allowed else 'made up'}'"


async def find_mentions(url: str, *texts: str) -> list[str]:
    """The tables that have a row in which one of the texts stands, in whatever column."""
    connection = await asyncpg.connect(url)
    try:
        tables = [table["name"] for table in await connection.fetch(_TABLES)]
        asked = "SELECT EXISTS (SELECT FROM {} t, unnest($1::text[]) AS x WHERE strpos(t::text, x) > 0)"
        return [name for name in tables if await connection.fetchval(asked.format(name), list(texts))]
    finally:
        await connection.close()


async def find_rows(url: str, tenant_id: str) -> list[str]:
    """The tables that have a row of the tenant."""
    connection = await asyncpg.connect(url)
    try:
        tables = [table["name"] for table in await connection.fetch(_TABLES) if "tenant_id" in table["columns"]]
        asked = "SELECT EXISTS (SELECT FROM {} WHERE tenant_id = $1)"
        return [name for name in tables if await connection.fetchval(asked.format(name), tenant_id)]
    finally:
        await connection.close()


async def tables_with(url: str, column: str) -> Sequence[str]:
    connection = await asyncpg.connect(url)
    try:
        return [table["name"] for table in await connection.fetch(_TABLES) if column in table["columns"]]
    finally:
        await connection.close()
