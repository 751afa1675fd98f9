"""The operator's side, over the owner's connection: the application's role may not call what is behind it."""

from collections.abc import Collection
from typing import Final

from app.ids import TenantId
from app.ports.clock import IdSource
from app.store.database import Database
from app.store.types import escape_optional, escape_text

_ENSURE_TENANT: Final = "SELECT admin_ensure_tenant($1, $2) AS tenant_id"
_ADD_KEY: Final = "SELECT admin_add_key($1, $2, $3, $4, $5)"


class PostgresAdminStore:
    """Satisfies ``ports.store.AdminStore``. ``database`` logs in as the owner."""

    def __init__(self, database: Database, ids: IdSource) -> None:
        self._database = database
        self._ids = ids

    async def ensure_tenant(self, name: str) -> TenantId:
        rows = await self._database.fetch(_ENSURE_TENANT, self._ids.new("ten"), escape_text(name))
        return TenantId(rows[0]["tenant_id"])

    async def add_key(
        self, *, tenant_id: TenantId | None, subject: str | None, scopes: Collection[str], secret_hash: bytes
    ) -> None:
        await self._database.fetch(
            _ADD_KEY, self._ids.new("key"), tenant_id, escape_optional(subject), sorted(scopes), secret_hash
        )
