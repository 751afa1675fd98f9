"""The operator's side, over the owner's connection: the application's role may not call what is behind it."""

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

import asyncpg

from app.ids import TenantId
from app.ports.clock import IdSource
from app.ports.retention import TenantChanges, TenantRecord
from app.store.database import Database
from app.store.rows import dump_json
from app.store.types import escape_optional, escape_text, unescape_text

_ENSURE_TENANT: Final = "SELECT admin_ensure_tenant($1, $2) AS tenant_id"
_ADD_KEY: Final = "SELECT admin_add_key($1, $2, $3, $4, $5)"
_TENANTS: Final = "SELECT * FROM admin_tenants($1)"
_SET_TENANT: Final = "SELECT admin_set_tenant($1, $2)"


class PostgresAdminStore:
    """Satisfies ``ports.store.AdminStore``. ``database`` logs in as the owner."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids

    async def ensure_tenant(self, name: str) -> TenantId:
        rows = await self._database.fetch(_ENSURE_TENANT, self._ids.new("ten"), escape_text(name))
        return TenantId(rows[0]["tenant_id"])

    async def list_tenants(self) -> Sequence[TenantRecord]:
        return [_to_tenant(row) for row in await self._database.fetch(_TENANTS, None)]

    async def get_tenant(self, name: str) -> TenantRecord | None:
        rows = await self._database.fetch(_TENANTS, escape_text(name))
        return _to_tenant(rows[0]) if rows else None

    async def set_tenant(self, name: str, changes: TenantChanges) -> TenantRecord | None:
        await self._database.fetch(_SET_TENANT, escape_text(name), dump_json(changes))
        return await self.get_tenant(name)

    async def add_key(
        self, *, tenant_id: TenantId | None, subject: str | None, scopes: Collection[str], secret_hash: bytes
    ) -> None:
        await self._database.fetch(
            _ADD_KEY, self._ids.new("key"), tenant_id, escape_optional(subject), sorted(scopes), secret_hash
        )


def _to_tenant(row: asyncpg.Record) -> TenantRecord:
    kept: dict[str, Any] = json.loads(row["retention"] or "{}")
    return TenantRecord(
        tenant_id=TenantId(row["tenant_id"]),
        name=unescape_text(row["name"]),
        created_at=row["created_at"].timestamp(),
        max_running=row["max_running"],
        allow_self_approval=row["allow_self_approval"],
        runs_days=kept.get("runs_days"),
        sessions_days=kept.get("sessions_days"),
        archive=bool(kept.get("archive")),
    )
