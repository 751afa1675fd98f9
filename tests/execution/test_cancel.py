"""Somebody asks for the end: at any place the run ends cancelled, with its record whole."""

import asyncio

import pytest

from app.conversation import UsageSource
from app.events import (
    AttemptFailed,
    CancellationRequested,
    CompensationRequired,
    RunState,
    Terminated,
    ToolFailed,
    ToolIndeterminate,
)
from app.policy import DeadlineConfig, Effect, RetryConfig
from app.ports.records import CancelWish
from app.providers import ScriptedCall, ScriptedError, ScriptedStep
from app.testing import FakeClock
from tests.execution.fakes import Recorder, Stall, StreamingProvider, call, calls, let_others_run, make_tool, say
from tests.execution.support import Bench


async def test_a_run_that_is_cancelled_while_queued_never_calls_the_model() -> None:
    bench = Bench([say("Hello.")])
    run_id = await bench.submit()
    await bench.store.request_cancel(run_id, CancelWish(reason="changed my mind", requested_by="ada"))
    await bench.drive(await bench.claim())
    story = bench.story(run_id)
    assert story.kinds == ["run_queued", "run_started", "cancellation_requested", "terminated"]
    assert (story.record.state, story.record.error_detail) == (RunState.CANCELLED, "changed my mind")


async def test_a_cancel_stops_the_stream_at_once() -> None:
    stall = Stall()
    provider = StreamingProvider("Hel", "lo", stall=stall)
    run = await Bench(provider).begin()
    await stall.reached.wait()
    await run.cancel("enough")
    assert (stall.was_cut, provider.closed) == (True, 1)


async def test_a_cancelled_model_call_is_charged_by_an_estimate() -> None:
    stall = Stall()
    run = await Bench(StreamingProvider("12345", "6789", stall=stall)).begin()
    await stall.reached.wait()
    story = await run.cancel("enough")
    charge, usage = story.one(AttemptFailed), story.record.usage
    assert story.kinds[-3:] == ["cancellation_requested", "attempt_failed", "terminated"]
    assert (charge.code, usage.output_tokens, usage.source) == ("cancelled", 3, UsageSource.HEURISTIC)
    assert usage.input_tokens > 0
    assert story.one(Terminated).usage == usage


async def test_the_wish_is_recorded_with_who_asked_and_why() -> None:
    stall = Stall()
    run = await Bench(StreamingProvider("Hello", stall=stall)).begin()
    await stall.reached.wait()
    story = await run.cancel("enough")
    wish = story.one(CancellationRequested)
    assert (wish.reason, wish.requested_by) == ("enough", "ada")
    assert (story.record.error_code, story.record.error_detail) == ("cancelled", "enough")


async def test_a_cancel_during_the_first_call_of_a_turn_stops_the_second() -> None:
    stall, second = Stall(), Recorder()
    tools = [make_tool("first", stall.as_tool, effect=Effect.READ), make_tool("second", second)]
    run = await Bench([calls(ScriptedCall(name="first"), ScriptedCall(name="second"))], tools=tools).begin()
    await stall.reached.wait()
    story = await run.cancel()
    assert (second.calls, story.kinds.count("tool_call")) == ([], 1)
    assert story.record.state is RunState.CANCELLED


async def test_a_cancel_that_comes_while_a_tool_ends_keeps_its_result_and_stops_the_next() -> None:
    stall, second = Stall(), Recorder()
    tools = [make_tool("first", stall.as_tool), make_tool("second", second)]
    run = await Bench([calls(ScriptedCall(name="first"), ScriptedCall(name="second"))], tools=tools).begin()
    await stall.reached.wait()
    stall.go_on.set()
    await asyncio.sleep(0)  # the work ends,
    await asyncio.sleep(0)  # and its drive is told, but has not run
    story = await run.cancel()
    assert story.kinds[-5:] == [
        "tool_call",
        "tool_result",
        "cancellation_requested",
        "compensation_required",
        "terminated",
    ]
    assert second.calls == []


async def test_a_once_tool_that_a_cancel_cut_off_is_indeterminate_and_may_need_compensation() -> None:
    stall = Stall()
    run = await Bench([call("pay")], tools=[make_tool("pay", stall.as_tool)]).begin()
    await stall.reached.wait()
    story = await run.cancel()
    assert story.one(ToolIndeterminate).call_id == "call_1_1"
    assert story.one(CompensationRequired).name == "pay"


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
async def test_a_harmless_tool_that_a_cancel_cut_off_is_safe_to_call_again(effect: Effect) -> None:
    stall = Stall()
    run = await Bench([call("look")], tools=[make_tool("look", stall.as_tool, effect=effect)]).begin()
    await stall.reached.wait()
    story = await run.cancel()
    assert story.one(ToolFailed).retry_safe
    assert story.all(CompensationRequired) == []


async def test_a_tool_sees_the_runs_token() -> None:
    recorder = Recorder()
    run = await Bench([call("look"), say("Done.")], tools=[make_tool("look", recorder)]).begin()
    await run.end()
    assert recorder.contexts[0].cancellation is run.lease.cancellation


async def test_a_tool_is_not_called_when_the_cancel_comes_between_its_event_and_the_call() -> None:
    recorder = Recorder()
    bench = Bench([call("pay")], tools=[make_tool("pay", recorder)])
    run_id = await bench.submit()
    lease = await bench.claim()
    bench.sink.on_kind = lambda kind: lease.cancellation.cancel() if kind == "tool_call" else None
    await bench.drive(lease)
    assert recorder.calls == []
    assert bench.story(run_id).record.state is RunState.CANCELLED


async def test_a_cancel_ends_a_backoff() -> None:
    clock = FakeClock(auto_advance=False)
    step = ScriptedStep(error=ScriptedError(status=503))
    run = await Bench([step], clock=clock, retry=RetryConfig(max_attempts=2)).begin()
    await clock.wait_for_sleepers()
    story = await run.cancel()
    assert story.kinds[-3:] == ["attempt_failed", "cancellation_requested", "terminated"]


async def test_a_cancel_that_comes_with_the_answer_comes_too_late() -> None:
    stall = Stall()
    run = await Bench(StreamingProvider("Hello", stall=stall)).begin()
    await stall.reached.wait()
    stall.go_on.set()
    await asyncio.sleep(0)  # the work ends,
    await asyncio.sleep(0)  # and its drive is told, but has not run
    story = await run.cancel()
    assert (story.record.state, story.record.output_text) == (RunState.COMPLETED, "Hello")
    assert story.all(CancellationRequested) == []


async def test_a_provider_that_does_not_stop_is_let_go_and_said_to_be() -> None:
    stall = Stall(stubborn=True)
    bench = Bench(StreamingProvider("Hello", stall=stall), deadlines=DeadlineConfig(grace_seconds=0.01))
    run = await bench.begin()
    await stall.reached.wait()
    story = await run.cancel()
    assert story.kinds[-4:] == ["cancellation_requested", "attempt_failed", "work_orphaned", "terminated"]
    assert len(bench.runtime.orphans) == 1
    stall.go_on.set()
    await let_others_run()
    assert len(bench.runtime.orphans) == 0


async def test_a_tool_that_does_not_stop_is_let_go_and_said_to_be() -> None:
    stall = Stall(stubborn=True)
    bench = Bench([call("pay")], tools=[make_tool("pay", stall.as_tool)], deadlines=DeadlineConfig(grace_seconds=0.01))
    run = await bench.begin()
    await stall.reached.wait()
    story = await run.cancel()
    assert story.kinds[-5:-1] == [
        "work_orphaned",
        "tool_indeterminate",
        "cancellation_requested",
        "compensation_required",
    ]
    stall.go_on.set()
    await let_others_run()
    assert len(bench.runtime.orphans) == 0


async def test_being_cancelled_from_outside_propagates_and_stops_the_work() -> None:
    stall = Stall()
    provider = StreamingProvider("Hello", stall=stall)
    run = await Bench(provider).begin()
    await stall.reached.wait()
    run.driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run.driving
    assert (provider.closed, run.bench.story(run.run_id).kinds[-1]) == (1, "model_call")
