"""A worker claims what it has slots for, and nothing that happens to one run reaches another."""

import asyncio
from collections.abc import Sequence

import pytest
from pydantic import ValidationError

from app.errors import LeaseLost
from app.events import RunState
from app.execution.worker import WorkerConfig
from app.ids import RunId, TenantId, WorkerId
from app.ports.records import CancelWish, Claim
from app.testing import FakeClock
from tests.execution.fakes import Recorder, Stall, StreamingProvider, call, let_others_run, make_tool, say
from tests.execution.support import Bench
from tests.execution.workers import AWAY, WatchedStore, at_work, bench_for, until_ended, watched


async def test_a_worker_drives_what_is_queued() -> None:
    bench = bench_for([say("Hello.")])
    run_ids = [await bench.submit() for _ in range(3)]
    async with at_work(bench):
        await until_ended(bench, *run_ids)
    assert {bench.store.record(run_id).state for run_id in run_ids} == {RunState.COMPLETED}


async def test_a_worker_holds_no_more_runs_than_it_has_slots() -> None:
    stall = Stall()
    bench = bench_for(StreamingProvider("Hello", stall=stall))
    run_ids = [await bench.submit() for _ in range(3)]
    async with at_work(bench, slots=2) as (worker, _):
        await stall.reached.wait()
        await let_others_run()
        states = [bench.store.record(run_id).state for run_id in run_ids]
        assert (worker.active, states) == (2, [RunState.RUNNING, RunState.RUNNING, RunState.QUEUED])
        stall.go_on.set()
        await until_ended(bench, *run_ids)
    assert max(watched(bench).limits) == 2


async def test_a_full_worker_asks_for_nothing() -> None:
    stall = Stall()
    bench = bench_for(StreamingProvider("Hello", stall=stall))
    await bench.submit()
    async with at_work(bench, slots=1):
        await stall.reached.wait()
        bench.feed.announce_queued()
        await let_others_run()
        assert watched(bench).limits == [1]


async def test_a_queued_run_that_is_cancelled_ends_while_every_slot_is_taken() -> None:
    stall = Stall()
    bench = bench_for(StreamingProvider("Hello", stall=stall))
    await bench.submit()
    async with at_work(bench, slots=1):
        await stall.reached.wait()
        waiting = await bench.submit()
        await bench.store.request_cancel(waiting, CancelWish(reason="enough", requested_by="ada"))
        bench.feed.announce_cancel(waiting)
        await until_ended(bench, waiting)
        assert bench.store.record(waiting).state is RunState.CANCELLED
        assert watched(bench).limits == [1]


class SlowEnding(WatchedStore):
    """Takes its time over runs that only need to end."""

    async def claim_ending(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, max_recoveries: int | None = None
    ) -> Sequence[Claim]:
        await asyncio.Event().wait()
        return ()


async def test_a_running_run_hears_its_cancel_while_a_queued_one_takes_its_time_to_end() -> None:
    stall = Stall()
    model = StreamingProvider("Hello", stall=stall)
    bench = Bench(model, clock=FakeClock(auto_advance=False), store=SlowEnding)
    run_id = await bench.submit()
    async with at_work(bench):
        await stall.reached.wait()
        bench.feed.announce_cancel(RunId("run_other"))
        await let_others_run()
        await bench.store.request_cancel(run_id, CancelWish(reason="enough", requested_by="ada"))
        bench.feed.announce_cancel(run_id)
        await until_ended(bench, run_id)
    assert bench.store.record(run_id).state is RunState.CANCELLED


async def test_the_bell_wakes_an_idle_worker() -> None:
    bench = bench_for([say("Hello.")])
    async with at_work(bench):
        await let_others_run()
        run_id = await bench.submit()
        bench.feed.announce_queued()
        await until_ended(bench, run_id)


async def test_a_slot_that_is_freed_takes_the_next_run() -> None:
    bench = bench_for([say("Hello.")])
    run_ids = [await bench.submit() for _ in range(5)]
    async with at_work(bench, slots=1):
        await until_ended(bench, *run_ids)


async def test_a_tenant_with_many_runs_does_not_delay_one_with_one() -> None:
    bench = bench_for([say("Hello.")])
    many = [await bench.submit() for _ in range(10)]
    [one] = [await bench.submit(tenant=TenantId("small"))]
    async with at_work(bench, slots=1):
        await until_ended(bench, one)
        assert sum(bench.store.record(run_id).state.is_terminal for run_id in many) <= 2


async def test_a_database_that_is_away_at_a_claim_is_asked_again() -> None:
    bench = bench_for([say("Hello.")])
    run_id = await bench.submit()
    watched(bench).claim_fails = AWAY
    async with at_work(bench):
        await let_others_run()
        watched(bench).claim_fails = None
        bench.feed.announce_queued()
        await until_ended(bench, run_id)


async def test_a_run_that_could_not_be_loaded_is_loaded_when_the_store_is_back() -> None:
    bench = bench_for([say("Hello.")])
    run_id = await bench.submit()
    watched(bench).load_fails = AWAY
    async with at_work(bench) as (worker, running):
        await let_others_run()
        assert (worker.active, running.done()) == (1, False)
        watched(bench).load_fails = None
        bench.clock.advance(1)
        await until_ended(bench, run_id)
    record = bench.store.record(run_id)
    assert (record.state, record.recoveries) == (RunState.COMPLETED, 0)


async def test_a_run_that_can_not_be_loaded_is_let_go_before_its_lease_lapses() -> None:
    bench = bench_for([say("Hello.")])
    run_id = await bench.submit()
    watched(bench).load_fails = AWAY
    watched(bench).renew_fails = AWAY
    async with at_work(bench) as (worker, _):
        await let_others_run()
        bench.clock.advance(29.5)
        await let_others_run()
        assert worker.active == 0
    assert bench.store.record(run_id).state is RunState.RUNNING


async def test_a_defect_in_one_drive_is_told_and_stops_no_other() -> None:
    bench = bench_for([say("Hello.")])
    broken = await bench.submit()
    watched(bench).load_fails = RuntimeError("a defect")
    async with at_work(bench):
        await let_others_run()
        watched(bench).load_fails = None
        healthy = await bench.submit()
        bench.feed.announce_queued()
        await until_ended(bench, healthy)
    assert [str(error) for error in bench.sink.crashes] == ["a defect"]
    assert bench.store.record(broken).state is RunState.RUNNING


async def test_a_run_that_another_claim_holds_is_told_as_lost() -> None:
    bench = bench_for([say("Hello.")])
    run_id = await bench.submit()
    watched(bench).load_fails = LeaseLost("gone")
    async with at_work(bench):
        await let_others_run()
    assert bench.sink.lost == [run_id]


async def test_a_provider_that_cancels_itself_does_not_set_a_run_going_round() -> None:
    bench = bench_for([call("look"), say("Sorry.")], tools=[make_tool("look", Recorder(asyncio.CancelledError()))])
    run_id = await bench.submit()
    async with at_work(bench):
        await until_ended(bench, run_id)
    assert (bench.store.record(run_id).state, watched(bench).released) == (RunState.COMPLETED, [])


@pytest.mark.parametrize(
    "fields", [{"slots": 0}, {"lease_seconds": 0.5}, {"poll_seconds": 0}, {"drain_seconds": -1}, {"threads": 3}]
)
def test_a_worker_that_could_not_work_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        WorkerConfig(**fields)  # type: ignore[arg-type]
