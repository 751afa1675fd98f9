"""The database blinks in the middle of an append: nothing is lost, nothing is written twice."""

from collections.abc import Sequence

import pytest

from app.errors import LeaseLost, StoreUnavailable
from app.events import AnyEvent, RunEvent, RunStarted, RunState, Warned
from app.execution.journal import Journal
from app.execution.purse import Purse
from app.ports.records import Claim, LoadedRun, RunUpdate
from app.run import IllegalEvent, Phase
from app.testing import FakeClock
from tests.execution.fakes import Recorder, call, make_tool, say
from tests.execution.support import Bench, RecordingStore

NOTE = Warned(code="note")
STARTED = RunStarted(worker_id="worker-1", fence=1)


class BlinkingStore(RecordingStore):
    """Breaks the connection as often as it is told: before the commit, or after it."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.breaks_before = 0
        self.breaks_after = 0
        self.breaks_loads = 0
        self.tries = 0

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        self.tries += 1
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


async def open_journal() -> tuple[Bench, BlinkingStore, Journal]:
    bench = Bench([say("Hello.")], store=BlinkingStore)
    await bench.submit()
    lease = await bench.claim()
    journal = Journal(bench.runtime, lease, await bench.store.load(lease.claim), Purse(lease.run_id, ()))
    assert isinstance(bench.store, BlinkingStore)
    return bench, bench.store, journal


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
