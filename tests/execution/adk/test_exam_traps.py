"""What people get wrong about event-driven execution, one mistake after the other: what really happens is held here."""

import asyncio
from typing import Any, Final

import pytest

from app.agents import Agent
from app.execution.adk import Event
from app.execution.runner import AgentRunner
from app.policy import Effect, RetryConfig
from app.ports.model import ModelRequest
from app.ports.tools import Tool, ToolContext
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.testing import FakeClock
from tests.execution.adk.talking import Conversation, kind_of, kinds, script, shown, take_until
from tests.execution.fakes import Recorder, Stall, call, calls, make_tool, say
from tests.execution.support import clerk

CLERK: Final = clerk(tools=("look", "refund"), max_iterations=20)


def looking(*steps: ScriptedStep, look: Recorder | None = None, agent: Agent = CLERK, **fields: Any) -> Conversation:
    tools = make_tool("look", look or Recorder()), make_tool("refund", Recorder("refunded"))
    return Conversation(agent, script(*steps), *tools, **fields)


# --- "The runner is the agent" ---------------------------------------------------------------------------------------


async def test_runners_of_different_agents_differ_only_by_what_their_agents_say() -> None:
    greeter = Conversation(clerk(instructions="Greet."), script(say("Hello.")))
    biller = Conversation(clerk(instructions="Bill."), script(say("Hello.")))
    for talk in (await greeter.open(), await biller.open()):
        await talk.tell()
    first, second = greeter.provider.requests[0], biller.provider.requests[0]  # type: ignore[attr-defined]
    assert (first.messages[0].content, second.messages[0].content) == ("Greet.", "Bill.")
    assert first.messages[1:] == second.messages[1:]


async def test_the_same_agent_is_driven_by_either_runner_to_the_same_log() -> None:
    agent = clerk()
    run = await AgentRunner(provider=script(say("Hello."))).run(agent, "Hi", tenant="default")
    events = await (await Conversation(agent, script(say("Hello."))).open()).tell()
    assert kinds(events) == [event.kind for event in run.events]


# --- "One user turn is one model call" -------------------------------------------------------------------------------


async def test_one_message_takes_as_many_model_calls_as_there_are_steps_and_all_are_of_one_invocation() -> None:
    events = await (await looking(call("look"), call("look", n=2), say("Done.")).open()).tell()
    assert kinds(events).count("model_call") == 3
    assert len({event.invocation_id for event in events}) == 1


async def test_a_handover_takes_more_model_calls_in_the_same_invocation() -> None:
    def answer(request: ModelRequest) -> ScriptedStep:
        handed_over = any(message.role == "tool" for message in request.messages)
        return say("Billing here.") if handed_over else call("transfer_to_agent", agent_name="billing")

    agent = clerk(sub_agents=(Agent(name="billing", instructions="Bill."),))
    events = await (await Conversation(agent, ScriptedProvider({"model": answer})).open()).tell()
    assert [event.author for event in events if kind_of(event) == "model_call"] == ["clerk", "billing"]
    assert len({event.invocation_id for event in events}) == 1


# --- "Events are messages" -------------------------------------------------------------------------------------------


async def test_events_carry_activity_changes_and_signals_and_only_one_of_them_is_to_be_shown() -> None:
    async def move(arguments: dict[str, Any], context: ToolContext) -> str:
        context.state["moved"] = True
        context.actions.transfer_to_agent = "billing"
        return "moved"

    def answer(request: ModelRequest) -> ScriptedStep:
        return say("Billing here.") if any(m.role == "tool" for m in request.messages) else call("move")

    agent = clerk(tools=("move",), sub_agents=(Agent(name="billing", instructions="Bill."),))
    talk = await Conversation(agent, ScriptedProvider({"model": answer}), make_tool("move", move)).open()
    events = await talk.tell()
    assert [made.name for event in events for made in event.get_function_calls()] == ["move"]
    assert [made.name for event in events for made in event.get_function_responses()] == ["move"]
    assert {"moved": True} in [event.actions.state_delta for event in events]
    assert "billing" in [event.actions.transfer_to_agent for event in events]
    assert shown(events) == ["Billing here."]


async def test_a_structured_field_tells_a_failure_that_no_text_does() -> None:
    events = await (await looking(call("look"), look=Recorder(), agent=clerk(tools=())).open()).tell()
    assert (events[-1].error_code, shown(events)) == ("tool_not_allowed", [])


# --- "Whoever reads the events can prevent a call" -------------------------------------------------------------------


def deny(tool: Tool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str] | None:
    return {"denied": "no approval"} if tool.name == "refund" and not tool_context.state.get("approved") else None


def refunding(refund: Recorder, **fields: Any) -> Conversation:
    agent = clerk(tools=("refund",), **fields)
    return Conversation(agent, script(call("refund"), say("Done.")), make_tool("refund", refund))


async def test_who_reads_of_a_result_comes_too_late() -> None:
    refund = Recorder("refunded")
    talk = await refunding(refund).open()
    events = talk.say()
    await take_until(events, "tool_result")
    await events.aclose()
    assert refund.calls == [{}]


async def test_a_callback_in_front_of_the_tool_is_in_time_and_the_agent_can_explain() -> None:
    refund = Recorder("refunded")
    talk = await refunding(refund, before_tool_callback=deny).open()
    events = await talk.tell()
    assert refund.calls == []
    assert "tool_call" not in kinds(events)
    assert "no approval" in str([made.response for event in events for made in event.get_function_responses()])
    assert shown(events) == ["Done."]


async def test_the_same_callback_lets_an_approved_call_pass() -> None:
    refund = Recorder("refunded")
    talk = await refunding(refund, before_tool_callback=deny).open(approved=True)
    await talk.tell()
    assert refund.calls == [{}]


async def test_a_higher_cap_on_model_calls_authorizes_nothing() -> None:
    refund = Recorder("refunded")
    talk = await refunding(refund, before_tool_callback=deny).open()
    await talk.tell(max_llm_calls=500)
    assert refund.calls == []


async def test_what_came_of_a_call_is_recorded_with_its_invocation() -> None:
    kept: list[tuple[str, str, Any]] = []

    def keep(tool: Tool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any) -> None:
        kept.append((tool_context.invocation_id, tool.name, tool_response))

    talk = await refunding(Recorder("refunded"), after_tool_callback=keep).open()
    events = await talk.tell()
    assert kept == [(events[0].invocation_id, "refund", "refunded")]


# --- "max_llm_calls limits tokens, tools and time" -------------------------------------------------------------------


async def test_the_cap_on_model_calls_does_not_count_tool_calls() -> None:
    look = Recorder()
    turn = calls(*[ScriptedCall(name="look", arguments={"n": n}) for n in range(6)])
    events = await (await looking(turn, say("Done."), look=look).open()).tell(max_llm_calls=2)
    assert (len(look.calls), shown(events)) == (6, ["Done."])


async def test_the_cap_on_model_calls_does_not_count_a_tools_retries() -> None:
    look = Recorder(RuntimeError("busy"))
    agent = clerk(tools=("look",), idempotent_tools=("look",), retry=RetryConfig(max_attempts=4))
    talk = Conversation(
        agent, script(call("look"), say("It is busy.")), make_tool("look", look, effect=Effect.IDEMPOTENT)
    )
    events = await (await talk.open()).tell(max_llm_calls=2)
    assert (len(look.calls), shown(events)) == (4, ["It is busy."])


async def test_the_cap_on_model_calls_does_not_count_tokens() -> None:
    long = "word " * 2_000
    assert shown(await (await looking(say(long)).open()).tell(max_llm_calls=1)) == [long]


async def test_the_cap_on_model_calls_does_not_wake_a_tool_that_hangs_and_a_timeout_does() -> None:
    stall, clock = Stall(), FakeClock(auto_advance=False)
    talk = Conversation(
        clerk(tools=("refund",)), script(call("refund")), make_tool("refund", stall.as_tool), clock=clock
    )
    telling = asyncio.create_task((await talk.open()).tell(max_llm_calls=1, timeout_seconds=30))
    await stall.reached.wait()
    clock.advance(29)
    assert not telling.done()
    clock.advance(2)
    assert (await telling)[-1].error_code == "deadline_exceeded"


# --- "A callback makes the model predictable" ------------------------------------------------------------------------


def calm(tool: Tool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any) -> dict[str, str]:
    return {"weather": "calm"}


@pytest.mark.parametrize("whim", ["Let us sail.", "Better stay at home."])
async def test_a_callback_decides_at_its_boundary_and_the_models_next_word_is_its_own(whim: str) -> None:
    agent = clerk(tools=("look",), after_tool_callback=calm)
    talk = await Conversation(agent, script(call("look"), say(whim)), make_tool("look", Recorder("storm"))).open()
    events = await talk.tell()
    assert "calm" in talk.provider.requests[1].messages[-1].content  # type: ignore[attr-defined]
    assert shown(events) == [whim]


async def test_what_a_callback_put_in_is_on_record() -> None:
    agent = clerk(tools=("look",), after_tool_callback=calm)
    talk = await Conversation(agent, script(call("look"), say("Fine.")), make_tool("look", Recorder("storm"))).open()
    overridden: list[Event] = [event for event in await talk.tell() if kind_of(event) == "callback_override"]
    assert len(overridden) == 1
