"""A history that has outgrown its room loses whole turns, the oldest first, and more than it must."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.conversation import Message, Role, ToolCall, settle_dangling_calls
from app.ids import CallId
from app.prompt import Trimmed, fit_history
from app.prompt.history import drop_turns
from tests.builders import build_call, said_by_model, said_by_user, told_by_tool

_CALL = build_call("look")
_OLD = (said_by_user("aaaa"), said_by_model("bbbb"))
_MIDDLE = (said_by_user("c"), said_by_model("", _CALL), told_by_tool(_CALL, "4 trains"), said_by_model("d"))
_HUGE = (said_by_user("x" * 1_000),)
_NEW = (said_by_user("e"), said_by_model("f"))


def trim(*turns: tuple[Message, ...], room: int) -> Trimmed:
    return fit_history(tuple(chain.from_iterable(turns)), room_tokens=room, count=len)


def size_of(*turns: tuple[Message, ...]) -> int:
    """What is counted, a token a character: texts, and the name and arguments of calls."""
    everything = trim(*turns, _HUGE, room=0)
    return everything.tokens_dropped - 1_000


_calls = st.builds(
    lambda number, arguments, raw: ToolCall(
        call_id=CallId(f"call_{number}"), name="look", arguments=arguments, raw_arguments=raw
    ),
    number=st.integers(1, 4),
    arguments=st.none() | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    raw=st.none() | st.text(max_size=5),
)
_messages = st.builds(
    lambda role, content, calls, number: Message(
        role=role,
        content=content,
        tool_calls=tuple(calls) if role is Role.ASSISTANT else (),
        call_id=CallId(f"call_{number}") if role is Role.TOOL else None,
    ),
    role=st.sampled_from([Role.USER, Role.ASSISTANT, Role.TOOL]),
    content=st.text(max_size=12),
    calls=st.lists(_calls, max_size=3),
    number=st.integers(1, 4),
)
histories = st.lists(_messages, max_size=20).map(settle_dangling_calls)


def test_a_history_that_fits_is_left_as_it_is() -> None:
    assert trim(_OLD, _NEW, room=10) == Trimmed(kept=(*_OLD, *_NEW), turns_dropped=0, tokens_dropped=0)


def test_a_history_that_is_a_token_too_large_is_cut_to_half_of_the_room() -> None:
    assert trim(_OLD, _NEW, room=9) == Trimmed(kept=_NEW, turns_dropped=1, tokens_dropped=8)


def test_exactly_half_of_the_room_may_be_left() -> None:
    assert trim(_NEW, _NEW, _NEW, room=4).kept == _NEW


def test_a_token_more_than_half_of_the_room_is_not_left() -> None:
    assert trim(_NEW, _OLD, room=9) == Trimmed(kept=(), turns_dropped=2, tokens_dropped=10)


def test_a_call_goes_with_its_result_and_its_turn() -> None:
    assert trim(_MIDDLE, _NEW, room=size_of(_MIDDLE)).kept == _NEW


def test_a_call_stays_with_its_result_and_its_turn() -> None:
    assert trim(_HUGE, _MIDDLE, _NEW, room=size_of(_MIDDLE, _NEW)).kept == (*_MIDDLE, *_NEW)


def test_an_old_turn_that_would_fit_is_dropped_once_a_newer_one_does_not() -> None:
    assert trim(_NEW, _HUGE, _NEW, room=12).kept == _NEW


def test_the_cut_stays_where_it_is_while_the_history_grows_into_its_room() -> None:
    rooms = [trim(*[_NEW] * turns, room=8).turns_dropped for turns in range(1, 12)]
    assert rooms == [0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]


def test_the_name_and_the_arguments_of_a_call_are_counted() -> None:
    call = build_call("look")
    written = ToolCall(call_id=call.call_id, name="look", arguments={"a": 1})
    assert size_of((said_by_model("text", written),)) == len('textlook{"a":1}')


@pytest.mark.parametrize(("raw", "tokens"), [('{"a":', len('look{"a":')), (None, len("look"))])
def test_arguments_that_are_no_json_are_counted_as_they_were_written(raw: str | None, tokens: int) -> None:
    call = ToolCall(call_id=CallId("call_1"), name="look", raw_arguments=raw)
    assert size_of((said_by_model("", call),)) == tokens


def test_what_stands_before_the_first_user_is_a_turn() -> None:
    assert trim((said_by_model("hello"),), _NEW, room=5) == Trimmed(kept=_NEW, turns_dropped=1, tokens_dropped=5)


@pytest.mark.parametrize("room", [0, -1])
def test_without_room_nothing_is_kept(room: int) -> None:
    assert trim(_OLD, _NEW, room=room) == Trimmed(kept=(), turns_dropped=2, tokens_dropped=10)


@pytest.mark.parametrize("room", [0, 100])
def test_an_empty_history_loses_nothing(room: int) -> None:
    assert trim(room=room) == Trimmed(kept=())


@given(history=histories, room=st.integers(-5, 150))
def test_what_is_kept_is_the_end_of_the_history(history: tuple[Message, ...], room: int) -> None:
    kept = fit_history(history, room_tokens=room, count=len).kept
    assert history[len(history) - len(kept) :] == kept


@given(history=histories, room=st.integers(0, 150))
def test_what_is_kept_fits(history: tuple[Message, ...], room: int) -> None:
    kept = fit_history(history, room_tokens=room, count=len).kept
    assert fit_history(kept, room_tokens=room, count=len).turns_dropped == 0


@given(history=histories, later=histories, room=st.integers(0, 150))
def test_what_is_gone_stays_gone(history: tuple[Message, ...], later: tuple[Message, ...], room: int) -> None:
    longer = (*history, said_by_user(""), *later)
    before = fit_history(history, room_tokens=room, count=len).turns_dropped
    assert fit_history(longer, room_tokens=room, count=len).turns_dropped >= before


@given(history=histories, room=st.integers(0, 150))
def test_what_is_kept_begins_with_a_user_where_anything_was_dropped(history: tuple[Message, ...], room: int) -> None:
    trimmed = fit_history(history, room_tokens=room, count=len)
    first = trimmed.kept[0].role if trimmed.kept and trimmed.turns_dropped else Role.USER
    assert first is Role.USER


@given(history=histories, room=st.integers(0, 150))
def test_no_call_is_parted_from_its_result(history: tuple[Message, ...], room: int) -> None:
    kept = fit_history(history, room_tokens=room, count=len).kept
    assert settle_dangling_calls(kept) == kept


@given(history=histories, room=st.integers(0, 150))
def test_what_is_kept_and_what_was_dropped_is_the_whole(history: tuple[Message, ...], room: int) -> None:
    trimmed = fit_history(history, room_tokens=room, count=len)
    dropped = history[: len(history) - len(trimmed.kept)]
    assert trimmed.tokens_dropped == size_of(dropped)


@given(history=histories, room=st.integers(0, 150))
def test_the_turns_that_were_dropped_can_be_dropped_again_by_their_number(
    history: tuple[Message, ...], room: int
) -> None:
    trimmed = fit_history(history, room_tokens=room, count=len)
    assert drop_turns(history, trimmed.turns_dropped) == trimmed.kept
