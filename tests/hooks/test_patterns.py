"""What is listed is gone from input and output, and nothing else is touched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.hooks import PatternRedactor


async def test_literals_and_patterns_are_replaced_and_counted() -> None:
    redactor = PatternRedactor(literals=["hunter2"], patterns=[r"\b\d{3}-\d{4}\b"])
    decision = await redactor.check_input("hunter2 called 555-0199, hunter2!")
    assert decision.allowed
    assert decision.redacted == "[redacted] called [redacted], [redacted]!"
    assert (decision.reason, decision.signals) == ("3 redacted", ("redacted",))


async def test_output_is_redacted_like_input() -> None:
    redactor = PatternRedactor(literals=["hunter2"])
    assert (await redactor.check_output("hunter2")).redacted == "[redacted]"


async def test_a_text_without_a_match_goes_on_as_it_is() -> None:
    decision = await PatternRedactor(literals=["a.c"], patterns=["x+"]).check_input("abc")
    assert (decision.allowed, decision.redacted, decision.signals) == (True, None, ())


async def test_the_longer_of_two_literals_wins_whatever_their_order() -> None:
    redactor = PatternRedactor(literals=["key", "key-123"])
    assert (await redactor.check_input("key-123 key")).redacted == "[redacted] [redacted]"


async def test_a_replacement_with_backslashes_is_plain_text() -> None:
    redactor = PatternRedactor(literals=["x"], replacement=r"\1\g<0>")
    assert (await redactor.check_input("x")).redacted == r"\1\g<0>"


@pytest.mark.parametrize("pattern", ["(", "a*", "", "^"])
def test_a_pattern_that_is_none_or_matches_everywhere_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"no pattern|matches the empty text"):
        PatternRedactor(patterns=[pattern])


def test_an_empty_literal_is_refused() -> None:
    with pytest.raises(ValueError, match="empty literal"):
        PatternRedactor(literals=["x", ""])


@given(secret=st.text(min_size=1), parts=st.lists(st.text(), min_size=2))
async def test_a_literal_is_never_left(secret: str, parts: list[str]) -> None:
    decision = await PatternRedactor(literals=[secret], replacement="").check_input(secret.join(parts))
    assert decision.redacted is not None
    assert len(decision.redacted) < len(secret.join(parts))
