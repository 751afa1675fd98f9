"""The audit of a whole ledger: silent on what the service writes, and able to fail."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.policy import Spend
from app.store.audits import WHOLE_LEDGER, audit
from app.store.database import Database, DatabaseConfig
from tests.conftest import DatabaseUrls
from tests.store.ledgers import DAY, Books, ceiling
from tests.store.support import new_run

SPENT = Spend(cost=Decimal("0.1"), input_tokens=3, output_tokens=4, model_calls=1, tool_calls=2)
[SENTENCE] = WHOLE_LEDGER


@pytest.fixture
async def books(empty_urls: DatabaseUrls, empty_database: Database) -> Books:
    """A run and one below it, which have used something under two ceilings; and a tenant without any."""
    books = await Books(urls=empty_urls, database=empty_database).set(ceiling(100), ceiling(100, window_seconds=DAY))
    root = await books.claim()
    adopted = await books.work.adopt(root, new_run(books.tenant_id, parent_run_id=root.run_id))
    await books.append(adopted.claim, SPENT, held=SPENT, announces=True)
    await books.append(root, SPENT)
    await books.append(root, SPENT, held=SPENT, announces=True)
    free = await Books(urls=empty_urls, database=empty_database).set()
    await free.append(await free.claim(), SPENT)
    return books


@pytest.fixture
async def connection(books: Books) -> AsyncIterator[AsyncConnection]:
    database = Database(DatabaseConfig(url=books.urls.superuser_url, pool_size=1))
    async with database.begin() as connection:
        await connection.execute(text("SET LOCAL ROLE runwright_scheduler"))
        yield connection
    await database.close()


async def test_what_the_service_charged_passes(connection: AsyncConnection) -> None:
    assert await audit(connection, whole_ledger=True) == {}


@pytest.mark.parametrize("figure", ["cost", "input_tokens", "output_tokens", "model_calls", "tool_calls", "active_us"])
async def test_a_ledger_that_is_off_by_one_unit_is_found(
    books: Books, connection: AsyncConnection, figure: str
) -> None:
    await books.change(f"UPDATE ledger SET {figure} = {figure} + 1 WHERE window_seconds = {DAY}")
    found = await audit(connection, whole_ledger=True)
    assert found == {SENTENCE: (f"{books.tenant_id} in {DAY} s",)}


async def test_a_ledger_that_holds_nothing_is_found(books: Books, connection: AsyncConnection) -> None:
    await books.change("DELETE FROM ledger")
    assert len((await audit(connection, whole_ledger=True))[SENTENCE]) == 2


async def test_the_whole_ledger_is_audited_where_that_was_asked_for(books: Books, connection: AsyncConnection) -> None:
    await books.change("DELETE FROM ledger")
    assert await audit(connection) == {}
