"""The end: hooks are told on every path, what they say is recorded, and ``terminated`` is last, once."""

import asyncio
from typing import NoReturn

import pytest

from app.conversation import UsageSource
from app.errors import ConfigurationError
from app.events import CompensationRequired, RunState, Terminated, Warned
from app.policy import DeadlineConfig
from app.ports.hooks import HookDecision, HookPoint, HookSubject
from app.testing import FakeClock
from tests.execution.fakes import HookSays, HookStalls, Recorder, Stall, StreamingProvider, call, make_tool, say
from tests.execution.support import Bench


def listener() -> HookSays:
    return HookSays(HookPoint.ON_TERMINAL, says=lambda _: HookDecision.proceed())


def fail(subject: HookSubject) -> HookDecision:
    raise RuntimeError("password=hunter2")


async def test_hooks_are_told_of_a_cancelled_run() -> None:
    hook, stall = listener(), Stall()
    run = await Bench(StreamingProvider("Hello", stall=stall), hooks=[hook]).begin()
    await stall.reached.wait()
    await run.cancel("enough")
    assert [(subject.state, subject.content) for subject in hook.asked] == [("cancelled", "enough")]


async def test_hooks_are_told_of_a_failed_run() -> None:
    hook = listener()
    await Bench([say("")], hooks=[hook]).run()
    assert [(subject.state, subject.content) for subject in hook.asked] == [
        ("failed", "the model answered with nothing")
    ]


async def test_hooks_of_the_deployment_are_told_of_a_run_that_met_a_defect() -> None:
    hook = listener()
    bench = Bench([say("Hello.")], deployment_hooks=[hook])
    bench.provider.tokenizer = raise_runtime_error  # type: ignore[method-assign]
    story = await bench.run()
    assert [subject.state for subject in hook.asked] == ["failed"]
    assert (story.record.error_code, story.kinds[-1]) == ("internal_error", "terminated")


async def test_hooks_are_told_after_everything_else_was_stored() -> None:
    bench = Bench([say("Hello.")], hooks=[listener()])
    await bench.run()
    assert bench.store.appends[-2:] == [("model_response",), ("terminated",)]


async def test_a_hook_that_raises_at_the_end_is_recorded_and_changes_nothing() -> None:
    story = await Bench([say("Hello.")], hooks=[HookSays(HookPoint.ON_TERMINAL, says=fail)]).run()
    assert (story.record.state, story.record.output_text) == (RunState.COMPLETED, "Hello.")
    assert (story.one(Warned).code, story.one(Warned).detail) == ("hook_failed", "policy: RuntimeError")


async def test_a_hook_that_forgets_to_answer_at_the_end_is_recorded_and_changes_nothing() -> None:
    hook = HookSays(HookPoint.ON_TERMINAL, says=lambda _: None)  # type: ignore[arg-type, return-value]
    story = await Bench([say("Hello.")], hooks=[hook]).run()
    assert (story.record.state, story.one(Warned).code) == (RunState.COMPLETED, "hook_failed")


async def test_one_hook_that_fails_does_not_keep_the_next_from_being_told() -> None:
    second = HookSays(HookPoint.ON_TERMINAL, name="second", says=lambda _: HookDecision.proceed())
    await Bench([say("Hello.")], hooks=[HookSays(HookPoint.ON_TERMINAL, says=fail), second]).run()
    assert len(second.asked) == 1


@pytest.mark.parametrize("deadlines", [DeadlineConfig(grace_seconds=2), DeadlineConfig(hook_seconds=2)])
async def test_a_hook_that_does_not_answer_at_the_end_holds_nothing_up(deadlines: DeadlineConfig) -> None:
    clock, hook = FakeClock(auto_advance=False), HookStalls(HookPoint.ON_TERMINAL)
    run = await Bench([say("Hello.")], hooks=[hook], clock=clock, deadlines=deadlines).begin()
    await hook.reached.wait()
    await clock.wait_for_sleepers()
    clock.advance(2)
    story = await run.end()
    assert (story.record.state, story.one(Warned).detail) == (
        RunState.COMPLETED,
        "policy: no answer within 2 seconds",
    )


async def test_a_cancel_while_the_hooks_are_told_comes_too_late() -> None:
    hook = HookStalls(HookPoint.ON_TERMINAL)
    run = await Bench([say("Hello.")], hooks=[hook], clock=FakeClock(auto_advance=False)).begin()
    await hook.reached.wait()
    hook.go_on.set()
    assert (await run.cancel()).record.state is RunState.COMPLETED


async def test_every_call_that_may_have_landed_is_named_once() -> None:
    bench = Bench([call("pay", n=1), call("pay", n=2)], tools=[make_tool("pay", Recorder())])
    story = await bench.run(bench.agent(max_iterations=2))
    assert [body.call_id for body in story.all(CompensationRequired)] == ["call_1_1", "call_2_1"]


async def test_a_declaration_that_this_process_does_not_have_fails_the_run_before_anything_starts() -> None:
    bench = Bench([say("Hello.")])
    story = await bench.run(bench.agent(hooks=("missing",)))
    assert story.kinds == ["run_queued", "run_started", "terminated"]
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "configuration_error")
    assert story.record.error_detail == "clerk declares the hook 'missing', which this process does not have"


async def test_a_defect_of_a_part_becomes_the_runs_state_and_its_words_are_not_told() -> None:
    bench = Bench([say("Hello.")])
    bench.provider.tokenizer = raise_runtime_error  # type: ignore[method-assign]
    story = await bench.run()
    assert (story.record.state, story.record.error_detail) == (RunState.FAILED, "RuntimeError")
    assert [type(error) for error in bench.sink.crashes] == [RuntimeError]
    assert "hunter2" not in "".join(event.payload for event in story.events)


async def test_a_defect_in_the_middle_names_what_may_have_landed() -> None:
    bench = Bench([call("pay"), say("Done.")], tools=[make_tool("pay", Recorder())])
    bench.sink.on_kind = lambda kind: setattr(bench.provider, "tokenizer", raise_runtime_error)
    story = await bench.run()
    assert story.one(CompensationRequired).name == "pay"


async def test_a_run_that_can_not_go_on_here_charges_the_model_call_that_its_last_worker_left() -> None:
    stall = Stall()
    bench = Bench(StreamingProvider("Hello", stall=stall))
    run = await bench.begin()
    await stall.reached.wait()
    run.driving.cancel()
    await asyncio.gather(run.driving, return_exceptions=True)
    await bench.lose_worker()
    bench.runtime.models.resolve = raise_configuration_error  # type: ignore[method-assign]
    await bench.drive(await bench.claim("worker-2"))
    story = bench.story(run.run_id)
    assert story.kinds[-2:] == ["run_resumed", "terminated"]
    assert (story.one(Terminated).code, story.record.usage.source) == ("configuration_error", UsageSource.HEURISTIC)
    assert story.record.usage.input_tokens > 0


def raise_runtime_error(model: str) -> NoReturn:
    raise RuntimeError("password=hunter2")


def raise_configuration_error(model: str | None) -> NoReturn:
    raise ConfigurationError("there is no such model")
