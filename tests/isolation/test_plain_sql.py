"""Row security by itself: the service's role with all rights on a table, and one tenant set, over the rows of two."""

from collections.abc import AsyncIterator
from typing import Final

import asyncpg
import pytest
import pytest_asyncio

from tests.conftest import DatabaseUrls
from tests.isolation.catalogue import list_tables
from tests.isolation.kinds import Kind
from tests.isolation.rows import OF_TENANTS, copy_of_row, fill_tables
from tests.isolation.world import World

NOBODY: Final = ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenants(world: World, world_urls: DatabaseUrls) -> tuple[str, str]:
    """Two tenants that have a row in every table: who is attacked, and who attacks."""
    theirs, own = world.owner.has[Kind.TENANT][0], world.reader.has[Kind.TENANT][0]
    connection = await asyncpg.connect(world_urls.superuser_url)
    await fill_tables(connection, [theirs, own])
    await connection.close()
    return theirs, own


@pytest.fixture
async def connection(world_urls: DatabaseUrls) -> AsyncIterator[asyncpg.Connection]:
    """A superuser's, without triggers, in a transaction that is undone."""
    opened = await asyncpg.connect(world_urls.superuser_url)
    transaction = opened.transaction()
    await transaction.start()
    await opened.execute("SET LOCAL session_replication_role = replica")
    yield opened
    await transaction.rollback()
    await opened.close()


async def become_service(connection: asyncpg.Connection, table: str, tenant_id: str) -> None:
    """From here on the connection is the service's, which may do everything with that table, and a tenant's."""
    await connection.execute(f"GRANT ALL ON {table} TO runwright_app")
    await connection.execute("SET LOCAL ROLE runwright_app")
    await connection.execute("SELECT set_config('app.tenant_id', $1, true)", tenant_id)


async def touched(connection: asyncpg.Connection, statement: str) -> set[str | None]:
    """Whose rows the statement returns."""
    return {row["tenant_id"] for row in await connection.fetch(statement)}


async def test_the_tables_are_those_of_the_catalogue(connection: asyncpg.Connection) -> None:
    tables = await list_tables(connection)
    assert [table.name for table in tables if table.of_tenants and not table.partition] == OF_TENANTS


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_a_tenant_sees_its_own_rows_alone(
    connection: asyncpg.Connection, tenants: tuple[str, str], table: str
) -> None:
    await become_service(connection, table, tenants[1])
    assert await touched(connection, f"SELECT tenant_id FROM {table}") == {tenants[1]}


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_a_copy_to_a_client_has_a_tenants_own_rows_alone(
    connection: asyncpg.Connection, tenants: tuple[str, str], table: str
) -> None:
    await become_service(connection, table, tenants[1])
    count = await connection.fetchval(f"SELECT count(*) FROM {table} WHERE tenant_id = $1", tenants[1])
    assert await connection.copy_from_query(f"SELECT * FROM {table}", output=_forget) == f"COPY {count}"


async def _forget(_: bytes) -> None:
    return None


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_nobody_sees_no_row(connection: asyncpg.Connection, tenants: tuple[str, str], table: str) -> None:
    await become_service(connection, table, NOBODY)
    assert await touched(connection, f"SELECT tenant_id FROM {table}") == set()


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_a_connection_on_which_no_tenant_was_ever_set_sees_no_row(
    connection: asyncpg.Connection, tenants: tuple[str, str], table: str
) -> None:
    await connection.execute(f"GRANT ALL ON {table} TO runwright_app")
    await connection.execute("SET LOCAL ROLE runwright_app")
    assert await touched(connection, f"SELECT tenant_id FROM {table}") == set()


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_a_tenant_changes_its_own_rows_alone(
    connection: asyncpg.Connection, tenants: tuple[str, str], table: str
) -> None:
    await become_service(connection, table, tenants[1])
    statement = f"UPDATE {table} SET tenant_id = tenant_id RETURNING tenant_id"
    assert await touched(connection, statement) == {tenants[1]}


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_a_tenant_takes_no_row_of_another(
    connection: asyncpg.Connection, tenants: tuple[str, str], table: str
) -> None:
    theirs, own = tenants
    await become_service(connection, table, own)
    statement = f"UPDATE {table} SET tenant_id = '{own}' WHERE tenant_id = '{theirs}' RETURNING tenant_id"
    assert await touched(connection, statement) == set()


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_a_tenant_gives_no_row_to_another(
    connection: asyncpg.Connection, tenants: tuple[str, str], table: str
) -> None:
    theirs, own = tenants
    await become_service(connection, table, own)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await connection.execute(f"UPDATE {table} SET tenant_id = '{theirs}'")


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_a_tenant_deletes_its_own_rows_alone(
    connection: asyncpg.Connection, tenants: tuple[str, str], table: str
) -> None:
    await become_service(connection, table, tenants[1])
    assert await touched(connection, f"DELETE FROM {table} RETURNING tenant_id") == {tenants[1]}


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_a_tenant_adds_no_row_to_another(
    connection: asyncpg.Connection, tenants: tuple[str, str], table: str
) -> None:
    theirs, own = tenants
    row = await copy_of_row(connection, table, theirs)
    await become_service(connection, table, own)
    row_of = f"(json_populate_record(NULL::{table}, $1::json)).*"
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await connection.execute(f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT {row_of}", row)


@pytest.mark.parametrize("table", OF_TENANTS)
async def test_with_the_rights_that_the_service_has_nothing_of_another_is_reached(
    tenants: tuple[str, str], world_urls: DatabaseUrls, table: str
) -> None:
    theirs, own = tenants
    attempts = [
        f"SELECT tenant_id FROM {table} WHERE tenant_id = '{theirs}'",
        f"UPDATE {table} SET tenant_id = tenant_id WHERE tenant_id = '{theirs}' RETURNING tenant_id",
        f"DELETE FROM {table} WHERE tenant_id = '{theirs}' RETURNING tenant_id",
    ]
    assert [await attempt(world_urls.app_url, own, statement) for statement in attempts] == [[], [], []]


async def attempt(url: str, tenant_id: str, statement: str) -> list[asyncpg.Record]:
    """What the service's own login gets; nothing where it is refused."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT set_config('app.tenant_id', $1, true)", tenant_id)
            found: list[asyncpg.Record] = await connection.fetch(statement)
            return found
    except asyncpg.InsufficientPrivilegeError:
        return []
    finally:
        await connection.close()
