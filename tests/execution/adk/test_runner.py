"""An invocation, event by event: the loop goes on when what it stored was taken, and stops with its reader."""

import asyncio
import gc
from contextlib import aclosing
from typing import Any

import pytest

from app.conversation import Content, FunctionCall, FunctionResponse, Part
from app.errors import ConfigurationError, SessionNotFoundError
from app.execution.adk import Event, Runner
from app.execution.memory_sessions import InMemorySessions
from app.execution.runner import AgentRunner
from app.hooks import LengthGuard
from app.providers import ScriptedDelta, ScriptedError, ScriptedStep
from app.testing import FakeClock
from app.tools import ToolRegistry
from tests.execution.adk.talking import SESSION, USER, Conversation, kinds, script, shown, take_until
from tests.execution.fakes import Recorder, Stall, StreamingProvider, call, let_others_run, make_tool, say
from tests.execution.support import clerk

CLERK = clerk(tools=("pay",))


def paying(*tools: Any, **fields: Any) -> Conversation:
    """The model asks for one call, and answers."""
    return Conversation(CLERK, script(call("pay"), say("Paid.")), *tools, **fields)


def test_agent_and_sessions_may_be_given_by_their_place() -> None:
    sessions = InMemorySessions()
    runner = Runner(clerk(), sessions, provider=script())
    assert (runner.agent, runner.sessions) == (clerk(), sessions)


async def test_every_stored_event_is_told_once_and_in_order() -> None:
    events = await (await paying(make_tool("pay", Recorder())).open()).tell()
    stored = [event.run_event.seq for event in events if event.run_event]
    assert stored == list(range(1, len(events) + 1))


async def test_the_events_are_those_of_the_same_run_through_the_other_door() -> None:
    registry = ToolRegistry()
    registry.register(make_tool("pay", Recorder()))
    run = await AgentRunner(provider=script(call("pay"), say("Paid.")), tools=registry).run(CLERK, "Hi", tenant="acme")
    events = await (await paying(make_tool("pay", Recorder())).open()).tell()
    assert kinds(events) == [event.kind for event in run.events]


async def test_the_answer_is_the_one_final_response() -> None:
    assert shown(await (await paying(make_tool("pay", Recorder())).open()).tell()) == ["Paid."]


async def test_the_model_is_not_asked_before_its_call_was_taken() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    async with aclosing(talk.say()) as events:
        await take_until(events, "model_call")
        await let_others_run()
        assert len(talk.provider.requests) == 0  # type: ignore[attr-defined]
        await anext(events)
        assert len(talk.provider.requests) == 1  # type: ignore[attr-defined]


async def test_a_tool_is_not_called_before_its_call_was_taken() -> None:
    pay = Recorder()
    talk = await paying(make_tool("pay", pay)).open()
    async with aclosing(talk.say()) as events:
        await take_until(events, "tool_call")
        await let_others_run()
        assert pay.calls == []
        await anext(events)
        assert pay.calls == [{}]


async def test_events_that_were_stored_together_are_told_one_by_one() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    async with aclosing(talk.say()) as events:
        told = [await anext(events) for _ in range(3)]
    assert kinds(told) == ["run_queued", "run_started", "prompt_assembled"]


async def test_what_is_not_wired_is_refused_before_the_first_event_and_leaves_the_session_free() -> None:
    talk = await Conversation(clerk(tools=("missing",)), script(say("Hello."))).open()
    with pytest.raises(ConfigurationError, match="missing"):
        await talk.tell()
    assert talk.logs.run_ids() == ()
    with pytest.raises(ConfigurationError, match="missing"):
        await talk.tell(on_session_busy="reject")


# --- the message -----------------------------------------------------------------------------------------------------


async def test_a_message_may_be_content_of_text_parts() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    await talk.tell(Content(parts=(Part(text="Good "), Part(text="morning"))))
    assert talk.provider.requests[0].messages[-1].content == "Good morning"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Content.of_text("I am the model", role="model"), id="the model's"),
        pytest.param(Content(parts=(Part(function_call=FunctionCall(name="pay")),)), id="a call"),
        pytest.param(Content(parts=(Part(function_response=FunctionResponse(name="pay")),)), id="a result"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param(None, id="nothing"),
    ],
)
async def test_a_message_that_is_no_text_of_the_user_is_refused_by_name(message: Any) -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    with pytest.raises(ConfigurationError) as caught:
        await talk.tell(message)
    assert caught.value.code == "unsupported_content"


async def test_a_message_that_says_nothing_is_refused() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    with pytest.raises(ConfigurationError, match="says nothing"):
        await talk.tell(Content())


# --- the session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "session", "tenant", "agent"),
    [
        (USER, "ses_2", "default", "clerk"),
        ("bob", SESSION, "default", "clerk"),
        (USER, SESSION, "globex", "clerk"),
        (USER, SESSION, "default", "other"),
    ],
)
async def test_a_session_is_found_by_tenant_agent_user_and_id_and_is_never_made_by_a_message(
    user: str, session: str, tenant: str, agent: str
) -> None:
    home = await Conversation(clerk(), script(say("Hello."))).open()
    talk = Conversation(clerk(name=agent), script(say("Hello.")), sessions=home.sessions, tenant=tenant)
    events = talk.runner.run_async(user_id=user, session_id=session, new_message="Hi")
    with pytest.raises(SessionNotFoundError) as caught:
        await anext(events)
    assert (caught.value.code, talk.logs.run_ids()) == ("session_not_found", ())


# --- text on its way -------------------------------------------------------------------------------------------------


def writing(**fields: Any) -> Conversation:
    streamed = ScriptedStep(deltas=(ScriptedDelta(text="Hello "), ScriptedDelta(text="you.")))
    return Conversation(clerk(**fields.pop("of_agent", {})), script(streamed), **fields)


def written(events: list[Event]) -> list[str]:
    return [event.content.text for event in events if event.partial and event.content]


async def test_text_is_told_as_it_is_written_and_then_whole() -> None:
    events = await (await writing().open()).tell(streaming_mode="sse")
    assert "".join(written(events)) == "Hello you."
    assert kinds(events)[-3:] == ["partial", "model_response", "terminated"]
    assert shown(events) == ["Hello you."]


async def test_without_streaming_nothing_is_partial() -> None:
    assert written(await (await writing().open()).tell()) == []


async def test_text_that_may_still_be_changed_is_held_back() -> None:
    guarded = writing(of_agent={"guardrails": ("length",)}, guardrails={"length": LengthGuard(100, name="length")})
    events = await (await guarded.open()).tell(streaming_mode="sse")
    assert (written(events), shown(events)) == ([], ["Hello you."])


async def test_text_that_a_slow_reader_has_not_taken_comes_in_one_piece() -> None:
    stall = Stall()
    talk = await Conversation(clerk(), StreamingProvider("Hel", "lo ", "you.", stall=stall)).open()
    async with aclosing(talk.say(streaming_mode="sse")) as events:
        await take_until(events, "model_call")
        asking = asyncio.ensure_future(anext(events))
        await stall.reached.wait()
        stall.go_on.set()
        rest = [await asking, *[event async for event in events]]
    assert "".join(written(rest)) == "Hello you."
    assert len(written(rest)) < 3


async def test_text_of_an_attempt_that_failed_is_followed_by_its_failure() -> None:
    talk = await Conversation(clerk(), script(ScriptedStep(text="Hel", error=ScriptedError(status=400)))).open()
    events = await talk.tell(streaming_mode="sse")
    assert kinds(events)[-3:] == ["partial", "attempt_failed", "terminated"]


# --- the reader leaves -----------------------------------------------------------------------------------------------


async def test_closing_ends_the_run_as_cancelled_and_nothing_more_happens() -> None:
    pay = Recorder()
    talk = await paying(make_tool("pay", pay)).open()
    async with aclosing(talk.say()) as events:
        await take_until(events, "tool_call")
    assert (talk.ends(), pay.calls) == (["cancelled"], [])


async def test_closing_cuts_off_the_model_and_the_next_message_is_answered() -> None:
    stall = Stall()
    provider = StreamingProvider("Hello", stall=stall)
    talk = await Conversation(clerk(), provider).open()
    events = talk.say()
    await take_until(events, "model_call")
    asking = asyncio.ensure_future(anext(events))
    await stall.reached.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert (stall.was_cut, talk.ends()) == (True, ["cancelled"])
    stall.go_on.set()
    assert shown(await talk.tell(on_session_busy="reject")) == ["Hello"]


async def test_a_call_that_was_out_when_the_reader_left_is_on_record_as_unknown() -> None:
    stall = Stall()
    talk = await paying(make_tool("pay", stall.as_tool)).open()
    events = talk.say()
    await take_until(events, "tool_call")
    asking = asyncio.ensure_future(anext(events))
    await stall.reached.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    [run_id] = talk.logs.run_ids()
    assert [event.kind for event in talk.logs.events(run_id)][-4:] == [
        "tool_indeterminate",
        "cancellation_requested",
        "compensation_required",
        "terminated",
    ]


async def test_a_cancelled_reader_stays_cancelled() -> None:
    stall = Stall()
    talk = await Conversation(clerk(), StreamingProvider("Hello", stall=stall)).open()
    reading = asyncio.create_task(talk.tell())
    await stall.reached.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert (reading.cancelled(), talk.ends()) == (True, ["cancelled"])


async def test_a_reader_that_can_not_even_wait_for_the_end_is_not_needed_for_it() -> None:
    stall = Stall(stubborn=True)
    talk = await paying(make_tool("pay", stall.as_tool)).open()
    reading = asyncio.create_task(talk.tell())
    await stall.reached.wait()
    reading.cancel()
    await let_others_run()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert talk.logs.events(talk.logs.run_ids()[0])[-1].kind == "tool_call"
    stall.go_on.set()
    await let_others_run()
    assert talk.ends() == ["cancelled"]


async def test_a_reader_that_just_walks_away_ends_the_run_too() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    async for _ in talk.say():
        break
    gc.collect()
    await let_others_run()
    assert talk.ends() == ["cancelled"]


async def test_an_invocation_of_which_no_event_was_asked_for_never_was() -> None:
    talk = await Conversation(clerk(), script(say("Hello."))).open()
    await talk.say().aclose()
    assert talk.logs.run_ids() == ()


async def test_an_invocation_that_is_killed_with_its_loop_is_gone_and_the_session_is_free() -> None:
    stall = Stall()
    talk = await Conversation(clerk(), StreamingProvider("Hello", stall=stall)).open()
    reading = asyncio.create_task(talk.tell())
    await stall.reached.wait()
    [driving] = [task for task in asyncio.all_tasks() if task.get_name().startswith("invocation ")]
    driving.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert (reading.cancelled(), talk.logs.run_ids()) == (True, ())
    stall.go_on.set()
    assert shown(await talk.tell(on_session_busy="reject")) == ["Hello"]


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_timeout_ends_the_invocation_with_an_error_event() -> None:
    stall, clock = Stall(), FakeClock(auto_advance=False)
    talk = await Conversation(clerk(), StreamingProvider("Hello", stall=stall), clock=clock).open()
    telling = asyncio.create_task(talk.tell(timeout_seconds=30))
    await stall.reached.wait()
    clock.advance(31)
    events = await telling
    assert (events[-1].error_code, events[-1].is_final_response()) == ("deadline_exceeded", True)


async def test_a_reader_that_stays_away_past_the_deadline_does_not_keep_the_run_open() -> None:
    clock = FakeClock(auto_advance=False)
    talk = await Conversation(clerk(), StreamingProvider("Hello", stall=Stall()), clock=clock).open()
    async with aclosing(talk.say(timeout_seconds=30)) as events:
        await take_until(events, "model_call")
        await clock.wait_for_sleepers()
        clock.advance(31)
        await let_others_run()
        assert talk.ends() == ["cancelled"]
        rest = [event async for event in events]
    assert (rest[-1].error_code, shown(rest)) == ("deadline_exceeded", [])
