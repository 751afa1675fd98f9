"""What runs use under ceilings is charged and refused the same where their appends are one statement."""

import asyncio
from decimal import Decimal

import pytest

from app.errors import CeilingReached
from app.execution.system import SystemClock
from app.policy import Spend
from app.ports.records import Claim
from app.store.database import Database
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.ledgers import Books, ceiling
from tests.store.support import read

_TRANSACTIONS = "SELECT count(DISTINCT xmin::text) FROM events WHERE kind <> 'run_queued'"


@pytest.fixture
def books(empty_urls: DatabaseUrls, empty_database: Database) -> Books:
    return Books(urls=empty_urls, database=empty_database)


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


async def claims_of(books: Books, work: PostgresWorkStore, count: int) -> list[Claim]:
    """Loaded, so that ``work`` knows that they are alone."""
    claims = [await books.claim() for _ in range(count)]
    await asyncio.gather(*map(work.load, claims))
    return claims


async def test_what_is_used_together_is_charged_and_told_of_each_run(books: Books, work: PostgresWorkStore) -> None:
    await books.set(ceiling(1000))
    claims = await claims_of(books, work, 2)
    spent = [
        Spend(cost=Decimal("0.5"), input_tokens=3, output_tokens=4, model_calls=1),
        Spend(cost=Decimal("0.25"), input_tokens=5, output_tokens=6, tool_calls=2),
    ]
    await asyncio.gather(*(books.append(claim, one, store=work) for claim, one in zip(claims, spent, strict=True)))
    rows = [await read(books.database, books.tenant_id, claim.run_id) for claim in claims]
    assert [(row.cost, row.usage.input_tokens, row.tool_calls) for row in rows] == [
        (Decimal("0.5"), 3, 0),
        (Decimal("0.25"), 5, 2),
    ]
    assert await books.charged() == spent[0] + spent[1]
    assert await books.ask(_TRANSACTIONS) == [(1,)]


async def test_of_calls_that_are_announced_together_those_without_room_are_refused(
    books: Books, work: PostgresWorkStore
) -> None:
    await books.set(ceiling(3, "tool_calls"))
    claims = await claims_of(books, work, 3)
    told = await asyncio.gather(
        *(books.append(claim, Spend(tool_calls=2), announces=True, store=work) for claim in claims),
        return_exceptions=True,
    )
    assert sorted(type(one).__name__ for one in told) == [CeilingReached.__name__] * 2 + ["NoneType"]
    assert await books.charged() == Spend(tool_calls=2)
    lengths = [(await read(books.database, books.tenant_id, claim.run_id)).last_seq for claim in claims]
    assert sorted(lengths) == [1, 1, 2]


async def test_what_is_not_announced_is_stored_beside_a_call_that_is_refused(
    books: Books, work: PostgresWorkStore
) -> None:
    await books.set(ceiling(3, "tool_calls"))
    used, announced, again = await claims_of(books, work, 3)
    await books.append(used, Spend(tool_calls=2), store=work)
    told = await asyncio.gather(
        books.append(announced, Spend(tool_calls=2), announces=True, store=work),
        books.append(again, Spend(tool_calls=2), store=work),
        return_exceptions=True,
    )
    assert [type(one) for one in told] == [CeilingReached, type(None)]
    assert await books.charged() == Spend(tool_calls=4)
