"""Bringing a database to this release's schema, and telling whether it is there."""

import contextlib
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.store.database import Database, DatabaseConfig, store_errors
from app.store.roles import prepare_roles
from app.store.tables import metadata

# Beside the package, in a checkout as where it is installed.
MIGRATIONS: Final = Path(__file__).parents[2] / "migrations"

# Two processes that start at once migrate one after the other.
_LOCK: Final = "SELECT pg_advisory_lock(hashtext('runwright.migrate'))"
_UNLOCK: Final = "SELECT pg_advisory_unlock(hashtext('runwright.migrate'))"


async def migrate(admin_url: str, *, revision: str = "head") -> None:
    """Brings the database up to ``revision`` and makes partitions for the days ahead.

    Logs in as the owner, or as one who may make the roles and become the owner. A table that is in use is waited for
    briefly only: better a migration that fails than a service that stands still behind it. Raises ConfigurationError,
    StoreUnavailable.
    """
    async with _prepared(admin_url) as connection:
        await connection.run_sync(_upgrade, revision)
        await connection.execute(text("SELECT ensure_event_partitions()"))
        await connection.commit()


async def downgrade(admin_url: str, *, revision: str = "base") -> None:
    """Takes the database down to ``revision``. Rows of dropped tables are lost."""
    async with _prepared(admin_url) as connection:
        await connection.run_sync(_downgrade, revision)


async def find_drift(admin_url: str) -> list[str]:
    """What differs between the migrated database and ``tables.py``; nothing, when all is well."""
    async with _prepared(admin_url) as connection:
        return await connection.run_sync(_compare)


@cache
def head_revision() -> str:
    """The revision that this release needs."""
    head = ScriptDirectory.from_config(_alembic_config()).get_current_head()
    assert head is not None
    return head


@contextlib.asynccontextmanager
async def _prepared(admin_url: str) -> AsyncIterator[AsyncConnection]:
    database = Database(DatabaseConfig(url=admin_url, pool_size=1, command_timeout_seconds=600))
    try:
        with store_errors():
            async with database.engine.connect() as connection:
                await connection.execute(text(_LOCK))
                await connection.execute(text("SET lock_timeout = '5s'"))
                await prepare_roles(connection)
                await connection.commit()
                yield connection
                await connection.execute(text(_UNLOCK))
    finally:
        # The session ends, and with it the lock and the role.
        await database.close()


def _alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _upgrade(connection: Connection, revision: str) -> None:
    command.upgrade(_config_over(connection), revision)


def _downgrade(connection: Connection, revision: str) -> None:
    command.downgrade(_config_over(connection), revision)


def _config_over(connection: Connection) -> Config:
    config = _alembic_config()
    config.attributes["connection"] = connection
    return config


def _compare(connection: Connection) -> list[str]:
    context = MigrationContext.configure(
        connection,
        opts={"compare_type": True, "compare_server_default": True, "include_object": is_described},
    )
    return [repr(difference) for difference in compare_metadata(context, metadata)]


def is_described(thing: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
    """Partitions are not in ``tables.py``: they come by the day. Shared with Alembic's environment."""
    return not (kind == "table" and reflected and (name or "").startswith("events_"))
