"""What runs use is charged to their tenant's ceilings by the append that tells it; what is reserved is told there."""

from decimal import Decimal

import pytest

from app.conversation import UsageSource
from app.errors import CeilingReached
from app.events import RunState
from app.policy import Spend
from app.ports.records import Claim
from app.store.database import Database
from tests.conftest import DatabaseUrls
from tests.store.ledgers import DAY, HOUR, Books, ceiling, tokens
from tests.store.support import new_run, read

EVERYTHING = Spend(cost=Decimal("0.000000000001"), input_tokens=3, output_tokens=4, model_calls=1, tool_calls=2)
DRIVEN_LONG = "UPDATE runs SET last_event_at = last_event_at - interval '10 seconds' WHERE run_id = $1"
# So many stretches before the run's window began.
USED_BEFORE = """
    UPDATE ledger SET stretch = (
        SELECT floor(extract(epoch FROM started_at - interval '1 hour') / 60)::bigint - $2::integer
        FROM runs WHERE run_id = $1)
"""
TOUCHED = "SELECT (SELECT count(*) FROM ledger), (SELECT count(*) FROM ledger_holds)"
ESTIMATED = "SELECT estimated FROM ledger WHERE tenant_id = $1"
ACTIVE = "SELECT sum(active_us)::bigint FROM ledger WHERE tenant_id = $1"


@pytest.fixture
def books(empty_urls: DatabaseUrls, empty_database: Database) -> Books:
    return Books(urls=empty_urls, database=empty_database)


async def test_what_a_run_has_used_since_its_last_append_is_charged(books: Books) -> None:
    await books.set(ceiling(1000))
    claim = await books.claim()
    await books.append(claim, EVERYTHING)
    await books.append(claim, EVERYTHING)
    assert await books.charged() == EVERYTHING + EVERYTHING


async def test_several_ceilings_over_one_window_are_charged_once(books: Books) -> None:
    await books.set(ceiling(1000), ceiling(1000, "tool_calls"), ceiling(1000, window_seconds=DAY))
    await books.append(await books.claim(), EVERYTHING)
    assert await books.charged(HOUR) == await books.charged(DAY) == EVERYTHING


async def test_a_window_is_counted_while_a_ceiling_has_it(books: Books) -> None:
    await books.set(ceiling(1000))
    claim = await books.claim()
    await books.append(claim, tokens(1))
    await books.set(ceiling(1000, window_seconds=DAY))
    await books.append(claim, tokens(2))
    await books.set(ceiling(1000), ceiling(1000, window_seconds=DAY))
    await books.append(claim, tokens(4))
    assert (await books.charged(), await books.charged(DAY)) == (tokens(1 + 4), tokens(2 + 4))


async def test_a_tenant_without_ceilings_touches_no_row_of_the_ledger(books: Books) -> None:
    await books.set()
    claim = await books.claim()
    await books.append(claim, EVERYTHING, held=tokens(5), announces=True)
    while_out = await books.ask(TOUCHED)
    await books.append(claim, EVERYTHING, state=RunState.COMPLETED)
    assert while_out == await books.ask(TOUCHED) == [(0, 0)]


async def test_a_ceiling_of_another_tenant_is_neither_charged_nor_asked(books: Books) -> None:
    other = await Books(urls=books.urls, database=books.database).set(ceiling(5))
    await books.set(ceiling(1000))
    await books.append(await books.claim(), tokens(6), announces=True)
    assert await other.charged() is None


async def test_a_hold_is_exactly_what_the_last_append_said(books: Books) -> None:
    await books.set(ceiling(1000))
    claim = await books.claim()
    first, second = Spend(cost=Decimal("0.5"), input_tokens=7, output_tokens=8), tokens(3)
    await books.append(claim, held=first, announces=True)
    after_first = await books.holds()
    await books.append(claim, held=second)
    assert after_first == {claim.run_id: first}
    assert await books.holds() == {claim.run_id: second}


async def test_a_hold_goes_with_an_append_that_names_none(books: Books) -> None:
    await books.set(ceiling(1000))
    claim = await books.claim()
    await books.append(claim, held=tokens(8), announces=True)
    await books.append(claim, tokens(5))
    assert await books.holds() == {}


async def test_a_run_that_ends_holds_nothing_whatever_its_last_append_says(books: Books) -> None:
    await books.set(ceiling(1000))
    claim = await books.claim()
    await books.append(claim, held=tokens(8), announces=True)
    await books.append(claim, held=tokens(8), state=RunState.FAILED)
    assert await books.holds() == {}


async def test_a_hold_outlives_no_append_after_its_tenants_ceilings_have_gone(books: Books) -> None:
    await books.set(ceiling(1000))
    claim = await books.claim()
    await books.append(claim, held=tokens(8), announces=True)
    await books.set()
    await books.append(claim, tokens(5))
    assert await books.holds() == {}


async def test_a_call_that_fits_to_the_last_unit_goes_out(books: Books) -> None:
    await books.set(ceiling(10))
    claim = await books.claim()
    await books.append(claim, tokens(4), held=tokens(6), announces=True)
    assert await books.charged() == tokens(4)


async def test_a_call_that_does_not_fit_is_refused_and_nothing_is_stored(books: Books) -> None:
    await books.set(ceiling(10))
    claim = await books.claim()
    await books.append(claim, tokens(4), held=tokens(5), announces=True)
    before = await read(books.database, books.tenant_id, claim.run_id)
    with pytest.raises(CeilingReached):
        await books.append(claim, tokens(1), held=tokens(6), announces=True)
    assert await read(books.database, books.tenant_id, claim.run_id) == before
    assert await books.charged() == tokens(4)
    assert await books.holds() == {claim.run_id: tokens(5)}


async def test_a_refusal_names_the_ceiling_and_the_figures(books: Books) -> None:
    await books.set(ceiling("0.3", "cost", DAY))
    first, second = await books.claim(), await books.claim()
    await books.append(first, Spend(cost=Decimal("0.1")), held=Spend(cost=Decimal("0.05")), announces=True)
    with pytest.raises(CeilingReached) as refused:
        await books.append(second, Spend(cost=Decimal("0.06")), held=Spend(cost=Decimal("0.1")), announces=True)
    told = refused.value
    assert (told.dimension, told.window_seconds, told.limit) == ("cost", DAY, Decimal("0.3"))
    assert (told.used, told.requested) == (Decimal("0.15"), Decimal("0.16"))


async def test_a_run_goes_on_after_a_refusal_with_a_smaller_call(books: Books) -> None:
    await books.set(ceiling(10))
    claim, process = await books.claim(), books.work
    await process.load(claim)
    with pytest.raises(CeilingReached):
        await books.append(claim, held=tokens(11), announces=True, store=process)
    await books.append(claim, held=tokens(10), announces=True, store=process)
    assert await books.holds() == {claim.run_id: tokens(10)}


@pytest.mark.parametrize(
    ("dimension", "limit"),
    [
        ("cost", "0.000000000001"),
        ("tokens", 13),
        ("input_tokens", 5),
        ("output_tokens", 7),
        ("model_calls", 1),
        ("tool_calls", 3),
    ],
)
async def test_each_dimension_counts_what_was_used_and_what_is_reserved(
    books: Books, dimension: str, limit: int | str
) -> None:
    await books.set(ceiling(limit, dimension))
    claim = await books.claim()
    await books.append(claim, EVERYTHING, announces=True)
    with pytest.raises(CeilingReached) as refused:
        await books.append(claim, EVERYTHING, announces=True)
    assert refused.value.dimension == dimension


async def test_seconds_are_those_between_events_under_one_claim(books: Books) -> None:
    await books.set(ceiling(9, "seconds"))
    claim = await books.claim()
    await books.append(claim)
    await books.change(DRIVEN_LONG, claim.run_id)
    with pytest.raises(CeilingReached) as refused:
        await books.append(claim, announces=True)
    assert 10 <= refused.value.requested < 20


async def test_time_between_two_claims_is_nobodys(books: Books) -> None:
    await books.set(ceiling(9, "seconds"))
    claim = await books.claim()
    await books.append(claim)
    await books.change(DRIVEN_LONG, claim.run_id)
    await books.append(await books.lose(claim), announces=True)
    assert await books.ask("SELECT active_us FROM runs WHERE run_id = $1", claim.run_id) == [(0,)]


async def test_a_run_below_another_one_is_driven_in_the_time_of_its_root(books: Books) -> None:
    await books.set(ceiling(9, "seconds"))
    child = await adopt(books, await books.claim())
    await books.append(child)
    await books.change(DRIVEN_LONG, child.run_id)
    await books.append(child, announces=True)
    assert await books.ask("SELECT active_us FROM runs WHERE run_id = $1", child.run_id) == [(0,)]


async def test_what_is_driven_is_charged_to_the_microsecond_of_the_events(books: Books) -> None:
    await books.set(ceiling(1000, "seconds"))
    claim = await books.claim()
    await books.append(claim)
    await books.append(claim)
    between = (
        "SELECT (extract(epoch FROM max(at) - min(at)) * 1000000)::bigint FROM events WHERE run_id = $1 AND seq > 1"
    )
    assert await books.ask(ACTIVE, books.tenant_id) == await books.ask(between, claim.run_id)


async def test_an_append_that_announces_nothing_is_charged_past_a_ceiling(books: Books) -> None:
    await books.set(ceiling(10))
    await books.append(await books.claim(), tokens(11))
    assert await books.charged() == tokens(11)


async def test_a_ceiling_that_is_overshot_refuses_a_call_of_any_kind(books: Books) -> None:
    await books.set(ceiling(10))
    claim = await books.claim()
    await books.append(claim, tokens(11))
    with pytest.raises(CeilingReached):
        await books.append(claim, Spend(tool_calls=1), announces=True)


async def test_what_other_runs_have_reserved_is_no_room(books: Books) -> None:
    await books.set(ceiling(10))
    first, second = await books.claim(), await books.claim()
    await books.append(first, held=tokens(8), announces=True)
    with pytest.raises(CeilingReached):
        await books.append(second, held=tokens(3), announces=True)


async def test_what_the_run_itself_has_reserved_before_is_room(books: Books) -> None:
    await books.set(ceiling(10))
    claim = await books.claim()
    await books.append(claim, held=tokens(8), announces=True)
    await books.append(claim, held=tokens(9), announces=True)
    assert await books.holds() == {claim.run_id: tokens(9)}


async def test_an_append_whose_answer_was_lost_is_charged_once(books: Books) -> None:
    await books.set(ceiling(1000))
    claim, late = await books.claim(), books.work
    await late.load(claim)
    await books.append(claim, EVERYTHING, held=tokens(5), announces=True)
    books.used.clear()
    await books.append(claim, EVERYTHING, held=tokens(5), announces=True, store=late)
    assert await books.charged() == EVERYTHING


async def test_a_call_that_went_out_is_not_refused_when_its_append_is_sent_again(books: Books) -> None:
    await books.set(ceiling(10))
    claim, late = await books.claim(), books.work
    await late.load(claim)
    await books.append(claim, held=tokens(10), announces=True)
    await books.append(await books.claim(), tokens(5))
    await books.append(claim, held=tokens(10), announces=True, store=late)
    assert await books.holds() == {claim.run_id: tokens(10)}


async def test_what_a_lost_worker_had_reserved_is_settled_by_the_next_claims_first_append(books: Books) -> None:
    await books.set(ceiling(1000))
    claim = await books.claim()
    await books.append(claim, held=tokens(500, input_tokens=20), announces=True)
    again = await books.lose(claim)
    between = await books.holds()
    await books.append(again, Spend(input_tokens=20), source=UsageSource.HEURISTIC)
    assert between == {claim.run_id: Spend(input_tokens=20)}
    assert (await books.holds(), await books.charged()) == ({}, Spend(input_tokens=20))


@pytest.mark.parametrize(
    ("spent", "source", "estimated"),
    [
        (tokens(1), UsageSource.HEURISTIC, True),
        (Spend(input_tokens=1), UsageSource.HEURISTIC, True),
        (tokens(1), UsageSource.PROVIDER, False),
        (Spend(tool_calls=1), UsageSource.HEURISTIC, False),
    ],
)
async def test_a_stretch_says_whether_tokens_in_it_were_guessed(
    books: Books, spent: Spend, source: UsageSource, estimated: bool
) -> None:
    await books.set(ceiling(1000))
    await books.append(await books.claim(), spent, source=source)
    assert await books.ask(ESTIMATED, books.tenant_id) == [(estimated,)]


async def test_a_stretch_in_which_something_was_guessed_keeps_saying_so(books: Books) -> None:
    await books.set(ceiling(1000))
    await books.append(await books.claim(), tokens(1), source=UsageSource.HEURISTIC)
    await books.append(await books.claim(), tokens(1))
    assert await books.ask("SELECT bool_or(estimated) FROM ledger WHERE tenant_id = $1", books.tenant_id) == [(True,)]


async def test_a_run_below_another_one_charges_and_reserves_for_itself(books: Books) -> None:
    await books.set(ceiling(10))
    root = await books.claim()
    child = await adopt(books, root)
    await books.append(root, tokens(2), held=tokens(3), announces=True)
    await books.append(child, tokens(1), held=tokens(4), announces=True)
    assert await books.charged() == tokens(3)
    assert await books.holds() == {root.run_id: tokens(3), child.run_id: tokens(4)}


async def test_what_was_used_before_the_window_of_a_run_began_does_not_bind_it(books: Books) -> None:
    await books.set(ceiling(10))
    await books.append(await books.claim(), tokens(10))
    claim = await books.claim()
    await books.change(USED_BEFORE, claim.run_id, 1)
    await books.append(claim, held=tokens(10), announces=True)
    assert await books.holds() == {claim.run_id: tokens(10)}


async def test_what_was_used_in_the_stretch_in_which_the_window_of_a_run_began_binds_it(books: Books) -> None:
    await books.set(ceiling(10))
    await books.append(await books.claim(), tokens(10))
    claim = await books.claim()
    await books.change(USED_BEFORE, claim.run_id, 0)
    with pytest.raises(CeilingReached):
        await books.append(claim, held=tokens(1), announces=True)


async def test_a_run_gets_no_new_room_by_running_on(books: Books) -> None:
    await books.set(ceiling(10))
    claim = await books.claim()
    await books.append(claim, tokens(10))
    await books.change("UPDATE ledger SET stretch = stretch - 61")
    await books.change("UPDATE runs SET started_at = started_at - interval '61 minutes'")
    with pytest.raises(CeilingReached):
        await books.append(claim, held=tokens(1), announces=True)


async def test_a_run_below_another_one_counts_from_its_roots_start(books: Books) -> None:
    await books.set(ceiling(10))
    root = await books.claim()
    await books.append(root, tokens(10))
    child = await adopt(books, root)
    await books.change("UPDATE ledger SET stretch = stretch - 61")
    await books.change("UPDATE runs SET started_at = started_at - interval '61 minutes' WHERE run_id = $1", root.run_id)
    with pytest.raises(CeilingReached):
        await books.append(child, held=tokens(1), announces=True)


async def test_the_setting_for_a_ledger_that_is_away_is_recorded_on_the_run(books: Books) -> None:
    await books.set()
    claim = await books.claim(on_ledger_error="proceed")
    assert (await read(books.database, books.tenant_id, claim.run_id)).on_ledger_error == "proceed"


async def test_a_run_below_another_one_has_its_roots_setting(books: Books) -> None:
    await books.set()
    root = await books.claim(on_ledger_error="proceed")
    adopted = await books.work.adopt(root, new_run(books.tenant_id, parent_run_id=root.run_id))
    assert adopted.record.on_ledger_error == "proceed"


async def test_a_drive_is_told_the_tenants_terms(books: Books) -> None:
    ceilings = (ceiling("0.1", "cost"), ceiling(5))
    await books.set(*ceilings, tools={"search"}, models={"m"}, weight=3, on_ledger_error="proceed")
    terms = (await books.work.load(await books.claim())).terms
    assert (terms.ceilings, terms.weight, terms.on_ledger_error) == (ceilings, 3, "proceed")
    assert (terms.tools, terms.models) == (frozenset({"search"}), frozenset({"m"}))


async def adopt(books: Books, root: Claim) -> Claim:
    adopted = await books.work.adopt(root, new_run(books.tenant_id, parent_run_id=root.run_id))
    return adopted.claim
