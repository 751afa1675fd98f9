"""Looking up a key before a tenant is known: by its hash, through the one function that reads them."""

from typing import Final

from app.ids import KeyId, TenantId
from app.ports.records import KeyRecord
from app.store.database import Database
from app.store.rows import to_epoch
from app.store.types import unescape_optional

_FIND: Final = "SELECT key_id, tenant_id, subject, scopes, expires_at, revoked FROM find_key($1)"


class PostgresKeyStore:
    """Satisfies ``ports.store.KeyStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_key(self, secret_hash: bytes) -> KeyRecord | None:
        rows = await self._database.fetch(_FIND, secret_hash)
        if not rows:
            return None
        row = rows[0]
        return KeyRecord(
            key_id=KeyId(row["key_id"]),
            tenant_id=None if row["tenant_id"] is None else TenantId(row["tenant_id"]),
            subject=unescape_optional(row["subject"]),
            scopes=frozenset(row["scopes"]),
            expires_at=to_epoch(row["expires_at"]),
            revoked=row["revoked"],
        )
