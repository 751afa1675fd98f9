"""Tenants' settings in the database that the settings point to."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from app.errors import ConfigurationError
from app.execution.system import Uuid7Ids
from app.ports.retention import TenantChanges, TenantRecord, TenantSettings
from app.settings import Settings
from app.store.admin import PostgresAdminStore
from app.store.database import Database, DatabaseConfig
from app.wiring.schema import open_as_owner


async def list_configured_tenants(settings: Settings) -> Sequence[TenantRecord]:
    async with _open(settings) as tenants:
        return await tenants.list_tenants()


async def get_configured_tenant(settings: Settings, name: str) -> TenantRecord:
    """Raises ConfigurationError ``tenant_unknown``."""
    async with _open(settings) as tenants:
        return _known(await tenants.get_tenant(name), name)


async def set_configured_tenant(settings: Settings, name: str, changes: TenantChanges) -> TenantRecord:
    """Raises ConfigurationError ``tenant_unknown``."""
    async with _open(settings) as tenants:
        return _known(await tenants.set_tenant(name, changes), name)


@asynccontextmanager
async def _open(settings: Settings) -> AsyncIterator[TenantSettings]:
    async with open_as_owner(settings) as admin_url:
        database = Database(DatabaseConfig(url=admin_url, pool_size=1))
        try:
            yield PostgresAdminStore(database, Uuid7Ids())
        finally:
            await database.close()


def _known(tenant: TenantRecord | None, name: str) -> TenantRecord:
    if tenant is None:
        raise ConfigurationError(f"there is no tenant {name!r}", code="tenant_unknown")
    return tenant
