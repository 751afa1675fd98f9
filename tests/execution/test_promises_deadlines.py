"""What a cancel and a deadline cut off, and what nobody bounds."""

import asyncio

import pytest

from app.errors import CancelledError, DeadlineExceededError
from app.events import RunState
from app.execution.race import Cut, CutOff, Orphans, Racetrack
from app.execution.runner import AgentRunner
from app.policy import DeadlineConfig
from app.ports.cancellation import CancellationToken
from app.ports.hooks import GuardrailDecision
from app.providers import ScriptedProvider
from app.testing import FakeClock
from app.tools import ToolRegistry
from tests.execution.fakes import (
    GuardSays,
    Stall,
    StreamingProvider,
    WholeProvider,
    call,
    let_others_run,
    make_tool,
    say,
)
from tests.execution.support import Bench, clerk

A_DAY = 86_400.0


async def test_a_model_call_that_nobody_bounded_may_take_a_day() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    runner = AgentRunner(provider=StreamingProvider("Hello", stall=stall), clock=clock)
    running = asyncio.create_task(runner.run(clerk(), "Hi", tenant="acme"))
    await stall.reached.wait()
    clock.advance(A_DAY)
    await let_others_run()
    stall.go_on.set()
    assert (await running).state is RunState.COMPLETED


async def test_a_tool_call_that_nobody_bounded_may_take_a_day() -> None:
    clock, stall, registry = FakeClock(auto_advance=False), Stall(), ToolRegistry()
    registry.register(make_tool("look", stall.as_tool))
    provider = ScriptedProvider({"model": [call("look"), say("Done.")]})
    runner = AgentRunner(provider=provider, tools=registry, clock=clock)
    running = asyncio.create_task(runner.run(clerk(tools=("look",)), "Hi", tenant="acme"))
    await stall.reached.wait()
    clock.advance(A_DAY)
    await let_others_run()
    stall.go_on.set()
    assert (await running).state is RunState.COMPLETED


async def test_an_agents_deadlines_replace_the_runners_and_are_not_mixed_with_them() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    strict = DeadlineConfig(run_seconds=30, model_call_seconds=3)
    runner = AgentRunner(provider=StreamingProvider("Hello", stall=stall), clock=clock, deadlines=strict)
    agent = clerk(deadlines=DeadlineConfig(tool_call_seconds=9))
    running = asyncio.create_task(runner.run(agent, "Hi", tenant="acme"))
    await stall.reached.wait()
    clock.advance(A_DAY)
    await let_others_run()
    stall.go_on.set()
    assert (await running).state is RunState.COMPLETED


class InputStalls(Stall):
    """A guardrail that does not answer about the input."""

    name = "guard"

    async def check_input(self, text: str) -> GuardrailDecision:
        await self.wait()
        return GuardrailDecision()

    async def check_output(self, text: str) -> GuardrailDecision:
        return GuardrailDecision()


class OutputStalls(GuardSays, Stall):
    """A guardrail that does not answer about the output."""

    def __init__(self) -> None:
        GuardSays.__init__(self)
        Stall.__init__(self)

    async def check_output(self, text: str) -> GuardrailDecision:
        await self.wait()
        return GuardrailDecision()


@pytest.mark.parametrize("guard_class", [InputStalls, OutputStalls])
async def test_a_cancel_ends_a_guardrails_check(guard_class: type[InputStalls | OutputStalls]) -> None:
    guard = guard_class()
    run = await Bench([say("Hello.")], guardrails=[guard], clock=FakeClock(auto_advance=False)).begin()
    await guard.reached.wait()
    story = await run.cancel("enough")
    assert (story.record.state, story.record.error_detail) == (RunState.CANCELLED, "enough")
    assert guard.was_cut


@pytest.mark.parametrize("guard_class", [InputStalls, OutputStalls])
async def test_the_runs_deadline_ends_a_guardrails_check(guard_class: type[InputStalls | OutputStalls]) -> None:
    guard, clock = guard_class(), FakeClock(auto_advance=False)
    run = await Bench([say("Hello.")], guardrails=[guard], clock=clock).begin(deadline_at=clock.now() + 9)
    await guard.reached.wait()
    await clock.wait_for_sleepers()
    clock.advance(9)
    story = await run.end()
    assert (story.record.state, story.record.error_code) == (RunState.CANCELLED, "deadline_exceeded")
    assert guard.was_cut


async def test_work_that_unwinds_within_its_grace_is_waited_for_and_not_let_go() -> None:
    token, orphans, unwound = CancellationToken(), Orphans(), asyncio.Event()

    async def unwind() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await let_others_run()
            unwound.set()

    track = Racetrack(clock=FakeClock(), orphans=orphans, grace_seconds=60, tokens=[(Cut.CANCEL, token)])
    racing = asyncio.create_task(track.race(unwind(), []))
    await let_others_run()
    token.cancel()
    assert await racing == CutOff(cut=Cut.CANCEL, orphaned=False)
    assert (unwound.is_set(), len(orphans)) == (True, 0)


@pytest.mark.parametrize("error", [CancelledError("gone"), DeadlineExceededError("too late")])
async def test_the_kits_cancelled_error_from_a_provider_cancels_the_run(error: CancelledError) -> None:
    story = await Bench(WholeProvider(error)).run()
    assert (story.record.state, story.record.error_code) == (RunState.CANCELLED, error.code)
