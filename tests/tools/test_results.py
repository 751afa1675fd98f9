"""What a tool returns becomes text, or an error: never something invented."""

import datetime
import decimal
import enum
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app.errors import ToolExecutionError
from app.tools import encode_result


class Fare(BaseModel):
    price: decimal.Decimal
    on: datetime.date


@dataclass
class Seat:
    row: int
    free: bool


class Kind(enum.StrEnum):
    FAST = "fast"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        ("nul \x00 stays", "nul \x00 stays"),
        ("half \ud83d pair", "half \ufffd pair"),
        (Kind.FAST, "fast"),
        (None, "null"),
        (True, "true"),
        ({"b": 1, "a": [1.5, "ü"]}, '{"a":[1.5,"ü"],"b":1}'),
        ({"lone": "\udfff"}, '{"lone":"\ufffd"}'),
        ((1, 2), "[1,2]"),
        (Fare(price=decimal.Decimal("9.90"), on=datetime.date(2026, 2, 1)), '{"on":"2026-02-01","price":"9.90"}'),
        ([Seat(row=3, free=True)], '[{"free":true,"row":3}]'),
        ({"at": datetime.datetime(2026, 2, 1, tzinfo=datetime.UTC)}, '{"at":"2026-02-01T00:00:00Z"}'),
    ],
)
def test_a_value_is_written_the_one_way_that_a_model_can_read(value: Any, text: str) -> None:
    assert encode_result(value) == text


class Reading(BaseModel):
    value: float


def _nested(depth: int) -> Any:
    return json.loads("[" * depth + "]" * depth)


def _circle() -> Any:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        {"inside": bytearray(b"bytes")},
        [memoryview(b"bytes")],
        float("nan"),
        {"inside": float("-inf")},
        Reading(value=float("nan")),
        object(),
        {"inside": lambda: None},
        {1: "numbers", "and": "texts as keys"},
        {(1, 2): "a tuple as key"},
        10**5000,
        _circle(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_json_cant_hold_is_an_error_with_its_type_and_nothing_of_it(value: Any) -> None:
    with pytest.raises(ToolExecutionError, match=f"a value of type {type(value).__name__} that JSON can't hold") as it:
        encode_result(value)
    assert it.value.code == "tool_result_unusable"


def test_a_value_that_is_nested_too_deeply_is_an_error() -> None:
    value: Any = None
    value = _wrap(value, 100_000)
    with pytest.raises(ToolExecutionError):
        encode_result(value)


def _wrap(value: Any, times: int) -> Any:
    for _ in range(times):
        value = [value]
    return value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_any_json_value_comes_back_as_it_went_in(value: Any) -> None:
    assert json.loads(encode_result(value)) == value


@given(st.text(alphabet=st.characters()))
def test_any_text_can_be_sent_afterwards(text: str) -> None:
    assert encode_result(text).encode().decode() == encode_result(text)
