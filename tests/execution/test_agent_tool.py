"""An agent that hands work to another one, with nothing but what the kit gives."""

import asyncio
from typing import Any

from app import (
    Agent,
    AgentRunner,
    BudgetLimits,
    CancellationToken,
    ConcurrencyConfig,
    RunState,
    ToolRegistry,
    agent_tool,
)
from app.events import ToolFailed, ToolResult
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from tests.execution.fakes import Stall, StreamingProvider, call, calls, say

WRITER = Agent(name="writer.agent", instructions="Write.", description="Writes a text.")


def chief(**fields: Any) -> Agent:
    return Agent.model_validate({"name": "chief", "instructions": "Lead.", "tools": ("writer_agent",), **fields})


def office(child: AgentRunner, *steps: ScriptedStep, **tool_fields: Any) -> AgentRunner:
    tools = ToolRegistry()
    tools.register(agent_tool(child, WRITER, **tool_fields))
    return AgentRunner(provider=ScriptedProvider({"model": list(steps)}), tools=tools)


def writer(*steps: ScriptedStep) -> AgentRunner:
    return AgentRunner(provider=ScriptedProvider({"model": list(steps)}))


async def test_the_answer_of_the_other_agent_is_handed_back_as_data() -> None:
    runner = office(writer(say("Four nights.")), call("writer_agent", input="Write."), say("Done."))
    run = await runner.run(chief(), "Go.", tenant="acme")
    [result] = [event.body for event in run.events if isinstance(event.body, ToolResult)]
    assert (run.output, "Four nights." in result.content) == ("Done.", True)
    assert result.content.startswith("<untrusted-data")


async def test_a_run_that_does_not_complete_is_a_tool_that_failed() -> None:
    runner = office(writer(say("")), call("writer_agent", input="Write."), say("Sorry."))
    run = await runner.run(chief(), "Go.", tenant="acme")
    [failed] = [event.body for event in run.events if isinstance(event.body, ToolFailed)]
    assert (run.state, "empty_model_output" in failed.content) == (RunState.COMPLETED, True)


async def test_what_the_other_agent_spends_its_caller_no_longer_has() -> None:
    runner = office(writer(say("Four nights.")), call("writer_agent", input="Write."), say("Done."))
    run = await runner.run(chief(budget=BudgetLimits(max_model_calls=2)), "Go.", tenant="acme")
    assert (run.state, run.error_detail) == (
        RunState.BUDGET_EXHAUSTED,
        "max_model_calls: 2 used, 1 asked for, 2 allowed",
    )


async def test_the_other_agent_is_one_deeper_and_bounded_by_its_callers_depth() -> None:
    tools = ToolRegistry()
    deepest = ScriptedProvider({"model": [say("Never.")]})
    inner = office(AgentRunner(provider=deepest), call("writer_agent", input="Write."), say("Middle."))
    tools.register(agent_tool(inner, chief(name="middle"), name="middle"))
    top = Agent(name="top", instructions="Lead.", tools=("middle",), budget=BudgetLimits(max_delegation_depth=1))
    runner = AgentRunner(provider=ScriptedProvider({"model": [call("middle", input="Go."), say("Done.")]}), tools=tools)
    run = await runner.run(top, "Go.", tenant="acme")
    assert (run.output, len(deepest.requests)) == ("Done.", 0)


async def test_a_cancel_of_the_caller_stops_the_other_agent() -> None:
    token, stall = CancellationToken(), Stall()
    child = AgentRunner(provider=StreamingProvider("Hello", stall=stall))
    runner = office(child, call("writer_agent", input="Write."), say("Done."))
    running = asyncio.create_task(runner.run(chief(), "Go.", tenant="acme", cancellation=token))
    await stall.reached.wait()
    token.cancel("enough")
    run = await running
    assert (run.state, stall.was_cut) == (RunState.CANCELLED, True)


async def test_two_agents_may_work_at_the_same_time() -> None:
    runner = office(
        writer(say("Four nights.")),
        calls(
            ScriptedCall(name="writer_agent", arguments={"input": "One."}),
            ScriptedCall(name="writer_agent", arguments={"input": "Two."}),
        ),
        say("Done."),
        parallel_safe=True,
    )
    run = await runner.run(chief(concurrency=ConcurrencyConfig(max_concurrent_tools=2)), "Go.", tenant="acme")
    kinds = [event.kind for event in run.events]
    assert (run.output, kinds.index("tool_result") - kinds.index("tool_call")) == ("Done.", 2)
