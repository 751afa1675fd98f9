"""Agents that ask agents: one tree, one ledger, one deadline, one wish to stop."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

import pytest

from app import AgentRunner, BudgetLimits, Run, RunBudget, RunContext, RunState
from app.agents import Agent
from app.conversation import Usage
from app.errors import ConfigurationError
from app.events import BudgetRefused, DepthExceeded, EventBody, RunQueued
from app.ids import RunId, TenantId
from app.policy import Deadline, Scope, most_restrictive
from app.ports.cancellation import CancellationToken
from app.ports.model import ModelRequest
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.providers.scripted import Script
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import Stall, StreamingProvider, call, calls, make_tool, say
from tests.execution.support import clerk

B = TypeVar("B", bound=EventBody)

NAMES = ("alpha", "beta", "gamma")


def ask(*names: str) -> ScriptedStep:
    return calls(*[ScriptedCall(name="ask", arguments={"agent": name, "turn": n}) for n, name in enumerate(names)])


class Office:
    """Agents with a script each, who ask each other by the tool ``ask``. ``runs`` holds what was asked for."""

    def __init__(self, scripts: Mapping[str, Script], *, budgets: Mapping[str, BudgetLimits] | None = None) -> None:
        self.clock = FakeClock(auto_advance=False)
        self.provider = ScriptedProvider(scripts)
        self.runs: list[Run[Any]] = []
        self.contexts: list[RunContext] = []
        registry = ToolRegistry()
        registry.register(make_tool("ask", self._ask))
        self._budgets = budgets or {}
        self.runner = AgentRunner(provider=self.provider, tools=registry, clock=self.clock, ids=SequentialIds())

    def agent(self, name: str) -> Agent:
        budget = self._budgets.get(name, BudgetLimits())
        return clerk(name=name, model=f"scripted:{name}", tools=("ask",), budget=budget)

    async def _ask(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.contexts.append(context.run)
        other = self.agent(arguments["agent"])
        run = await self.runner.run(other, "Go.", tenant=context.tenant_id, parent=context.run)
        self.runs.append(run)
        return f"{run.state}"

    async def run(self, **limits: Any) -> Run[Any]:
        """Alpha's run under a budget of its own."""
        return await self.runner.run(self.agent("alpha"), "Go.", tenant="acme", budget=BudgetLimits(**limits))


def ledger(**limits: Any) -> RunBudget:
    return RunBudget(resolved=most_restrictive({Scope.TENANT: BudgetLimits(**limits)}), clock=FakeClock())


def context_of(**fields: Any) -> RunContext:
    """A run that somebody else drives, at the root of its tree."""
    root: dict[str, Any] = {
        "run_id": RunId("run_root"),
        "tenant_id": TenantId("acme"),
        "path": ("root",),
        "depth": 0,
        "budgets": (ledger(),),
        "cancellation": CancellationToken(),
        "deadline": None,
    }
    return RunContext(**{**root, **fields})


def all_of(run: Run[Any], kind: type[B]) -> list[B]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


def kinds_of(run: Run[Any]) -> list[str]:
    return [event.kind for event in run.events]


# --- the path --------------------------------------------------------------------------------------------------------


async def test_a_run_that_nobody_asked_for_is_the_root_of_its_tree() -> None:
    run = await Office({"alpha": [say("Done.")]}).run()
    assert (run.depth, run.path) == (0, ("alpha",))


async def test_a_child_is_one_deeper_and_its_path_goes_on() -> None:
    office = Office({"alpha": [ask("beta"), say("Done.")], "beta": [say("Hello.")]})
    await office.run()
    [child] = office.runs
    assert (child.state, child.depth, child.path) == (RunState.COMPLETED, 1, ("alpha", "beta"))


async def test_a_childs_first_event_says_where_it_comes_from() -> None:
    office = Office({"alpha": [ask("beta"), say("Done.")], "beta": [say("Hello.")]})
    root = await office.run()
    [queued] = all_of(office.runs[0], RunQueued)
    assert (queued.depth, queued.path, queued.parent_run_id) == (1, ("alpha", "beta"), root.run_id)


async def test_a_tool_gets_the_context_of_its_own_run() -> None:
    office = Office({"alpha": [ask("beta"), say("Done.")], "beta": [say("Hello.")]})
    root = await office.run()
    [context] = office.contexts
    assert (context.run_id, context.tenant_id) == (root.run_id, "acme")
    assert (context.path, context.depth, context.deadline) == (("alpha",), 0, None)


async def test_a_runner_that_is_not_given_the_context_starts_a_new_tree() -> None:
    runner = AgentRunner(provider=ScriptedProvider({"model": [say("Done.")]}))
    run = await runner.run(clerk(name="beta"), "Go.", tenant="acme")
    assert (run.depth, run.path) == (0, ("beta",))


# --- depth -----------------------------------------------------------------------------------------------------------


def circle() -> Office:
    """Alpha asks beta, who asks alpha, who asks beta …"""
    return Office({"alpha": [ask("beta"), say("Done.")], "beta": [ask("alpha"), say("Done.")]})


async def test_a_circle_ends_at_the_cap_and_prints_the_path_it_took() -> None:
    office = circle()
    await office.run(max_delegation_depth=1)
    refused = office.runs[0]
    [exceeded] = all_of(refused, DepthExceeded)
    assert (refused.state, refused.error_code) == (RunState.LOOP_LIMIT_EXCEEDED, "delegation_depth_exceeded")
    assert (exceeded.depth, exceeded.limit, exceeded.path) == (2, 1, ("alpha", "beta", "alpha"))
    assert "alpha→beta→alpha" in str(refused.error_detail)


async def test_a_run_past_the_depth_assembles_no_prompt_and_calls_no_model() -> None:
    office = circle()
    await office.run(max_delegation_depth=1)
    assert (kinds_of(office.runs[0])[-2:], office.runs[0].model_calls) == (["depth_exceeded", "terminated"], 0)
    assert "prompt_assembled" not in kinds_of(office.runs[0])


async def test_the_cap_that_bound_is_named() -> None:
    office = circle()
    await office.run(max_delegation_depth=1)
    assert office.runs[0].cap == "max_delegation_depth"


async def test_a_depth_that_is_just_the_cap_passes() -> None:
    office = Office({"alpha": [ask("beta"), say("Done.")], "beta": [say("Hello.")]})
    await office.run(max_delegation_depth=1)
    assert office.runs[0].state is RunState.COMPLETED


async def test_the_conservative_depth_holds_where_nobody_set_one() -> None:
    office = circle()
    await office.run()
    assert [run.depth for run in office.runs if all_of(run, DepthExceeded)] == [5]


async def test_an_agent_tightens_the_depth_for_itself() -> None:
    child = context_of(budgets=(ledger(max_delegation_depth=4),), path=("root", "beta"), depth=1)
    office = Office({"alpha": [say("Done.")]}, budgets={"alpha": BudgetLimits(max_delegation_depth=1)})
    run = await office.runner.run(office.agent("alpha"), "Go.", tenant="acme", parent=child)
    assert (run.error_code, all_of(run, DepthExceeded)[0].limit) == ("delegation_depth_exceeded", 1)


async def test_an_agent_can_not_widen_the_depth_of_its_tree() -> None:
    child = context_of(budgets=(ledger(max_delegation_depth=1),), path=("root", "beta"), depth=1)
    office = Office({"alpha": [say("Done.")]}, budgets={"alpha": BudgetLimits(max_delegation_depth=9)})
    run = await office.runner.run(office.agent("alpha"), "Go.", tenant="acme", parent=child)
    assert (run.error_code, all_of(run, DepthExceeded)[0].limit) == ("delegation_depth_exceeded", 1)


# --- peers -----------------------------------------------------------------------------------------------------------


async def test_the_peer_past_the_cap_is_refused_before_its_prompt() -> None:
    office = Office({"alpha": [ask("beta", "beta", "beta"), say("Done.")], "beta": [say("Hello.")]})
    await office.run(max_peer_invocations=2)
    first, second, third = office.runs
    [refused] = all_of(third, BudgetRefused)
    assert (first.state, second.state) == (RunState.COMPLETED, RunState.COMPLETED)
    assert (third.state, third.cap) == (RunState.BUDGET_EXHAUSTED, "max_peer_invocations")
    assert (refused.limit, refused.used, refused.requested, refused.source) == (2, 2, 1, "request")
    assert (third.model_calls, "prompt_assembled" in kinds_of(third)) == (0, False)


async def test_peers_are_counted_over_the_whole_tree() -> None:
    office = Office(
        {
            "alpha": [ask("beta", "beta"), say("Done.")],
            "beta": [ask("gamma"), say("Hello.")],
            "gamma": [say("Hi.")],
        }
    )
    await office.run(max_peer_invocations=2)
    ended = [(run.path[-1], str(run.state)) for run in office.runs]
    assert ended == [("gamma", "completed"), ("beta", "completed"), ("beta", "budget_exhausted")]


async def test_a_root_is_nobodys_peer() -> None:
    budget = ledger(max_peer_invocations=1)
    runner = AgentRunner(provider=ScriptedProvider({"model": [say("Done.")]}), budget=budget)
    await runner.run(clerk(), "Go.", tenant="acme")
    assert budget.spent.peer_invocations == 0


async def test_depth_names_the_end_where_there_are_too_many_peers_too() -> None:
    budget = ledger(max_delegation_depth=1, max_peer_invocations=1)
    runner = AgentRunner(provider=ScriptedProvider({"model": [say("Done.")]}))
    first = await runner.run(clerk(), "Go.", tenant="acme", parent=context_of(budgets=(budget,)))
    second = await runner.run(clerk(), "Go.", tenant="acme", parent=context_of(budgets=(budget,), depth=1))
    assert (first.state, second.error_code) == (RunState.COMPLETED, "delegation_depth_exceeded")


# --- what the tree spends --------------------------------------------------------------------------------------------


async def test_what_a_child_spends_its_parent_no_longer_has() -> None:
    office = Office({"alpha": [ask("beta"), say("Done.")], "beta": [say("Hello.")]})
    root = await office.run(max_model_calls=2)
    [refused] = all_of(root, BudgetRefused)
    assert (root.state, root.cap, refused.used) == (RunState.BUDGET_EXHAUSTED, "max_model_calls", 2)


async def test_what_an_agent_bounds_for_itself_bounds_its_children_too() -> None:
    scripts = {"alpha": [ask("beta"), say("Done.")], "beta": [say("Hello.")]}
    office = Office(scripts, budgets={"alpha": BudgetLimits(max_model_calls=1)})
    await office.run(max_model_calls=50)
    assert (office.runs[0].state, office.runs[0].model_calls) == (RunState.BUDGET_EXHAUSTED, 0)


async def test_a_child_has_only_what_its_parent_left() -> None:
    office = Office({"alpha": [ask("beta"), say("Done.")], "beta": [say("Hello.")]})
    await office.run(max_model_calls=1)
    [child] = office.runs
    assert (child.state, child.cap, child.model_calls) == (RunState.BUDGET_EXHAUSTED, "max_model_calls", 0)


async def test_tokens_of_the_whole_tree_are_on_one_ledger() -> None:
    used = Usage(input_tokens=100, output_tokens=10)
    beta = say("Hello.", usage=used)
    office = Office(
        {"alpha": [ask("beta").model_copy(update={"usage": used}), say("Done.", usage=used)], "beta": [beta]}
    )
    await office.run()
    spent = office.contexts[0].budget.spent
    assert (spent.input_tokens, spent.output_tokens, spent.model_calls) == (300, 30, 3)
    assert (spent.tool_calls, spent.peer_invocations) == (1, 1)


async def test_a_child_can_not_widen_what_its_parent_left() -> None:
    scripts = {"alpha": [ask("beta"), say("Done.")], "beta": [say("Hello.")]}
    office = Office(scripts, budgets={"beta": BudgetLimits(max_model_calls=50)})
    await office.run(max_model_calls=1)
    assert (office.runs[0].state, all_of(office.runs[0], BudgetRefused)[0].source) == (
        RunState.BUDGET_EXHAUSTED,
        "request",
    )


async def test_a_child_is_held_to_its_own_tighter_budget() -> None:
    scripts = {"alpha": [ask("beta"), say("Done.")], "beta": [ask("gamma"), say("Hello.")], "gamma": [say("Hi.")]}
    office = Office(scripts, budgets={"beta": BudgetLimits(max_model_calls=1)})
    root = await office.run(max_model_calls=50)
    beta = office.runs[-1]
    assert (beta.path, beta.state, root.state) == (("alpha", "beta"), RunState.BUDGET_EXHAUSTED, RunState.COMPLETED)
    assert all_of(beta, BudgetRefused)[0].source == "agent"


class Crowd:
    """Three children of one parent, all under way before the model answers any of them."""

    def __init__(self, **limits: Any) -> None:
        self.stall = Stall()
        self.provider = ScriptedProvider({"model": self._answer})
        self._parent = context_of(budgets=(ledger(**limits),))

    async def _answer(self, request: ModelRequest) -> ScriptedStep:
        await self.stall.wait()
        return say("Hello.", usage=Usage(input_tokens=2, output_tokens=2))

    async def run(self) -> list[str]:
        """How each of them ended, sorted. The model answers once one of them has ended without an answer."""
        runner = AgentRunner(provider=self.provider)
        children = [runner.run(clerk(), "Go.", tenant="acme", parent=self._parent) for _ in range(3)]
        running = [asyncio.create_task(child) for child in children]
        await asyncio.wait(running, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        self.stall.go_on.set()
        return sorted(str(run.state) for run in await asyncio.gather(*running))


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"max_model_calls": 2}, id="calls"),
        # "Help." and "Go." are three tokens by the estimate.
        pytest.param({"max_input_tokens": 7}, id="tokens"),
        pytest.param({"max_peer_invocations": 2}, id="peers"),
    ],
)
async def test_children_at_the_same_time_can_not_spend_together_what_none_could_alone(limits: dict[str, int]) -> None:
    crowd = Crowd(**limits)
    assert await crowd.run() == ["budget_exhausted", "completed", "completed"]
    assert len(crowd.provider.requests) == 2


# --- stopping --------------------------------------------------------------------------------------------------------


async def test_a_parents_wish_to_stop_reaches_a_child_in_its_model_call() -> None:
    token, stall = CancellationToken(), Stall()
    runner = AgentRunner(provider=StreamingProvider("Hello", stall=stall))
    parent = context_of(cancellation=token)
    running = asyncio.create_task(runner.run(clerk(), "Go.", tenant="acme", parent=parent))
    await stall.reached.wait()
    token.cancel("enough")
    run = await running
    assert (run.state, run.error_code, stall.was_cut) == (RunState.CANCELLED, "cancelled", True)


async def test_a_child_of_a_parent_that_was_stopped_calls_no_model() -> None:
    token, provider = CancellationToken(), ScriptedProvider({"model": [say("Hello.")]})
    token.cancel()
    run = await AgentRunner(provider=provider).run(clerk(), "Go.", tenant="acme", parent=context_of(cancellation=token))
    assert (run.state, len(provider.requests)) == (RunState.CANCELLED, 0)


async def test_stopping_a_child_does_not_stop_its_parent() -> None:
    above, own = CancellationToken(), CancellationToken()
    own.cancel()
    runner = AgentRunner(provider=ScriptedProvider({"model": [say("Hello.")]}))
    run = await runner.run(clerk(), "Go.", tenant="acme", cancellation=own, parent=context_of(cancellation=above))
    assert (run.state, above.is_cancelled) == (RunState.CANCELLED, False)


@pytest.mark.parametrize(("parent_seconds", "own_seconds"), [(60, 120), (120, 60), (60, None)])
async def test_the_earlier_of_the_parents_deadline_and_the_childs_own_holds(
    parent_seconds: float, own_seconds: float | None
) -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    runner = AgentRunner(provider=StreamingProvider("Hello", stall=stall), clock=clock)
    parent = context_of(deadline=Deadline.in_seconds(parent_seconds, now=clock.now()))
    own = None if own_seconds is None else Deadline.in_seconds(own_seconds, now=clock.now())
    running = asyncio.create_task(runner.run(clerk(), "Go.", tenant="acme", parent=parent, deadline=own))
    await stall.reached.wait()
    clock.advance(60)
    run = await running
    assert (run.state, run.error_code) == (RunState.CANCELLED, "deadline_exceeded")


async def test_a_child_is_driven_under_its_parents_deadline_as_its_tools_see() -> None:
    office = Office({"alpha": [ask("beta"), say("Done.")], "beta": [ask("gamma"), say("Hi.")], "gamma": [say("Hi.")]})
    deadline = Deadline.in_seconds(60, now=office.clock.now())
    await office.runner.run(office.agent("alpha"), "Go.", tenant="acme", deadline=deadline)
    assert [context.deadline for context in office.contexts] == [deadline, deadline]


# --- whose it is -----------------------------------------------------------------------------------------------------


async def test_a_child_of_another_tenant_is_refused_before_anything_starts() -> None:
    provider, budget = ScriptedProvider({"model": [say("Hello.")]}), ledger()
    runner = AgentRunner(provider=provider)
    with pytest.raises(ConfigurationError):
        await runner.run(clerk(), "Go.", tenant="globex", parent=context_of(budgets=(budget,)))
    assert (len(provider.requests), budget.spent.peer_invocations) == (0, 0)


async def test_a_child_that_failed_is_a_result_that_its_parent_may_go_on_from() -> None:
    office = Office({"alpha": [ask("beta"), say("Done.")], "beta": [call("burn")]})
    root = await office.run()
    assert (office.runs[0].error_code, root.state) == ("tool_not_allowed", RunState.COMPLETED)
