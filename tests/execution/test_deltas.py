"""Text as it is generated: shown at once, unless something may still change or refuse it."""

import pytest

from app.policy import RetryConfig
from app.ports.hooks import HookDecision, HookPoint
from app.providers import ScriptedError, ScriptedStep
from tests.execution.fakes import GuardSays, HookSays, Stall, StreamingProvider, say
from tests.execution.support import Bench

HOLDING = [HookPoint.AFTER_MODEL_RESPONSE, HookPoint.BEFORE_OUTPUT_VALIDATION]
SHOWING = [point for point in HookPoint if point not in HOLDING]


def hook_at(point: HookPoint) -> HookSays:
    return HookSays(point, says=lambda _: HookDecision.proceed())


async def test_text_is_announced_piece_by_piece() -> None:
    bench = Bench([say("Hello there", delta_chars=4)])
    await bench.run()
    assert (bench.feed.texts, bench.feed.attempts) == (["Hell", "o th", "ere"], [(1, 1)])


async def test_text_is_announced_while_the_model_still_writes() -> None:
    stall = Stall()
    run = await Bench(StreamingProvider("Hel", "lo", stall=stall)).begin()
    await stall.reached.wait()
    assert run.bench.feed.texts == ["Hel", "lo"]
    stall.go_on.set()
    await run.end()


async def test_each_attempt_is_announced_before_its_text() -> None:
    step = ScriptedStep(text="Hello.", error=ScriptedError(status=503, attempts=1))
    bench = Bench([step], retry=RetryConfig(max_attempts=2))
    await bench.run()
    assert (bench.feed.attempts, bench.feed.texts) == ([(1, 1), (1, 2)], ["Hello."])


@pytest.mark.parametrize("point", HOLDING)
async def test_text_is_held_back_while_a_hook_may_change_it(point: HookPoint) -> None:
    bench = Bench([say("Hello.")], hooks=[hook_at(point)])
    await bench.run()
    assert bench.feed.texts == []


@pytest.mark.parametrize("point", SHOWING)
async def test_text_is_shown_where_hooks_only_look_elsewhere(point: HookPoint) -> None:
    bench = Bench([say("Hello.")], hooks=[hook_at(point)])
    await bench.run()
    assert bench.feed.texts == ["Hello."]


async def test_text_is_held_back_for_a_hook_of_the_deployment_too() -> None:
    bench = Bench([say("Hello.")], deployment_hooks=[hook_at(HookPoint.AFTER_MODEL_RESPONSE)])
    await bench.run()
    assert bench.feed.texts == []


async def test_text_is_held_back_while_a_guardrail_may_refuse_it() -> None:
    bench = Bench([say("Hello.")], guardrails=[GuardSays()])
    await bench.run()
    assert bench.feed.texts == []


async def test_a_lone_surrogate_is_announced_as_u_fffd() -> None:
    bench = Bench([say("a\ud83db")])
    story = await bench.run()
    assert (bench.feed.texts, story.record.output_text) == (["a\ufffdb"], "a\ufffdb")
