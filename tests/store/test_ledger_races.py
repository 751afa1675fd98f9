"""Ceilings hold whoever comes at once, and a ledger that does not answer lets no call out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from app.errors import CeilingReached, LedgerUnavailable
from app.ports.records import Claim
from app.store.database import Database, DatabaseConfig
from tests.conftest import DatabaseUrls
from tests.store.ledgers import Books, ceiling, tokens
from tests.store.support import read, wait_for_rows

TURN = "SELECT pg_advisory_xact_lock(hashtextextended('runwright.ledger.' || $1, 0))"
ROWS = "SELECT FROM ledger WHERE tenant_id = $1 FOR UPDATE"
SOMEBODY_WAITS = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
async def wide_database(empty_urls: DatabaseUrls) -> AsyncIterator[Database]:
    database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=20))
    yield database
    await database.close()


@pytest.fixture
async def books(empty_urls: DatabaseUrls, wide_database: Database) -> Books:
    return await Books(urls=empty_urls, database=wide_database).set(ceiling(70))


@pytest.fixture
async def own_books(fresh_urls: DatabaseUrls) -> AsyncIterator[Books]:
    """In a database that may be broken."""
    database = Database(DatabaseConfig(url=fresh_urls.app_url, pool_size=2))
    yield await Books(urls=fresh_urls, database=database).set(ceiling(70))
    await database.close()


@asynccontextmanager
async def locked(books: Books, statement: str) -> AsyncIterator[asyncpg.Connection]:
    """Somebody holds what the statement locks."""
    connection = await asyncpg.connect(books.urls.superuser_url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetch(statement, books.tenant_id)
    try:
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()


async def announce(books: Books, claim: Claim) -> str:
    try:
        await books.append(claim, held=tokens(10), announces=True)
    except CeilingReached:
        return "refused"
    return "out"


async def test_of_twenty_calls_at_once_exactly_seven_go_out_where_there_is_room_for_seven(books: Books) -> None:
    claims = [await books.claim() for _ in range(20)]
    told = await asyncio.gather(*(announce(books, claim) for claim in claims))
    assert (told.count("out"), told.count("refused")) == (7, 13)
    assert sum(held.output_tokens for held in (await books.holds()).values()) == 70


async def test_what_is_used_at_once_is_charged_to_the_last_unit(books: Books) -> None:
    claims = [await books.claim() for _ in range(20)]
    await asyncio.gather(*(books.append(claim, tokens(3)) for claim in claims))
    assert await books.charged() == tokens(60)


async def test_a_call_that_settles_while_another_one_asks_is_counted_once(books: Books) -> None:
    claims = [await books.claim() for _ in range(14)]
    settling, asking = claims[:7], claims[7:]
    await asyncio.gather(*(announce(books, claim) for claim in settling))
    settled = (books.append(claim, tokens(10)) for claim in settling)
    asked = (announce(books, claim) for claim in asking)
    told = await asyncio.gather(*settled, *asked)
    assert told[7:] == ["refused"] * 7


@pytest.mark.parametrize("statement", [TURN, ROWS])
async def test_a_call_waits_two_seconds_for_the_ledger_and_then_does_not_go_out(books: Books, statement: str) -> None:
    claim = await books.claim()
    await books.append(claim, tokens(1))
    before = await read(books.database, books.tenant_id, claim.run_id)
    async with locked(books, statement):
        with pytest.raises(LedgerUnavailable):
            await books.append(claim, held=tokens(10), announces=True)
    assert await read(books.database, books.tenant_id, claim.run_id) == before
    assert (await books.holds(), await books.charged()) == ({}, tokens(1))


async def test_what_was_used_waits_for_the_ledger_and_is_charged(books: Books) -> None:
    claim = await books.claim()
    await books.append(claim, tokens(1))
    async with locked(books, ROWS):
        appending = asyncio.create_task(books.append(claim, tokens(2)))
        await wait_for_rows(books.urls.superuser_url, SOMEBODY_WAITS)
    await appending
    assert await books.charged() == tokens(3)


async def test_what_was_used_is_charged_while_somebody_asks_for_room(books: Books) -> None:
    claim = await books.claim()
    async with locked(books, TURN):
        await books.append(claim, tokens(2))
    assert await books.charged() == tokens(2)


async def test_another_tenants_calls_are_not_kept_waiting(books: Books) -> None:
    other = await Books(urls=books.urls, database=books.database).set(ceiling(70))
    claim = await other.claim()
    # Who is kept waiting gives up after two seconds, and raises.
    async with locked(books, TURN):
        await other.append(claim, held=tokens(10), announces=True)
    assert await other.holds() == {claim.run_id: tokens(10)}


@pytest.mark.parametrize("privilege", ["INSERT ON ledger", "SELECT ON ledger", "INSERT ON ledger_holds"])
async def test_a_broken_ledger_lets_no_call_out_and_nothing_is_stored(own_books: Books, privilege: str) -> None:
    claim = await own_books.claim()
    await own_books.change(f"REVOKE {privilege} FROM runwright_app")
    with pytest.raises(LedgerUnavailable, match="42501"):
        await own_books.append(claim, tokens(1), held=tokens(10), announces=True)
    assert (await read(own_books.database, own_books.tenant_id, claim.run_id)).last_seq == 1
    assert (await own_books.holds(), await own_books.charged()) == ({}, None)


async def test_what_was_used_is_not_stored_where_it_can_not_be_charged(own_books: Books) -> None:
    claim = await own_books.claim()
    await own_books.change("REVOKE INSERT ON ledger FROM runwright_app")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await own_books.append(claim, tokens(1))
    assert (await read(own_books.database, own_books.tenant_id, claim.run_id)).last_seq == 1


async def test_the_room_in_a_broken_ledger_is_not_told(own_books: Books) -> None:
    claim = await own_books.claim()
    await own_books.change("REVOKE SELECT ON ledger FROM runwright_app")
    with pytest.raises(LedgerUnavailable, match="42501"):
        await own_books.work.ledger_room(claim)
