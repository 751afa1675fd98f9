"""Time runs out: of the run, of a step, of a tool. The clock stands still until the test moves it."""

import pytest

from app.events import (
    AttemptFailed,
    BudgetRefused,
    CompensationRequired,
    DeadlineExceeded,
    RunState,
    ToolFailed,
    ToolIndeterminate,
)
from app.policy import BudgetLimits, DeadlineConfig, Effect, Indeterminate
from app.ports.hooks import HookPoint
from app.testing import FakeClock
from tests.execution.fakes import HookStalls, Recorder, Stall, StreamingProvider, call, make_tool, say
from tests.execution.support import Bench, Driven, Story

HARMLESS = [Effect.READ, Effect.IDEMPOTENT]


async def begin_stalled_model(stall: Stall, deadlines: DeadlineConfig | None = None, **fields: float) -> Driven:
    """A run whose model call does not end by itself."""
    clock = FakeClock(auto_advance=False)
    bench = Bench(StreamingProvider("Hello", stall=stall), clock=clock, deadlines=deadlines)
    in_seconds = fields.pop("deadline_in", None)
    deadline_at = None if in_seconds is None else clock.now() + in_seconds
    run = await bench.begin(deadline_at=deadline_at, budget=BudgetLimits(**fields))  # type: ignore[arg-type]
    await stall.reached.wait()
    return run


async def begin_stalled_tool(
    effect: Effect | None,
    *,
    timeout_seconds: float | None = None,
    deadlines: DeadlineConfig | None = None,
    deadline_in: float | None = None,
    **agent_fields: object,
) -> Driven:
    """A run whose tool does not end by itself."""
    clock, stall = FakeClock(auto_advance=False), Stall()
    tool = make_tool("pay", stall.as_tool, effect=effect, timeout_seconds=timeout_seconds)
    bench = Bench([call("pay"), say("Done.")], tools=[tool], clock=clock, deadlines=deadlines)
    deadline_at = None if deadline_in is None else clock.now() + deadline_in
    run = await bench.begin(bench.agent(**agent_fields), deadline_at=deadline_at)
    await stall.reached.wait()
    await clock.wait_for_sleepers()
    return run


async def after(run: Driven, seconds: float) -> Story:
    run.bench.clock.advance(seconds)
    return await run.end()


async def test_a_deadline_that_passed_in_the_queue_ends_the_run_before_the_model_is_called() -> None:
    bench = Bench([say("Hello.")])
    run_id = await bench.submit(deadline_at=bench.clock.now() + 5)
    bench.clock.advance(5)
    await bench.drive(await bench.claim())
    story = bench.story(run_id)
    assert story.kinds == ["run_queued", "run_started", "deadline_exceeded", "terminated"]
    assert (story.record.state, story.record.error_code) == (RunState.CANCELLED, "deadline_exceeded")


async def test_the_runs_deadline_cuts_a_model_call_and_charges_it() -> None:
    stall = Stall()
    run = await begin_stalled_model(stall, deadline_in=9)
    story = await after(run, 9)
    assert story.kinds[-3:] == ["deadline_exceeded", "attempt_failed", "terminated"]
    assert (story.one(DeadlineExceeded).what, stall.was_cut) == ("run", True)
    assert story.record.usage.output_tokens == 2


async def test_nothing_is_cut_a_moment_before_the_deadline() -> None:
    stall = Stall()
    run = await begin_stalled_model(stall, deadline_in=9)
    run.bench.clock.advance(8.9)
    stall.go_on.set()
    assert (await run.end()).record.state is RunState.COMPLETED


async def test_a_model_call_has_a_ceiling_of_its_own() -> None:
    run = await begin_stalled_model(Stall(), DeadlineConfig(model_call_seconds=3), deadline_in=9)
    story = await after(run, 3)
    assert (story.one(DeadlineExceeded).what, story.record.error_code) == ("model_call", "deadline_exceeded")
    assert (story.one(AttemptFailed).code, story.record.state) == ("deadline_exceeded", RunState.CANCELLED)


async def test_an_agents_deadlines_replace_the_deployments() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    bench = Bench(StreamingProvider("", stall=stall), clock=clock, deadlines=DeadlineConfig(model_call_seconds=3))
    run = await bench.begin(bench.agent(deadlines=DeadlineConfig(model_call_seconds=30)))
    await stall.reached.wait()
    clock.advance(29)
    stall.go_on.set()
    assert (await run.end()).all(DeadlineExceeded) == []


async def test_the_budgets_seconds_cut_a_model_call() -> None:
    run = await begin_stalled_model(Stall(), max_seconds=4)
    story = await after(run, 4)
    assert (story.record.state, story.one(BudgetRefused).dimension) == (RunState.BUDGET_EXHAUSTED, "max_seconds")


async def test_the_budgets_seconds_count_only_time_under_a_claim() -> None:
    bench = Bench([say("Hello.")])
    run_id = await bench.submit(budget=BudgetLimits(max_seconds=4))
    bench.clock.advance(100)
    await bench.drive(await bench.claim())
    assert bench.story(run_id).record.state is RunState.COMPLETED


async def test_the_runs_deadline_makes_a_once_call_indeterminate() -> None:
    run = await begin_stalled_tool(Effect.ONCE, deadline_in=9)
    story = await after(run, 9)
    assert story.kinds[-4:] == [
        "tool_indeterminate",
        "deadline_exceeded",
        "compensation_required",
        "terminated",
    ]
    assert story.record.error_code == "deadline_exceeded"


@pytest.mark.parametrize("effect", HARMLESS)
async def test_the_runs_deadline_leaves_a_harmless_call_safe_to_make_again(effect: Effect) -> None:
    run = await begin_stalled_tool(effect, deadline_in=9)
    story = await after(run, 9)
    assert (story.one(ToolFailed).retry_safe, story.all(ToolIndeterminate)) == (True, [])
    assert story.all(CompensationRequired) == []


async def test_a_tool_that_the_agent_declares_idempotent_is_safe_to_call_again() -> None:
    run = await begin_stalled_tool(None, deadline_in=9, idempotent_tools=("pay",))
    assert (await after(run, 9)).one(ToolFailed).retry_safe


async def test_the_deployments_ceiling_on_tools_cancels_the_run_and_leaves_the_call_indeterminate() -> None:
    run = await begin_stalled_tool(Effect.ONCE, deadlines=DeadlineConfig(tool_call_seconds=2))
    story = await after(run, 2)
    assert (story.record.state, story.one(DeadlineExceeded).what) == (RunState.CANCELLED, "tool_call")
    assert story.one(ToolIndeterminate).name == "pay"


async def test_the_ceiling_holds_where_a_tool_allows_itself_more() -> None:
    deadlines = DeadlineConfig(tool_call_seconds=2)
    run = await begin_stalled_tool(Effect.READ, timeout_seconds=60, deadlines=deadlines)
    story = await after(run, 2)
    assert (story.record.state, story.one(DeadlineExceeded).detail) == (
        RunState.CANCELLED,
        "the tool_call took longer than its 2 seconds",
    )


async def test_a_once_tool_past_its_own_timeout_is_indeterminate_and_fails_the_run() -> None:
    run = await begin_stalled_tool(Effect.ONCE, timeout_seconds=1)
    story = await after(run, 1)
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "tool_indeterminate")
    assert story.one(CompensationRequired).call_id == "call_1_1"


async def test_a_once_tool_past_its_own_timeout_is_told_to_the_model_where_the_agent_says_so() -> None:
    run = await begin_stalled_tool(Effect.ONCE, timeout_seconds=1, on_indeterminate=Indeterminate.SURFACE)
    story = await after(run, 1)
    assert story.record.state is RunState.COMPLETED
    assert story.one(ToolIndeterminate).content == (
        "The call timed out. The call was interrupted. Whether it took effect is unknown."
    )


@pytest.mark.parametrize("effect", HARMLESS)
async def test_a_harmless_tool_past_its_own_timeout_is_an_error_and_the_run_goes_on(effect: Effect) -> None:
    run = await begin_stalled_tool(effect, timeout_seconds=1)
    story = await after(run, 1)
    assert story.record.state is RunState.COMPLETED
    assert (story.one(ToolFailed).retry_safe, story.one(ToolFailed).fatal) == (True, False)


async def test_a_tool_is_told_the_runs_deadline() -> None:
    recorder = Recorder()
    bench = Bench(
        [call("look"), say("Done.")], tools=[make_tool("look", recorder)], clock=FakeClock(auto_advance=False)
    )
    await bench.run(deadline_at=bench.clock.now() + 60)
    deadline = recorder.contexts[0].deadline
    assert deadline is not None
    assert deadline.remaining(bench.clock.now()) == 60


@pytest.mark.parametrize("point", [point for point in HookPoint if point is not HookPoint.ON_TERMINAL])
async def test_a_hook_past_its_time_cancels_the_run(point: HookPoint) -> None:
    clock, hook = FakeClock(auto_advance=False), HookStalls(point)
    bench = Bench(
        [call("look"), say("Done.")],
        tools=[make_tool("look", Recorder(), effect=Effect.READ)],
        hooks=[hook],
        clock=clock,
        deadlines=DeadlineConfig(hook_seconds=2),
    )
    run = await bench.begin()
    await hook.reached.wait()
    await clock.wait_for_sleepers()
    story = await after(run, 2)
    assert (story.record.state, story.record.error_code) == (RunState.CANCELLED, "deadline_exceeded")
    assert story.one(DeadlineExceeded).what == "hook"
