"""A database that is away, slow, or entered by the wrong door."""

import asyncio
import contextlib

import asyncpg
import pytest

from app.errors import ConfigurationError, NotFound, StoreUnavailable
from app.ids import TenantId
from app.store.database import Database, DatabaseConfig, check_role
from app.store.tenant import PostgresTenantStore
from tests.conftest import DatabaseUrls, with_login
from tests.store.support import AGENT, query, wait_for_rows

TENANT = TenantId("ten_a")
OTHERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'runwright'
"""
END_OTHERS = OTHERS.replace("pid", "pg_terminate_backend(pid)", 1)


@pytest.fixture
async def single(empty_urls: DatabaseUrls) -> Database:
    """A pool of one connection: what is wrong with it can't hide behind another."""
    return Database(DatabaseConfig(url=empty_urls.app_url, pool_size=1, pool_timeout_seconds=0.05))


@pytest.mark.parametrize(
    "url", ["postgresql://a@/b?host=/nonexistent", "postgresql://a@127.0.0.1:1/b", "postgresql://a@nowhere.invalid/b"]
)
async def test_a_server_that_is_not_there_is_unavailable(url: str) -> None:
    database = Database(DatabaseConfig(url=url, pool_size=1))
    with pytest.raises(StoreUnavailable):
        await database.fetch("SELECT 1")
    with pytest.raises(StoreUnavailable):
        async with database.begin():
            pass
    await database.close()


@pytest.mark.parametrize("url", ["mysql://a@b/c", "a@b/c", ""])
async def test_a_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="begins with postgresql://"):
        Database(DatabaseConfig(url=url))


async def test_sqlalchemys_spelling_of_a_url_is_taken_too(shared_urls: DatabaseUrls) -> None:
    database = Database(DatabaseConfig(url=shared_urls.app_url.replace("postgresql://", "postgresql+asyncpg://")))
    assert (await database.fetch("SELECT 1 AS one"))[0]["one"] == 1
    await database.close()


async def test_a_login_that_is_refused_is_the_operators_fault(shared_urls: DatabaseUrls) -> None:
    database = Database(DatabaseConfig(url=with_login(shared_urls.app_url, "runwright_nobody", "wrong")))
    with pytest.raises(ConfigurationError) as refused:
        await database.fetch("SELECT 1")
    await database.close()
    assert refused.value.code == "database_login_refused"


async def test_no_password_is_in_a_configs_repr(shared_urls: DatabaseUrls) -> None:
    config = DatabaseConfig(url="postgresql://a:hush@b/c", admin_url="postgresql://a:hush@b/c")
    assert "hush" not in repr(config)


async def test_a_pool_that_stays_empty_is_unavailable(single: Database) -> None:
    async with single.enter_tenant(TENANT):
        with pytest.raises(StoreUnavailable):
            await single.fetch("SELECT 1")
    await single.close()


async def test_a_connection_that_dies_in_a_statement_is_unavailable_and_the_next_one_works(
    empty_urls: DatabaseUrls, single: Database
) -> None:
    asking = asyncio.create_task(single.fetch("SELECT pg_sleep(60)"))
    await wait_for_rows(empty_urls.superuser_url, f"{END_OTHERS} AND query LIKE '%sleep%'")
    with pytest.raises(StoreUnavailable):
        await asking
    assert (await single.fetch("SELECT 1 AS one"))[0]["one"] == 1
    await single.close()


async def test_a_connection_that_dies_in_a_transaction_is_unavailable_and_the_next_one_works(
    empty_urls: DatabaseUrls, single: Database
) -> None:
    tenants = PostgresTenantStore(single)

    async def be_cut_off() -> None:
        async with tenants.begin(TENANT) as tx:
            await query(empty_urls.superuser_url, END_OTHERS)
            await tx.get_agent("clerk")

    with pytest.raises(StoreUnavailable):
        await be_cut_off()
    async with tenants.begin(TENANT) as tx:
        assert await tx.get_agent("clerk") is None
    await single.close()


async def test_a_transaction_that_lost_its_connection_is_never_taken_for_committed(
    empty_urls: DatabaseUrls, single: Database
) -> None:
    async def go_on_regardless() -> None:
        async with PostgresTenantStore(single).begin(TENANT) as tx:
            await tx.put_agent(AGENT)
            await query(empty_urls.superuser_url, END_OTHERS)
            with contextlib.suppress(StoreUnavailable):
                await tx.get_agent("clerk")

    with pytest.raises(StoreUnavailable):
        await go_on_regardless()
    await single.close()


async def test_a_connection_that_died_while_nobody_looked_is_replaced_unseen(
    empty_urls: DatabaseUrls, single: Database
) -> None:
    await single.fetch("SELECT 1")
    await query(empty_urls.superuser_url, END_OTHERS)
    await wait_for_rows(empty_urls.superuser_url, f"SELECT WHERE NOT EXISTS ({OTHERS})")
    assert (await single.fetch("SELECT 1 AS one"))[0]["one"] == 1
    await single.close()


async def test_a_statement_that_takes_too_long_is_unavailable_and_costs_its_connection(
    empty_urls: DatabaseUrls,
) -> None:
    database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=1, command_timeout_seconds=0.05))
    [before] = await database.fetch("SELECT pg_backend_pid() AS pid")
    with pytest.raises(StoreUnavailable):
        await database.fetch("SELECT pg_sleep(60)")
    [after] = await database.fetch("SELECT pg_backend_pid() AS pid")
    await database.close()
    assert before["pid"] != after["pid"]


async def test_a_cancelled_statement_leaves_no_answer_behind(empty_urls: DatabaseUrls, single: Database) -> None:
    asking = asyncio.create_task(single.fetch("SELECT pg_sleep(60)"))
    await wait_for_rows(empty_urls.superuser_url, f"{OTHERS} AND query = 'SELECT pg_sleep(60)'")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert (await single.fetch("SELECT 1 AS one"))[0]["one"] == 1
    await single.close()


async def test_a_timeout_of_the_callers_own_stays_one(single: Database) -> None:
    with pytest.raises(TimeoutError):
        async with single.begin():
            raise TimeoutError
    with pytest.raises(TimeoutError):
        async with single.enter_tenant(TENANT):
            raise TimeoutError
    await single.close()


async def test_a_block_that_was_cancelled_commits_nothing_and_leaves_the_pool_whole(single: Database) -> None:
    tenants = PostgresTenantStore(single)
    written = asyncio.Event()

    async def be_cancelled() -> None:
        async with tenants.begin(TENANT) as tx:
            await tx.put_agent(AGENT)
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(be_cancelled())
    await written.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with tenants.begin(TENANT) as tx:
        assert await tx.get_agent(AGENT.name) is None
    await single.close()


async def test_a_failed_statement_that_was_passed_over_is_never_taken_for_committed(single: Database) -> None:
    async def go_on_regardless() -> None:
        async with single.enter_tenant(TENANT) as driver:
            with contextlib.suppress(asyncpg.PostgresSyntaxError):
                await driver.execute("SELEKT")

    with pytest.raises(StoreUnavailable, match="undone"):
        await go_on_regardless()
    await single.close()


async def test_a_refusal_in_a_block_costs_no_connection(single: Database) -> None:
    [before] = await single.fetch("SELECT pg_backend_pid() AS pid")
    with contextlib.suppress(NotFound):
        async with single.enter_tenant(TENANT):
            raise NotFound
    [after] = await single.fetch("SELECT pg_backend_pid() AS pid")
    await single.close()
    assert before["pid"] == after["pid"]


@pytest.mark.parametrize("tenant_id", ["", "x' OR true --", "ten\x00", "t" * 65])
async def test_what_can_be_no_tenants_id_gets_no_transaction(single: Database, tenant_id: str) -> None:
    with pytest.raises(ValueError, match="no tenant's id"):
        async with single.enter_tenant(TenantId(tenant_id)):
            pass
    await single.close()


async def test_a_mistake_in_a_statement_is_not_called_absence(single: Database) -> None:
    with pytest.raises(asyncpg.PostgresSyntaxError):
        await single.fetch("SELEKT")
    await single.close()


async def test_the_services_login_is_held_by_row_security(shared_database: Database) -> None:
    await check_role(shared_database)


@pytest.mark.parametrize("login", ["admin_url", "superuser_url"])
async def test_a_login_that_row_security_does_not_hold_is_refused(shared_urls: DatabaseUrls, login: str) -> None:
    database = Database(DatabaseConfig(url=getattr(shared_urls, login), pool_size=1))
    with pytest.raises(ConfigurationError, match="would not keep tenants apart") as refused:
        await check_role(database)
    await check_role(database, allow_owner=True)
    await database.close()
    assert refused.value.code == "database_role_owns_tables"
