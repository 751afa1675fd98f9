"""Failures that the specification wants told, or tried again, whatever they look like."""

import pytest

from app.errors import ProviderError, ToolExecutionError
from app.events import AttemptFailed, ToolCalled, WorkOrphaned
from app.policy import DeadlineConfig, Effect, RetryConfig
from app.ports.hooks import GuardrailDecision, HookPoint
from app.testing import FakeClock
from tests.execution.fakes import (
    GuardSays,
    HookStalls,
    Recorder,
    Stall,
    call,
    let_others_run,
    make_tool,
    say,
)
from tests.execution.support import Bench

THRICE = RetryConfig(max_attempts=3)


@pytest.mark.parametrize("error", [ValueError("x"), ToolExecutionError("x"), ProviderError("x", status=400)])
async def test_a_declared_tool_is_tried_again_whatever_it_raised(error: Exception) -> None:
    tool = Recorder(error)
    bench = Bench([call("pay"), say("Sorry.")], tools=[make_tool("pay", tool, effect=Effect.IDEMPOTENT)], retry=THRICE)
    await bench.run(bench.agent(idempotent_tools=("pay",)))
    assert len(tool.calls) == 3


async def test_a_declared_tool_that_timed_out_is_tried_again() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    tool = make_tool("pay", stall.as_tool, timeout_seconds=1, effect=Effect.IDEMPOTENT)
    bench = Bench([call("pay"), say("Sorry.")], tools=[tool], retry=THRICE, clock=clock)
    run = await bench.begin(bench.agent(idempotent_tools=("pay",)))
    await stall.reached.wait()
    await clock.wait_for_sleepers()
    clock.advance(1)
    await let_others_run()
    stall.go_on.set()
    await let_others_run()
    clock.advance(1)
    story = await run.end()
    assert len(story.all(ToolCalled)) == 2


@pytest.mark.parametrize("retry", [RetryConfig(), THRICE])
async def test_every_failed_attempt_of_a_tool_is_recorded_with_why_there_is_no_other(retry: RetryConfig) -> None:
    bench = Bench([call("pay"), say("Sorry.")], tools=[make_tool("pay", Recorder(ValueError("x")))], retry=retry)
    failed = (await bench.run()).one(AttemptFailed)
    assert (failed.subject, failed.delay_seconds, failed.reason != "") == ("tool", None, True)


class StubbornGuard(GuardSays, Stall):
    def __init__(self) -> None:
        GuardSays.__init__(self)
        Stall.__init__(self, stubborn=True)

    async def check_input(self, text: str) -> GuardrailDecision:
        await self.wait()
        return GuardrailDecision()


async def test_a_guardrails_check_that_does_not_stop_is_let_go_and_said_to_be() -> None:
    guard = StubbornGuard()
    bench = Bench([say("Hello.")], guardrails=[guard], deadlines=DeadlineConfig(grace_seconds=0.01))
    run = await bench.begin()
    await guard.reached.wait()
    story = await run.cancel()
    guard.go_on.set()
    await let_others_run()
    assert len(story.all(WorkOrphaned)) == 1


async def test_a_hook_that_does_not_stop_is_let_go_and_said_to_be() -> None:
    hook = HookStalls(HookPoint.BEFORE_MODEL_CALL)
    hook._stubborn = True
    bench = Bench([say("Hello.")], hooks=[hook], deadlines=DeadlineConfig(grace_seconds=0.01))
    run = await bench.begin()
    await hook.reached.wait()
    story = await run.cancel()
    hook.go_on.set()
    await let_others_run()
    assert len(story.all(WorkOrphaned)) == 1
