"""Four characters to a token, rounded up."""

import pytest

from app.prompt import approximate_tokens


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("é" * 8, 2)])
def test_four_characters_are_a_token(text: str, tokens: int) -> None:
    assert approximate_tokens(text) == tokens
