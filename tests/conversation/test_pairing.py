"""A history is always valid for a chat template."""

from hypothesis import given
from hypothesis import strategies as st

from app.conversation import OUTCOME_UNKNOWN, Message, Role, settle_dangling_calls
from tests.builders import build_call, said_by_model, said_by_user, told_by_tool

_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)


def unknown(call_name: str) -> str:
    return f"{call_name}: {OUTCOME_UNKNOWN}"


def read(messages: tuple[Message, ...]) -> list[str]:
    """A history in short: who said what."""
    return [f"{message.name or message.role.value}: {message.content}" for message in messages]


def test_a_history_in_which_every_call_has_its_result_stays_as_it_is() -> None:
    history = (
        said_by_user("a"),
        said_by_model("", _LOOK, _SET),
        told_by_tool(_LOOK, "1"),
        told_by_tool(_SET, "2"),
        said_by_model("b"),
    )
    assert settle_dangling_calls(history) == history


def test_a_call_at_the_end_gets_a_result_that_says_unknown() -> None:
    settled = settle_dangling_calls((said_by_user("a"), said_by_model("b", _PAY)))
    assert settled[2:] == (told_by_tool(_PAY, OUTCOME_UNKNOWN),)


def test_a_call_in_the_middle_gets_its_result_before_the_next_message() -> None:
    settled = settle_dangling_calls((said_by_model("a", _PAY), said_by_user("b")))
    assert read(settled) == ["assistant: a", unknown("pay"), "user: b"]


def test_results_that_are_there_keep_their_place_before_the_missing_ones() -> None:
    settled = settle_dangling_calls((said_by_model("a", _LOOK, _PAY), told_by_tool(_PAY, "paid"), said_by_user("b")))
    assert read(settled) == ["assistant: a", "pay: paid", unknown("look"), "user: b"]


def test_a_turn_that_follows_at_once_settles_the_one_before() -> None:
    settled = settle_dangling_calls((said_by_model("a", _LOOK), said_by_model("b", _SET), told_by_tool(_SET, "2")))
    assert read(settled) == ["assistant: a", unknown("look"), "assistant: b", "set: 2"]


def test_a_result_that_nobody_asked_for_is_dropped() -> None:
    assert settle_dangling_calls((told_by_tool(_LOOK, "1"), said_by_user("a"))) == (said_by_user("a"),)


def test_a_second_result_of_one_call_is_dropped() -> None:
    settled = settle_dangling_calls((said_by_model("", _LOOK), told_by_tool(_LOOK, "1"), told_by_tool(_LOOK, "2")))
    assert read(settled) == ["assistant: ", "look: 1"]


def test_a_result_that_comes_after_somebody_else_spoke_is_too_late() -> None:
    settled = settle_dangling_calls((said_by_model("", _LOOK), said_by_user("a"), told_by_tool(_LOOK, "1")))
    assert read(settled) == ["assistant: ", unknown("look"), "user: a"]


def test_a_result_without_an_id_is_dropped() -> None:
    settled = settle_dangling_calls((said_by_model("", _LOOK), Message(role=Role.TOOL, content="1")))
    assert read(settled) == ["assistant: ", unknown("look")]


def test_ids_that_come_again_in_a_later_turn_are_told_apart() -> None:
    history = (said_by_model("", _LOOK), told_by_tool(_LOOK, "1"), said_by_model("", _LOOK))
    assert read(settle_dangling_calls(history)) == ["assistant: ", "look: 1", "assistant: ", unknown("look")]


_MESSAGES = st.one_of(
    st.builds(said_by_user, st.sampled_from("ab")),
    st.builds(
        lambda calls: said_by_model("m", *calls), st.sampled_from([(), (_LOOK,), (_PAY, _SET), (_SET, _LOOK, _PAY)])
    ),
    st.builds(told_by_tool, st.sampled_from([_LOOK, _SET, _PAY]), st.sampled_from("12")),
)


@given(history=st.lists(_MESSAGES).map(tuple))
def test_settling_twice_changes_nothing_more(history: tuple[Message, ...]) -> None:
    settled = settle_dangling_calls(history)
    assert settle_dangling_calls(settled) == settled


@given(history=st.lists(_MESSAGES).map(tuple))
def test_there_are_as_many_results_as_calls(history: tuple[Message, ...]) -> None:
    settled = settle_dangling_calls(history)
    asked = sum(len(message.tool_calls) for message in settled)
    assert asked == sum(message.role is Role.TOOL for message in settled)


@given(history=st.lists(_MESSAGES).map(tuple))
def test_what_people_and_models_said_is_kept(history: tuple[Message, ...]) -> None:
    spoken = [message for message in history if message.role is not Role.TOOL]
    assert [message for message in settle_dangling_calls(history) if message.role is not Role.TOOL] == spoken
