"""The library's door: ``AgentRunner.run`` returns a finished run, or says what was not wired."""

import asyncio
import random

import pytest

import app
from app.agents import Agent
from app.conversation import Message, Role
from app.errors import ConfigurationError
from app.events import AttemptFailed, RunState
from app.execution.runner import AgentRunner
from app.hooks import HookRegistry
from app.policy import BudgetLimits, Deadline, DeadlineConfig, RetryConfig
from app.ports.cancellation import CancellationToken
from app.ports.hooks import HookDecision, HookPoint
from app.providers import ScriptedError, ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import HookSays, Recorder, Stall, StreamingProvider, call, make_tool, say
from tests.execution.support import clerk


def playing(*steps: ScriptedStep, **fields: object) -> AgentRunner:
    provider = ScriptedProvider({"model": steps})
    return AgentRunner(provider=provider, clock=FakeClock(), ids=SequentialIds(), **fields)  # type: ignore[arg-type]


def tools_with(name: str, recorder: Recorder) -> ToolRegistry:
    registry = ToolRegistry()
    registry.register(make_tool(name, recorder))
    return registry


async def test_a_run_comes_back_finished_with_its_log() -> None:
    run = await playing(say("Hello.")).run(clerk(), "Hi", tenant="acme")
    assert (run.state, run.output, run.error_code) == (RunState.COMPLETED, "Hello.", None)
    assert [event.seq for event in run.events] == [1, 2, 3, 4, 5, 6]
    assert (run.run_id, run.prompt_version is None, run.usage.output_tokens) == (run.events[0].run_id, False, 2)


async def test_a_tool_is_called() -> None:
    pay = Recorder("receipt")
    runner = playing(call("pay", amount=3), say("Paid."), tools=tools_with("pay", pay))
    run = await runner.run(clerk(tools=("pay",)), "Pay.", tenant="acme", user="ada")
    assert (run.output, pay.calls, pay.contexts[0].user) == ("Paid.", [{"amount": 3}], "ada")


async def test_a_failure_is_a_state_and_no_exception() -> None:
    run = await playing(ScriptedStep(error=ScriptedError(status=400))).run(clerk(), "Hi", tenant="acme")
    assert (run.state, run.error_code, run.error_detail) == (RunState.FAILED, "provider_error", "scripted failure")


async def test_a_token_cancels_the_run() -> None:
    stall, token = Stall(), CancellationToken()
    runner = AgentRunner(provider=StreamingProvider("Hello", stall=stall))
    running = asyncio.create_task(runner.run(clerk(), "Hi", tenant="acme", cancellation=token))
    await stall.reached.wait()
    token.cancel("enough")
    run = await running
    assert (run.state, run.error_detail) == (RunState.CANCELLED, "enough")


async def test_a_token_that_was_tripped_before_keeps_the_model_from_being_called() -> None:
    provider, token = ScriptedProvider({"model": [say("Hello.")]}), CancellationToken()
    token.cancel()
    run = await AgentRunner(provider=provider).run(clerk(), "Hi", tenant="acme", cancellation=token)
    assert (run.state, len(provider.requests)) == (RunState.CANCELLED, 0)


async def test_a_deadline_cancels_the_run() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    runner = AgentRunner(provider=StreamingProvider("Hello", stall=stall), clock=clock)
    deadline = Deadline.in_seconds(60, now=clock.now())
    running = asyncio.create_task(runner.run(clerk(), "Hi", tenant="acme", deadline=deadline))
    await stall.reached.wait()
    clock.advance(60)
    assert (await running).error_code == "deadline_exceeded"


async def test_a_deadline_only_narrows_the_runners_ceiling() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    provider = StreamingProvider("Hello", stall=stall)
    runner = AgentRunner(provider=provider, clock=clock, deadlines=DeadlineConfig(run_seconds=30))
    deadline = Deadline.in_seconds(60, now=clock.now())
    running = asyncio.create_task(runner.run(clerk(), "Hi", tenant="acme", deadline=deadline))
    await stall.reached.wait()
    clock.advance(30)
    assert (await running).error_code == "deadline_exceeded"


async def test_being_cancelled_from_outside_propagates() -> None:
    stall = Stall()
    provider = StreamingProvider("Hello", stall=stall)
    running = asyncio.create_task(AgentRunner(provider=provider).run(clerk(), "Hi", tenant="acme"))
    await stall.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (stall.was_cut, provider.closed) == (True, 1)


async def test_history_and_context_reach_the_model_in_their_layers() -> None:
    provider = ScriptedProvider({"model": [say("Hello.")]})
    history = [Message(role=Role.USER, content="before"), Message(role=Role.ASSISTANT, content="yes")]
    await AgentRunner(provider=provider).run(
        clerk(), "now", tenant="acme", history=history, pinned=["case"], retrieved=["found"]
    )
    sent = [message.content for message in provider.requests[0].messages]
    assert sent[0] == "Help."
    assert ("case" in sent[1], "found" in sent[2], sent[3:]) == (True, True, ["before", "yes", "now"])


async def test_the_conservative_budget_holds_where_none_is_given() -> None:
    runner = playing(*[call("pay", n=n) for n in range(50)], tools=tools_with("pay", Recorder()))
    run = await runner.run(clerk(tools=("pay",), max_iterations=100), "Pay.", tenant="acme")
    assert (run.state, run.error_detail) == (
        RunState.BUDGET_EXHAUSTED,
        "max_iterations: 10 used, 1 asked for, 10 allowed",
    )


async def test_an_agent_can_not_widen_the_runners_budget() -> None:
    runner = playing(
        call("pay"), call("pay"), budget=BudgetLimits(max_model_calls=1), tools=tools_with("pay", Recorder())
    )
    agent = clerk(tools=("pay",), budget=BudgetLimits(max_model_calls=9))
    assert (await runner.run(agent, "Pay.", tenant="acme")).state is RunState.BUDGET_EXHAUSTED


async def test_jitter_comes_from_the_injected_source() -> None:
    step = ScriptedStep(text="Hello.", error=ScriptedError(status=503, attempts=1))
    runner = playing(step, retry=RetryConfig(max_attempts=2), new_random=lambda: random.Random(1))
    run = await runner.run(clerk(), "Hi", tenant="acme")
    delays = [event.body.delay_seconds for event in run.events if isinstance(event.body, AttemptFailed)]
    assert delays == [random.Random(1).uniform(0, 0.5)]


async def test_two_runs_of_one_runner_know_nothing_of_each_other() -> None:
    runner = playing(say("Hello."))
    first, second = await asyncio.gather(*[runner.run(clerk(), "Hi", tenant="acme") for _ in range(2)])
    assert first.run_id != second.run_id
    assert [event.kind for event in first.events] == [event.kind for event in second.events]


UNWIRED = [
    clerk(tools=("pay",)),
    clerk(hooks=("policy",)),
    clerk(guardrails=("guard",)),
    clerk(model="other:model"),
]


@pytest.mark.parametrize("agent", UNWIRED)
async def test_what_the_agent_declares_and_the_runner_was_not_given_is_refused_before_anything_starts(
    agent: Agent,
) -> None:
    provider = ScriptedProvider({"model": [say("Hello.")]})
    hooks, told = HookRegistry(), HookSays(*HookPoint, name="told", says=lambda _: HookDecision.proceed())
    hooks.add_deployment_hook("told", told)
    with pytest.raises(ConfigurationError):
        await AgentRunner(provider=provider, hooks=hooks).run(agent, "Hi", tenant="acme")
    assert (len(provider.requests), told.asked) == (0, [])


@pytest.mark.parametrize("input", ["", "  \n"])
async def test_an_input_that_says_nothing_is_refused(input: str) -> None:
    with pytest.raises(ConfigurationError):
        await playing(say("Hello.")).run(clerk(), input, tenant="acme")


@pytest.mark.parametrize("history", [[], [Message(role=Role.USER, content="before")]])
async def test_a_lone_surrogate_in_an_input_reaches_no_log(history: list[Message]) -> None:
    run = await playing(say("Hello.")).run(clerk(), "a\ud83db", tenant="acme", history=history)
    assert run.state is RunState.COMPLETED


def test_a_runner_needs_a_provider_or_several_models() -> None:
    with pytest.raises(ConfigurationError):
        AgentRunner()


async def test_a_provider_without_a_model_is_a_mistake_of_the_deployment() -> None:
    with pytest.raises(ConfigurationError):
        await AgentRunner(provider=ScriptedProvider({})).run(clerk(), "Hi", tenant="acme")


def test_the_runner_is_importable_from_the_package() -> None:
    assert app.AgentRunner is AgentRunner
