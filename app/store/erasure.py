"""Erasing what belongs to one person, and all of a tenant. The functions behind it are the owner's: the service itself
may delete none of it."""

from collections.abc import Sequence
from typing import Final

from app.ids import RunId, TenantId
from app.ports.erasure import Portion, UserErased
from app.store.database import Database
from app.store.transaction import TenantTransaction
from app.store.types import escape_text

_ERASE_RUN: Final = "SELECT erase_run($1, $2) AS erased"
_HAS_OPEN: Final = "SELECT user_has_open_runs($1, $2) AS is_open"
_ERASE_USER: Final = "SELECT runs, sessions, is_open, is_done FROM erase_user($1, $2, $3, $4)"
_TENANTS: Final = "SELECT tenant_id FROM tenants_to_erase($1) AS tenant_id"
_ERASE_TENANT: Final = "SELECT erase_tenant_portion($1, $2) AS portion"


class ErasureTables(TenantTransaction):
    """The part of a tenant's transaction that erases runs, and what belongs to a user."""

    async def erase_run(self, run_id: RunId) -> bool:
        """True where it was gone. False, and nothing is erased, while it, a run that goes on from it, or a later one
        of its session has not ended, and for a run below another one."""
        [row] = await self._fetch(_ERASE_RUN, self.tenant_id, run_id)
        erased: bool = row["erased"]
        return erased

    async def has_open_runs(self, user: str) -> bool:
        [row] = await self._fetch(_HAS_OPEN, self.tenant_id, escape_text(user))
        is_open: bool = row["is_open"]
        return is_open

    async def erase_user(self, user: str, *, target: str, limit: int) -> UserErased:
        [row] = await self._fetch(_ERASE_USER, self.tenant_id, escape_text(user), target, limit)
        return UserErased(**row)


class PostgresTenantErasure:
    """Satisfies ``ports.erasure.TenantErasureStore``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def tenants_to_erase(self, *, unused_seconds: float) -> Sequence[TenantId]:
        return [TenantId(row["tenant_id"]) for row in await self._database.fetch(_TENANTS, unused_seconds)]

    async def erase_portion(self, tenant_id: TenantId, *, limit: int) -> Portion:
        [row] = await self._database.fetch(_ERASE_TENANT, tenant_id, limit)
        return Portion(row["portion"])
