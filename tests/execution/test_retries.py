"""A failed model call is tried again where its error, the agent and the time allow it."""

import asyncio
import random
from collections.abc import AsyncGenerator

import pytest

from app.conversation import UsageSource
from app.errors import ContextOverflowError, GuardrailRefusalError, ProviderError
from app.events import AttemptFailed, RunState
from app.policy import BudgetLimits, RetryConfig
from app.ports.model import ModelRequest, ModelResponse, TextDelta
from app.providers import ScriptedError, ScriptedStep
from app.testing import FakeClock
from tests.execution.fakes import WholeProvider
from tests.execution.support import Bench, Story

THRICE = RetryConfig(max_attempts=3)


def failing(times: int, **error: float | int | str) -> ScriptedStep:
    return ScriptedStep(text="Hello.", error=ScriptedError.model_validate({"attempts": times, "status": 503, **error}))


async def run_failing(*errors: BaseException, retry: RetryConfig = THRICE) -> Story:
    return await Bench(WholeProvider(*errors, ModelResponse(content="Hello.")), retry=retry).run()


async def test_nothing_is_tried_again_by_default() -> None:
    story = await run_failing(ProviderError("busy", status=503), retry=RetryConfig())
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "provider_error")
    assert story.one(AttemptFailed).reason == "attempt 1 of 1 was the last"


async def test_a_run_completes_when_the_last_attempt_gets_through() -> None:
    story = await Bench([failing(2)], retry=THRICE).run()
    assert (story.record.state, story.record.model_calls) == (RunState.COMPLETED, 3)
    assert story.kinds[3:8] == ["model_call", "attempt_failed", "model_call", "attempt_failed", "model_call"]
    assert {event.body.iteration for event in story.events[3:8]} == {1}


async def test_the_delays_are_full_jitter_from_the_injected_source() -> None:
    bench = Bench([failing(2)], retry=THRICE, seed=42)
    before = bench.clock.now()
    story = await bench.run()
    source = random.Random(42)
    expected = [source.uniform(0, 0.5), source.uniform(0, 1.0)]
    assert [failed.delay_seconds for failed in story.all(AttemptFailed)] == expected
    assert bench.clock.now() - before == pytest.approx(sum(expected))


async def test_a_provider_that_names_a_time_is_believed() -> None:
    bench = Bench([failing(1, retry_after_seconds=7)], retry=THRICE)
    before = bench.clock.now()
    assert (await bench.run()).one(AttemptFailed).delay_seconds == 7
    assert bench.clock.now() - before == 7


async def test_a_provider_that_asks_for_too_long_ends_the_run() -> None:
    story = await Bench([failing(1, retry_after_seconds=61)], retry=THRICE).run()
    assert (story.record.state, story.record.model_calls) == (RunState.FAILED, 1)


async def test_no_retry_is_taken_that_would_land_past_the_deadline() -> None:
    clock = FakeClock(auto_advance=False)
    bench = Bench([failing(1, retry_after_seconds=7)], retry=THRICE, clock=clock)
    story = await bench.run(deadline_at=clock.now() + 7)
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "provider_error")
    assert story.one(AttemptFailed).reason == "the backoff would land past the deadline"


async def test_an_answer_of_the_provider_is_no_fault_and_not_tried_again() -> None:
    story = await run_failing(ProviderError("no such model", status=404))
    assert (story.one(AttemptFailed).status, story.one(AttemptFailed).reason) == (404, "not retryable")


async def test_a_call_that_never_got_there_is_tried_again() -> None:
    assert (await run_failing(ProviderError("no route"))).record.state is RunState.COMPLETED


async def test_what_the_kit_did_not_raise_is_never_tried_again_and_its_text_not_told() -> None:
    story = await run_failing(RuntimeError("password=hunter2"))
    assert (story.record.error_code, story.record.error_detail) == ("provider_error", "RuntimeError")
    assert "hunter2" not in "".join(event.payload for event in story.events)


async def test_an_error_of_the_kit_that_is_a_decision_is_not_tried_again() -> None:
    story = await run_failing(GuardrailRefusalError("no"))
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "guardrail_refusal")


async def test_a_provider_that_cancels_itself_has_failed() -> None:
    story = await run_failing(asyncio.CancelledError())
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "provider_error")


class Silent(WholeProvider):
    """Streams some text and no response."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        yield TextDelta(text="Hel")


async def test_a_stream_that_ends_without_an_answer_is_a_fault() -> None:
    story = await Bench(Silent()).run()
    assert (story.one(AttemptFailed).code, story.one(AttemptFailed).status) == ("provider_error", 502)


async def test_a_failed_call_is_charged_by_an_estimate() -> None:
    story = await Bench([ScriptedStep(text="12345678", error=ScriptedError(status=400))]).run()
    usage = story.one(AttemptFailed).usage
    assert usage is not None
    assert (usage.output_tokens, usage.source) == (2, UsageSource.HEURISTIC)
    assert story.record.usage == usage


async def test_a_prompt_that_was_refused_before_evaluation_costs_nothing() -> None:
    story = await run_failing(ContextOverflowError(prompt_tokens=5000, window_tokens=4096))
    assert (story.record.error_code, story.record.usage.input_tokens) == ("context_overflow", 0)
    assert story.record.error_detail == "the prompt has 5000 tokens and the model's window holds 4096"


async def test_each_attempt_is_charged_against_the_budget() -> None:
    bench = Bench([failing(5)], retry=RetryConfig(max_attempts=5))
    story = await bench.run(budget=BudgetLimits(max_model_calls=2))
    assert (story.record.state, story.record.model_calls) == (RunState.BUDGET_EXHAUSTED, 2)


async def test_an_agents_retry_replaces_the_runners() -> None:
    bench = Bench([failing(1)], retry=RetryConfig())
    assert (await bench.run(bench.agent(retry=THRICE))).record.state is RunState.COMPLETED


async def test_a_run_that_is_taken_over_in_a_backoff_waits_only_the_rest() -> None:
    clock = FakeClock(auto_advance=False)
    bench = Bench([failing(1, retry_after_seconds=50)], retry=THRICE, clock=clock)
    run = await bench.begin()
    await clock.wait_for_sleepers()
    run.driving.cancel()
    await bench.lose_worker()
    clock.advance(19)
    driving = asyncio.create_task(bench.drive(await bench.claim("worker-2")))
    await clock.wait_for_sleepers()
    clock.advance(1)
    await driving
    assert bench.story(run.run_id).record.state is RunState.COMPLETED
