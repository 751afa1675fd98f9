"""Erasing what a tenant's setting no longer keeps, and the news of what was erased.

The database's clock alone says what is due, and each erasure looks again under its lock. Row security holds: what is
due is looked for one tenant at a time, as that tenant.
"""

import base64
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import asyncpg

from app.ids import RunId, SessionId, TenantId
from app.ports.retention import ArchiveLine, DueRun, Erasure, Erasures, OldSession, Turn
from app.store.database import Database, store_errors
from app.store.lines import write_line
from app.store.rows import to_instant

_TAKE_TURN: Final = "SELECT tenant_id, archive FROM take_retention_turn($1, $2)"
_HOLD_TURN: Final = "SELECT hold_retention_turn($1, $2)"
_RETAIN_RUN: Final = "SELECT retain_run($1, $2) AS erased"
_RETAIN_SESSION: Final = "SELECT retain_session($1, $2) AS erased"
_DROP_PARTITION: Final = "SELECT drop_empty_event_partition() AS dropped"
_ERASURES: Final = "SELECT next_from, tenants, instants FROM erasures_since($1)"
# Along the index of the newest: what is due lies among the oldest.
_OLD_SESSIONS: Final = """
    SELECT s.session_id, s.created_at, is_session_due(s.tenant_id, s.session_id) AS is_due FROM sessions s
    WHERE s.tenant_id = $1 AND s.created_at < (SELECT kept_from($1, 'sessions_days'))
        AND (s.created_at, s.session_id) > ($3, $4)
    ORDER BY s.created_at, s.session_id LIMIT $2
"""
_RUNS_OF_SESSION: Final = """
    SELECT run_id FROM runs WHERE tenant_id = $1 AND session_id = $2 ORDER BY session_seq DESC LIMIT $3
"""
_DUE_RUNS: Final = """
    SELECT r.run_id, r.ended_at FROM runs r
    WHERE r.tenant_id = $1 AND r.session_id IS NULL AND r.parent_run_id IS NULL
        AND r.ended_at < (SELECT kept_from($1, 'runs_days')) AND (r.ended_at, r.run_id) > ($3, $4)
        AND NOT EXISTS (SELECT FROM runs n WHERE n.tenant_id = $1 AND n.resumes = r.run_id)
    ORDER BY r.ended_at, r.run_id LIMIT $2
"""
_TREE: Final = """
    SELECT row_to_json(r)::text AS row, r.run_id, r.run_day, to_char(o.ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day
    FROM runs o JOIN runs r ON r.tenant_id = $1 AND r.run_id = ANY (list_tree($1, $2))
    WHERE o.tenant_id = $1 AND o.run_id = $2 ORDER BY r.run_id <> $2, r.created_at, r.run_id
"""
_EVENTS: Final = """
    SELECT row_to_json(e)::text AS row, e.seq FROM events e
    WHERE e.tenant_id = $1 AND e.run_id = $2 AND e.run_day = $3 AND e.seq > $4 ORDER BY e.seq LIMIT 500
"""
_APPROVALS: Final = """
    SELECT row_to_json(a)::text AS row FROM approvals a
    WHERE a.tenant_id = $1 AND a.run_id = $2 ORDER BY a.requested_at, a.approval_id
"""
_SESSION: Final = """
    SELECT row_to_json(s)::text AS row, to_char(s.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day FROM sessions s
    WHERE s.tenant_id = $1 AND s.session_id = $2
"""
_ITEMS: Final = """
    SELECT row_to_json(i)::text AS row, i.session_seq FROM session_items i
    WHERE i.tenant_id = $1 AND i.session_id = $2 AND i.session_seq > $3 ORDER BY i.session_seq LIMIT 100
"""
_STATE: Final = """
    SELECT row_to_json(e)::text AS row FROM state_entries e
    WHERE e.tenant_id = $1 AND e.scope = 'session' AND e.owner = $2 ORDER BY e.key
"""
_ARTIFACTS: Final = """
    SELECT name, version FROM artifacts WHERE tenant_id = $1 AND session_id = $2 ORDER BY name, version
"""
_ARTIFACT: Final = """
    SELECT row_to_json(i)::text AS row, a.data FROM artifacts a
    CROSS JOIN LATERAL (SELECT a.tenant_id, a.session_id, a.name, a.version, a.content_type, a.size, a.sha256,
        a.created_at, a.run_id) AS i
    WHERE a.tenant_id = $1 AND a.session_id = $2 AND a.name = $3 AND a.version = $4
"""

_FIRST: Final = (0.0, "")


class PostgresRetention:
    """Satisfies ``ports.retention.RetentionStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_turn(self, *, hold_seconds: float, archives: bool) -> Turn | None:
        rows = await self._database.fetch(_TAKE_TURN, archives, hold_seconds)
        return Turn(tenant_id=TenantId(rows[0]["tenant_id"]), archive=rows[0]["archive"]) if rows else None

    async def hold_turn(self, tenant_id: TenantId, seconds: float) -> None:
        await self._database.fetch(_HOLD_TURN, tenant_id, seconds)

    async def old_sessions(self, tenant_id: TenantId, *, limit: int, after: OldSession | None) -> Sequence[OldSession]:
        instant, last = _FIRST if after is None else (after.created_at, after.session_id)
        return [
            OldSession(
                session_id=SessionId(row["session_id"]), created_at=row["created_at"].timestamp(), is_due=row["is_due"]
            )
            for row in await self._read(tenant_id, _OLD_SESSIONS, limit, to_instant(instant), last)
        ]

    async def runs_of_session(self, tenant_id: TenantId, session_id: SessionId, *, limit: int) -> Sequence[RunId]:
        return [RunId(row["run_id"]) for row in await self._read(tenant_id, _RUNS_OF_SESSION, session_id, limit)]

    async def due_runs(self, tenant_id: TenantId, *, limit: int, after: DueRun | None) -> Sequence[DueRun]:
        instant, last = _FIRST if after is None else (after.ended_at, after.run_id)
        return [
            DueRun(run_id=RunId(row["run_id"]), ended_at=row["ended_at"].timestamp())
            for row in await self._read(tenant_id, _DUE_RUNS, limit, to_instant(instant), last)
        ]

    async def erase_due_run(self, tenant_id: TenantId, run_id: RunId) -> bool:
        [row] = await self._database.fetch(_RETAIN_RUN, tenant_id, run_id)
        erased: bool = row["erased"]
        return erased

    async def erase_due_session(self, tenant_id: TenantId, session_id: SessionId) -> bool:
        [row] = await self._database.fetch(_RETAIN_SESSION, tenant_id, session_id)
        erased: bool = row["erased"]
        return erased

    async def read_run(self, tenant_id: TenantId, run_id: RunId) -> AsyncIterator[ArchiveLine]:
        for run in await self._read(tenant_id, _TREE, run_id):
            day = run["day"]
            yield _to_line(day, "runs", run["row"])
            last = 0
            while events := await self._read(tenant_id, _EVENTS, run["run_id"], run["run_day"], last):
                for row in events:
                    yield _to_line(day, "events", row["row"])
                last = events[-1]["seq"]
            for row in await self._read(tenant_id, _APPROVALS, run["run_id"]):
                yield _to_line(day, "approvals", row["row"])

    async def read_session(self, tenant_id: TenantId, session_id: SessionId) -> AsyncIterator[ArchiveLine]:
        for session in await self._read(tenant_id, _SESSION, session_id):
            day = session["day"]
            yield _to_line(day, "sessions", session["row"])
            last = 0
            while items := await self._read(tenant_id, _ITEMS, session_id, last):
                for row in items:
                    yield _to_line(day, "session_items", row["row"])
                last = items[-1]["session_seq"]
            for row in await self._read(tenant_id, _STATE, session_id):
                yield _to_line(day, "state_entries", row["row"])
            for artifact in await self._read(tenant_id, _ARTIFACTS, session_id):
                # One at a time: they may be large.
                for row in await self._read(tenant_id, _ARTIFACT, session_id, artifact["name"], artifact["version"]):
                    yield _to_line(day, "artifacts", row["row"], data=base64.b64encode(row["data"]).decode())

    async def drop_empty_partition(self) -> bool:
        [row] = await self._database.fetch(_DROP_PARTITION)
        dropped: bool = row["dropped"]
        return dropped

    async def _read(self, tenant_id: TenantId, statement: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """One statement as that tenant, whose id is its first argument."""
        async with self._database.enter_tenant(tenant_id) as driver:
            with store_errors():
                rows: Sequence[asyncpg.Record] = await driver.fetch(statement, tenant_id, *arguments)
                return rows


class PostgresErasures:
    """Satisfies ``ports.retention.ErasureFeed``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def since(self, position: int) -> Erasures:
        [row] = await self._database.fetch(_ERASURES, position)
        found = zip(row["tenants"], row["instants"], strict=True)
        return Erasures(
            position=row["next_from"],
            found=[Erasure(tenant_id=TenantId(tenant), at=instant.timestamp()) for tenant, instant in found],
        )


def _to_line(day: str, table: str, row: str, **more: Any) -> ArchiveLine:
    return ArchiveLine(day=day, text=write_line(table, row, **more))
