"""A later claim goes on from the log: there is no code for it but the loop's own."""

import asyncio

import pytest

from app.conversation import UsageSource
from app.errors import LeaseLost
from app.events import ModelCall, RunResumed, RunStarted, RunState, ToolCalled, ToolFailed, ToolIndeterminate
from app.policy import Effect, Indeterminate
from app.ports.hooks import HookDecision, HookPoint
from app.testing import FakeClock
from tests.execution.fakes import HookSays, Recorder, Stall, StreamingProvider, call, make_tool, say
from tests.execution.support import Bench, Driven, Story


async def take_over(run: Driven) -> Story:
    """The process dies, and another one takes the run."""
    run.driving.cancel()
    await asyncio.gather(run.driving, return_exceptions=True)
    await run.bench.lose_worker()
    await run.bench.drive(await run.bench.claim("worker-2"))
    return run.bench.story(run.run_id)


async def lose_in_tool(effect: Effect | None, **agent_fields: object) -> tuple[Stall, Story]:
    stall = Stall()
    bench = Bench([call("pay", amount=3), say("Done.")], tools=[make_tool("pay", stall.as_tool, effect=effect)])
    run = await bench.begin(bench.agent(**agent_fields))
    await stall.reached.wait()
    stall.go_on.set()
    return stall, await take_over(run)


async def test_the_claim_that_takes_over_says_so_with_its_fence() -> None:
    _, story = await lose_in_tool(Effect.READ)
    resumed = story.one(RunResumed)
    assert (resumed.reason, resumed.recoveries, resumed.worker_id, resumed.fence) == ("recovered", 1, "worker-2", 2)
    assert len(story.all(RunStarted)) == 1


async def test_an_abandoned_model_call_is_charged_by_its_estimate_and_made_again() -> None:
    stall = Stall()
    run = await Bench(StreamingProvider("Hello", stall=stall)).begin()
    await stall.reached.wait()
    stall.go_on.set()
    story = await take_over(run)
    first, second = story.all(ModelCall)
    assert (first.attempt, second.attempt, story.record.state) == (1, 2, RunState.COMPLETED)
    assert (story.record.usage.input_tokens, story.record.usage.source) == (
        first.estimated_input_tokens,
        UsageSource.HEURISTIC,
    )


@pytest.mark.parametrize("effect", [Effect.READ, Effect.IDEMPOTENT])
async def test_a_harmless_call_without_an_outcome_is_dispatched_again(effect: Effect) -> None:
    _, story = await lose_in_tool(effect)
    assert [(called.call_id, called.dispatch) for called in story.all(ToolCalled)] == [("call_1_1", 1), ("call_1_1", 2)]
    assert story.record.state is RunState.COMPLETED


async def test_a_call_that_the_agent_declares_idempotent_is_dispatched_again() -> None:
    _, story = await lose_in_tool(None, idempotent_tools=("pay",))
    assert [called.dispatch for called in story.all(ToolCalled)] == [1, 2]


async def test_a_once_call_without_an_outcome_is_never_dispatched_again_and_fails_the_run() -> None:
    _, story = await lose_in_tool(Effect.ONCE)
    assert len(story.all(ToolCalled)) == 1
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "tool_indeterminate")
    assert story.kinds[-3:] == ["tool_indeterminate", "compensation_required", "terminated"]


async def test_a_once_call_without_an_outcome_is_told_to_the_model_where_the_agent_says_so() -> None:
    _, story = await lose_in_tool(Effect.ONCE, on_indeterminate=Indeterminate.SURFACE)
    assert (len(story.all(ToolCalled)), story.record.state) == (1, RunState.COMPLETED)
    assert story.one(ToolIndeterminate).content == "The call was interrupted. Whether it took effect is unknown."


async def test_hooks_are_not_asked_again_about_a_turn_that_was_cleared() -> None:
    stall = Stall()
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: HookDecision.rewrite('{"amount": 1}'))
    bench = Bench(
        [call("pay", amount=3), say("Done.")],
        tools=[make_tool("pay", stall.as_tool, effect=Effect.IDEMPOTENT)],
        hooks=[hook],
    )
    run = await bench.begin()
    await stall.reached.wait()
    stall.go_on.set()
    story = await take_over(run)
    assert len(hook.asked) == 1
    assert [called.arguments for called in story.all(ToolCalled)] == [{"amount": 1}, {"amount": 1}]


async def test_a_rewritten_input_stays_rewritten_for_the_next_claim() -> None:
    stall = Stall()
    hook = HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=lambda _: HookDecision.rewrite("Card ****"))
    run = await Bench(StreamingProvider("Hello", stall=stall), hooks=[hook]).begin(input="Card 4111")
    await stall.reached.wait()
    stall.go_on.set()
    await take_over(run)
    sent = [request.messages[-1].content for request in run.bench.provider.requests]  # type: ignore[attr-defined]
    assert (sent, len(hook.asked)) == (["Card ****", "Card ****"], 1)


async def test_a_cancel_ends_a_run_whose_worker_was_lost_in_a_call() -> None:
    stall = Stall()
    bench = Bench([call("pay")], tools=[make_tool("pay", stall.as_tool)])
    run = await bench.begin()
    await stall.reached.wait()
    run.driving.cancel()
    await asyncio.gather(run.driving, return_exceptions=True)
    await bench.lose_worker()
    lease = await bench.claim("worker-2")
    lease.cancellation.cancel()
    await bench.drive(lease)
    story = bench.story(run.run_id)
    assert (story.record.state, story.all(ToolFailed)) == (RunState.CANCELLED, [])
    assert story.kinds[-2:] == ["compensation_required", "terminated"]


async def test_a_call_is_not_made_by_a_worker_whose_lease_may_have_ended() -> None:
    clock, tool = FakeClock(), Recorder()
    bench = Bench([call("pay")], tools=[make_tool("pay", tool)], clock=clock)
    run_id = await bench.submit()
    lease = await bench.claim()
    bench.sink.on_kind = lambda kind: clock.advance(29.5) if kind == "tool_call" else None
    with pytest.raises(LeaseLost):
        await bench.drive(lease)
    assert (tool.calls, bench.story(run_id).kinds[-1]) == ([], "tool_call")


@pytest.mark.parametrize("place", ["model", "tool"])
async def test_work_stops_and_nothing_is_written_when_the_lease_is_lost(place: str) -> None:
    stall = Stall()
    bench = {
        "model": Bench(StreamingProvider("Hello", stall=stall)),
        "tool": Bench([call("pay")], tools=[make_tool("pay", stall.as_tool)]),
    }[place]
    run = await bench.begin()
    await stall.reached.wait()
    stored = bench.story(run.run_id).kinds
    run.lease.lost.cancel()
    with pytest.raises(LeaseLost):
        await run.driving
    assert (stall.was_cut, bench.story(run.run_id).kinds) == (True, stored)


async def test_a_worker_that_wakes_after_another_took_the_run_writes_nothing() -> None:
    stall = Stall()
    run = await Bench(StreamingProvider("Hello", stall=stall)).begin()
    await stall.reached.wait()
    await run.bench.lose_worker()
    await run.bench.claim("worker-2")
    stored = run.bench.story(run.run_id).kinds
    stall.go_on.set()
    with pytest.raises(LeaseLost):
        await run.driving
    assert run.bench.story(run.run_id).kinds == stored
