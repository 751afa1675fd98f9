"""A count of tokens for those who have no tokenizer."""

from collections.abc import Callable
from typing import Protocol

CountTokens = Callable[[str], int]


class Tokenizer(Protocol):
    """Anything that counts the tokens of a text, as a provider's own tokenizer does."""

    def count(self, text: str) -> int: ...


def approximate_tokens(text: str) -> int:
    """Four characters to a token, rounded up: fine for a log line, wrong for a check of the context window."""
    return -(-len(text) // 4)
