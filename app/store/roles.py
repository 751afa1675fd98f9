"""The three roles. They belong to the cluster, so migrations look for them before they look at the database.

``runwright_owner`` owns the tables, ``runwright_app`` is what the service logs in as, ``runwright_scheduler`` owns the
functions that work over all tenants; nobody logs in as it.
"""

from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.errors import ConfigurationError

OWNER: Final = "runwright_owner"
APPLICATION: Final = "runwright_app"
SCHEDULER: Final = "runwright_scheduler"


async def prepare_roles(connection: AsyncConnection) -> None:
    """Makes the roles that are missing, where this login may, and goes on as ``runwright_owner``.

    Raises ConfigurationError ``database_role_missing`` or ``database_role_insufficient``, which name the statement
    that a superuser would have to run.
    """
    for role in (OWNER, APPLICATION, SCHEDULER):
        await _ensure_role(connection, role)
    superuser = await connection.scalar(text("SELECT rolsuper FROM pg_roles WHERE rolname = current_user"))
    await _ensure_member(connection, None, OWNER)
    await _ensure_member(connection, OWNER, SCHEDULER)
    if superuser:
        await connection.execute(text(f"GRANT ALL ON SCHEMA public TO {OWNER} WITH GRANT OPTION"))
        await connection.execute(text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
    await connection.execute(text(f"SET ROLE {OWNER}"))
    if not await connection.scalar(text("SELECT has_schema_privilege('public', 'CREATE WITH GRANT OPTION')")):
        raise _insufficient(f"GRANT ALL ON SCHEMA public TO {OWNER} WITH GRANT OPTION")


async def _ensure_role(connection: AsyncConnection, role: str) -> None:
    exists = text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :role)")
    if await connection.scalar(exists, {"role": role}):
        return
    try:
        async with connection.begin_nested():
            await connection.execute(text(f"CREATE ROLE {role} NOLOGIN"))
    except ProgrammingError as error:
        # Another database of this cluster is being migrated at the same moment, perhaps.
        if await connection.scalar(exists, {"role": role}):
            return
        raise ConfigurationError(
            f"the database has no role {role!r} and this login may not make it; "
            f"let a superuser run: CREATE ROLE {role}",
            code="database_role_missing",
        ) from error


async def _ensure_member(connection: AsyncConnection, member: str | None, role: str) -> None:
    """``member`` (None: this login) may become ``role``."""
    may = text("SELECT pg_has_role(coalesce(:member, current_user::text), :role, :how)")
    how = "MEMBER" if await _server_version(connection) < 160000 else "SET"
    if await connection.scalar(may, {"member": member, "role": role, "how": how}):
        return
    grant = f"GRANT {role} TO {member or 'CURRENT_USER'}"
    try:
        async with connection.begin_nested():
            await connection.execute(text(grant))
    except ProgrammingError as error:
        raise _insufficient(grant) from error


async def _server_version(connection: AsyncConnection) -> int:
    return int(await connection.scalar(text("SHOW server_version_num")) or 0)


def _insufficient(statement: str) -> ConfigurationError:
    return ConfigurationError(
        f"this login can't prepare the database; let a superuser run: {statement}", code="database_role_insufficient"
    )
