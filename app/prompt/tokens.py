"""A count of tokens for those who have no tokenizer."""

from collections.abc import Callable

CountTokens = Callable[[str], int]


def approximate_tokens(text: str) -> int:
    """Four characters to a token, rounded up: fine for a log line, wrong for a check of the context window."""
    return -(-len(text) // 4)
