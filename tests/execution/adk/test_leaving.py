"""What a run that did not complete leaves for the next message of its session."""

from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from tests.execution.adk.talking import Conversation
from tests.execution.fakes import Recorder, call, calls, make_tool, say
from tests.execution.support import clerk


def in_a_row(*steps: ScriptedStep) -> tuple[Conversation, ScriptedProvider]:
    """A clerk whose model says these, one after the other, over all runs."""
    said = iter(steps)
    provider = ScriptedProvider({"model": lambda _: next(said)})
    agent = clerk(tools=("pay",))
    return Conversation(agent, provider, make_tool("pay", Recorder())), provider


async def test_no_message_without_a_word_stays_in_a_history() -> None:
    talk, provider = in_a_row(call("pay"), say(""), say("Now."))
    await talk.open()
    await talk.tell("Pay.")
    await talk.tell("And now?")
    read = provider.requests[-1].messages
    assert [message.role for message in read if not message.content and not message.tool_calls] == []


async def test_calls_of_a_turn_that_was_refused_are_told_as_not_made() -> None:
    turn = calls(*[ScriptedCall(name="pay", arguments={"n": number}) for number in range(9)])
    talk, provider = in_a_row(turn, say("No."))
    await talk.open()
    await talk.tell("Pay.")
    await talk.tell("Did you?")
    read = provider.requests[-1].messages
    assert {message.content for message in read if message.role == "tool"} == {"The call was not made."}
