"""A run without ceilings is something that somebody has to want, and the run says so."""

from typing import Any

import pytest

from app import AgentRunner, BudgetLimits, LoopConfig, Run, RunState, UnlimitedBudget
from app.agents import Agent
from app.events import BudgetRefused, Warned
from app.policy import Effect
from app.ports.model import ModelRequest
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import Recorder, call, calls, make_tool, say
from tests.execution.support import clerk

WHY = "a nightly batch that its own clock ends"


def looks(times: int) -> ScriptedProvider:
    return ScriptedProvider({"model": [*[call("look", at=at) for at in range(times)], say("Done.")]})


def runner_of(provider: ScriptedProvider, **fields: Any) -> AgentRunner:
    registry = ToolRegistry()
    registry.register(make_tool("look", Recorder("seen"), effect=Effect.READ))
    return AgentRunner(
        provider=provider, tools=registry, clock=FakeClock(), ids=SequentialIds(), **{"budget": None, **fields}
    )


async def run_unlimited(provider: ScriptedProvider, agent: Agent | None = None, **fields: Any) -> Run[Any]:
    chosen = agent or clerk(tools=("look",), max_iterations=1000)
    runner = runner_of(provider, budget=UnlimitedBudget(WHY))
    return await runner.run(chosen, "Go.", tenant="acme", **fields)


def warnings_of(run: Run[Any]) -> list[tuple[str, str]]:
    return [(event.body.code, event.body.detail) for event in run.events if isinstance(event.body, Warned)]


def sources_of(run: Run[Any]) -> list[str | None]:
    return [event.body.source for event in run.events if isinstance(event.body, BudgetRefused)]


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_budget_without_ceilings_needs_a_reason(reason: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        UnlimitedBudget(reason)


async def test_the_run_carries_the_reason_as_one_warning() -> None:
    assert warnings_of(await run_unlimited(looks(1))) == [("unlimited_budget", WHY)]


async def test_the_warning_stands_before_the_first_model_call() -> None:
    kinds = [event.kind for event in (await run_unlimited(looks(1))).events]
    assert kinds.index("warning") < kinds.index("model_call")


async def test_a_run_with_ceilings_has_nothing_to_warn_of() -> None:
    run = await runner_of(looks(1)).run(clerk(tools=("look",)), "Go.", tenant="acme")
    assert warnings_of(run) == []


async def test_nothing_of_the_conservative_budget_holds() -> None:
    run = await run_unlimited(looks(45))
    assert (run.state, run.tool_calls, run.model_calls) == (RunState.COMPLETED, 45, 46)


async def test_a_turn_may_be_as_wide_as_it_likes() -> None:
    wide = calls(*[ScriptedCall(name="look", arguments={"at": at}) for at in range(12)])
    run = await run_unlimited(ScriptedProvider({"model": [wide, say("Done.")]}))
    assert (run.state, run.tool_calls) == (RunState.COMPLETED, 12)


async def test_the_agents_own_budget_still_holds() -> None:
    agent = clerk(tools=("look",), budget=BudgetLimits(max_model_calls=2))
    run = await run_unlimited(looks(5), agent)
    assert (run.state, run.cap, sources_of(run)) == (RunState.BUDGET_EXHAUSTED, "max_model_calls", ["agent"])


async def test_the_budget_of_one_call_of_run_still_holds() -> None:
    run = await run_unlimited(looks(5), budget=BudgetLimits(max_model_calls=2))
    assert (run.state, sources_of(run)) == (RunState.BUDGET_EXHAUSTED, ["request"])


async def test_the_agents_iterations_still_hold() -> None:
    run = await run_unlimited(looks(5), clerk(tools=("look",), max_iterations=2))
    assert run.state is RunState.MAX_ITERATIONS_EXCEEDED


async def test_a_run_that_goes_round_still_ends() -> None:
    agent = clerk(tools=("look",), max_iterations=100, loop=LoopConfig(max_repeated_calls=2))
    run = await run_unlimited(ScriptedProvider({"model": [call("look", at=1)] * 5}), agent)
    assert run.error_code == "repeated_call"


async def test_a_child_of_a_run_without_ceilings_has_none_either() -> None:
    children: list[Run[Any]] = []

    async def ask(arguments: dict[str, Any], context: ToolContext) -> str:
        children.append(await runner.run(clerk(), "Go.", tenant="acme", parent=context.run))
        return "asked"

    def play(request: ModelRequest) -> ScriptedStep:
        asked = sum(message.name == "ask" for message in request.messages)
        return say("Done.") if not request.tools or asked == 10 else call("ask", at=asked)

    registry = ToolRegistry()
    registry.register(make_tool("ask", ask, effect=Effect.READ))
    runner = AgentRunner(
        provider=ScriptedProvider({"model": play}), tools=registry, budget=UnlimitedBudget(WHY), clock=FakeClock()
    )
    run = await runner.run(clerk(tools=("ask",), max_iterations=100), "Go.", tenant="acme")
    assert run.state is RunState.COMPLETED
    assert [child.state for child in children] == [RunState.COMPLETED] * 10


# --- model calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, -1])
async def test_a_number_of_model_calls_that_is_none_switches_the_cap_off_and_the_run_says_so(number: int) -> None:
    run = await runner_of(looks(3)).run(clerk(tools=("look",), max_llm_calls=number), "Go.", tenant="acme")
    assert (run.state, run.model_calls, len(warnings_of(run))) == (RunState.COMPLETED, 4, 1)


async def test_without_that_cap_the_budget_still_holds() -> None:
    runner = runner_of(looks(3), budget=BudgetLimits(max_model_calls=2))
    run = await runner.run(clerk(tools=("look",), max_llm_calls=0), "Go.", tenant="acme")
    assert (run.state, run.cap) == (RunState.BUDGET_EXHAUSTED, "max_model_calls")


async def test_that_cap_holds_in_a_run_without_ceilings() -> None:
    run = await run_unlimited(looks(5), clerk(tools=("look",), max_iterations=100, max_llm_calls=2))
    assert (run.state, run.error_code) == (RunState.LOOP_LIMIT_EXCEEDED, "max_llm_calls_exceeded")


async def test_a_run_without_any_of_both_warns_of_both() -> None:
    run = await run_unlimited(looks(45), clerk(tools=("look",), max_iterations=1000, max_llm_calls=0))
    assert (run.state, len({code for code, _ in warnings_of(run)})) == (RunState.COMPLETED, 2)
