"""Looking up a key before a tenant is known: by its hash, through the few functions that read them."""

from collections.abc import Mapping
from typing import Any, Final

from app.ids import KeyId, TenantId
from app.ports.records import KeyRecord
from app.store.database import Database
from app.store.rows import to_epoch, to_instant
from app.store.tenancy import to_tenant_id
from app.store.types import escape_text, unescape_optional, unescape_text

_FIND: Final = (
    "SELECT key_id, tenant_id, subject, scopes, expires_at, revoked, groups, NULL::float8 AS retry_after_seconds"
    " FROM find_key($1)"
)
_ADMIT: Final = (
    "SELECT key_id, tenant_id, subject, scopes, expires_at, revoked, groups, retry_after_seconds FROM admit_key($1)"
)
_FIND_TENANT: Final = "SELECT find_tenant($1) AS tenant_id"
_ADMIT_TENANT: Final = "SELECT tenant_id, retry_after_seconds FROM admit_tenant($1)"
_NOTE_USES: Final = "SELECT note_key_uses($1, $2)"


class PostgresKeyStore:
    """Satisfies ``ports.store.KeyStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_key(self, secret_hash: bytes) -> KeyRecord | None:
        rows = await self._database.fetch(_FIND, secret_hash)
        return _to_key_record(rows[0]) if rows else None

    async def admit_key(self, secret_hash: bytes) -> KeyRecord | None:
        """A key that is revoked or expired costs its tenant nothing."""
        rows = await self._database.fetch(_ADMIT, secret_hash)
        return _to_key_record(rows[0]) if rows else None

    async def has_tenant(self, tenant: str) -> bool:
        rows = await self._database.fetch(_FIND_TENANT, escape_text(tenant))
        return rows[0]["tenant_id"] is not None

    async def admit_tenant(self, tenant: str) -> KeyRecord | None:
        """Without scopes too: what they may do is said elsewhere."""
        rows = await self._database.fetch(_ADMIT_TENANT, escape_text(tenant))
        if not rows:
            return None
        return KeyRecord(
            key_id=KeyId(""),
            tenant_id=TenantId(rows[0]["tenant_id"]),
            subject=None,
            scopes=frozenset(),
            expires_at=None,
            revoked=False,
            retry_after_seconds=rows[0]["retry_after_seconds"],
        )

    async def note_uses(self, uses: Mapping[KeyId, float]) -> None:
        if uses:
            await self._database.fetch(_NOTE_USES, list(uses), [to_instant(at) for at in uses.values()])


def _to_key_record(row: Mapping[str, Any]) -> KeyRecord:
    return KeyRecord(
        key_id=KeyId(row["key_id"]),
        tenant_id=to_tenant_id(row["tenant_id"]),
        subject=unescape_optional(row["subject"]),
        scopes=frozenset(row["scopes"]),
        expires_at=to_epoch(row["expires_at"]),
        revoked=row["revoked"],
        groups=frozenset(map(unescape_text, row["groups"])),
        retry_after_seconds=row["retry_after_seconds"],
    )
