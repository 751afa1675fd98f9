"""A conversation that has outgrown the window: whole oldest turns are left out, and the run says so, or it fails."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import pytest

from app import AgentRunner, HistoryPolicy, Run, RunState
from app.conversation import Message, Role, ToolCall
from app.errors import ContextOverflowError
from app.events import EventBody, HistoryTrimmed, ModelCall, ModelResponded
from app.ids import CallId
from app.policy import RetryConfig
from app.ports.model import ModelInfo, ModelRequest, ModelResponse, TextDelta
from app.providers import ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import Recorder, WholeProvider, make_tool
from tests.execution.support import clerk

B = TypeVar("B", bound=EventBody)

EACH = 10
WINDOW = 200
# What instructions and input leave of it.
ROOM = WINDOW - 2 * EACH


class WindowProvider(WholeProvider):
    """Its model's window has so many tokens, and each text has ten. A prompt that is longer is never evaluated."""

    def __init__(self, *answers: ModelResponse, window: int | None = WINDOW) -> None:
        super().__init__(*answers, tokens_each=EACH)
        self._window = window

    def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo(name="model", context_tokens=self._window, supports_tools=True)]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        prompt_tokens = EACH * len(request.messages)
        if self._window is not None and prompt_tokens > self._window:
            raise ContextOverflowError(prompt_tokens=prompt_tokens, window_tokens=self._window)
        async with aclosing(super().stream(request)) as items:
            async for item in items:
                yield item


def turns(number: int) -> list[Message]:
    """So many turns of a question and an answer, numbered from 1."""
    pairs = [(f"question {n}", f"answer {n}") for n in range(1, number + 1)]
    return [
        message
        for question, answer in pairs
        for message in (Message(role=Role.USER, content=question), Message(role=Role.ASSISTANT, content=answer))
    ]


def look(at: int) -> ModelResponse:
    call = ToolCall(call_id=CallId("c"), name="look", arguments={"at": at})
    return ModelResponse(content="", tool_calls=(call,))


def turns_with_calls(number: int) -> list[Message]:
    """So many turns in which a tool was called before the answer."""
    return [message for n in range(1, number + 1) for message in turn_with_call(n)]


def turn_with_call(number: int) -> list[Message]:
    call = ToolCall(call_id=CallId(f"call_{number}"), name="look", arguments={})
    return [
        Message(role=Role.USER, content=f"question {number}"),
        Message(role=Role.ASSISTANT, tool_calls=(call,)),
        Message(role=Role.TOOL, content="seen", call_id=call.call_id, name="look"),
        Message(role=Role.ASSISTANT, content=f"answer {number}"),
    ]


class Talk:
    """One run over a history, and what the model was sent."""

    def __init__(self, window: int | None = WINDOW, **fields: Any) -> None:
        self.provider = WindowProvider(ModelResponse(content="Hello."), window=window)
        self.runner = AgentRunner(provider=self.provider, clock=FakeClock(), ids=SequentialIds(), **fields)

    async def run(
        self, history: Sequence[Message], *, policy: HistoryPolicy = HistoryPolicy.FIT, **fields: Any
    ) -> Run[Any]:
        return await self.runner.run(clerk(history=policy), "now", tenant="acme", history=history, **fields)

    @property
    def sent(self) -> tuple[Message, ...]:
        [request] = self.provider.requests
        return request.messages

    @property
    def kept(self) -> list[Message]:
        """The history that the model was sent."""
        return [message for message in self.sent if message.role is not Role.SYSTEM][:-1]


def all_of(run: Run[Any], kind: type[B]) -> list[B]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


async def first_kept(number: int) -> str:
    """The oldest question that is still there of so many turns."""
    talk = Talk()
    await talk.run(turns(number))
    return talk.kept[0].content


# --- what fits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", HistoryPolicy)
async def test_a_history_that_fits_is_whole(policy: HistoryPolicy) -> None:
    talk = Talk()
    run = await talk.run(turns(4), policy=policy)
    assert (talk.kept, all_of(run, HistoryTrimmed)) == (turns(4), [])


async def test_a_model_that_does_not_say_how_much_it_holds_gets_everything() -> None:
    talk = Talk(window=None)
    run = await talk.run(turns(50))
    assert (len(talk.kept), all_of(run, HistoryTrimmed)) == (100, [])


def test_a_history_is_made_to_fit_unless_the_author_says_otherwise() -> None:
    assert clerk().history is HistoryPolicy.FIT


# --- what does not ---------------------------------------------------------------------------------------------------


async def test_the_oldest_turns_are_left_out_and_the_newest_stay() -> None:
    talk = Talk()
    run = await talk.run(turns(20))
    assert run.state is RunState.COMPLETED
    assert talk.kept == turns(20)[-len(talk.kept) :]
    assert (talk.kept[0].role, talk.sent[-1].content) == (Role.USER, "now")


async def test_the_history_is_cut_to_fit_the_room_and_not_to_nothing() -> None:
    talk = Talk()
    await talk.run(turns(10))
    assert 2 * EACH < len(talk.kept) * EACH <= ROOM


async def test_the_run_says_how_much_was_left_out() -> None:
    talk = Talk()
    [trimmed] = all_of(await talk.run(turns(20)), HistoryTrimmed)
    dropped = 40 - len(talk.kept)
    assert (trimmed.turns_dropped, trimmed.tokens_dropped) == (dropped // 2, dropped * EACH)


async def test_what_was_left_out_is_told_before_the_model_is_called() -> None:
    kinds = [event.kind for event in (await Talk().run(turns(20))).events]
    assert kinds.index("history_trimmed") < kinds.index("model_call")


async def test_the_cut_stays_where_it_is_for_several_turns() -> None:
    firsts = [await first_kept(number) for number in range(10, 20)]
    assert len(set(firsts)) <= 4


async def test_a_call_and_its_result_stay_or_go_together() -> None:
    talk = Talk()
    run = await talk.run(turns_with_calls(12))
    called = [call.call_id for message in talk.kept for call in message.tool_calls]
    answered = [message.call_id for message in talk.kept if message.role is Role.TOOL]
    assert (run.state, len(talk.kept) % 4, talk.kept[0].role) == (RunState.COMPLETED, 0, Role.USER)
    assert (called == answered, len(called) > 0) == (True, True)


async def test_what_is_not_history_is_never_left_out() -> None:
    talk = Talk()
    await talk.run(turns(20), pinned=["case"], retrieved=["found"])
    system = [message.content for message in talk.sent if message.role is Role.SYSTEM]
    assert system[0] == "Help."
    assert ("case" in system[1], "found" in system[2], talk.sent[-1].content) == (True, True, "now")


async def test_leaving_turns_out_moves_no_fingerprint() -> None:
    whole, trimmed = await Talk().run([]), await Talk().run(turns(20))
    assert whole.prompt_fingerprint == trimmed.prompt_fingerprint


async def test_a_prompt_that_was_made_to_fit_fits() -> None:
    run = await Talk().run(turns(20))
    [called] = all_of(run, ModelCall)
    assert called.estimated_input_tokens <= WINDOW


async def test_where_only_the_new_input_fits_the_whole_history_is_left_out() -> None:
    talk = Talk(window=35)
    run = await talk.run(turns(3))
    assert (run.state, talk.kept, all_of(run, HistoryTrimmed)[0].turns_dropped) == (RunState.COMPLETED, [], 3)


# --- what can't be made to fit ---------------------------------------------------------------------------------------


async def test_an_author_who_wants_all_of_it_gets_a_failure_with_both_numbers() -> None:
    talk = Talk()
    run = await talk.run(turns(20), policy=HistoryPolicy.ALL)
    assert (run.state, run.error_code) == (RunState.FAILED, "context_overflow")
    assert ("420" in str(run.error_detail), "200" in str(run.error_detail)) == (True, True)
    assert all_of(run, HistoryTrimmed) == []


async def test_an_input_that_is_too_much_by_itself_fails_with_both_numbers() -> None:
    talk = Talk(window=15)
    run = await talk.run(turns(3))
    assert (run.state, run.error_code) == (RunState.FAILED, "context_overflow")
    assert ("20" in str(run.error_detail), "15" in str(run.error_detail)) == (True, True)


@pytest.mark.parametrize(("window", "policy"), [(WINDOW, HistoryPolicy.ALL), (15, HistoryPolicy.FIT)])
async def test_a_prompt_that_does_not_fit_is_never_evaluated_and_never_tried_again(
    window: int, policy: HistoryPolicy
) -> None:
    talk = Talk(window=window, retry=RetryConfig(max_attempts=3))
    run = await talk.run(turns(20), policy=policy)
    assert (talk.provider.requests, len(all_of(run, ModelCall)) <= 1, run.output) == ([], True, None)


async def test_a_run_whose_own_turns_outgrow_the_window_fails_with_what_it_did_in_the_log() -> None:
    provider, registry = WindowProvider(*map(look, range(30)), window=60), ToolRegistry()
    registry.register(make_tool("look", Recorder("seen")))
    run = await AgentRunner(provider=provider, tools=registry).run(clerk(tools=("look",)), "now", tenant="acme")
    assert (run.state, run.error_code) == (RunState.FAILED, "context_overflow")
    assert len(provider.requests) == len(all_of(run, ModelResponded)) == 3


async def test_a_history_without_a_word_is_not_what_fills_the_window() -> None:
    provider = ScriptedProvider({"model": [ScriptedStep(text="Hi.")]}, context_tokens=20)
    agent = clerk(instructions="x" * 66)
    run = await AgentRunner(provider=provider).run(agent, "now", tenant="acme", history=[Message(role=Role.USER)])
    assert (run.output, all_of(run, HistoryTrimmed)) == ("Hi.", [])
