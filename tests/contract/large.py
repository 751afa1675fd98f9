"""A tenant with 50,000 of everything that lists show, and how many rows of them a request reads."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import asyncpg
import httpx

from app.api import ApiDeps, create_app
from app.execution.system import Uuid7Ids
from app.store.database import Database, DatabaseConfig
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from tests.api.harness import Keys, make_keys, with_key
from tests.conftest import DatabaseUrls

ROWS: Final = 50_000
# The rare ones are the oldest: a reader of the newest comes to them last.
_NEWEST_FIRST: Final = f"""
    FROM generate_series(1, {ROWS}) AS n,
        LATERAL (SELECT now() - n * interval '1 second' AS at, lpad((100000 - n)::text, 26, '0') AS id,
            n > {ROWS} - 30 AS rare) AS r
"""
_STATES: Final = """(ARRAY['queued', 'running', 'suspended', 'failed', 'budget_exhausted',
    'max_iterations_exceeded', 'loop_limit_exceeded', 'cancelled'])"""
_CONTEXT: Final = '{"pinned": [], "retrieved": []}'
_BUDGET: Final = '{"limits": {}, "sources": {}}'
_LOAD: Final = (
    f"""INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, budget,
        max_llm_calls, priority, metadata, caller, session_id, session_seq, parent_run_id, root_run_id, created_at,
        queued_at, ended_at, last_seq)
    SELECT $1, 'run_' || id, current_date, CASE WHEN n > {ROWS} - 240 THEN {_STATES}[1 + n % 8] ELSE 'completed' END,
        CASE WHEN rare THEN 'rare' ELSE 'common' END, 1, '"x"', '{_CONTEXT}',
        '{_BUDGET}', 1, 0, '{{}}',
        CASE WHEN rare THEN 'rare' WHEN n % 2 = 0 THEN 'common' END,
        CASE WHEN rare THEN 'ses_' || lpad('1', 26, '0') END,
        CASE WHEN rare THEN n END,
        CASE WHEN n BETWEEN {ROWS} - 60 AND {ROWS} - 40 THEN 'run_' || lpad('50000', 26, '0') END,
        CASE WHEN n BETWEEN {ROWS} - 60 AND {ROWS} - 40 THEN 'run_' || lpad('50000', 26, '0') END, at, at,
        CASE WHEN n > {ROWS} - 240 AND 1 + n % 8 <= 3 THEN NULL ELSE at END, 1 {_NEWEST_FIRST}""",
    f"""INSERT INTO run_metadata (tenant_id, key, value, run_id, created_at)
    SELECT $1, 'ticket', CASE WHEN rare THEN 'rare' ELSE 'common' END, 'run_' || id, at {_NEWEST_FIRST}""",
    f"""INSERT INTO sessions (tenant_id, session_id, agent, caller, metadata, created_at, updated_at)
    SELECT $1, 'ses_' || id, CASE WHEN rare THEN 'rare' ELSE 'common' END, CASE WHEN rare THEN 'rare' END, '{{}}',
        at, at
    {_NEWEST_FIRST}""",
    f"""INSERT INTO approvals (tenant_id, approval_id, run_id, root_run_id, agent, tool, call_id, kind, dispatch,
        arguments_digest, summary, reason, flagged, status, requested_at, decided_at, decided_by, decision)
    SELECT $1, 'apr_' || id, 'run_' || CASE WHEN rare THEN lpad('50000', 26, '0') ELSE id END,
        'run_' || CASE WHEN rare THEN lpad('50000', 26, '0') ELSE id END, CASE WHEN rare THEN 'rare' ELSE 'common' END,
        CASE WHEN rare THEN 'rare' ELSE 'common' END, 'call_1', 'call', 1, 'd', '{{}}', '', false, s.status, at,
        CASE WHEN s.status <> 'pending' THEN at END,
        CASE WHEN s.status IN ('approved', 'denied') THEN 'boss' END,
        CASE s.status WHEN 'approved' THEN 'approve' WHEN 'denied' THEN 'deny' END
    {_NEWEST_FIRST}, LATERAL (SELECT CASE WHEN rare THEN (ARRAY['pending', 'denied', 'expired', 'cancelled'])[1 + n % 4]
        ELSE 'approved' END AS status) AS s""",
)
_READ: Final = """
    SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) AS rows FROM pg_stat_user_tables
    WHERE relname IN ('runs', 'sessions', 'approvals', 'run_metadata')
"""
_OPEN: Final = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'runwright'
"""


@dataclass(frozen=True, kw_only=True)
class LargeTenant:
    """``deps`` are those of an app over any database: its stores are replaced."""

    urls: DatabaseUrls
    keys: Keys

    async def count_rows(self, deps: ApiDeps, path: str, query: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """How many rows of the tables were looked at, hit or miss, to answer one page; and the page."""
        before = await self._read()
        page = await self._ask(deps, path, query)
        after = await self._read()
        return after - before, page

    async def _ask(self, deps: ApiDeps, path: str, query: Mapping[str, Any]) -> dict[str, Any]:
        database = Database(DatabaseConfig(url=self.urls.app_url, pool_size=1))
        over = replace(
            deps,
            store=PostgresTenantStore(database),
            keys=PostgresKeyStore(database),
            operator=PostgresOperatorStore(database, deps.ids),
        )
        transport = httpx.ASGITransport(create_app(over))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            response = await client.get(path, params=query, headers=with_key(self.keys.service))
        await database.close()
        assert response.status_code == 200, response.text
        return dict(response.json())

    async def _read(self) -> int:
        """A connection tells what it has read when it ends at the latest."""
        connection = await asyncpg.connect(self.urls.superuser_url)
        try:
            give_up_at = time.monotonic() + 10
            while await connection.fetchval(_OPEN):
                assert time.monotonic() < give_up_at, "a connection of the app's does not end"
                await asyncio.sleep(0.01)
            return int(sum(row["rows"] for row in await connection.fetch(_READ)))
        finally:
            await connection.close()


async def load(urls: DatabaseUrls) -> LargeTenant:
    database = Database(DatabaseConfig(url=urls.admin_url, pool_size=1))
    keys = await make_keys(PostgresOperatorStore(database, Uuid7Ids()), "large")
    await database.close()
    connection = await asyncpg.connect(urls.superuser_url)
    await connection.execute("SET session_replication_role = replica")
    for statement in _LOAD:
        await connection.execute(statement, keys.tenant_id)
    await connection.execute("ANALYZE runs, run_metadata, sessions, approvals")
    # What it has read is told now, and not when its process ends.
    await connection.execute("SELECT pg_stat_force_next_flush()")
    await connection.close()
    return LargeTenant(urls=urls, keys=keys)
