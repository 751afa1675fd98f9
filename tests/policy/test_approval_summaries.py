"""What people who may not read a run are shown of a call."""

from typing import Any

import pytest

from app.policy import arguments_digest, keyed_digest, summarize_arguments


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("DE89", {"type": "string", "length": 4}),
        ([1, 2], {"type": "array", "length": 2}),
        ({"a": 1}, {"type": "object", "length": 1}),
        (3, {"type": "integer"}),
        (1.5, {"type": "number"}),
        (True, {"type": "boolean"}),
        (None, {"type": "null"}),
    ],
)
def test_an_argument_is_told_by_type_and_length(value: Any, shown: dict[str, Any]) -> None:
    assert summarize_arguments({"x": value}) == {"x": shown}


def test_what_the_author_lets_be_shown_is_shown() -> None:
    assert summarize_arguments({"amount": 3, "iban": "DE"}, showable=("amount",)) == {
        "amount": {"value": 3},
        "iban": {"type": "string", "length": 2},
    }


def test_a_long_value_is_not_shown_whoever_lets_it() -> None:
    assert summarize_arguments({"text": "x" * 600}, showable=("text",)) == {"text": {"type": "string", "length": 600}}


def test_a_keyed_digest_is_not_the_one_that_anybody_can_make() -> None:
    digests = {
        keyed_digest(b"a", "pay", {"n": 1}),
        keyed_digest(b"b", "pay", {"n": 1}),
        arguments_digest("pay", {"n": 1}),
    }
    assert len(digests) == 3
