"""Run by Alembic: over the connection that ``app.store.migrate`` hands in, or by hand over the admin URL.

By hand (``alembic revision --autogenerate -m …``) the URL is ``RUNWRIGHT_ADMIN_DATABASE_URL``.
"""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from app.store.database import Database, DatabaseConfig
from app.store.migrate import is_described
from app.store.roles import prepare_roles
from app.store.tables import metadata


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transaction_per_migration=True,
        compare_server_default=True,
        include_object=is_described,
    )
    with context.begin_transaction():
        context.run_migrations()


async def _run_by_hand() -> None:
    database = Database(DatabaseConfig(url=os.environ["RUNWRIGHT_ADMIN_DATABASE_URL"], pool_size=1))
    async with database.engine.connect() as connection:
        await prepare_roles(connection)
        await connection.commit()
        await connection.run_sync(_run)
    await database.close()


_handed_in = context.config.attributes.get("connection")
if _handed_in is not None:
    _run(_handed_in)
else:
    asyncio.run(_run_by_hand())
