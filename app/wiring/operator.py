"""The operator's side for the command line: in the database that the settings point to, as the tables' owner."""

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.errors import ConfigurationError
from app.execution.system import Uuid7Ids
from app.ids import TenantId, is_id
from app.ports.catalogue import Catalogue
from app.ports.clock import IdSource
from app.ports.tenancy import OperatorStore, TenantRecord
from app.settings import Settings
from app.store.database import Database, DatabaseConfig
from app.store.operator import PostgresOperatorStore
from app.wiring.parts import build_parts
from app.wiring.schema import open_as_owner


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorDesk:
    """``actor`` is whom the audit trail names: ``cli:`` and the login of who runs the command."""

    store: OperatorStore
    ids: IdSource
    actor: str

    async def find_tenant(self, named: str) -> TenantRecord:
        """By its name or its id. Raises ConfigurationError ``tenant_unknown``."""
        tenant = await self.store.find_tenant(named)
        if tenant is None and is_id("ten", named):
            tenant = await self.store.get_tenant(TenantId(named))
        if tenant is None:
            raise ConfigurationError(f"there is no tenant {named!r}", code="tenant_unknown")
        return tenant


@asynccontextmanager
async def open_desk(settings: Settings) -> AsyncIterator[OperatorDesk]:
    """Raises ConfigurationError where the owner's login is not set."""
    async with open_as_owner(settings) as admin_url:
        database = Database(DatabaseConfig(url=admin_url, pool_size=1))
        ids = Uuid7Ids()
        try:
            yield OperatorDesk(store=PostgresOperatorStore(database, ids), ids=ids, actor=f"cli:{_login()}")
        finally:
            await database.close()


@asynccontextmanager
async def open_catalogue(settings: Settings) -> AsyncIterator[Catalogue]:
    """What this deployment has by name; no model is loaded. Raises ConfigurationError."""
    parts = build_parts(settings)
    try:
        yield parts.catalogue
    finally:
        await parts.router.close()


def _login() -> str:
    # Not of the environment, which says what one likes. A container's user may have a number and no name.
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
