"""Runs of one session go one after the other; what a message does to those before it is its sender's choice."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from app.errors import SessionBusyError, SessionNotFoundError
from app.execution.adk import Event
from app.ports.model import ModelRequest
from app.providers import ScriptedProvider, ScriptedStep
from app.testing import FakeClock
from tests.execution.adk.talking import SESSION, USER, Conversation, kinds, shown, take_until
from tests.execution.fakes import Stall, call, let_others_run, make_tool, say
from tests.execution.support import clerk


def echo() -> ScriptedProvider:
    """Answers with what it was told last."""

    def answer(request: ModelRequest) -> ScriptedStep:
        return say(f"You said {request.messages[-1].content}.")

    return ScriptedProvider({"model": answer})


async def talking(**fields: object) -> Conversation:
    return await Conversation(clerk(), echo(), **fields).open()  # type: ignore[arg-type]


async def begin(events: AsyncGenerator[Event, None]) -> Event:
    """Up to the place where the model is about to be asked."""
    return await take_until(events, "model_call")


async def rest_of(events: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(events):
        return [event async for event in events]


async def test_a_message_waits_for_the_run_before_it() -> None:
    talk = await talking()
    first = talk.say("one")
    await begin(first)
    second = asyncio.create_task(talk.tell("two"))
    await let_others_run()
    assert len(talk.logs.run_ids()) == 1
    assert shown(await rest_of(first)) == ["You said one."]
    assert shown(await second) == ["You said two."]


async def test_those_that_wait_go_in_the_order_in_which_they_asked() -> None:
    talk = await talking()
    first = talk.say("one")
    await begin(first)
    waiting = [asyncio.create_task(talk.tell(text)) for text in ("two", "three", "four")]
    await let_others_run()
    await rest_of(first)
    await asyncio.gather(*waiting)
    asked = [request.messages[-1].content for request in talk.provider.requests]  # type: ignore[attr-defined]
    assert asked == ["one", "two", "three", "four"]


async def test_a_later_message_sees_what_was_said_before_it_got_its_turn() -> None:
    talk = await talking()
    first = talk.say("one")
    await begin(first)
    second = asyncio.create_task(talk.tell("two"))
    await let_others_run()
    await rest_of(first)
    await second
    said = [message.content for message in talk.provider.requests[1].messages]  # type: ignore[attr-defined]
    assert said[-3:] == ["one", "You said one.", "two"]


async def test_a_message_that_will_not_wait_is_refused_and_leaves_nothing() -> None:
    talk = await talking()
    first = talk.say("one")
    await begin(first)
    with pytest.raises(SessionBusyError) as caught:
        await talk.tell("two", on_session_busy="reject")
    assert (caught.value.code, len(talk.logs.run_ids())) == ("session_busy", 1)
    assert shown(await rest_of(first)) == ["You said one."]


@pytest.mark.parametrize("on_busy", ["reject", "interrupt", "enqueue"])
async def test_a_session_at_rest_takes_every_message(on_busy: str) -> None:
    talk = await talking()
    await talk.tell("one")
    assert shown(await talk.tell("two", on_session_busy=on_busy)) == ["You said two."]


async def test_an_interrupting_message_cancels_the_run_before_it_even_where_nobody_reads_that_one() -> None:
    talk = await talking()
    first = talk.say("one")
    await begin(first)
    # In the same task: the reader of the first does not ask for more meanwhile.
    assert shown(await talk.tell("two", on_session_busy="interrupt")) == ["You said two."]
    ended = await rest_of(first)
    assert (ended[-1].error_code, shown(ended), talk.ends()) == ("cancelled", [], ["cancelled", "completed"])


async def test_an_interrupting_message_cancels_those_that_wait_too_and_they_never_ask_the_model() -> None:
    talk = await talking()
    first = talk.say("one")
    await begin(first)
    second = asyncio.create_task(talk.tell("two"))
    await let_others_run()
    await talk.tell("three", on_session_busy="interrupt")
    ended = await second
    assert (ended[-1].error_code, "model_call" in kinds(ended)) == ("cancelled", False)
    await rest_of(first)


async def test_a_reader_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    talk = await talking()
    first = talk.say("one")
    await begin(first)
    second = asyncio.create_task(talk.tell("two"))
    third = asyncio.create_task(talk.tell("three"))
    await let_others_run()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await rest_of(first)
    assert shown(await third) == ["You said three."]
    assert talk.ends() == ["completed", "completed"]


async def test_a_message_whose_time_passes_while_it_waits_ends_by_its_deadline_and_touches_nothing() -> None:
    clock = FakeClock(auto_advance=False)
    talk = await talking(clock=clock)
    first = talk.say("one")
    await begin(first)
    second = asyncio.create_task(talk.tell("two", timeout_seconds=10))
    await clock.wait_for_sleepers()
    clock.advance(11)
    ended = await second
    assert (ended[-1].error_code, "model_call" in kinds(ended)) == ("deadline_exceeded", False)
    assert shown(await rest_of(first)) == ["You said one."]


async def test_sessions_do_not_wait_for_each_other() -> None:
    talk = await (await talking()).open("ses_2")
    first = talk.say("one")
    await begin(first)
    assert shown(await talk.tell("two", session_id="ses_2")) == ["You said two."]
    await rest_of(first)


async def test_runners_that_share_sessions_share_the_order() -> None:
    talk = await talking()
    other = Conversation(clerk(), echo(), sessions=talk.sessions)
    first = talk.say("one")
    await begin(first)
    with pytest.raises(SessionBusyError):
        await other.tell("two", on_session_busy="reject")
    await rest_of(first)


async def test_a_session_that_is_gone_when_the_turn_comes_is_not_found() -> None:
    talk = await talking()
    first = talk.say("one")
    await take_until(first, "terminated")
    second = asyncio.create_task(talk.tell("two"))
    await let_others_run()
    await talk.sessions.delete_session(session_id=SESSION, user_id=USER, app_name="clerk")
    await rest_of(first)
    with pytest.raises(SessionNotFoundError):
        await second


async def test_a_reader_that_leaves_before_its_run_began_leaves_none() -> None:
    talk = await talking()
    reading = asyncio.create_task(talk.tell("one"))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert talk.logs.run_ids() == ()


async def test_those_that_were_interrupted_end_in_their_order_also_where_the_first_takes_its_time() -> None:
    stall = Stall(stubborn=True)

    def answer(request: ModelRequest) -> ScriptedStep:
        return call("wait") if request.messages[-1].content == "one" else say("Here I am.")

    agent = clerk(tools=("wait",))
    talk = await Conversation(agent, ScriptedProvider({"model": answer}), make_tool("wait", stall.as_tool)).open()
    first, second = asyncio.create_task(talk.tell("one")), asyncio.create_task(talk.tell("two"))
    await stall.reached.wait()
    third = asyncio.create_task(talk.tell("three", on_session_busy="interrupt"))
    await let_others_run()
    assert (second.done(), third.done()) == (False, False)
    stall.go_on.set()
    told = await asyncio.gather(first, second, third)
    assert [events[-1].error_code for events in told] == ["cancelled", "cancelled", None]
