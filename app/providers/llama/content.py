"""Turns the segments of a prompt into tokens, so that content can never become a control token.

Tokenizing content without special tokens is not enough: strings that a vocabulary calls user defined (``<tool_call>``)
are read all the same. So content is cut inside such strings, each piece is tokenized apart, and the result is looked
at: a reserved token in it is never let through. Pure: the vocabulary is handed in.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from app.conversation import replace_surrogates
from app.errors import ProviderError
from app.providers.llama.segments import Segment


class Vocabulary(Protocol):
    """What is needed of a model's vocabulary."""

    def tokenize_template(self, text: str) -> list[int]:
        """Reads control tokens out of the text."""
        ...

    def tokenize_plain(self, text: str) -> list[int]:
        """Reads none; user defined strings become their tokens all the same."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ReservedTokens:
    """``ids`` that content must not hold; ``parsed_texts`` are the strings of those that are read out of any text."""

    ids: frozenset[int]
    parsed_texts: tuple[str, ...]


class PromptTokenizer:
    """Tokenizes prompts for one model. Equal segments give equal tokens, whatever stands around them."""

    def __init__(self, vocabulary: Vocabulary, reserved: ReservedTokens) -> None:
        self._vocabulary = vocabulary
        self._reserved = reserved
        longest_first = sorted(reserved.parsed_texts, key=len, reverse=True)
        self._parsed = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def encode(self, segments: Iterable[Segment]) -> list[int]:
        """The tokens of a prompt, without a token for the beginning of a text."""
        tokens: list[int] = []
        for segment in segments:
            if segment.tokens:
                tokens.extend(segment.tokens)
            elif segment.is_template:
                tokens.extend(self._vocabulary.tokenize_template(segment.text))
            else:
                tokens.extend(self.encode_content(segment.text))
        return tokens

    def encode_content(self, text: str) -> list[int]:
        """The tokens of a text that none of us wrote. A lone surrogate becomes U+FFFD.

        Raises ProviderError ``content_not_encodable`` rather than let a reserved token through.
        """
        tokens: list[int] = []
        for piece in self._cut(replace_surrogates(text)):
            tokens.extend(self._encode_piece(piece))
        return tokens

    def _cut(self, text: str) -> Iterator[str]:
        """Cuts after the first character of each user defined string, so that none is left whole in a piece."""
        start = 0
        while self._parsed is not None and (found := self._parsed.search(text, start)):
            yield text[start : found.start() + 1]
            start = found.start() + 1
        if start < len(text):
            yield text[start:]

    def _encode_piece(self, piece: str) -> list[int]:
        tokens = self._vocabulary.tokenize_plain(piece)
        if self._is_clean(tokens):
            return tokens
        # Some tokenizers merge their way to a token that looks like a control token. A character alone can't.
        tokens = [token for character in piece for token in self._vocabulary.tokenize_plain(character)]
        if self._is_clean(tokens):
            return tokens
        raise ProviderError(
            "a text in the conversation can't be written in this model's vocabulary without control tokens",
            status=400,
            code="content_not_encodable",
        )

    def _is_clean(self, tokens: list[int]) -> bool:
        return self._reserved.ids.isdisjoint(tokens)
