"""Redaction by literal texts and regular expressions."""

import re
from collections.abc import Sequence
from typing import Final

from app.ports.hooks import GuardrailDecision

DEFAULT_REPLACEMENT: Final = "[redacted]"


class PatternRedactor:
    """Replaces literals and matches of patterns, in input and output, and lets the rest go on.

    Literals are replaced first, the longest first, in one pass. Patterns follow in their order, each on what the one
    before it left. ``replacement`` is plain text. Raises ValueError for a pattern that is none, or that matches the
    empty text.

    Literals take linear time. Patterns run on Python's ``re``, which backtracks, on the event loop: one with nested
    repetition (``(a+)+``) can hang the process on a short text. Write them bounded, such as ``\\d{3,4}``; they are the
    operator's code and nobody checks them.
    """

    def __init__(
        self,
        *,
        literals: Sequence[str] = (),
        patterns: Sequence[str] = (),
        replacement: str = DEFAULT_REPLACEMENT,
        name: str = "pattern_redactor",
    ) -> None:
        self.name = name
        self._replacement = replacement
        self._expressions = [compile_pattern(pattern) for pattern in patterns]
        if literals:
            if "" in literals:
                raise ValueError("an empty literal would be found everywhere")
            longest_first = sorted(literals, key=len, reverse=True)
            self._expressions.insert(0, re.compile("|".join(map(re.escape, longest_first))))

    async def check_input(self, text: str) -> GuardrailDecision:
        return self._redact(text)

    async def check_output(self, text: str) -> GuardrailDecision:
        return self._redact(text)

    def _redact(self, text: str) -> GuardrailDecision:
        redacted, total = text, 0
        for expression in self._expressions:
            # A function, because a text would be read as a template with backslashes.
            redacted, found = expression.subn(lambda _: self._replacement, redacted)
            total += found
        if total == 0:
            return GuardrailDecision()
        return GuardrailDecision(redacted=redacted, reason=f"{total} redacted", signals=("redacted",))


def compile_pattern(pattern: str) -> re.Pattern[str]:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no pattern: {error}") from error
    if expression.search("") is not None:
        raise ValueError(f"{pattern!r} matches the empty text, so it would be found everywhere")
    return expression
