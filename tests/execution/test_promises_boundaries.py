"""What a run refuses, what it never invents, and where the loop ends."""

import asyncio
from dataclasses import fields
from typing import Any

import pytest

from app import Run, errors
from app.agents import ToolDeclaration, ToolFailurePolicy
from app.conversation import Message
from app.errors import ToolExecutionError
from app.events import RepeatDetected, RunQueued, RunState, SchemaViolation, ToolCalled, ToolFailed, ToolResult
from app.execution.runner import AgentRunner
from app.policy import BudgetLimits, LoopConfig
from app.ports.cancellation import CancellationToken
from app.ports.model import ModelRequest
from app.ports.tools import Tool, ToolContext
from app.providers import ScriptedCall, ScriptedProvider
from app.tools import ToolRegistry
from tests.execution.fakes import Recorder, Stall, call, calls, make_tool, say
from tests.execution.support import Bench, clerk


def registry_with(*tools: Tool) -> ToolRegistry:
    registry = ToolRegistry()
    list(map(registry.register, tools))
    return registry


async def test_arguments_that_the_tools_schema_refuses_fail_the_run_and_nothing_goes_out() -> None:
    pay = Recorder()
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    tool = Tool(declaration=ToolDeclaration(name="pay", parameters=schema), call=pay)
    turn = calls(
        ScriptedCall(name="pay", arguments={"amount": 1}), ScriptedCall(name="pay", arguments={"amount": "all"})
    )
    story = await Bench([turn, say("Paid.")], tools=[tool]).run()
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "schema_violation")
    assert story.one(SchemaViolation).call_id == "call_1_2"
    assert (pay.calls, story.all(ToolCalled)) == ([], [])


@pytest.mark.parametrize("policy", ToolFailurePolicy)
async def test_a_tool_that_raised_is_the_kits_error_and_has_no_result(policy: ToolFailurePolicy) -> None:
    bench = Bench([call("pay"), say("Sorry.")], tools=[make_tool("pay", Recorder(ValueError("no funds")))])
    story = await bench.run(bench.agent(on_tool_error=policy))
    assert (story.one(ToolFailed).code, story.all(ToolResult)) == (ToolExecutionError.code, [])


async def test_one_repetition_too_many_keeps_the_whole_turn_from_going_out() -> None:
    look, note = Recorder(), Recorder()
    turn = calls(ScriptedCall(name="note"), ScriptedCall(name="look"), ScriptedCall(name="look"))
    bench = Bench([turn], tools=[make_tool("look", look), make_tool("note", note)])
    story = await bench.run(bench.agent(loop=LoopConfig(max_repeated_calls=1)))
    assert (story.record.state, story.one(RepeatDetected).name) == (RunState.LOOP_LIMIT_EXCEEDED, "look")
    assert (note.calls, look.calls, story.all(ToolCalled)) == ([], [], [])


async def test_an_agents_budget_holds_on_a_runner_that_was_given_none() -> None:
    provider = ScriptedProvider({"model": [call("look"), say("Done.")]})
    runner = AgentRunner(provider=provider, tools=registry_with(make_tool("look", Recorder())))
    agent = clerk(tools=("look",), budget=BudgetLimits(max_model_calls=1))
    run = await runner.run(agent, "Look.", tenant="acme")
    assert (run.state, len(provider.requests)) == (RunState.BUDGET_EXHAUSTED, 1)


async def test_an_unknown_outcome_is_an_event_of_the_run_and_nothing_is_raised() -> None:
    stall, token = Stall(), CancellationToken()
    provider = ScriptedProvider({"model": [call("pay"), say("Paid.")]})
    runner = AgentRunner(provider=provider, tools=registry_with(make_tool("pay", stall.as_tool)))
    running = asyncio.create_task(runner.run(clerk(tools=("pay",)), "Pay.", tenant="acme", cancellation=token))
    await stall.reached.wait()
    token.cancel()
    run = await running
    assert (run.state, [event.kind for event in run.events].count("tool_indeterminate")) == (RunState.CANCELLED, 1)


def test_there_is_no_error_to_catch_for_an_unknown_outcome() -> None:
    assert [name for name in vars(errors) if "Indeterminate" in name] == []


async def test_a_runner_inside_a_tool_that_is_given_no_parent_begins_a_call_graph_of_its_own() -> None:
    inner = AgentRunner(provider=ScriptedProvider({"model": [say("Inner.")]}))
    runs: list[Run[Any]] = []

    async def delegate(arguments: dict[str, Any], context: ToolContext) -> str:
        runs.append(await inner.run(clerk(name="inner"), "Hi", tenant="acme"))
        return "done"

    outer = AgentRunner(
        provider=ScriptedProvider({"model": [call("delegate"), say("Done.")]}),
        tools=registry_with(make_tool("delegate", delegate)),
    )
    await outer.run(clerk(tools=("delegate",)), "Hi", tenant="acme")
    begun = runs[0].events[0].body
    assert isinstance(begun, RunQueued)
    assert (begun.depth, begun.path) == (0, ("inner",))


def test_a_model_request_carries_no_sampling() -> None:
    assert {"temperature", "top_p", "top_k", "seed"}.isdisjoint(field.name for field in fields(ModelRequest))


def test_a_message_holds_text_only() -> None:
    assert Message.model_fields["content"].annotation is str
