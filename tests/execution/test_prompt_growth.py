"""A run's prompts are continued, not made anew, and are the same as if they had been."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.conversation import Message, Role, ToolCall
from app.execution.local import NoTools, OneProvider
from app.execution.perform.prompts import PromptMaker, ReadyPrompt
from app.ids import CallId
from app.ports.records import RunContextInput
from app.providers import ScriptedProvider
from tests.builders import build_agent, build_call, said_by_model, said_by_user, told_by_tool

_PROVIDER = ScriptedProvider({"greeter": []})
_GIVEN = RunContextInput(pinned=("A case file.",), retrieved=("A note.",))

_calls = st.builds(ToolCall, call_id=st.sampled_from("abc").map(CallId), name=st.just("look"), arguments=st.just({}))
_messages = st.one_of(
    st.builds(Message, role=st.just(Role.USER), content=st.text(max_size=9)),
    st.builds(
        Message,
        role=st.just(Role.ASSISTANT),
        content=st.text(max_size=9),
        tool_calls=st.lists(_calls, max_size=2, unique_by=lambda call: call.call_id).map(tuple),
    ),
    st.builds(
        Message,
        role=st.just(Role.TOOL),
        content=st.text(max_size=9),
        call_id=st.sampled_from("abc").map(CallId),
        name=st.just("look"),
    ),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[tuple[Message, ...]]:
    """One after the other: mostly the last one with more behind it, sometimes with another beginning or end."""
    spoken = [tuple(draw(st.lists(_messages, max_size=3)))]
    for _ in range(draw(st.integers(1, 4))):
        before = spoken[-1]
        first = draw(st.sampled_from([0, 0, 0, 1]))
        last = len(before) - draw(st.sampled_from([0, 0, 0, 1]))
        spoken.append((*before[first:last], *draw(st.lists(_messages, max_size=3))))
    return spoken


def make_each(spoken: Sequence[tuple[Message, ...]]) -> list[ReadyPrompt]:
    """The prompts that one maker makes of them, in turn."""
    maker = PromptMaker(build_agent(model=None), models=OneProvider(_PROVIDER), tools=NoTools(), given=_GIVEN)

    async def make() -> list[ReadyPrompt]:
        return [await maker.make(conversation) for conversation in spoken]

    return asyncio.run(make())


@given(spoken=conversations())
def test_a_prompt_is_the_same_whatever_was_made_before_it(spoken: list[tuple[Message, ...]]) -> None:
    [anew] = make_each(spoken[-1:])
    *_, continued = make_each(spoken)
    assert (continued.prompt, continued.sizes) == (anew.prompt, anew.sizes)


def test_what_stands_in_a_prompt_is_not_made_again_for_the_next_one() -> None:
    look = build_call("look")
    begun = (said_by_user("Go on."), said_by_model("", look), told_by_tool(look, "4 trains"))
    first, second = make_each([begun, (*begun, said_by_model("Four."))])
    assert [id(pair) for pair in second.prompt.layers[:-1]] == [id(pair) for pair in first.prompt.layers]


def test_a_result_that_comes_late_takes_the_place_of_its_stand_in() -> None:
    look = build_call("look")
    begun = (said_by_user("Go on."), said_by_model("", look))
    _, second = make_each([begun, (*begun, told_by_tool(look, "4 trains"))])
    assert second.prompt.messages[-1].content == "4 trains"
