"""Messages, calls and usage."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.conversation import Message, Role, ToolCall, Usage, UsageSource
from app.ids import CallId


def nest(levels: int) -> dict[str, Any]:
    """An object of that many levels."""
    return {} if levels == 1 else {"a": nest(levels - 1)}


def make_call(arguments: dict[str, Any], raw_arguments: str | None = None) -> ToolCall:
    return ToolCall(call_id=CallId("call_1_1"), name="look", arguments=arguments, raw_arguments=raw_arguments)


def test_usage_adds_up() -> None:
    one = Usage(input_tokens=10, cached_tokens=4, output_tokens=3)
    other = Usage(input_tokens=1, cached_tokens=1, output_tokens=1)
    assert one + other == Usage(input_tokens=11, cached_tokens=5, output_tokens=4)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (UsageSource.PROVIDER, UsageSource.PROVIDER, UsageSource.PROVIDER),
        (UsageSource.PROVIDER, UsageSource.HEURISTIC, UsageSource.HEURISTIC),
        (UsageSource.HEURISTIC, UsageSource.PROVIDER, UsageSource.HEURISTIC),
        (UsageSource.HEURISTIC, UsageSource.HEURISTIC, UsageSource.HEURISTIC),
    ],
)
def test_a_sum_is_exact_only_where_both_parts_are(one: UsageSource, other: UsageSource, both: UsageSource) -> None:
    assert (Usage(source=one) + Usage(source=other)).source is both


@pytest.mark.parametrize("field", ["input_tokens", "cached_tokens", "output_tokens"])
def test_nobody_uses_less_than_nothing(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        Usage.model_validate({field: -1})


def test_a_message_can_not_be_changed() -> None:
    message = Message(role=Role.USER, content="a")
    with pytest.raises(ValidationError, match="frozen"):
        message.content = "b"  # type: ignore[misc]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Message.model_validate({"role": "user", "text": "a"})


def test_content_and_calls_stand_in_one_message() -> None:
    call = make_call({"city": "Kyoto"})
    message = Message(role=Role.ASSISTANT, content="Looking.", tool_calls=(call,))
    assert (message.content, message.tool_calls) == ("Looking.", (call,))


def test_arguments_that_are_json_are_kept() -> None:
    arguments: dict[str, Any] = {
        "n": None,
        "t": True,
        "i": 10**30,
        "f": 1.5,
        "s": "\x00",
        "l": [1, [2]],
        "o": {"a": {}},
    }
    assert make_call(arguments).arguments == arguments


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_arguments_with_a_number_that_json_does_not_have_are_raw(number: float) -> None:
    # json.loads("1e400") is infinity: no log could hold it, and a tool must not get what the log doesn't say.
    call = make_call({"a": [{"b": number}]})
    assert call.arguments is None
    assert call.raw_arguments is not None


def test_raw_arguments_that_came_with_them_are_kept() -> None:
    assert make_call({"a": float("inf")}, raw_arguments='{"a": 1e400}').raw_arguments == '{"a": 1e400}'


def test_arguments_as_deep_as_a_requests_body_may_be_are_kept() -> None:
    assert make_call(nest(64)).arguments == nest(64)


@pytest.mark.parametrize("levels", [65, 300, 900])
def test_arguments_nested_deeper_than_a_log_can_hold_are_raw(levels: int) -> None:
    call = make_call(nest(levels))
    assert call.arguments is None
    assert call.raw_arguments is not None


def test_a_value_that_is_no_json_is_raw() -> None:
    assert make_call({"a": b"bytes"}).arguments is None


def test_arguments_that_can_not_even_be_shown_are_told_by_their_type() -> None:
    call = ToolCall.model_validate({"call_id": "c", "name": "look", "arguments": {"n": 10**5_000}})
    assert (call.arguments, call.raw_arguments) == (None, "a dict that can't be shown")
