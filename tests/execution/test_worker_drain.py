"""A worker that goes away: nothing is lost, nothing is counted as a loss."""

import asyncio

from app.events import RunResumed, RunState, ToolCalled
from app.policy import Effect, RetryConfig
from app.ports.hooks import HookDecision, HookPoint, HookSubject
from app.providers import ScriptedError, ScriptedStep
from tests.execution.fakes import HookSays, Recorder, Stall, StreamingProvider, call, let_others_run, make_tool, say
from tests.execution.support import Bench
from tests.execution.workers import AWAY, at_work, bench_for, until_ended, watched


async def test_a_drained_worker_claims_nothing_more() -> None:
    bench = bench_for([say("Hello.")])
    async with at_work(bench) as (worker, running):
        await let_others_run()
        worker.drain()
        await running
        run_id = await bench.submit()
        bench.feed.announce_queued()
        await let_others_run()
    assert bench.store.record(run_id).state is RunState.QUEUED


async def test_a_drain_abandons_a_model_call_and_hands_the_run_back_uncounted() -> None:
    stall = Stall()
    provider = StreamingProvider("Hello", stall=stall)
    bench = bench_for(provider)
    run_id = await bench.submit()
    async with at_work(bench) as (worker, running):
        await stall.reached.wait()
        worker.drain()
        await running
    record = bench.store.record(run_id)
    assert (record.state, record.recoveries, provider.closed) == (RunState.QUEUED, 0, 1)
    assert (bench.story(run_id).kinds[-1], bench.feed.queued_bells) == ("model_call", 1)


async def test_a_run_that_was_handed_back_goes_on_elsewhere() -> None:
    stall = Stall()
    bench = bench_for(StreamingProvider("Hello", stall=stall))
    run_id = await bench.submit()
    async with at_work(bench) as (worker, running):
        await stall.reached.wait()
        worker.drain()
        await running
    stall.go_on.set()
    async with at_work(bench):
        await until_ended(bench, run_id)
    resumed = bench.story(run_id).one(RunResumed)
    assert (resumed.reason, resumed.recoveries, bench.store.record(run_id).state) == (
        "handed_over",
        0,
        RunState.COMPLETED,
    )


async def test_a_running_tool_gets_the_drain_time_and_its_result_is_stored() -> None:
    stall, second = Stall(), Recorder()
    tools = [make_tool("pay", stall.as_tool), make_tool("look", second)]
    bench = bench_for([call("pay"), call("look")], tools=tools)
    run_id = await bench.submit()
    async with at_work(bench, drain_seconds=60) as (worker, running):
        await stall.reached.wait()
        worker.drain()
        await let_others_run()
        assert (running.done(), stall.was_cut) == (False, False)
        stall.go_on.set()
        await running
    assert (bench.story(run_id).kinds[-1], bench.store.record(run_id).state) == ("tool_result", RunState.QUEUED)
    assert second.calls == []


async def test_a_tool_that_takes_longer_than_the_drain_time_is_cut_and_its_run_handed_back() -> None:
    stall = Stall()
    bench = bench_for([call("pay")], tools=[make_tool("pay", stall.as_tool, effect=Effect.IDEMPOTENT)])
    run_id = await bench.submit()
    async with at_work(bench, drain_seconds=0) as (worker, running):
        await stall.reached.wait()
        worker.drain()
        await running
    assert (stall.was_cut, bench.store.record(run_id).state) == (True, RunState.QUEUED)
    assert (len(bench.story(run_id).all(ToolCalled)), watched(bench).released) == (1, [run_id])


async def test_leases_are_kept_until_the_last_tool_has_ended() -> None:
    stall = Stall()
    bench = bench_for([call("pay"), say("Done.")], tools=[make_tool("pay", stall.as_tool)])
    await bench.submit()
    async with at_work(bench, drain_seconds=60) as (worker, running):
        await stall.reached.wait()
        worker.drain()
        await let_others_run()
        bench.clock.advance(10)
        await let_others_run()
        assert watched(bench).renewals == 1
        stall.go_on.set()
        await running


async def test_a_run_whose_answer_stands_ends_here_also_in_a_drain() -> None:
    def drain(_: HookSubject) -> HookDecision:
        bench.drain.cancel()
        return HookDecision.proceed()

    bench = Bench([say("Hello.")], hooks=[HookSays(HookPoint.AFTER_MODEL_RESPONSE, says=drain)])
    assert (await bench.run()).record.state is RunState.COMPLETED


async def test_a_worker_that_is_cancelled_hands_its_runs_back() -> None:
    stall = Stall()
    bench = bench_for(StreamingProvider("Hello", stall=stall))
    run_id = await bench.submit()
    async with at_work(bench) as (_, running):
        await stall.reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert (stall.was_cut, bench.store.record(run_id).state) == (True, RunState.QUEUED)


async def test_a_run_that_was_claimed_as_the_drain_began_is_handed_back_as_it_stands() -> None:
    bench = bench_for([say("Hello.")])
    run_id = await bench.submit()
    async with at_work(bench) as (worker, running):
        watched(bench).on_claim = worker.drain
        await running
    assert (bench.store.record(run_id).state, bench.story(run_id).kinds) == (
        RunState.QUEUED,
        ["run_queued", "run_started"],
    )


async def test_a_drain_ends_a_backoff_and_hands_the_run_back() -> None:
    step = ScriptedStep(error=ScriptedError(status=503))
    bench = bench_for([step])
    run_id = await bench.submit(bench.agent(retry=RetryConfig(max_attempts=2)))
    async with at_work(bench) as (worker, running):
        await bench.clock.wait_for_sleepers(2)
        worker.drain()
        await running
    assert (bench.story(run_id).kinds[-1], bench.store.record(run_id).state) == ("attempt_failed", RunState.QUEUED)


async def test_a_run_that_can_not_be_handed_back_is_left_to_the_sweeper() -> None:
    stall = Stall()
    bench = bench_for(StreamingProvider("Hello", stall=stall))
    run_id = await bench.submit()
    async with at_work(bench) as (worker, running):
        await stall.reached.wait()
        watched(bench).release_fails = AWAY
        worker.drain()
        await running
    assert (bench.store.record(run_id).state, bench.feed.queued_bells) == (RunState.RUNNING, 0)
