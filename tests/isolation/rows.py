"""A row of a tenant in every table, whatever tables there are, and what the tenant's rows look like."""

import json
import re
from collections.abc import Sequence
from typing import Final

import asyncpg

from app.store.tables import metadata

OF_TENANTS: Final = sorted(table.name for table in metadata.tables.values() if "tenant_id" in table.c)

_NEEDED: Final = """
    SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type,
        (SELECT string_agg(pg_get_constraintdef(k.oid), ' ') FROM pg_constraint k
            WHERE k.conrelid = a.attrelid AND k.contype = 'c' AND a.attnum = ANY (k.conkey)) AS checks
    FROM pg_attribute a
    WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity = ''
        AND (a.attname = 'tenant_id' OR a.attnotnull AND NOT a.atthasdef)
"""
_WORDS: Final = re.compile(r"'([^']+)'::text")
_NUMBER: Final = re.compile(r"\b\d+\b")
_BY_TYPE: Final = {
    "bigint": "1",
    "boolean": "false",
    "bytea": "'\\x61'",
    "date": "current_date",
    "double precision": "1",
    "integer": "1",
    "numeric": "1",
    "smallint": "1",
    "text[]": "'{}'",
    "timestamp with time zone": "clock_timestamp()",
}


async def fill_tables(connection: asyncpg.Connection, tenants: Sequence[str]) -> None:
    """Gives each tenant a row in every table where it has none, made of what its columns need. As a superuser.

    A table whose columns need more than that fails here: then ``household`` has to give its tenants a real one.
    """
    async with connection.transaction():
        await connection.execute("SET LOCAL session_replication_role = replica")
        for table in OF_TENANTS:
            for tenant_id in tenants:
                if not await connection.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = $1", tenant_id):
                    await _add_row(connection, table, tenant_id)


async def _add_row(connection: asyncpg.Connection, table: str, tenant_id: str) -> None:
    columns = await connection.fetch(_NEEDED, table)
    values = [_make_value(row["name"], row["type"], row["checks"], tenant_id) for row in columns]
    names = ", ".join(row["name"] for row in columns)
    await connection.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join(values)})")


def _make_value(name: str, kind: str, checks: str | None, tenant_id: str) -> str:
    if name == "tenant_id":
        return f"'{tenant_id}'"
    if kind == "text":
        allowed = _WORDS.findall(checks or "")
        # Its own, where the column has to be unique over all tenants.
        return f"'{allowed[0] if allowed else f'{name} of {tenant_id}'}'"
    if kind in ("integer", "bigint") and (bounds := _NUMBER.findall(checks or "")):
        # One that a check names is most often one that it allows.
        return str(bounds[0])
    return _BY_TYPE[kind] if kind != "bytea" else f"'{tenant_id}'::bytea"


async def digest_rows(connection: asyncpg.Connection, tenant_id: str) -> dict[str, str]:
    """One digest a table of all that the tenant has there. As a superuser."""
    asked = "SELECT md5(coalesce(string_agg(t::text, chr(10) ORDER BY t::text), '')) FROM {} t WHERE tenant_id = $1"
    return {table: await connection.fetchval(asked.format(table), tenant_id) for table in OF_TENANTS}


async def copy_of_row(connection: asyncpg.Connection, table: str, tenant_id: str) -> str:
    """A row of the tenant as JSON, from which it can be put in once more."""
    found = await connection.fetchval(f"SELECT to_json(t)::text FROM {table} t WHERE tenant_id = $1 LIMIT 1", tenant_id)
    return json.dumps(json.loads(found))
