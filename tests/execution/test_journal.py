"""The database blinks in the middle of an append: nothing is lost, nothing is written twice."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from app.errors import CeilingReached, LeaseLost, LedgerUnavailable, StoreUnavailable
from app.events import AnyEvent, RunEvent, RunStarted, RunState, Warned
from app.execution.journal import Journal
from app.execution.purse import Purse
from app.policy import BudgetLimits, ResolvedBudget, RunBudget, Spend
from app.ports.records import Claim, LoadedRun, RunUpdate
from app.run import AssemblePrompt, IllegalEvent, Phase, Plan, fold
from app.testing import FakeClock
from tests.execution.fakes import Recorder, call, make_tool, say
from tests.execution.support import Bench, RecordingStore

NOTE, OTHER_NOTE = Warned(code="note"), Warned(code="other")
STARTED = RunStarted(worker_id="worker-1", fence=1)


class BlinkingStore(RecordingStore):
    """Breaks the connection as often as it is told: before the commit, or after it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.breaks_before = 0
        self.breaks_after = 0
        self.breaks_loads = 0
        self.tries = 0
        self.updates: list[RunUpdate] = []
        self.refusal: Exception | None = None

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        self.tries += 1
        self.updates.append(update)
        if self.refusal is not None:
            raise self.refusal
        if self.breaks_before:
            self.breaks_before -= 1
            raise StoreUnavailable
        stored = await super().append_if_owner(claim, bodies, update)
        if self.breaks_after:
            self.breaks_after -= 1
            raise StoreUnavailable
        return stored

    async def load(self, claim: Claim) -> LoadedRun:
        if self.breaks_loads:
            self.breaks_loads -= 1
            raise StoreUnavailable
        return await super().load(claim)


async def open_journal(*budgets: RunBudget) -> tuple[Bench, BlinkingStore, Journal]:
    bench = Bench([say("Hello.")], store=BlinkingStore)
    await bench.submit()
    lease = await bench.claim()
    journal = Journal(bench.runtime, lease, await bench.store.load(lease.claim), Purse(lease.run_id, budgets))
    assert isinstance(bench.store, BlinkingStore)
    return bench, bench.store, journal


def plan_of(journal: Journal, *bodies: AnyEvent) -> Plan:
    """A plan whose state is told from what its events fold to: it has made 7 model calls."""
    state = journal.state
    for body in bodies:
        state = fold(state, body, at=state.last_at)
    return Plan(events=bodies, state=replace(state, model_calls=7), command=AssemblePrompt())


def told_model_calls(store: BlinkingStore) -> list[int]:
    """What the row was told with each append."""
    return [update.model_calls for update in store.updates]


async def test_an_append_folds_what_was_stored() -> None:
    _, _, journal = await open_journal()
    [stored] = await journal.append(STARTED)
    assert (stored.seq, journal.state.phase, journal.state.seq) == (2, Phase.READY, 2)


async def test_an_append_of_nothing_asks_nobody() -> None:
    bench, store, journal = await open_journal()
    assert await journal.append() == ()
    assert (store.tries, bench.feed.stored_bells) == (0, 0)


async def test_a_move_that_the_table_does_not_list_is_refused_before_anything_is_stored() -> None:
    _, store, journal = await open_journal()
    with pytest.raises(IllegalEvent):
        await journal.append(STARTED, STARTED)
    assert (store.tries, journal.state.phase) == (0, Phase.QUEUED)


async def test_an_append_is_tried_again_until_the_database_is_back() -> None:
    _, store, journal = await open_journal()
    store.breaks_before = 3
    await journal.append(STARTED)
    assert (store.tries, store.appends) == (4, [("run_started",)])


async def test_an_append_that_landed_before_the_connection_broke_is_not_written_twice() -> None:
    bench, store, journal = await open_journal()
    store.breaks_after = 1
    stored = await journal.append(STARTED, NOTE)
    assert (store.tries, [event.kind for event in stored]) == (1, ["run_started", "warning"])
    assert (journal.state.seq, bench.sink.kinds, bench.feed.stored_bells) == (3, ["run_started", "warning"], 1)


async def test_whether_it_landed_is_asked_again_while_the_database_is_away() -> None:
    _, store, journal = await open_journal()
    store.breaks_after, store.breaks_loads = 1, 5
    await journal.append(STARTED)
    assert (store.tries, journal.state.seq) == (1, 2)


async def test_a_database_that_is_away_for_longer_than_the_lease_loses_the_run() -> None:
    bench, store, journal = await open_journal()
    store.breaks_before = 10_000
    with pytest.raises(LeaseLost, match="longer than the lease"):
        await journal.append(STARTED)
    assert (journal.state.phase, bench.sink.kinds) == (Phase.QUEUED, [])
    assert 28 <= bench.clock.monotonic() <= 30


async def test_the_lease_that_was_renewed_meanwhile_gives_an_append_more_time() -> None:
    bench, store, journal = await open_journal()
    store.breaks_before = 200
    journal._lease.extend(100.0)
    await journal.append(STARTED)
    assert bench.clock.monotonic() == pytest.approx(50.0)


async def test_a_tools_result_survives_a_blink() -> None:
    tool = Recorder("receipt")
    bench = Bench([call("pay"), say("Done.")], tools=[make_tool("pay", tool)], store=BlinkingStore)
    bench.sink.on_kind = lambda kind: setattr(bench.store, "breaks_before", 2) if kind == "tool_call" else None
    story = await bench.run()
    assert (story.record.state, len(tool.calls)) == (RunState.COMPLETED, 1)


async def test_the_end_that_landed_before_the_connection_broke_is_told_to_listeners() -> None:
    bench = Bench([say("Hello.")], store=BlinkingStore)
    bench.sink.on_kind = lambda kind: setattr(bench.store, "breaks_after", 1) if kind == "model_call" else None
    run_id = await bench.submit()
    with pytest.raises(LeaseLost):
        await bench.drive(await bench.claim())
    assert (bench.story(run_id).record.state, bench.feed.stored_bells) == (RunState.COMPLETED, 2)


@pytest.mark.parametrize("more", [(), (NOTE,), (NOTE, OTHER_NOTE)])
async def test_what_was_planned_is_not_folded_once_more_and_what_follows_it_is(more: tuple[AnyEvent, ...]) -> None:
    _, store, journal = await open_journal()
    journal.expect(plan_of(journal, STARTED, NOTE))
    stored = await journal.append(STARTED, NOTE, *more)
    assert told_model_calls(store) == [7]
    assert [event.body for event in stored] == [STARTED, NOTE, *more]


async def test_memory_is_the_fold_of_what_was_stored_whatever_was_planned() -> None:
    _, _, journal = await open_journal()
    journal.expect(plan_of(journal, STARTED))
    await journal.append(STARTED)
    assert (journal.state.model_calls, journal.state.phase, journal.state.seq) == (0, Phase.READY, 2)


@pytest.mark.parametrize("bodies", [(STARTED,), (STARTED, OTHER_NOTE), (STARTED, OTHER_NOTE, NOTE)])
async def test_an_append_that_does_not_begin_with_what_was_planned_is_folded_from_the_log(
    bodies: tuple[AnyEvent, ...],
) -> None:
    _, store, journal = await open_journal()
    journal.expect(plan_of(journal, STARTED, NOTE))
    await journal.append(*bodies)
    assert (told_model_calls(store), journal.state.seq) == ([0], 1 + len(bodies))


async def test_a_plan_holds_for_the_next_append_alone() -> None:
    _, store, journal = await open_journal()
    await journal.append(STARTED)
    journal.expect(plan_of(journal, NOTE))
    await journal.append(NOTE)
    await journal.append(NOTE)
    journal.expect(plan_of(journal, NOTE))
    await journal.append(OTHER_NOTE)
    await journal.append(NOTE)
    assert told_model_calls(store) == [0, 7, 0, 0, 0]
    assert journal.state.seq == 6


async def test_a_plan_that_is_made_later_takes_the_place_of_the_one_before() -> None:
    _, store, journal = await open_journal()
    journal.expect(plan_of(journal, STARTED, NOTE))
    journal.expect(plan_of(journal, STARTED))
    await journal.append(STARTED)
    assert told_model_calls(store) == [7]


@pytest.mark.parametrize(
    "refusal",
    [
        CeilingReached("output_tokens", window_seconds=60, limit=Decimal(1), used=Decimal(1), requested=Decimal(1)),
        LedgerUnavailable("away"),
    ],
)
async def test_what_a_refused_append_would_have_spent_is_not_spent(refusal: Exception) -> None:
    budget = RunBudget(resolved=ResolvedBudget(limits=BudgetLimits(), sources={}), clock=FakeClock())
    _, store, journal = await open_journal(budget)
    store.refusal = refusal
    journal.expect(plan_of(journal, STARTED))
    with pytest.raises(type(refusal)):
        await journal.append(STARTED, announces=True)
    assert (told_model_calls(store), budget.spent.model_calls) == ([7], 0)


async def test_what_an_append_spends_is_spent_before_it_is_stored() -> None:
    budget = RunBudget(resolved=ResolvedBudget(limits=BudgetLimits(), sources={}), clock=FakeClock())
    _, store, journal = await open_journal(budget)
    store.refusal = LeaseLost("taken over")
    journal.expect(plan_of(journal, STARTED))
    with pytest.raises(LeaseLost):
        await journal.append(STARTED)
    assert budget.spent.model_calls == 7


@pytest.mark.parametrize("held", [None, Spend(), Spend(output_tokens=3)])
@pytest.mark.parametrize("announces", [False, True])
async def test_the_store_is_told_what_stays_reserved_and_whether_a_call_goes_out(
    held: Spend | None, announces: bool
) -> None:
    _, store, journal = await open_journal()
    await journal.append(STARTED, held=held, announces=announces)
    assert [(update.held, update.announces) for update in store.updates] == [(held, announces)]


async def test_an_input_that_was_rewritten_is_the_runs_from_then_on() -> None:
    _, store, journal = await open_journal()
    await journal.append(STARTED)
    await journal.append(NOTE, rewritten_input="Good evening.")
    await journal.append(NOTE)
    assert [update.rewritten_input for update in store.updates] == [None, "Good evening.", None]
    assert journal.input == "Good evening."


async def test_what_follows_a_plan_and_is_not_listed_is_refused_before_anything_is_stored() -> None:
    _, store, journal = await open_journal()
    journal.expect(plan_of(journal, STARTED))
    with pytest.raises(IllegalEvent):
        await journal.append(STARTED, STARTED)
    assert (store.tries, journal.state.phase) == (0, Phase.QUEUED)
