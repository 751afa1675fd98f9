"""What a tenant is told of what it used: against its ceilings, and over any stretch of time."""

from decimal import Decimal

import pytest

from app.conversation import UsageSource
from app.events import RunState
from app.policy import Spend
from app.ports.ledger import CeilingUse, UsageGroup, UsageTotal
from app.store.database import Database
from tests.conftest import DatabaseUrls
from tests.store.ledgers import DAY, Books, ceiling, tokens
from tests.store.support import FUTURE, NUL, PAST, new_run

SOME = Spend(cost=Decimal("0.1"), input_tokens=3, output_tokens=4, model_calls=1, tool_calls=2)
AGED = "UPDATE ledger SET stretch = floor(extract(epoch FROM clock_timestamp() - '{}'::interval) / 60)"
DRIVEN = "UPDATE runs SET active_us = 1500000 WHERE run_id = $1"


@pytest.fixture
def books(empty_urls: DatabaseUrls, empty_database: Database) -> Books:
    return Books(urls=empty_urls, database=empty_database)


async def ceilings_in_use(books: Books) -> list[CeilingUse]:
    async with books.tenants.begin(books.tenant_id) as tx:
        return list(await tx.ceilings_in_use())


async def totals(
    books: Books,
    group: UsageGroup | None = None,
    *,
    since: float = PAST,
    until: float = FUTURE,
    limit: int = 100,
) -> list[UsageTotal]:
    async with books.tenants.begin(books.tenant_id) as tx:
        return list(await tx.usage_totals(since=since, until=until, group=group, limit=limit))


async def test_a_tenant_without_ceilings_has_none_in_use(books: Books) -> None:
    await books.set()
    assert await ceilings_in_use(books) == []


async def test_every_ceiling_tells_what_is_used_and_reserved_by_dimension_and_window(books: Books) -> None:
    ceilings = [ceiling("0.5", "cost"), ceiling(10), ceiling(20, window_seconds=DAY)]
    await books.set(*reversed(ceilings))
    await books.append(await books.claim(), SOME)
    await books.append(await books.claim(), held=tokens(2, cost=Decimal("0.25")), announces=True)
    assert await ceilings_in_use(books) == [
        CeilingUse(ceiling=ceilings[0], used=Decimal("0.1"), held=Decimal("0.25"), estimated=False),
        CeilingUse(ceiling=ceilings[1], used=Decimal(4), held=Decimal(2), estimated=False),
        CeilingUse(ceiling=ceilings[2], used=Decimal(4), held=Decimal(2), estimated=False),
    ]


async def test_a_ceiling_that_nothing_was_used_of_is_told(books: Books) -> None:
    await books.set(ceiling(10))
    assert await ceilings_in_use(books) == [
        CeilingUse(ceiling=ceiling(10), used=Decimal(0), held=Decimal(0), estimated=False)
    ]


async def test_a_ceiling_on_seconds_tells_fractions(books: Books) -> None:
    await books.set(ceiling(10, "seconds"))
    await books.append(await books.claim(), SOME)
    await books.change("UPDATE ledger SET active_us = 1234567")
    [use] = await ceilings_in_use(books)
    assert (use.used, use.remaining) == (Decimal("1.234567"), Decimal("8.765433"))


async def test_a_ceiling_says_that_some_of_it_was_guessed(books: Books) -> None:
    await books.set(ceiling(10), ceiling(10, "model_calls"))
    await books.append(await books.claim(), SOME, source=UsageSource.HEURISTIC)
    assert [use.estimated for use in await ceilings_in_use(books)] == [True, True]


@pytest.mark.parametrize(("age", "used"), [("59 minutes", 4), ("62 minutes", 0)])
async def test_the_window_ends_now(books: Books, age: str, used: int) -> None:
    await books.set(ceiling(10))
    await books.append(await books.claim(), SOME)
    await books.change(AGED.format(age))
    assert [use.used for use in await ceilings_in_use(books)] == [used]


async def test_what_another_tenant_used_is_not_told(books: Books) -> None:
    other = await Books(urls=books.urls, database=books.database).set(ceiling(10))
    await books.set(ceiling(10))
    await other.append(await other.claim(), SOME, held=tokens(1), announces=True)
    assert [(use.used, use.held) for use in await ceilings_in_use(books)] == [(Decimal(0), Decimal(0))]
    assert await totals(books) == []


async def test_totals_add_up_what_all_runs_used_also_those_below_others(books: Books) -> None:
    await books.set()
    root = await books.claim()
    adopted = await books.work.adopt(root, new_run(books.tenant_id, parent_run_id=root.run_id))
    await books.append(root, SOME)
    await books.append(adopted.claim, SOME, source=UsageSource.HEURISTIC)
    await books.change(DRIVEN, root.run_id)
    assert await totals(books) == [
        UsageTotal(
            name=None,
            runs=2,
            input_tokens=6,
            cached_tokens=0,
            output_tokens=8,
            model_calls=2,
            tool_calls=4,
            seconds=1.5,
            cost=Decimal("0.2"),
            estimated=True,
        )
    ]


async def test_totals_of_runs_without_a_price_have_no_cost(books: Books) -> None:
    await books.set()
    await books.claim()
    [total] = await totals(books)
    assert (total.cost, total.estimated) == (None, False)


@pytest.mark.parametrize("group", [None, "agent"])
async def test_where_there_was_no_run_there_is_no_total(books: Books, group: UsageGroup | None) -> None:
    await books.set()
    assert await totals(books, group) == []


@pytest.mark.parametrize("group", ["model", "user"])
async def test_groups_are_told_as_they_were_named_the_greatest_first(books: Books, group: UsageGroup) -> None:
    await books.set()
    for named in (NUL, NUL, None, "b", "b", "b"):
        await books.claim(**{group: named})
    assert [(total.name, total.runs) for total in await totals(books, group)] == [("b", 3), (NUL, 2), (None, 1)]


async def test_runs_are_grouped_by_their_agents(books: Books) -> None:
    await books.set()
    await books.append(await books.claim(), SOME, state=RunState.COMPLETED)
    await books.claim()
    assert [(total.name, total.runs, total.output_tokens) for total in await totals(books, "agent")] == [
        ("clerk", 2, 4)
    ]


async def test_no_more_groups_are_told_than_were_asked_for(books: Books) -> None:
    await books.set()
    for user in ("a", "b", "b"):
        await books.claim(user=user)
    assert [total.name for total in await totals(books, "user", limit=1)] == ["b"]


async def test_totals_are_of_runs_created_from_the_first_instant_on_and_before_the_second(books: Books) -> None:
    await books.set()
    for at in (10, 20, 30):
        claim = await books.claim()
        await books.change(f"UPDATE runs SET created_at = to_timestamp({at}) WHERE run_id = '{claim.run_id}'")
    assert [total.runs for total in await totals(books, since=10.0, until=30.0)] == [2]
    assert [total.runs for total in await totals(books, since=10.000001, until=30.000001)] == [2]
