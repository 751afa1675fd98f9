"""All that the database keeps of one tenant, as lines of JSON.

Read as the application's role, under row security: of another tenant nothing can be among it. Which tables there are is
told by the catalogue, so that none is left out; one that this role may not read fails the export.
"""

import base64
from collections.abc import AsyncGenerator, Collection
from typing import Any, Final

import asyncpg

from app.ids import TenantId
from app.store.database import Database, store_errors
from app.store.lines import write_line

_ONE_INSTANT: Final = """
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL bytea_output = 'hex'
"""
# Partitions are read with their table.
_TABLES: Final = """
    SELECT c.relname AS name, array_agg(a.attname::text) FILTER (WHERE a.atttypid = 'bytea'::regtype) AS bytes
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    GROUP BY c.relname HAVING bool_or(a.attname = 'tenant_id') ORDER BY c.relname
"""
# Of a key everything but what a secret could be tried against.
_KEYS: Final = "SELECT export_keys()::text AS row WHERE $1::text IS NOT NULL"
# Artifacts are large.
_ROWS_AT_ONCE: Final = 500
_ROWS_OF_BYTES_AT_ONCE: Final = 8


async def read_tenant(database: Database, tenant_id: TenantId) -> AsyncGenerator[str, None]:
    """Each row of each table, ``{"table": …, "row": {…}}``, all of them as they were at one instant. Bytes are in
    base64. ``database`` logs in as the application's role. Raises StoreUnavailable."""
    async with database.enter_tenant(tenant_id) as driver:
        with store_errors():
            await driver.execute(_ONE_INSTANT)
            tables = await driver.fetch(_TABLES)
        for table in tables:
            async for line in _read_table(driver, tenant_id, table["name"], table["bytes"] or ()):
                yield line


async def _read_table(
    driver: asyncpg.Connection, tenant_id: TenantId, table: str, of_bytes: Collection[str]
) -> AsyncGenerator[str, None]:
    every = f'SELECT row_to_json(t)::text AS row FROM "{table}" t WHERE t.tenant_id = $1'  # noqa: S608 - the catalogue's
    at_once = _ROWS_OF_BYTES_AT_ONCE if of_bytes else _ROWS_AT_ONCE
    with store_errors():
        rows = await driver.cursor(_KEYS if table == "keys" else every, tenant_id)
    while True:
        with store_errors():
            portion = await rows.fetch(at_once)
        for row in portion:
            yield write_line(table, row["row"], recode=dict.fromkeys(of_bytes, _to_base64))
        if len(portion) < at_once:
            return


def _to_base64(value: Any) -> Any:
    """Of bytes as Postgres writes them into JSON."""
    return base64.b64encode(bytes.fromhex(value.removeprefix("\\x"))).decode() if isinstance(value, str) else value
