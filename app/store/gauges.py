"""Figures of the deployment, and whether the database is there and is this release's."""

from typing import Final

import asyncpg

from app.errors import StoreUnavailable
from app.ports.records import Snapshot
from app.store.database import Database
from app.store.migrate import head_revision

_GAUGES: Final = """
    SELECT g.state, g.runs, g.oldest_seconds, w.unclaimable, w.approvals_pending, w.oldest_approval_seconds,
        w.notices_waiting, w.oldest_notice_seconds, deployment_workers() AS workers
    FROM deployment_gauges() g CROSS JOIN deployment_waits() w
"""
_REVISION: Final = "SELECT version_num FROM alembic_version"


class PostgresGauges:
    """Satisfies ``ports.store.Gauges``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def snapshot(self) -> Snapshot:
        """Only the states that pass: queued, running, suspended. How many runs have ended is the counters' to tell."""
        rows = await self._database.fetch(_GAUGES)
        return Snapshot(
            runs_by_state={row["state"]: row["runs"] for row in rows},
            oldest_queued_seconds=max(row["oldest_seconds"] for row in rows),
            unclaimable=rows[0]["unclaimable"],
            approvals_pending=rows[0]["approvals_pending"],
            oldest_approval_seconds=rows[0]["oldest_approval_seconds"],
            notices_waiting=rows[0]["notices_waiting"],
            oldest_notice_seconds=rows[0]["oldest_notice_seconds"],
            workers=rows[0]["workers"],
        )

    async def check(self) -> str | None:
        try:
            rows = await self._database.fetch(_REVISION)
        except StoreUnavailable:
            return "database_unavailable"
        except asyncpg.UndefinedTableError:
            return "migrations_pending"
        return None if [row["version_num"] for row in rows] == [head_revision()] else "migrations_pending"
