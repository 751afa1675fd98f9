"""Shared accounts against runs that would spend twice of them, or not at all."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from app import (
    AgentRunner,
    ApprovalDecision,
    BudgetLimits,
    CheckpointStore,
    DeferringGate,
    HookChain,
    HookDecision,
    HookPoint,
    ModelRequest,
    ModelResponse,
    Price,
    Run,
    RunBudget,
    RunState,
    Scope,
    Spend,
    SuspensionStore,
    ToolRegistry,
    Usage,
    most_restrictive,
)
from app.agents import Agent
from app.errors import ConfigurationError
from app.events import AttemptFailed, ModelCall, ModelResponded, RunResumed
from app.ports.model import ModelProvider
from app.providers import ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from tests.execution.desk import every, one
from tests.execution.fakes import (
    HookSays,
    Recorder,
    Stall,
    StreamingProvider,
    WholeProvider,
    call,
    let_others_run,
    make_tool,
    say,
)
from tests.execution.support import clerk

USED = Usage(input_tokens=100, output_tokens=50)
PRICES = {
    name: Price(input=Decimal(1), output=Decimal(2)) for name in ("scripted:model", "whole:model", "scripted:slow")
}


def account(clock: FakeClock | None = None, **limits: Any) -> RunBudget:
    resolved = most_restrictive({Scope.DEPLOYMENT: BudgetLimits(**limits)})
    return RunBudget(resolved=resolved, clock=clock or FakeClock())


def speaking(budget: RunBudget, *steps: ScriptedStep, **fields: Any) -> AgentRunner:
    provider = ScriptedProvider({"model": steps or (say("Well.", usage=USED),)})
    return AgentRunner(**{"provider": provider, "budget": budget, "prices": PRICES, **fields})


def looking(budget: RunBudget, **fields: Any) -> AgentRunner:
    """A model that looks once, and says something then."""
    tools = ToolRegistry()
    tools.register(make_tool("look", Recorder()))
    return speaking(budget, call("look"), say("Well.", usage=USED), tools=tools, **fields)


async def go(runner: AgentRunner, agent: Agent | None = None, **asked: Any) -> Run[Any]:
    run: Run[Any] = await runner.run(agent or clerk(), "Go.", tenant="acme", **asked)
    return run


def holders_of(budget: RunBudget) -> int:
    """How many runs the account still has a book for."""
    return len(budget._account.by_holder)


# --- who spends ------------------------------------------------------------------------------------------------------


async def test_a_run_under_an_id_that_was_used_before_is_charged_again() -> None:
    budget = account(max_model_calls=2)
    runner = speaking(budget)
    runs = [await go(runner, run_id="nightly") for _ in range(3)]
    assert [run.state for run in runs] == [RunState.COMPLETED, RunState.COMPLETED, RunState.BUDGET_EXHAUSTED]
    assert budget.spent.model_calls == 2


async def test_money_is_charged_again_under_the_same_id_too() -> None:
    budget = account(max_cost=Decimal("0.0003"))
    runner = speaking(budget)
    await go(runner, run_id="nightly")
    await go(runner, run_id="nightly")
    assert budget.spent.cost == Decimal("0.0004")


async def test_two_runners_that_count_their_ids_alike_spend_side_by_side() -> None:
    budget = account(max_model_calls=2)
    runs = [await go(speaking(budget, ids=SequentialIds())) for _ in range(3)]
    assert [run.run_id for run in runs] == [runs[0].run_id] * 3
    assert [run.state for run in runs] == [RunState.COMPLETED, RunState.COMPLETED, RunState.BUDGET_EXHAUSTED]


async def test_a_child_that_has_its_parents_id_is_charged_beside_it() -> None:
    budget = account(max_model_calls=10)
    child = AgentRunner(provider=ScriptedProvider({"model": [say("Well.", usage=USED)]}), ids=SequentialIds())

    meanwhile: list[tuple[bool, int]] = []

    async def ask(arguments: dict[str, Any], context: Any) -> str:
        asked = await go(child, parent=context.run)
        meanwhile.append((asked.run_id == context.run_id, budget.spent.model_calls))
        return "asked"

    tools = ToolRegistry()
    tools.register(make_tool("ask", ask))
    runner = speaking(budget, call("ask"), say("Well.", usage=USED), tools=tools, ids=SequentialIds())
    run = await go(runner, clerk(tools=("ask",)))
    assert (meanwhile, run.model_calls) == ([(True, 2)], 2)
    assert (budget.spent.model_calls, budget.spent.peer_invocations) == (3, 1)


async def answer_slowly(request: ModelRequest) -> ScriptedStep:
    await let_others_run()
    return say("Well.", usage=USED)


async def test_runs_at_the_same_time_under_one_id_can_not_spend_what_one_could_not() -> None:
    budget = account(max_model_calls=3)
    provider = ScriptedProvider({"model": answer_slowly})
    runs = await asyncio.gather(*(go(speaking(budget, provider=provider), run_id="nightly") for _ in range(8)))
    completed = sum(run.state is RunState.COMPLETED for run in runs)
    assert (completed, budget.spent.model_calls) == (3, 3)


async def test_a_run_that_has_ended_leaves_its_figures_and_nothing_else() -> None:
    budget = account(max_model_calls=1_000)
    runner = speaking(budget)
    runs = [await go(runner) for _ in range(20)]
    assert (len(runs), budget.spent.model_calls, budget.spent.output_tokens) == (20, 20, 20 * 50)
    assert holders_of(budget) == 0


async def test_a_run_that_was_refused_everything_leaves_nothing_either() -> None:
    budget = account(max_model_calls=1)
    runner = speaking(budget)
    await go(runner)
    refused = await go(runner)
    assert (refused.state, holders_of(budget)) == (RunState.BUDGET_EXHAUSTED, 0)


def test_a_holder_that_was_released_is_another_one_when_it_comes_back() -> None:
    budget = account(max_model_calls=10)
    budget.settle("run", Spend(model_calls=2))
    budget.release("run")
    budget.settle("run", Spend(model_calls=3))
    assert (budget.spent.model_calls, budget.spent_by_others("run").model_calls) == (5, 2)


def test_nobody_is_released_who_never_spent() -> None:
    budget = account(max_model_calls=10)
    budget.release("nobody")
    assert budget.spent == Spend()


async def test_a_suspended_run_is_charged_for_what_it_does_later_once() -> None:
    budget, suspensions = account(max_model_calls=10), SuspensionStore()
    runner = looking(budget, approvals=DeferringGate(), suspensions=suspensions)
    await go(runner, clerk(tools=("look",), approval_required_tools=("look",)))
    [question] = suspensions.pending()
    run = await runner.resume_with_decision(ApprovalDecision.grant(question, decided_by="grace"))
    assert (run.state, run.model_calls, run.tool_calls) == (RunState.COMPLETED, 2, 1)
    assert (budget.spent.model_calls, budget.spent.tool_calls, holders_of(budget)) == (2, 1, 0)


async def interrupted(budget: RunBudget, stall: Stall) -> tuple[AgentRunner, Run[Any]]:
    """A run whose task was cancelled in its model call, and that was driven to its end later."""
    runner = AgentRunner(
        provider=StreamingProvider("Four nights.", stall=stall),
        budget=budget,
        prices=PRICES,
        checkpoints=CheckpointStore(),
    )
    running = asyncio.create_task(go(runner, run_id="nightly"))
    await stall.reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    stall.go_on.set()
    return runner, await runner.resume("nightly")


async def test_an_interrupted_run_is_charged_for_both_of_its_calls() -> None:
    budget = account(max_model_calls=10)
    _, run = await interrupted(budget, Stall())
    assert (run.state, run.model_calls, budget.spent.model_calls) == (RunState.COMPLETED, 2, 2)
    assert (budget.spent.input_tokens, budget.spent.cost) == (run.usage.input_tokens, run.cost)


async def test_the_resumption_says_what_the_abandoned_call_was_charged() -> None:
    _, run = await interrupted(account(max_model_calls=10), Stall())
    abandoned, resumed = every(run, ModelCall)[0], one(run, RunResumed)
    assert resumed.v == 2
    assert resumed.usage is not None
    assert (resumed.usage.input_tokens, resumed.cost) == (abandoned.estimated_input_tokens, abandoned.estimated_cost)
    assert resumed.usage.input_tokens > 0


async def test_a_resumption_that_abandons_nothing_charges_nothing() -> None:
    budget, suspensions = account(max_model_calls=10), SuspensionStore()
    runner = looking(budget, approvals=DeferringGate(), suspensions=suspensions)
    await go(runner, clerk(tools=("look",), approval_required_tools=("look",)))
    [question] = suspensions.pending()
    run = await runner.resume_with_decision(ApprovalDecision.grant(question, decided_by="grace"))
    assert (one(run, RunResumed).usage, one(run, RunResumed).cost) == (None, None)


async def test_the_events_of_an_interrupted_run_add_up_to_what_it_used() -> None:
    _, run = await interrupted(account(max_model_calls=10), Stall())
    told: list[Any] = [event.body for event in run.events if event.kind != "terminated"]
    used = [body.usage for body in told if getattr(body, "usage", None) is not None]
    assert sum(usage.input_tokens for usage in used) == run.usage.input_tokens
    assert sum(usage.output_tokens for usage in used) == run.usage.output_tokens


# --- what was answered is charged ------------------------------------------------------------------------------------


def no_answer(_: Any) -> HookDecision:
    number: Any = 5
    return HookDecision.rewrite(number)


def refuse(_: Any) -> HookDecision:
    raise KeyError("hunter2")


@pytest.mark.parametrize("point", [HookPoint.AFTER_MODEL_RESPONSE, HookPoint.BEFORE_OUTPUT_VALIDATION])
@pytest.mark.parametrize("says", [no_answer, refuse])
async def test_an_answer_that_a_hook_broke_on_is_paid_for(
    point: HookPoint, says: Callable[[Any], HookDecision]
) -> None:
    budget = account(max_output_tokens=1_000)
    run = await go(speaking(budget, hooks=HookChain([HookSays(point, says=says)])))
    assert (run.error_code, run.usage, run.cost) == ("hook_failed", USED, Decimal("0.0002"))
    assert (budget.spent.output_tokens, budget.spent.cost) == (50, Decimal("0.0002"))


async def test_answers_that_hooks_break_on_are_no_way_to_spend_without_end() -> None:
    budget = account(max_output_tokens=120)
    runner = speaking(budget, hooks=HookChain([HookSays(HookPoint.AFTER_MODEL_RESPONSE, says=no_answer)]))
    runs = [await go(runner) for _ in range(4)]
    assert [run.state for run in runs][-1] is RunState.BUDGET_EXHAUSTED
    assert budget.spent.output_tokens == 150


def broken(**fields: Any) -> ModelProvider:
    return WholeProvider(ModelResponse(**{"content": "Well.", "usage": USED, **fields}))


@pytest.mark.parametrize("fields", [{"content": None}, {"tool_calls": None}, {"timing": None}, {"stop_reason": None}])
async def test_a_response_that_broke_the_loop_is_paid_for(fields: dict[str, Any]) -> None:
    budget = account(max_output_tokens=1_000)
    run = await go(speaking(budget, provider=broken(**fields)))
    assert (run.state, run.usage, run.cost) == (RunState.FAILED, USED, Decimal("0.0002"))
    assert (budget.spent.output_tokens, budget.spent.cost) == (50, Decimal("0.0002"))


async def test_a_charge_for_a_broken_response_is_made_once() -> None:
    run = await go(speaking(account(max_output_tokens=1_000), provider=broken(content=None)))
    assert [failed.usage for failed in every(run, AttemptFailed)] == [USED]
    assert every(run, ModelResponded) == []


def test_a_runners_budget_that_is_none_is_refused_where_it_is_given() -> None:
    not_a_budget: Any = {"max_model_calls": 1}
    with pytest.raises(ConfigurationError, match="a budget is"):
        AgentRunner(provider=ScriptedProvider({"model": []}), budget=not_a_budget)
