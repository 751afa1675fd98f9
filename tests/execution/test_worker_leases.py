"""A worker keeps the leases of what it drives, and stops at once what it has lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from app.events import CancellationRequested, RunState
from app.ids import RunId, WorkerId
from app.ports.records import CancelWish, Claim, LoadedRun
from app.testing import FakeClock
from tests.execution.fakes import Recorder, Stall, StreamingProvider, call, let_others_run, make_tool, say
from tests.execution.support import Bench
from tests.execution.workers import AWAY, WatchedStore, at_work, bench_for, until_ended, watched

WISH = CancelWish(reason="enough", requested_by="ada")


def stalled_bench() -> tuple[Stall, Bench]:
    stall = Stall()
    return stall, bench_for(StreamingProvider("Hello", stall=stall))


async def beat(bench: Bench, seconds: float = 10) -> None:
    """The clock moves on, and the heart beats."""
    await bench.clock.wait_for_sleepers()
    bench.clock.advance(seconds)
    await let_others_run()


async def test_a_lease_is_renewed_every_third_of_its_time() -> None:
    stall, bench = stalled_bench()
    await bench.submit()
    async with at_work(bench):
        await stall.reached.wait()
        await beat(bench, 9.9)
        assert watched(bench).renewals == 0
        await beat(bench, 0.1)
        assert watched(bench).renewals == 1


async def test_a_run_that_takes_longer_than_its_lease_stays_with_its_worker() -> None:
    stall, bench = stalled_bench()
    run_id = await bench.submit()
    async with at_work(bench):
        await stall.reached.wait()
        await beat(bench)
        await beat(bench)
        await beat(bench)
        await beat(bench)
        assert await bench.store.requeue_expired() == 0
        stall.go_on.set()
        await until_ended(bench, run_id)
    assert bench.store.record(run_id).state is RunState.COMPLETED


class BringingStore(WatchedStore):
    """Brings runs along as they were when it took them. ``on_taken`` happens before whoever asked is told."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.taken: dict[RunId, LoadedRun] = {}
        self.on_taken: Callable[[RunId], Awaitable[None]] | None = None

    async def claim(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, has: frozenset[str] | None = None
    ) -> Sequence[Claim]:
        claims = await super().claim(worker_id, limit=limit, lease_seconds=lease_seconds, has=has)
        for claim in claims:
            self.taken[claim.run_id] = await self.load(claim)
            if self.on_taken is not None:
                await self.on_taken(claim.run_id)
        return claims

    def brought(self, claim: Claim) -> LoadedRun | None:
        return self.taken.pop(claim.run_id, None)


async def test_a_cancel_that_comes_between_a_claim_and_its_answer_is_heard_at_once() -> None:
    stall = Stall()
    bench = Bench(StreamingProvider("Hello", stall=stall), clock=FakeClock(auto_advance=False), store=BringingStore)
    run_id = await bench.submit()

    async def cancel(taken: RunId) -> None:
        await bench.store.request_cancel(taken, WISH)
        bench.feed.announce_cancel(taken)
        await let_others_run()

    assert isinstance(bench.store, BringingStore)
    bench.store.on_taken = cancel
    async with at_work(bench):
        await until_ended(bench, run_id)
    assert bench.store.record(run_id).state is RunState.CANCELLED


async def test_what_was_brought_along_is_not_loaded_again() -> None:
    bench = Bench([say("Hello.")], clock=FakeClock(auto_advance=False), store=BringingStore)
    run_id = await bench.submit()
    assert isinstance(bench.store, BringingStore)

    async def break_loads(_: RunId) -> None:
        watched(bench).load_fails = AWAY

    bench.store.on_taken = break_loads
    async with at_work(bench):
        await until_ended(bench, run_id)
    assert bench.store.record(run_id).state is RunState.COMPLETED


async def test_an_idle_worker_renews_nothing() -> None:
    _, bench = stalled_bench()
    async with at_work(bench):
        await beat(bench)
    assert watched(bench).renewals == 0


async def test_a_lease_that_was_lost_stops_the_drive_which_writes_nothing() -> None:
    stall, bench = stalled_bench()
    run_id = await bench.submit()
    async with at_work(bench) as (worker, _):
        await stall.reached.wait()
        stored = bench.story(run_id).kinds
        await bench.lose_worker()
        await bench.store.claim(WorkerId("worker-2"), limit=1, lease_seconds=30)
        await let_others_run()
        assert (stall.was_cut, worker.active, bench.sink.lost) == (True, 0, [run_id])
    assert bench.story(run_id).kinds == stored
    assert watched(bench).released == []


async def test_a_tool_that_runs_when_the_lease_is_lost_is_stopped_too() -> None:
    stall = Stall()
    bench = bench_for([call("pay")], tools=[make_tool("pay", stall.as_tool)])
    run_id = await bench.submit()
    async with at_work(bench):
        await stall.reached.wait()
        await bench.lose_worker()
        await bench.store.claim(WorkerId("worker-2"), limit=1, lease_seconds=30)
        await let_others_run()
    assert (stall.was_cut, bench.story(run_id).kinds[-1]) == (True, "tool_call")


async def pay_late(*, extends: bool) -> tuple[Bench, Recorder, RunId]:
    """A run whose second call is due just before its first lease ends, after two heartbeats."""
    stall, paid = Stall(), Recorder()
    tools = [make_tool("look", stall.as_tool), make_tool("pay", paid)]
    bench = bench_for([call("look"), call("pay")], tools=tools)
    watched(bench).extends = extends
    run_id = await bench.submit()
    async with at_work(bench) as (worker, _):
        await stall.reached.wait()
        await beat(bench)
        await beat(bench)
        await beat(bench, 9.9)
        assert (worker.active, stall.was_cut, bench.sink.lost) == (1, False, [])
        stall.go_on.set()
        await let_others_run()
    return bench, paid, run_id


async def test_a_lease_that_was_not_extended_is_held_and_ends_when_it_would_have_ended() -> None:
    bench, paid, run_id = await pay_late(extends=False)
    assert (paid.calls, bench.sink.lost) == ([], [run_id])


async def test_a_lease_that_was_extended_does_not_end_then() -> None:
    bench, paid, _ = await pay_late(extends=True)
    assert (len(paid.calls), bench.sink.lost) == (1, [])


async def test_a_cancel_is_seen_by_the_heartbeat() -> None:
    stall, bench = stalled_bench()
    run_id = await bench.submit()
    async with at_work(bench):
        await stall.reached.wait()
        await bench.store.request_cancel(run_id, WISH)
        await beat(bench)
        await until_ended(bench, run_id)
    asked = bench.story(run_id).one(CancellationRequested)
    assert (asked.reason, asked.requested_by) == ("enough", "ada")


async def test_a_cancel_is_seen_at_once_when_its_bell_is_heard() -> None:
    stall, bench = stalled_bench()
    run_id = await bench.submit()
    async with at_work(bench):
        await stall.reached.wait()
        await bench.store.request_cancel(run_id, WISH)
        bench.feed.announce_cancel(run_id)
        await until_ended(bench, run_id)
    assert (bench.store.record(run_id).state, bench.clock.monotonic()) == (RunState.CANCELLED, 0)


async def test_the_bell_of_somebody_elses_run_asks_the_store_nothing() -> None:
    stall, bench = stalled_bench()
    await bench.submit()
    other = await bench.submit()
    async with at_work(bench, slots=1):
        await stall.reached.wait()
        bench.feed.announce_cancel(other)
        await let_others_run()
        assert watched(bench).renewals == 0


async def test_a_heartbeat_that_the_database_missed_beats_again() -> None:
    stall, bench = stalled_bench()
    await bench.submit()
    async with at_work(bench) as (worker, running):
        await stall.reached.wait()
        watched(bench).renew_fails = AWAY
        await beat(bench)
        watched(bench).renew_fails = None
        await beat(bench)
        assert (watched(bench).renewals, worker.active, running.done()) == (1, 1, False)


async def test_a_heartbeat_that_breaks_stops_the_worker_and_hands_its_runs_back() -> None:
    stall, bench = stalled_bench()
    run_id = await bench.submit()
    async with at_work(bench) as (_, running):
        await stall.reached.wait()
        watched(bench).renew_fails = RuntimeError("a defect")
        await bench.clock.wait_for_sleepers()
        bench.clock.advance(10)
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.shield(running)
    assert [str(error) for error in caught.value.exceptions] == ["a defect"]
    assert (bench.store.record(run_id).state, bench.store.record(run_id).recoveries) == (RunState.QUEUED, 0)
