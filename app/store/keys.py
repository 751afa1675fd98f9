"""Looking up a key before a tenant is known: by its hash, through the few functions that read them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.ids import KeyId, TenantId
from app.ports.records import KeyRecord, TicketHolder
from app.store.database import Database
from app.store.groups import Group
from app.store.rows import to_epoch, to_instant
from app.store.tenancy import to_tenant_id
from app.store.types import escape_text, unescape_optional, unescape_text

_FIND: Final = (
    "SELECT c.place, f.key_id, f.tenant_id, f.subject, f.scopes, f.expires_at, f.revoked, f.groups,"
    " NULL::float8 AS retry_after_seconds"
    " FROM unnest($1::bytea[]) WITH ORDINALITY AS c (hash, place) CROSS JOIN LATERAL find_key(c.hash) AS f"
)
_ADMIT: Final = (
    "SELECT place, key_id, tenant_id, subject, scopes, expires_at, revoked, groups, retry_after_seconds"
    " FROM admit_keys($1)"
)
_FIND_TENANT: Final = "SELECT find_tenant($1) AS tenant_id"
_ADMIT_TENANT: Final = "SELECT tenant_id, retry_after_seconds FROM admit_tenant($1)"
_FIND_HOLDER: Final = (
    "SELECT key_id, tenant_id, subject, scopes, expires_at, revoked, groups, NULL::float8 AS retry_after_seconds"
    " FROM find_holder($1, $2, $3)"
)
_ADMIT_HOLDER: Final = (
    "SELECT key_id, tenant_id, subject, scopes, expires_at, revoked, groups, retry_after_seconds"
    " FROM admit_holder($1, $2, $3)"
)
_NOTE_USES: Final = "SELECT note_key_uses($1, $2)"


class PostgresKeyStore:
    """Satisfies ``ports.store.KeyStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._finds: Group[bytes, KeyRecord | None] = Group(self._find_one, self._find_all, shares=True)
        # Each one counts.
        self._admissions: Group[bytes, KeyRecord | None] = Group(self._admit_one, self._admit_all)

    async def find_key(self, secret_hash: bytes) -> KeyRecord | None:
        return await self._finds.ask(secret_hash)

    async def admit_key(self, secret_hash: bytes) -> KeyRecord | None:
        """A key that is revoked or expired costs its tenant nothing."""
        return await self._admissions.ask(secret_hash)

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

    async def find_holder(self, holder: TicketHolder) -> KeyRecord | None:
        return await self._ask_for_holder(_FIND_HOLDER, holder)

    async def admit_holder(self, holder: TicketHolder) -> KeyRecord | None:
        return await self._ask_for_holder(_ADMIT_HOLDER, holder)

    async def _ask_for_holder(self, statement: str, holder: TicketHolder) -> KeyRecord | None:
        rows = await self._database.fetch(statement, holder.tenant_id, holder.key_id, to_instant(holder.until))
        return _to_key_record(rows[0]) if rows else None

    async def _find_one(self, secret_hash: bytes) -> KeyRecord | None:
        [found] = await self._find_all([secret_hash])
        return found

    async def _find_all(self, secret_hashes: Sequence[bytes]) -> Sequence[KeyRecord | None]:
        return await self._ask_for_keys(_FIND, secret_hashes)

    async def _admit_one(self, secret_hash: bytes) -> KeyRecord | None:
        [admitted] = await self._admit_all([secret_hash])
        return admitted

    async def _admit_all(self, secret_hashes: Sequence[bytes]) -> Sequence[KeyRecord | None]:
        return await self._ask_for_keys(_ADMIT, secret_hashes)

    async def _ask_for_keys(self, statement: str, secret_hashes: Sequence[bytes]) -> Sequence[KeyRecord | None]:
        rows = await self._database.fetch(statement, secret_hashes)
        found = {row["place"]: _to_key_record(row) for row in rows}
        return [found.get(place) for place in range(1, len(secret_hashes) + 1)]

    async def note_uses(self, uses: Mapping[KeyId, float]) -> None:
        if uses:
            await self._database.fetch(_NOTE_USES, list(uses), [to_instant(at) for at in uses.values()])


def _to_key_record(row: Mapping[str, Any]) -> KeyRecord:
    return KeyRecord(
        key_id=KeyId(row["key_id"] or ""),
        tenant_id=to_tenant_id(row["tenant_id"]),
        subject=unescape_optional(row["subject"]),
        scopes=frozenset(row["scopes"] or ()),
        expires_at=to_epoch(row["expires_at"]),
        revoked=row["revoked"],
        groups=frozenset(map(unescape_text, row["groups"] or ())),
        retry_after_seconds=row["retry_after_seconds"],
    )
