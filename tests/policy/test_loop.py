"""The signature by which a repeated request is known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.policy import LoopConfig, call_signature

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
_ARGUMENTS = st.dictionaries(st.text(max_size=4), _JSON, max_size=3)


def turn_around(value: Any) -> Any:
    """The same JSON with the keys of every object in the other order."""
    match value:
        case dict():
            return {key: turn_around(inner) for key, inner in reversed(value.items())}
        case list():
            return [turn_around(inner) for inner in value]
        case _:
            return value


def test_three_equal_calls_pass_by_default() -> None:
    assert LoopConfig().max_repeated_calls == 3


def test_a_cap_of_zero_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_repeated_calls"):
        LoopConfig(max_repeated_calls=0)


@given(arguments=_ARGUMENTS)
def test_the_order_of_keys_makes_no_difference_at_any_depth(arguments: dict[str, Any]) -> None:
    assert call_signature("look", turn_around(arguments)) == call_signature("look", arguments)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": 0}, {"a": None}),
        ({"a": None}, {}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": "x"}, {"a": "x "}),
        ({"a": "x"}, {"a": "X"}),
        ({"a": "\x00"}, {"a": "\\u0000"}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        ({"a": "é"}, {"a": "e\u0301"}),
    ],
)
def test_arguments_that_differ_are_different_requests(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert call_signature("look", one) != call_signature("look", other)


def test_the_same_arguments_to_another_tool_are_another_request() -> None:
    assert call_signature("look", {"a": 1}) != call_signature("set", {"a": 1})
