"""Over HTTP a reader goes by ``final``, in the library by ``is_final_response()``: they mark the same events."""

from typing import Any, Final

import pytest

from app.agents import ToolFailurePolicy
from app.conversation import StopReason
from app.execution.adk import Event
from app.ports.tools import ToolContext
from app.providers import ScriptedStep
from tests.execution.adk.talking import Conversation, kind_of, script
from tests.execution.fakes import Recorder, call, make_tool, say
from tests.execution.support import clerk

DONE: Final = make_tool("pay", Recorder("done"))


def answering(text: str) -> Any:
    async def answer(arguments: dict[str, Any], context: ToolContext) -> str:
        context.actions.skip_summarization = True
        return text

    return make_tool("pay", answer)


def speaking(*steps: ScriptedStep, tool: Any = DONE, **fields: Any) -> Conversation:
    return Conversation(clerk(tools=("pay",), **fields), script(*steps), tool)


async def tell(talk: Conversation, **config: Any) -> list[Event]:
    await talk.open()
    return await talk.tell(**config)


ANSWERS: Final = {
    "a text": (speaking(say("Hi")), ["model_response"]),
    "a text after a call": (speaking(call("pay"), say("Hi")), ["model_response"]),
    "a result": (speaking(call("pay"), tool=answering("The list.")), ["summary_skipped"]),
    "a result that says nothing": (speaking(call("pay"), tool=answering("")), ["summary_skipped"]),
    "a callback's": (speaking(before_agent_callback=lambda callback_context: "No."), ["model_response"]),
    "with a word after it": (
        speaking(say("Hi"), after_agent_callback=lambda callback_context: "Bye."),
        ["model_response", "model_response"],
    ),
}

FAILURES: Final = {
    "an answer of nothing": speaking(say("")),
    "a callback's answer of nothing": speaking(before_agent_callback=lambda callback_context: ""),
    "a callback's response of nothing": speaking(before_model_callback=lambda callback_context, llm_request: ""),
    "an answer that was cut": speaking(say("Half an", stop_reason=StopReason.LENGTH)),
    "a tool that fails the run": speaking(
        call("pay"),
        tool=make_tool("pay", Recorder(ValueError("away"))),
        on_tool_error=ToolFailurePolicy.FAIL_RUN,
    ),
}


def marked(events: list[Event]) -> list[str]:
    return [kind_of(event) for event in events if event.run_event and event.run_event.body.final]


def final(events: list[Event]) -> list[str]:
    return [kind_of(event) for event in events if event.is_final_response()]


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_final_by_both(name: str) -> None:
    talk, kinds = ANSWERS[name]
    events = await tell(talk)
    assert (marked(events), final(events)) == (kinds, kinds)


@pytest.mark.parametrize("name", FAILURES)
async def test_of_a_run_that_failed_the_error_is_final_by_both(name: str) -> None:
    events = await tell(FAILURES[name])
    assert (marked(events), final(events)) == (["terminated"], ["terminated"])


async def test_of_a_run_that_reached_its_cap_the_error_is_final_by_both() -> None:
    events = await tell(speaking(call("pay"), say("Hi")), max_llm_calls=1)
    assert (marked(events), final(events)) == (["terminated"], ["terminated"])
