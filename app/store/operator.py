"""The operator's side, through the functions that work over all tenants: as the service's login, or as the owner's."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.ids import KeyId, TenantId
from app.ports.clock import IdSource
from app.ports.tenancy import (
    AuditEntry,
    CancelFilter,
    KeyInfo,
    NewKey,
    Pause,
    TenantChanges,
    TenantRecord,
    WorkerInfo,
)
from app.store.database import Database
from app.store.rows import to_optional_instant
from app.store.tenancy import (
    dump_changes,
    dump_names,
    to_audit_entry,
    to_key,
    to_pause,
    to_tenant,
    to_worker,
)
from app.store.types import escape_optional, escape_text

_TENANTS: Final = "SELECT * FROM operator_tenants($1, $2, $3, $4)"
_CREATE_TENANT: Final = "SELECT operator_create_tenant($1, $2, $3) AS done"
_SET_TENANT: Final = "SELECT operator_set_tenant($1, $2, $3) AS done"
_ERASE_TENANT: Final = "SELECT operator_erase_tenant($1, $2) AS done"
_KEYS: Final = "SELECT * FROM operator_keys($1)"
_ADD_KEY: Final = "SELECT * FROM operator_add_key($1, $2, $3, $4, $5, $6, $7, $8, $9)"
_ROTATE_KEY: Final = "SELECT * FROM operator_rotate_key($1, $2, $3, $4, $5, $6, $7)"
_REVOKE_KEY: Final = "SELECT operator_revoke_key($1, $2, $3) AS done"
_ADD_PAUSE: Final = "SELECT * FROM operator_add_pause($1, $2, $3, $4, $5, $6, $7)"
_PAUSES: Final = "SELECT * FROM operator_pauses()"
_END_PAUSE: Final = "SELECT operator_end_pause($1, $2) AS done"
_CANCEL: Final = "SELECT operator_cancel_runs($1, $2, $3, $4, $5, $6, $7) AS count"
_WORKERS: Final = "SELECT * FROM operator_workers()"
_DRAIN: Final = "SELECT operator_drain_worker($1, $2) AS done"
_AUDIT: Final = "SELECT * FROM operator_audit($1, $2, $3, $4)"


class PostgresOperatorStore:
    """Satisfies ``ports.tenancy.OperatorStore``."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids

    async def create_tenant(self, name: str, *, actor: str) -> TenantRecord | None:
        tenant_id = TenantId(self._ids.new("ten"))
        if not await self._do(_CREATE_TENANT, escape_text(actor), tenant_id, escape_text(name)):
            return None
        return await self.get_tenant(tenant_id)

    async def ensure_tenant(self, name: str, *, actor: str) -> TenantId:
        created = await self.create_tenant(name, actor=actor) or await self.find_tenant(name)
        if created is None:
            # It was there a moment ago, and has gone since.
            return await self.ensure_tenant(name, actor=actor)
        return created.tenant_id

    async def list_tenants(self, *, limit: int | None = None, after: str | None = None) -> Sequence[TenantRecord]:
        rows = await self._database.fetch(_TENANTS, None, None, escape_optional(after), limit)
        return [to_tenant(row) for row in rows]

    async def get_tenant(self, tenant_id: TenantId) -> TenantRecord | None:
        rows = await self._database.fetch(_TENANTS, escape_text(tenant_id), None, None, None)
        return to_tenant(rows[0]) if rows else None

    async def find_tenant(self, name: str) -> TenantRecord | None:
        rows = await self._database.fetch(_TENANTS, None, escape_text(name), None, None)
        return to_tenant(rows[0]) if rows else None

    async def set_tenant(self, tenant_id: TenantId, changes: TenantChanges, *, actor: str) -> TenantRecord | None:
        await self._do(_SET_TENANT, escape_text(actor), escape_text(tenant_id), dump_changes(changes))
        return await self.get_tenant(tenant_id)

    async def erase_tenant(self, tenant_id: TenantId, *, actor: str) -> bool:
        """May be called again: runs that were accepted meanwhile are asked to end as well."""
        return await self._do(_ERASE_TENANT, escape_text(actor), escape_text(tenant_id))

    async def add_key(self, key: NewKey, *, actor: str) -> KeyInfo | None:
        """None also where the tenant is going. Raises ValueError for a key without a secret's hash."""
        rows = await self._database.fetch(
            _ADD_KEY,
            escape_text(actor),
            key.key_id,
            escape_optional(key.tenant_id),
            escape_optional(key.subject),
            dump_names(key.scopes),
            dump_names(key.groups),
            escape_text(key.description),
            key.lifetime_seconds,
            _hash_of(key),
        )
        return to_key(rows[0]) if rows else None

    async def list_keys(self, tenant_id: TenantId | None) -> Sequence[KeyInfo]:
        return [to_key(row) for row in await self._database.fetch(_KEYS, escape_optional(tenant_id))]

    async def rotate_key(
        self, key_id: KeyId, tenant_id: TenantId | None, successor: NewKey, *, overlap_seconds: float, actor: str
    ) -> KeyInfo | None:
        """Of the successor its id, its lifetime and its secret's hash are taken."""
        rows = await self._database.fetch(
            _ROTATE_KEY,
            escape_text(actor),
            escape_text(key_id),
            escape_optional(tenant_id),
            successor.key_id,
            successor.lifetime_seconds,
            _hash_of(successor),
            overlap_seconds,
        )
        return to_key(rows[0]) if rows else None

    async def revoke_key(self, key_id: KeyId, tenant_id: TenantId | None, *, actor: str) -> bool:
        return await self._do(_REVOKE_KEY, escape_text(actor), escape_text(key_id), escape_optional(tenant_id))

    async def add_pause(self, pause: Pause, *, actor: str) -> Pause | None:
        """Raises ValueError for a pause of a tenant or of an agent that does not say whose."""
        if not _names_whose(pause):
            raise ValueError("a tenant's pause names the tenant twice, and an agent's its tenant")
        rows = await self._database.fetch(
            _ADD_PAUSE,
            escape_text(actor),
            pause.pause_id,
            pause.kind.value,
            escape_text(pause.name),
            escape_optional(pause.tenant_id),
            escape_text(pause.reason),
            escape_text(pause.paused_by),
        )
        return to_pause(rows[0]) if rows else None

    async def list_pauses(self) -> Sequence[Pause]:
        return [to_pause(row) for row in await self._database.fetch(_PAUSES)]

    async def end_pause(self, pause_id: str, *, actor: str) -> bool:
        return await self._do(_END_PAUSE, escape_text(actor), escape_text(pause_id))

    async def cancel_runs(self, where: CancelFilter, *, reason: str | None, actor: str) -> int:
        """Raises ValueError where no condition is set."""
        if where == CancelFilter():
            raise ValueError("a cancel of everything is not asked for by leaving the conditions out")
        [row] = await self._database.fetch(
            _CANCEL,
            escape_text(actor),
            escape_optional(where.tenant_id),
            escape_optional(where.agent),
            escape_optional(where.tool),
            escape_optional(where.model),
            to_optional_instant(where.created_before),
            escape_optional(reason),
        )
        count: int = row["count"]
        return count

    async def list_workers(self) -> Sequence[WorkerInfo]:
        return [to_worker(row) for row in await self._database.fetch(_WORKERS)]

    async def drain_worker(self, worker_id: str, *, actor: str) -> bool:
        return await self._do(_DRAIN, escape_text(actor), escape_text(worker_id))

    async def audit_trail(
        self, *, tenant_id: TenantId | None, action: str | None, limit: int, before: int | None
    ) -> Sequence[AuditEntry]:
        rows = await self._database.fetch(_AUDIT, escape_optional(tenant_id), escape_optional(action), before, limit)
        return [to_audit_entry(row) for row in rows]

    async def _do(self, statement: str, *arguments: Any) -> bool:
        rows: Sequence[Mapping[str, Any]] = await self._database.fetch(statement, *arguments)
        done: bool = rows[0]["done"]
        return done


def _hash_of(key: NewKey) -> bytes:
    if not key.secret_hash:
        raise ValueError("a key is stored by its secret's hash")
    return key.secret_hash


def _names_whose(pause: Pause) -> bool:
    match pause.kind.value:
        case "tenant":
            return pause.tenant_id is not None and pause.name == pause.tenant_id
        case "agent":
            return pause.tenant_id is not None
        case _:
            return True
