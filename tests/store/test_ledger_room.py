"""What ceilings leave to a run, and what of the ledger is forgotten."""

from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal

import asyncpg
import pytest

from app.events import RunState
from app.policy import CeilingDimension, CeilingRoom, Spend
from app.ports.records import Claim
from app.store.database import Database
from app.store.maintenance import maintain
from tests.conftest import DatabaseUrls
from tests.store.ledgers import DAY, HOUR, Books, ceiling, tokens
from tests.store.support import new_run

OUTPUT, COST = CeilingDimension.OUTPUT_TOKENS, CeilingDimension.COST
READ = "SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'ledger'"
LAPSED = "UPDATE runs SET lease_expires_at = now() - interval '1 second' WHERE run_id = $1"
PROMPT_AND_ANSWER = Spend(cost=Decimal("0.5"), input_tokens=7, output_tokens=8)
AGED = "UPDATE ledger SET stretch = floor(extract(epoch FROM clock_timestamp() - '{}'::interval) / 60)"


@pytest.fixture
def books(empty_urls: DatabaseUrls, empty_database: Database) -> Books:
    return Books(urls=empty_urls, database=empty_database)


def left(rooms: Mapping[CeilingDimension, CeilingRoom]) -> dict[CeilingDimension, Decimal]:
    return {dimension: room.left for dimension, room in rooms.items()}


async def give_back(books: Books, claim: Claim) -> None:
    await books.work.release(claim)


async def lapse(books: Books, claim: Claim) -> None:
    await books.change(LAPSED, claim.run_id)
    await books.work.requeue_expired()


async def test_without_ceilings_there_is_no_bound(books: Books) -> None:
    await books.set()
    assert await books.work.ledger_room(await books.claim()) == {}


async def test_the_least_room_of_each_dimension_is_told(books: Books) -> None:
    await books.set(ceiling(10), ceiling(30, window_seconds=DAY), ceiling("0.5", "cost", DAY))
    await books.append(await books.claim(), Spend(cost=Decimal("0.2"), output_tokens=4))
    room = await books.work.ledger_room(await books.claim())
    assert left(room) == {OUTPUT: 6, COST: Decimal("0.3")}


async def test_what_other_runs_have_reserved_is_no_room_and_what_the_run_has_reserved_is(books: Books) -> None:
    await books.set(ceiling(10))
    first, second = await books.claim(), await books.claim()
    await books.append(first, held=tokens(3), announces=True)
    await books.append(second, held=tokens(4), announces=True)
    assert left(await books.work.ledger_room(first)) == {OUTPUT: 6}
    assert left(await books.work.ledger_room(second)) == {OUTPUT: 7}


async def test_what_there_would_be_without_others_calls_is_told_too(books: Books) -> None:
    await books.set(ceiling(10))
    first, second = await books.claim(), await books.claim()
    await books.append(first, tokens(2), held=tokens(3), announces=True)
    assert await books.work.ledger_room(second) == {OUTPUT: CeilingRoom(left=Decimal(5), unheld=Decimal(8))}


@pytest.mark.parametrize("leave", [give_back, lapse])
async def test_of_a_call_that_nobody_waits_for_any_more_only_the_prompt_stays_reserved(
    books: Books, leave: Callable[[Books, Claim], Awaitable[None]]
) -> None:
    await books.set(ceiling(100), ceiling(100, "input_tokens"))
    root = await books.claim()
    child = await books.work.adopt(root, new_run(books.tenant_id, parent_run_id=root.run_id))
    other = await books.claim()
    for claim in (root, child.claim, other):
        await books.append(claim, held=PROMPT_AND_ANSWER, announces=True)
    await leave(books, root)
    prompt = Spend(input_tokens=PROMPT_AND_ANSWER.input_tokens)
    assert await books.holds() == {root.run_id: prompt, child.claim.run_id: prompt, other.run_id: PROMPT_AND_ANSWER}


async def test_room_is_never_less_than_none(books: Books) -> None:
    await books.set(ceiling(10))
    claim = await books.claim()
    await books.append(claim, tokens(11))
    assert left(await books.work.ledger_room(claim)) == {OUTPUT: 0}


async def test_the_room_of_a_run_below_another_one_is_counted_from_its_roots_start(books: Books) -> None:
    await books.set(ceiling(10))
    root = await books.claim()
    await books.append(root, tokens(4))
    adopted = await books.work.adopt(root, new_run(books.tenant_id, parent_run_id=root.run_id))
    await books.change("UPDATE ledger SET stretch = stretch - 70")
    await books.change("UPDATE runs SET started_at = started_at - interval '2 hours' WHERE run_id = $1", root.run_id)
    assert left(await books.work.ledger_room(adopted.claim)) == {OUTPUT: 6}


async def use_long_ago(books: Books, age: str) -> None:
    """An hour's ceiling, and a run that has ended and used something then."""
    await books.set(ceiling(10))
    await books.append(await books.claim(), tokens(4), state=RunState.COMPLETED)
    await books.change(AGED.format(age))


async def test_what_was_used_two_windows_and_a_week_ago_is_forgotten(books: Books) -> None:
    await use_long_ago(books, "7 days 2 hours 2 minutes")
    await maintain(books.database)
    assert await books.charged(HOUR) is None


async def test_what_was_used_later_is_kept(books: Books) -> None:
    await use_long_ago(books, "7 days 1 hour 58 minutes")
    await maintain(books.database)
    assert await books.charged(HOUR) == tokens(4)


@pytest.mark.parametrize("state", ["running", "suspended", "queued"])
async def test_what_a_run_that_goes_on_counts_from_is_kept(books: Books, state: str) -> None:
    await use_long_ago(books, "30 days 59 minutes")
    claim = await books.claim()
    await books.change("UPDATE runs SET started_at = now() - interval '30 days' WHERE run_id = $1", claim.run_id)
    await books.change(f"UPDATE runs SET state = '{state}' WHERE run_id = '{claim.run_id}'")
    await maintain(books.database)
    assert await books.charged(HOUR) == tokens(4)


async def test_what_was_used_before_that_is_forgotten(books: Books) -> None:
    await use_long_ago(books, "30 days 62 minutes")
    claim = await books.claim()
    await books.change("UPDATE runs SET started_at = now() - interval '30 days' WHERE run_id = $1", claim.run_id)
    await maintain(books.database)
    assert await books.charged(HOUR) is None


async def test_each_window_and_tenant_is_forgotten_for_itself(books: Books) -> None:
    other = Books(urls=books.urls, database=books.database)
    await use_long_ago(other, "30 days")
    await use_long_ago(books, "30 days")
    await books.set(ceiling(10, window_seconds=DAY))
    await books.append(await books.claim(), tokens(5))
    await maintain(books.database)
    assert (await other.charged(HOUR), await books.charged(HOUR)) == (None, None)
    assert await books.charged(DAY) == tokens(5)


async def test_no_more_is_forgotten_at_once_than_was_asked_for(books: Books) -> None:
    await books.set(ceiling(10))
    many = "INSERT INTO ledger SELECT $1, 3600, n, 0, 0, 1, 0, 0, 0, false FROM generate_series(1, 5) AS n"
    await books.change(many, books.tenant_id)
    assert await books.ask("SELECT forget_ledger(3)") == [(3,)]
    assert await books.ask("SELECT stretch FROM ledger ORDER BY 1") == [(4,), (5,)]


async def test_only_the_stretches_of_the_window_are_read_however_many_there_are(books: Books) -> None:
    await books.set(ceiling(10))
    claim = await books.claim()
    many = """
        INSERT INTO ledger
        SELECT $1, 3600, floor(extract(epoch FROM clock_timestamp()) / 60)::bigint - n, 0, 0, 1, 0, 0, 0, false
        FROM generate_series(0, 5000) AS n
    """
    await books.change(many, books.tenant_id)
    connection = await asyncpg.connect(books.urls.app_url)
    async with connection.transaction():
        await connection.fetch("SELECT ledger_room($1, $2, NULL)", books.tenant_id, claim.run_id)
        [row] = await connection.fetch(READ)
    await connection.close()
    assert (row["seq_scan"], 60 <= row["idx_tup_fetch"] <= 62) == (0, True)
