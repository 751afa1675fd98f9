"""What an invocation leaves in its session, and when it can be seen there."""

from contextlib import aclosing
from typing import Any

from app.agents import Agent
from app.ports.model import ModelRequest
from app.ports.tools import ToolContext
from app.providers import ScriptedProvider, ScriptedStep
from tests.execution.adk.talking import SESSION, Conversation, script, take_until
from tests.execution.fakes import Recorder, call, make_tool, say
from tests.execution.support import clerk


def setting(**changes: Any) -> Any:
    """A tool that leaves these in the state."""

    async def set_them(arguments: dict[str, Any], context: ToolContext) -> str:
        context.state.update(changes)
        return "done"

    return make_tool("set", set_them)


def changing(sessions: Any = None, **changes: Any) -> Conversation:
    agent = clerk(tools=("set",))
    return Conversation(agent, script(call("set"), say("Done.")), setting(**changes), sessions=sessions)


def said_to(talk: Conversation, number: int) -> list[str]:
    """What the model read in that request, without the author's instructions."""
    requests: list[ModelRequest] = talk.provider.requests  # type: ignore[attr-defined]
    return [message.content for message in requests[number].messages if message.role != "system"]


async def test_a_change_that_was_told_is_in_the_session_and_one_that_was_not_is_not() -> None:
    talk = await changing(visits=1).open()
    async with aclosing(talk.say()) as events:
        await take_until(events, "tool_call")
        assert await talk.state() == {}
        await take_until(events, "state_delta")
        assert await talk.state() == {"visits": 1}


async def test_the_result_of_the_call_shows_the_change() -> None:
    talk = await changing(visits=1).open()
    async with aclosing(talk.say()) as events:
        assert (await take_until(events, "tool_result")).actions.state_delta == {"visits": 1}


async def test_state_of_agent_and_user_is_seen_in_their_other_sessions_and_the_sessions_own_is_not() -> None:
    talk = await (await changing(visits=1, **{"app:open": True, "user:name": "Ada"}).open()).open("ses_2")
    await talk.tell()
    assert await talk.state("ses_2") == {"app:open": True, "user:name": "Ada"}
    assert await talk.state() == {"visits": 1, "app:open": True, "user:name": "Ada"}


async def test_temporary_state_ends_with_the_invocation() -> None:
    talk = await changing(**{"temp:draft": 1}).open()
    await talk.tell()
    assert await talk.state() == {}


async def test_tools_see_what_the_session_was_opened_with() -> None:
    look = Recorder()
    talk = await Conversation(clerk(tools=("look",)), script(call("look"), say("Done.")), make_tool("look", look)).open(
        city="Kyoto"
    )
    await talk.tell()
    assert dict(look.contexts[0].state) == {"city": "Kyoto"}


async def test_a_key_that_is_set_to_none_is_gone() -> None:
    talk = await changing(city=None).open(city="Kyoto")
    await talk.tell()
    assert await talk.state() == {}


async def test_the_next_invocation_reads_what_was_said() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    await talk.tell("I am Ada.")
    await talk.tell("Who am I?")
    assert said_to(talk, 1) == ["I am Ada.", "Hello.", "Who am I?"]


async def test_another_session_does_not() -> None:
    talk = await (await Conversation(clerk(), script(say("Hello."))).open()).open("ses_2")
    await talk.tell("I am Ada.")
    await talk.tell("Who am I?", session_id="ses_2")
    assert said_to(talk, 1) == ["Who am I?"]


async def test_an_invocation_that_its_reader_left_is_marked_in_what_the_next_one_reads() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    async with aclosing(talk.say("I am Ada.")) as events:
        await take_until(events, "model_call")
    await talk.tell("Who am I?")
    first, *_, last = said_to(talk, 0)
    assert (first, last) == ("I am Ada.", "Who am I?")
    assert any("cancelled" in text for text in said_to(talk, 0)[1:-1])


async def test_one_that_was_left_before_the_model_was_asked_leaves_nothing() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    async with aclosing(talk.say("I am Ada.")) as events:
        await anext(events)
    await talk.tell("Who am I?")
    assert said_to(talk, 0) == ["Who am I?"]


async def test_a_session_goes_on_with_the_agent_that_it_was_handed_to() -> None:
    def answer(request: ModelRequest) -> ScriptedStep:
        is_first = not any(message.role == "tool" for message in request.messages)
        return call("transfer_to_agent", agent_name="billing") if is_first else say("Billing here.")

    agent = clerk(sub_agents=(Agent(name="billing", instructions="Bill."),))
    talk = await Conversation(agent, ScriptedProvider({"model": answer})).open()
    events = await talk.tell()
    assert [event.author for event in events if event.is_final_response()] == ["billing"]
    again = await talk.tell("Once more", session_id=SESSION)
    assert {event.author for event in again if not event.is_bookkeeping} == {"billing"}


async def test_an_answer_that_was_stored_stays_though_its_reader_left_before_the_end() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    async with aclosing(talk.say("I am Ada.")) as events:
        await take_until(events, "model_response")
    await talk.tell("Who am I?")
    assert (said_to(talk, 1), talk.ends()) == (["I am Ada.", "Hello.", "Who am I?"], ["completed", "completed"])
