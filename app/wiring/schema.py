"""Where the database is, and bringing it to this release's schema."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.errors import ConfigurationError
from app.settings import Settings
from app.store.database import DatabaseConfig
from app.store.embedded import EmbeddedPostgres, temporary_postgres
from app.store.migrate import find_drift, migrate


@asynccontextmanager
async def open_server(settings: Settings) -> AsyncIterator[DatabaseConfig]:
    """The configured database, or the embedded one, which is started and, at the end, stopped."""
    if settings.database_url is not None:
        yield _configured(settings, settings.database_url.get_secret_value())
        return
    if settings.admin_database_url is not None or settings.listen_database_url is not None:
        # An embedded database beside the one that was meant would be a silent default.
        raise ConfigurationError(
            "DATABASE_URL has to name the database, as the application's role", code="database_url_missing"
        )
    embedded = EmbeddedPostgres(settings.data_dir)
    starting = asyncio.ensure_future(asyncio.to_thread(embedded.start))
    try:
        urls = await asyncio.shield(starting)
        yield DatabaseConfig(
            url=urls.app_url,
            admin_url=urls.admin_url,
            pool_size=settings.database_pool_size,
            idle_in_transaction_seconds=_idle_seconds(settings),
        )
    finally:
        # A thread can't be stopped: who is cancelled while it starts the server stops it when it has started.
        await asyncio.gather(starting, return_exceptions=True)
        await asyncio.to_thread(embedded.stop)


def _configured(settings: Settings, url: str) -> DatabaseConfig:
    admin, listen = settings.admin_database_url, settings.listen_database_url
    return DatabaseConfig(
        url=url,
        admin_url=None if admin is None else admin.get_secret_value(),
        listen_url=None if listen is None else listen.get_secret_value(),
        pool_size=settings.database_pool_size,
        idle_in_transaction_seconds=_idle_seconds(settings),
    )


def _idle_seconds(settings: Settings) -> float:
    """Also of a process that drives no runs: whoever is paused keeps heartbeats from the rows that it has locked."""
    return min(0.3 * settings.lease_seconds, 9.0)


@asynccontextmanager
async def open_as_owner(settings: Settings) -> AsyncIterator[str]:
    """The owner's URL. Raises ConfigurationError where a database of one's own is set without it."""
    if settings.admin_database_url is not None:
        yield settings.admin_database_url.get_secret_value()
        return
    if settings.database_url is not None:
        raise ConfigurationError(
            "RUNWRIGHT_ADMIN_DATABASE_URL has to name the tables' owner", code="admin_database_url_missing"
        )
    async with open_server(settings) as config:
        assert config.admin_url is not None
        yield config.admin_url


async def migrate_configured(settings: Settings) -> None:
    """Migrates what the settings point to."""
    async with open_as_owner(settings) as admin_url:
        await migrate(admin_url)


async def check_migrations() -> None:
    """Raises ConfigurationError ``migrations_drift`` when the migrations don't make what the tables describe."""
    with temporary_postgres() as urls:
        await migrate(urls.admin_url)
        drift = await find_drift(urls.admin_url)
    if drift:
        raise ConfigurationError("\n".join(["migrations and tables differ:", *drift]), code="migrations_drift")
