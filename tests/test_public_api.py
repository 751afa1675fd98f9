"""What a user of the library types first: every short example of the guide, with no more around it than it needs."""

import asyncio
import importlib
from collections.abc import Sequence
from time import time
from typing import Any

import pytest
from pydantic import BaseModel

import app
from app import (
    PROMPT_LAYERS,
    Agent,
    AgentRunner,
    ApprovalDecision,
    ApprovalRecord,
    BudgetLimits,
    CancellationToken,
    Deadline,
    DeadlineConfig,
    Effect,
    HookChain,
    LoopConfig,
    Message,
    ModelAllowList,
    PromptLayer,
    Redactor,
    RetryConfig,
    Role,
    Run,
    RunBudget,
    RunContext,
    RunState,
    Scope,
    ToolContext,
    ToolRegistry,
    assemble_prompt,
    most_restrictive,
    tool,
    wrap_untrusted,
)
from app.providers import ScriptedCall, ScriptedError, ScriptedProvider, ScriptedStep
from app.testing import FakeClock

PLAN_JSON = '{"city": "Kyoto", "nights": 4}'

LISTED = """
AdkError Agent AgentRunner ApprovalDecision ApprovalDenial ApprovalRecord Artifact BudgetExceededError BudgetLimits
CallbackContext CallbackPoint CallbackSet CancellationToken CancelledError CheckpointStore ConcurrencyConfig
ConfigurationError Content Deadline DeadlineConfig DeferringGate EVENT_MAP Event EventActions FanOutLimitError
FunctionCall FunctionResponse Guardrail GuardrailDecision HistoryPolicy Hook HookChain HookDecision HookPoint
HookSubject InMemorySessions InjectionGuard LlmRequest LlmResponse LoopConfig LoopLimitError MaxIterationsError
MaxLlmCallsError ModelAllowList ModelInfo ModelRequest ModelResponse PROMPT_LAYERS Part Price PromptLayer ProviderError
RecursionLimitError Redactor RepairConfig RepeatedCallError RetryConfig Router Run RunBudget RunConfig RunContext
RunEvent RunState Runner Scope Session SessionBusyError SessionNotFoundError Spend SubAgent SubAgentMode SuspensionStore
TaskRouter Tokenizer Tool ToolActions ToolContext ToolExecutionError ToolFailurePolicy ToolRegistry UnlimitedBudget
Usage approximate_tokens assemble_prompt most_restrictive tool wrap_untrusted
"""
NAMES = LISTED.split()


class TripPlan(BaseModel):
    city: str
    nights: int


def playing(*steps: ScriptedStep) -> ScriptedProvider:
    return ScriptedProvider({"model": steps})


def saying(text: str = "Four nights near Kyoto it is.") -> ScriptedProvider:
    return playing(ScriptedStep(text=text))


def calling(name: str, arguments: dict[str, Any], *, text: str = "Done.") -> ScriptedProvider:
    return playing(ScriptedStep(calls=(ScriptedCall(name=name, arguments=arguments),)), ScriptedStep(text=text))


def registered(*functions: Any) -> ToolRegistry:
    registry = ToolRegistry()
    for function in functions:
        registry.register(function)
    return registry


@tool(effect=Effect.READ)
def lookup_fare(city: str) -> int:
    """The fare to a city, in yen."""
    return {"Kyoto": 13_320}[city]


@tool
def wire_funds(amount: int) -> str:
    """Wires money."""
    return f"wired {amount}"


class Approver:
    """The desk of a person who says yes."""

    def __init__(self) -> None:
        self.records: list[ApprovalRecord] = []

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision:
        self.records.append(record)
        return ApprovalDecision.grant(record, decided_by="grace")


planner = Agent(name="planner", instructions="Plan trips.")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_guide_is_importable_from_the_package(name: str) -> None:
    assert hasattr(app, name)
    assert name in app.__all__


def test_the_list_of_names_is_sorted_and_without_doubles() -> None:
    assert sorted(set(app.__all__)) == sorted(app.__all__)
    assert [name for name in app.__all__ if not hasattr(app, name)] == []


@pytest.mark.parametrize("name", ["FakeClock", "SequentialIds", "ScriptedProvider"])
def test_the_fakes_are_public(name: str) -> None:
    assert hasattr(importlib.import_module("app.testing"), name)


async def test_a_run_is_one_call_and_ends_in_a_terminal_state() -> None:
    provider, registry, agent = saying(), registered(), planner
    runner = AgentRunner(provider=provider, tools=registry)
    run = await runner.run(agent, "Four nights near Kyoto.", tenant="acme", user="ada")
    assert run.state.is_terminal
    assert (run.state, run.output) == (RunState.COMPLETED, "Four nights near Kyoto it is.")


async def test_a_tool_is_a_typed_function() -> None:
    provider = calling("lookup_fare", {"city": "Kyoto"}, text="13,320 yen.")
    agent = Agent(name="planner", instructions="Plan trips.", tools=("lookup_fare",))
    run = await AgentRunner(provider=provider, tools=registered(lookup_fare)).run(agent, "How much?", tenant="acme")
    assert (run.output, run.tool_calls) == ("13,320 yen.", 1)


async def test_a_token_stops_a_run() -> None:
    async def think(_: Any) -> ScriptedStep:
        token.cancel()
        await asyncio.Event().wait()
        return ScriptedStep()

    provider, agent = ScriptedProvider({"model": think}), planner
    runner = AgentRunner(provider=provider)
    token = CancellationToken()
    run = await runner.run(agent, "…", tenant="acme", cancellation=token)  # token.cancel() stops it
    assert run.state is RunState.CANCELLED


async def test_a_deadline_is_an_instant_of_the_callers_clock() -> None:
    provider, agent = saying(), planner
    runner = AgentRunner(provider=provider, deadlines=DeadlineConfig(model_call_seconds=30))
    run = await runner.run(agent, "…", tenant="acme", deadline=Deadline.in_seconds(60, now=time()))
    assert run.state is RunState.COMPLETED


async def test_a_deadline_that_has_passed_cancels_the_run() -> None:
    runner = AgentRunner(provider=saying())
    run = await runner.run(planner, "…", tenant="acme", deadline=Deadline.in_seconds(60, now=time() - 61))
    assert (run.state, run.error_code) == (RunState.CANCELLED, "deadline_exceeded")


async def test_retries_are_declared_on_the_runner_and_replaced_by_the_agents() -> None:
    provider = playing(ScriptedStep(text="Done.", error=ScriptedError(status=503, attempts=3)))
    runner = AgentRunner(
        provider=provider, retry=RetryConfig(max_attempts=3), clock=FakeClock(), tools=registered(lookup_fare)
    )
    agent = Agent(
        name="planner",
        instructions="Plan trips.",
        tools=("lookup_fare",),
        retry=RetryConfig(max_attempts=5),
        idempotent_tools=("lookup_fare",),
    )
    assert (await runner.run(agent, "…", tenant="acme")).state is RunState.COMPLETED
    assert (await runner.run(planner, "…", tenant="acme")).state is RunState.FAILED


async def test_a_budget_is_given_as_a_ledger() -> None:
    clock, provider = FakeClock(), saying()
    resolved = most_restrictive({Scope.DEPLOYMENT: BudgetLimits.conservative()})
    runner = AgentRunner(provider=provider, budget=RunBudget(resolved=resolved, clock=clock))
    agent = Agent(name="planner", instructions="Plan trips.", budget=BudgetLimits(max_delegation_depth=2))
    assert (await runner.run(agent, "…", tenant="acme")).state is RunState.COMPLETED


async def test_repeated_calls_are_capped_by_the_agent() -> None:
    provider = playing(*[ScriptedStep(calls=(ScriptedCall(name="lookup_fare", arguments={"city": "Kyoto"}),))] * 3)
    runner = AgentRunner(provider=provider, tools=registered(lookup_fare))
    agent = Agent(
        name="planner",
        instructions="Plan trips.",
        tools=("lookup_fare",),
        loop=LoopConfig(max_repeated_calls=2),
    )
    run = await runner.run(agent, "…", tenant="acme")
    assert (run.state, run.tool_calls) == (RunState.LOOP_LIMIT_EXCEEDED, 2)


async def test_hooks_come_as_a_chain() -> None:
    provider = saying("Ask ada@example.com.")
    runner = AgentRunner(provider=provider, hooks=HookChain([Redactor(), ModelAllowList()]))
    run = await runner.run(planner, "Whom do I ask?", tenant="acme")
    assert (run.state, run.output) == (RunState.COMPLETED, "Ask [redacted:email].")


async def test_a_tool_that_needs_approval_goes_out_when_the_desk_says_yes() -> None:
    provider, tools, desk = calling("wire_funds", {"amount": 3}), registered(wire_funds), Approver()
    runner = AgentRunner(provider=provider, tools=tools, approvals=desk, approval_ttl_seconds=900)
    agent = Agent(name="clerk", instructions="Help.", tools=("wire_funds",), approval_required_tools=("wire_funds",))
    run = await runner.run(agent, "Wire 3.", tenant="acme", user="ada")
    assert (run.state, run.tool_calls, [record.tool for record in desk.records]) == (
        RunState.COMPLETED,
        1,
        ["wire_funds"],
    )


async def test_a_run_comes_back_where_its_type_is_named() -> None:
    agent = Agent(name="planner", instructions="Plan trips.", output_type=TripPlan)
    run = await AgentRunner(provider=saying(PLAN_JSON)).run(agent, "Four nights near Kyoto.", tenant="acme")
    back = Run[TripPlan].model_validate_json(run.model_dump_json())
    assert (back, back.output) == (run, TripPlan(city="Kyoto", nights=4))


async def test_the_stream_tells_the_same_run_event_by_event() -> None:
    runner = AgentRunner(provider=saying())
    told = [event.kind async for event in runner.stream(planner, "…", tenant="acme", user="ada")]
    assert (told[0], told[-1]) == ("run_queued", "terminated")


async def test_a_nested_run_carries_its_callers_context() -> None:
    paths: list[Sequence[str]] = []

    @tool
    async def delegate(context: ToolContext) -> str:
        """Asks a colleague."""
        parent: RunContext = context.run
        run = await AgentRunner(provider=saying()).run(planner, "…", tenant="acme", parent=parent)
        paths.append(run.path)
        return str(run.output)

    agent = Agent(name="clerk", instructions="Help.", tools=("delegate",))
    runner = AgentRunner(provider=calling("delegate", {}), tools=registered(delegate))
    run = await runner.run(agent, "…", tenant="acme")
    assert (run.state, list(map(tuple, paths))) == (RunState.COMPLETED, [("clerk", "planner")])


def test_untrusted_content_is_fenced_and_its_origin_is_named() -> None:
    assert wrap_untrusted('{"trains": 4}', source="tool_result") == (
        '<untrusted-data source="tool_result">\n{"trains": 4}\n</untrusted-data>'
    )


def test_the_layers_are_the_five_of_the_guide() -> None:
    named = [PromptLayer.SYSTEM, PromptLayer.TOOLS, PromptLayer.PINNED, PromptLayer.RETRIEVED, PromptLayer.CONVERSATION]
    assert list(PROMPT_LAYERS) == named


def test_a_prompt_is_one_function_of_the_agent_and_the_turn() -> None:
    prompt = assemble_prompt(planner, [Message(role=Role.USER, content="…")], tools=[lookup_fare.declaration])
    assert (len(prompt.messages), prompt.messages[-1].content) == (2, "…")
    assert (prompt.prefix_tokens > 0, len(prompt.fingerprint), len(prompt.version) > 0) == (True, 16, True)
