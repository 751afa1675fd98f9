"""What a lost process left behind is queued again, by whoever is there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.errors import StoreUnavailable
from app.events import RunState
from app.execution.sweeper import sweep
from app.testing import FakeClock
from tests.execution.fakes import let_others_run, say
from tests.execution.support import Bench, RecordingStore


class AbsentStore(RecordingStore):
    """Does not answer the first time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.sweeps = 0

    async def requeue_expired(self) -> int:
        self.sweeps += 1
        if self.sweeps == 1:
            raise StoreUnavailable
        return await super().requeue_expired()


def bench_with(store: type[RecordingStore] = RecordingStore) -> Bench:
    return Bench([say("Hello.")], clock=FakeClock(auto_advance=False), store=store)


@asynccontextmanager
async def sweeping(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(sweep(bench.runtime, every_seconds=5))
    await bench.clock.wait_for_sleepers()
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def pass_time(bench: Bench, seconds: float) -> None:
    bench.clock.advance(seconds)
    await let_others_run()


async def test_a_run_whose_lease_has_lapsed_is_queued_and_counted_and_no_event_written() -> None:
    bench = bench_with()
    run_id = await bench.submit()
    await bench.claim()
    async with sweeping(bench):
        await pass_time(bench, 30)
    record = bench.store.record(run_id)
    assert (record.state, record.recoveries, bench.story(run_id).kinds) == (RunState.QUEUED, 1, ["run_queued"])


async def test_workers_and_figures_are_told() -> None:
    bench = bench_with()
    await bench.submit()
    await bench.claim()
    async with sweeping(bench):
        await pass_time(bench, 30)
    assert (bench.sink.recovered_runs, bench.feed.queued_bells) == (1, 1)


async def test_nobody_is_woken_when_there_is_nothing() -> None:
    bench = bench_with()
    await bench.submit()
    await bench.claim()
    async with sweeping(bench):
        await pass_time(bench, 5)
    assert (bench.sink.recovered_runs, bench.feed.queued_bells) == (0, 0)


async def test_a_lease_that_holds_is_left_alone_and_one_that_lapses_later_is_found_later() -> None:
    bench = bench_with()
    run_id = await bench.submit()
    await bench.claim()
    async with sweeping(bench):
        await pass_time(bench, 29)
        assert bench.store.record(run_id).state is RunState.RUNNING
        await pass_time(bench, 5)
        assert bench.store.record(run_id).state is RunState.QUEUED


async def test_a_database_that_is_away_is_asked_again_at_the_next_turn() -> None:
    bench = bench_with(AbsentStore)
    run_id = await bench.submit()
    await bench.claim()
    async with sweeping(bench):
        await pass_time(bench, 30)
    assert (bench.store.record(run_id).state, bench.sink.away) == (RunState.QUEUED, ["sweep"])
