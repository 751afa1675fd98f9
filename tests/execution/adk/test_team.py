"""Handovers, delegation, callbacks and results that are the answer, as the one who reads the events sees them."""

import asyncio
from typing import Any

import pytest

from app.agents import Agent
from app.errors import ConfigurationError
from app.execution.adk import Event
from app.execution.keeping import DeferringGate
from app.policy import ApprovalDecision, ApprovalRecord
from app.ports.model import ModelRequest
from app.ports.tools import ToolContext
from app.providers import ScriptedProvider, ScriptedStep
from tests.execution.adk.talking import Conversation, kind_of, kinds, script, shown
from tests.execution.fakes import Recorder, call, make_tool, say
from tests.execution.support import clerk


def playing(**answers: list[ScriptedStep]) -> ScriptedProvider:
    """Each agent, known by its instructions, answers with its own steps, one by one."""

    def answer(request: ModelRequest) -> ScriptedStep:
        return answers[request.messages[0].content].pop(0)

    return ScriptedProvider({"model": answer})


def helper(**fields: Any) -> Agent:
    return Agent(**{"name": "helper", "instructions": "helper", **fields})


async def tell(agent: Agent, provider: ScriptedProvider, *tools: Any, **config: Any) -> list[Event]:
    return await (await Conversation(agent, provider, *tools).open()).tell(**config)


# --- handovers -------------------------------------------------------------------------------------------------------


async def test_a_handover_is_told_by_who_hands_over_and_the_answer_by_who_takes_over() -> None:
    boss = clerk(instructions="boss", sub_agents=(helper(),))
    events = await tell(
        boss, playing(boss=[call("transfer_to_agent", agent_name="helper")], helper=[say("I have it.")])
    )
    [moved] = [event for event in events if kind_of(event) == "agent_transfer"]
    assert (moved.author, moved.actions.transfer_to_agent) == ("clerk", "helper")
    assert [event.author for event in events if event.is_final_response()] == ["helper"]


async def test_a_message_that_waited_is_answered_by_whom_the_one_before_it_was_handed_to() -> None:
    boss = clerk(instructions="boss", sub_agents=(helper(),))
    provider = playing(boss=[call("transfer_to_agent", agent_name="helper")], helper=[say("I have it."), say("Still.")])
    talk = await Conversation(boss, provider).open()
    _, second = await asyncio.gather(talk.tell("one"), talk.tell("two"))
    [begun] = [event.run_event.body for event in second if event.run_event and kind_of(event) == "run_started"]
    assert getattr(begun, "starts_with", None) == "helper"
    assert [event.author for event in second if event.is_final_response()] == ["helper"]


async def test_a_tool_may_hand_back_to_the_agent_above() -> None:
    async def give_up(arguments: dict[str, Any], context: ToolContext) -> str:
        context.actions.escalate = True
        return "too hard"

    boss = clerk(instructions="boss", sub_agents=(helper(tools=("give_up",)),))
    provider = playing(
        boss=[call("transfer_to_agent", agent_name="helper"), say("Then I will.")], helper=[call("give_up")]
    )
    events = await tell(boss, provider, make_tool("give_up", give_up))
    [*_, moved] = [event for event in events if kind_of(event) == "agent_transfer"]
    assert (moved.author, moved.actions.escalate) == ("helper", True)
    assert shown(events) == ["Then I will."]


# --- delegation ------------------------------------------------------------------------------------------------------


def delegating() -> tuple[Agent, ScriptedProvider]:
    boss = clerk(instructions="boss", sub_agents=({"agent": helper(), "mode": "tool"},))
    return boss, playing(boss=[call("helper", input="Do it."), say("Done.")], helper=[say("Did it.")])


async def test_a_run_of_a_sub_agent_is_one_call_and_one_result_and_its_answer_is_not_shown() -> None:
    events = await tell(*delegating())
    assert len({event.invocation_id for event in events}) == 1
    assert kinds(events).count("tool_call") == kinds(events).count("tool_result") == 1
    assert shown(events) == ["Done."]


async def test_the_call_names_the_run_of_the_sub_agent() -> None:
    events = await tell(*delegating())
    [made] = [event.run_event for event in events if event.run_event and event.run_event.kind == "tool_call"]
    assert getattr(made.body, "child_run_id", None) not in (None, events[0].invocation_id)


async def test_text_of_a_sub_agent_is_not_told_as_the_agents_own() -> None:
    events = await tell(*delegating(), streaming_mode="sse")
    assert [event.content.text for event in events if event.partial and event.content] == ["Done."]


async def test_model_calls_of_sub_agents_count_for_the_invocations_cap() -> None:
    events = await tell(*delegating(), max_llm_calls=2)
    assert (events[-1].error_code, shown(events)) == ("max_llm_calls_exceeded", [])


# --- results that are the answer -------------------------------------------------------------------------------------


async def pass_on(arguments: dict[str, Any], context: ToolContext) -> str:
    context.actions.skip_summarization = True
    return f"Fare: {arguments['n']}."


async def test_a_result_that_is_the_answer_is_shown_once_as_the_tool_wrote_it() -> None:
    agent = clerk(tools=("fare",))
    events = await tell(agent, script(call("fare", n=40)), make_tool("fare", pass_on))
    [final] = [event for event in events if event.is_final_response()]
    assert (shown(events), final.actions.skip_summarization) == (["Fare: 40."], True)
    assert kinds(events).count("model_call") == 1


# --- callbacks -------------------------------------------------------------------------------------------------------


async def test_an_agent_that_a_callback_answered_for_asks_no_model() -> None:
    agent = clerk(before_agent_callback=lambda callback_context: "We are closed.")
    events = await tell(agent, script())
    assert (shown(events), "model_call" in kinds(events)) == (["We are closed."], False)


async def test_what_is_added_after_the_answer_is_one_more_final_event() -> None:
    agent = clerk(after_agent_callback=lambda callback_context: "Was that of help?")
    assert shown(await tell(agent, script(say("Hello.")))) == ["Hello.", "Was that of help?"]


async def test_a_response_that_a_callback_wrote_is_shown_like_any_other() -> None:
    agent = clerk(before_model_callback=lambda callback_context, llm_request: "From memory.")
    assert shown(await tell(agent, script())) == ["From memory."]


async def test_a_response_that_a_callback_replaced_is_never_seen_as_it_was_written() -> None:
    agent = clerk(after_model_callback=lambda callback_context, llm_response: llm_response.text.upper())
    events = await tell(agent, script(say("Hello.")), streaming_mode="sse")
    assert shown(events) == ["HELLO."]
    assert "Hello." not in "".join(event.model_dump_json() for event in events)


async def test_a_callback_that_raises_ends_the_invocation_by_name() -> None:
    def check(tool: Any, args: Any, tool_context: Any) -> None:
        raise RuntimeError("the desk is closed")

    look = Recorder()
    agent = clerk(tools=("look",), before_tool_callback=check)
    events = await tell(agent, script(call("look")), make_tool("look", look))
    assert (events[-1].error_code, look.calls) == ("callback_failed", [])


async def test_state_that_a_callback_set_is_told_as_a_change_and_kept_in_the_session() -> None:
    def greet(callback_context: Any) -> None:
        callback_context.state["greeted"] = True

    talk = await Conversation(clerk(before_agent_callback=greet), script(say("Hello."))).open()
    events = await talk.tell()
    assert {"greeted": True} in [event.actions.state_delta for event in events]
    assert await talk.state() == {"greeted": True}


# --- people ----------------------------------------------------------------------------------------------------------


class Desk:
    """A person who says yes."""

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision:
        return ApprovalDecision.grant(record, decided_by="grace")


async def test_a_gate_that_answers_on_the_spot_lets_a_call_out_in_the_middle_of_the_stream() -> None:
    pay = Recorder()
    agent = clerk(tools=("pay",), approval_required_tools=("pay",))
    talk = Conversation(agent, script(call("pay"), say("Paid.")), make_tool("pay", pay), approvals=Desk())
    events = await (await talk.open()).tell()
    approvals = [kind for kind in kinds(events) if kind.startswith("approval")]
    assert approvals == ["approval_required", "approval_granted"]
    assert (shown(events), pay.calls) == (["Paid."], [{}])


def test_a_gate_that_puts_questions_off_has_no_place_in_a_conversation() -> None:
    with pytest.raises(ConfigurationError, match="SuspensionStore"):
        Conversation(clerk(), script(), approvals=DeferringGate())
