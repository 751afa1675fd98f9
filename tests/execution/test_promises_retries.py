"""Whose retries hold, where jitter comes from, and what failed attempts cost."""

import random
from typing import Any

from app import Run
from app.conversation import Usage
from app.events import AttemptFailed, ModelCall, ModelResponded, RunState
from app.execution.runner import AgentRunner
from app.policy import RetryConfig
from app.providers import ScriptedError, ScriptedProvider, ScriptedStep
from app.testing import FakeClock
from tests.execution.fakes import Recorder, call, make_tool
from tests.execution.support import Bench, clerk

FAILS_ONCE = ScriptedStep(text="Hello.", error=ScriptedError(status=503, attempts=1))


def delays_of(run: Run[Any]) -> list[float | None]:
    return [event.body.delay_seconds for event in run.events if isinstance(event.body, AttemptFailed)]


async def test_each_run_draws_its_delays_from_a_source_of_its_own() -> None:
    runner = AgentRunner(
        provider=ScriptedProvider({"model": [FAILS_ONCE]}),
        clock=FakeClock(),
        retry=RetryConfig(max_attempts=2),
        new_random=lambda: random.Random(1),
    )
    first = await runner.run(clerk(), "Hi", tenant="acme")
    second = await runner.run(clerk(), "Hi", tenant="acme")
    assert delays_of(first) == delays_of(second) == [random.Random(1).uniform(0, 0.5)]


async def test_an_agent_that_wants_no_retry_replaces_a_runner_that_does() -> None:
    bench = Bench([FAILS_ONCE], retry=RetryConfig(max_attempts=3))
    story = await bench.run(bench.agent(retry=RetryConfig()))
    assert (story.record.state, story.record.model_calls) == (RunState.FAILED, 1)


async def test_a_failed_call_is_charged_the_prompt_that_it_was_sent() -> None:
    story = await Bench([ScriptedStep(error=ScriptedError(status=400))]).run()
    usage = story.one(AttemptFailed).usage
    assert usage is not None
    assert usage.input_tokens == story.one(ModelCall).estimated_input_tokens > 0


async def test_the_usage_of_the_events_adds_up_to_the_runs() -> None:
    script = [
        call("look").model_copy(update={"usage": Usage(input_tokens=10, cached_tokens=4, output_tokens=5)}),
        FAILS_ONCE,
    ]
    bench = Bench(script, tools=[make_tool("look", Recorder())], retry=RetryConfig(max_attempts=2))
    story = await bench.run()
    answered = [body.usage for body in story.all(ModelResponded)]
    failed = story.one(AttemptFailed).usage
    assert failed is not None
    assert len(answered) == 2
    assert sum(answered, start=failed) == story.record.usage
