"""Tenants with a setting, and runs and sessions that are as old as a test wants them."""

import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from app.conversation import Message, Role
from app.events import RunState
from app.execution.system import SystemClock
from app.ids import RunId, SessionId, TenantId, WorkerId
from app.ports.retention import ArchiveLine, DueRun, OldSession
from app.ports.sessions import NewSession
from app.store.database import Database
from app.store.retention import PostgresRetention
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.store.support import AGENT, new_run, query, terminated, update, warned

KEEPING = {"runs_days": 30, "sessions_days": 60}
ASK = """
    INSERT INTO approvals (tenant_id, approval_id, run_id, root_run_id, agent, tool, call_id, kind, dispatch,
        arguments_digest, summary, reason, flagged, status, requested_at, decided_at, decided_by, decision)
    VALUES ($1, 'apr_' || $2, $2, $3, 'clerk', 'pay', 'call_1', 'call', 1, 'd', '{"amount": {"value": 0.1}}', 'why',
        false, 'approved', now(), now(), 'boss', 'approve')
"""
NOTIFY = """
    INSERT INTO webhook_deliveries (tenant_id, delivery_id, webhook_id, event, subject, run_id, created_at,
        next_attempt_at)
    VALUES ($1, 'dlv_' || $2, 'whk_1', 'run.terminated', $2, $2, now(), now())
"""
# Rows of runs that have ended, by the thousand: queued one by one and driven they would take a minute.
MANY_RUNS = """
    INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, budget, max_llm_calls,
        priority, metadata, created_at, queued_at, ended_at, last_seq)
    SELECT $1, 'run_old_' || n, day, 'completed', 'clerk', 1, '"x"', '{}', '{}', 1, 0, '{}', at, at, at, 3
    FROM generate_series(1, $2::integer) AS n, (SELECT now() - interval '40 days' AS at, current_date AS day) AS d
"""
MANY_EVENTS = """
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    SELECT r.tenant_id, r.run_day, r.run_id, s, (ARRAY['run_queued', 'warning', 'terminated'])[s], r.ended_at, 1,
        json_build_object('text', repeat('word ', 50))::text
    FROM runs r, generate_series(1, 3) AS s WHERE r.tenant_id = $1 AND r.run_id LIKE 'run_old_%' ORDER BY s
"""


@dataclass(frozen=True, kw_only=True)
class Aged:
    """One database, with the hands of a superuser."""

    url: str
    database: Database

    @property
    def store(self) -> PostgresRetention:
        return PostgresRetention(self.database)

    @property
    def tenants(self) -> PostgresTenantStore:
        return PostgresTenantStore(self.database)

    @property
    def work(self) -> PostgresWorkStore:
        return PostgresWorkStore(self.database, SystemClock())

    async def tenant(self, tenant_id: TenantId, **retention: Any) -> TenantId:
        """Makes it, with this setting; without one everything is kept."""
        await query(
            self.url,
            "INSERT INTO tenants (tenant_id, name, retention) VALUES ($1, $1, $2)",
            tenant_id,
            json.dumps(retention) if retention else None,
        )
        async with self.tenants.begin(tenant_id) as tx:
            await tx.put_agent(AGENT)
        return tenant_id

    async def change(self, tenant_id: TenantId, **retention: Any) -> None:
        setting = json.dumps(retention)
        await query(self.url, "UPDATE tenants SET retention = $2 WHERE tenant_id = $1", tenant_id, setting)

    async def session(self, tenant_id: TenantId, *, days: float = 0) -> SessionId:
        session_id = SessionId(f"ses_{secrets.token_hex(13)}")
        async with self.tenants.begin(tenant_id) as tx:
            await tx.insert_session(NewSession(session_id=session_id, title="a\x00b", state={"k": 0.1}))
            await tx.put_artifact(session_id, "a", data=b"\x00\xff", content_type="x/y")
        await self.age_session(session_id, days)
        return session_id

    async def age_session(self, session_id: SessionId, days: float) -> None:
        """As if it, and all in it, had been left alone for so many days."""
        past = f"clock_timestamp() - interval '{days} days'"
        await query(
            self.url,
            f"UPDATE sessions SET updated_at = {past}, created_at = {past} WHERE session_id = $1",
            session_id,
        )
        await query(self.url, f"UPDATE artifacts SET created_at = {past} WHERE session_id = $1", session_id)
        await query(
            self.url,
            f"UPDATE runs SET created_at = {past}, ended_at = CASE WHEN ended_at IS NOT NULL THEN {past} END"
            " WHERE session_id = $1",
            session_id,
        )

    async def ended_run(self, tenant_id: TenantId, *, days: float = 0, **changes: Any) -> RunId:
        """One that ended so many days ago, with a run below it, and all that is kept of both."""
        run = new_run(tenant_id, **{"metadata": {"k": "v"}, "input": "a\x00b", "user": "a\x00b", **changes})
        async with self.tenants.begin(tenant_id) as tx:
            await tx.insert_run(run)
        [claim] = await self.work.claim(WorkerId("w"), limit=1, lease_seconds=60)
        adopted = await self.work.adopt(claim, new_run(tenant_id, parent_run_id=claim.run_id, metadata={"c": "d"}))
        child = adopted.claim.run_id
        for asking in (run.run_id, child):
            await query(self.url, ASK, tenant_id, asking, run.run_id)
        await query(self.url, NOTIFY, tenant_id, run.run_id)
        items = () if run.session_id is None else (Message(role=Role.USER, content="hello"),)
        await self.work.append_if_owner(adopted.claim, [terminated()], update(RunState.COMPLETED))
        await self.work.append_if_owner(
            claim, [warned("a\x00b"), terminated()], update(RunState.COMPLETED, session_items=items)
        )
        past = f"clock_timestamp() - interval '{days} days'"
        await query(
            self.url,
            f"UPDATE runs SET created_at = {past}, ended_at = {past} WHERE coalesce(root_run_id, run_id) = $1",
            run.run_id,
        )
        return run.run_id

    async def many_runs(self, tenant_id: TenantId, count: int) -> None:
        """Ended ones, 40 days old."""
        await query(self.url, MANY_RUNS, tenant_id, count)
        await query(self.url, MANY_EVENTS, tenant_id)

    async def due_runs(self, tenant_id: TenantId, *, limit: int = 10, after: DueRun | None = None) -> list[RunId]:
        return [run.run_id for run in await self.store.due_runs(tenant_id, limit=limit, after=after)]

    async def due_sessions(self, tenant_id: TenantId, *, after: OldSession | None = None) -> list[SessionId]:
        found = await self.store.old_sessions(tenant_id, limit=10, after=after)
        return [session.session_id for session in found if session.is_due]

    async def count(self, table: str, tenant_id: TenantId) -> int:
        [row] = await query(self.url, f"SELECT count(*) FROM {table} WHERE tenant_id = $1", tenant_id)
        count: int = row["count"]
        return count

    async def read_run(self, tenant_id: TenantId, run_id: RunId) -> list[ArchiveLine]:
        return [line async for line in self.store.read_run(tenant_id, run_id)]


def rows(lines: Sequence[ArchiveLine], table: str) -> list[dict[str, Any]]:
    """Those of one table."""
    parsed = [json.loads(line.text) for line in lines]
    return [line["row"] for line in parsed if line["table"] == table]


@asynccontextmanager
async def locked(url: str, statement: str, *arguments: object) -> AsyncIterator[None]:
    """Somebody holds what the statement locks."""
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetch(statement, *arguments)
    try:
        yield
    finally:
        await transaction.rollback()
        await connection.close()
