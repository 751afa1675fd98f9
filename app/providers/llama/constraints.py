"""Holds answers to their grammar, with llguidance.

Ownership: a compiled grammar may be validated on any thread; what ``start`` returns belongs to one answer.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

from app.errors import ProviderError
from app.providers.llama.choosers import Constraint, FreeAnswer
from app.providers.llama.grammars import MOST_CALLS, AnswerRule, Trigger
from app.providers.llama.weights import Weights

_MOST_GRAMMARS: Final = 64
# About 1.5 KiB each, in every grammar that is kept: schemas come from tenants and from tools of others.
_MOST_LEXER_STATES: Final = 20_000


class Grammars:
    """Compiled grammars for one model's vocabulary. The first use takes some tenths of a second."""

    def __init__(self, weights: Weights, *, end_tokens: frozenset[int], spell: Callable[[int], bytes]) -> None:
        self._weights = weights
        self._end_tokens = sorted(end_tokens)
        self._spell = spell
        self._lock = threading.Lock()
        self._tokenizer_lock = threading.Lock()
        self._tokenizer: Any = None
        self._matchers: OrderedDict[str, Any] = OrderedDict()

    def compile(self, grammar: str) -> None:
        """Makes a grammar ready. Blocks: for a large one some tenths of a second. From any thread.

        Raises ProviderError ``schema_unsupported`` for one that can't be held to: llguidance would give empty answers.
        """
        self._matcher(grammar)

    def start(self, rule: AnswerRule | None) -> Constraint:
        """What one answer has to follow, from its first token on."""
        if rule is None:
            return FreeAnswer()
        if rule.trigger is None:
            return RuledAnswer(self._matcher(rule.grammar).deep_copy())
        return TriggeredAnswer(self._matcher(rule.grammar), self._read, trigger=rule.trigger, spell=self._spell)

    def _read(self, text: bytes) -> list[int]:
        return list(self._tokenizer.tokenize_bytes(text)) if text else []

    def _matcher(self, grammar: str) -> Any:
        with self._lock:
            matcher = self._matchers.get(grammar)
            if matcher is not None:
                self._matchers.move_to_end(grammar)
                return matcher
        # Not under the lock: the engine's thread must not wait for somebody else's schema.
        matcher = self._compile(grammar)
        with self._lock:
            self._matchers[grammar] = matcher
            while len(self._matchers) > _MOST_GRAMMARS:
                self._matchers.popitem(last=False)
        return matcher

    def _compile(self, grammar: str) -> Any:
        library = import_module("llguidance")
        with self._tokenizer_lock:
            if self._tokenizer is None:
                self._tokenizer = self._weights.make_grammar_tokenizer(self._end_tokens)
        limits = library.LLParserLimits(max_lexer_states=_MOST_LEXER_STATES)
        matcher = library.LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise _unsupported(matcher.get_error())
        return matcher


class RuledAnswer:
    """An answer that follows a grammar from its first token to its end."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def allows(self, token: int) -> bool:
        return bool(self._matcher.validate_tokens([token]) == 1)

    def forbid(self, row: Any) -> None:
        _forbid(row, self._matcher)

    def take(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise _failed()

    def forced(self) -> list[int]:
        tokens = list(self._matcher.compute_ff_tokens())
        if tokens and not self._matcher.consume_tokens(tokens):
            raise _failed()
        return tokens

    def is_complete(self) -> bool:
        if not self._matcher.is_stopped():
            return False
        if self._matcher.is_error():
            # A matcher that has failed says that it is done: half an answer would pass for a whole one.
            raise _failed()
        return True


class TriggeredAnswer:
    """Free text, and a grammar behind each text that triggers it, until that is complete."""

    def __init__(
        self,
        matcher: Any,
        read: Callable[[bytes], Sequence[int]],
        *,
        trigger: Trigger,
        spell: Callable[[int], bytes],
    ) -> None:
        self._fresh = matcher
        self._read = read
        self._trigger = trigger
        self._spell = spell
        self._tail = b""
        self._said_nothing = True
        self._inner: RuledAnswer | None = None
        self._begun = 0
        self._is_over = False

    def allows(self, token: int) -> bool:
        return self._inner is None or self._inner.allows(token)

    def forbid(self, row: Any) -> None:
        if self._inner is not None:
            self._inner.forbid(row)

    def take(self, token: int) -> None:
        if self._inner is not None:
            self._inner.take(token)
            self._leave_when_complete()
            return
        text = self._tail + self._spell(token)
        before, found, rest = text.rpartition(self._trigger.text)
        is_first = self._said_nothing and not before
        if found and self._begun < MOST_CALLS and (is_first or not self._trigger.only_first):
            self._enter(rest)
        length = len(self._trigger.text)
        self._said_nothing = self._said_nothing and not found and len(text) <= length
        self._tail = text[-length:] if not found else b""

    def forced(self) -> list[int]:
        if self._inner is None:
            return []
        tokens = self._inner.forced()
        self._leave_when_complete()
        return tokens

    def is_complete(self) -> bool:
        """Behind a block that ends the answer, and where so many calls were made that the model only repeats itself."""
        return self._is_over or (self._inner is None and self._begun >= MOST_CALLS)

    def _enter(self, rest: bytes) -> None:
        """A token may hold more than the end of the trigger. What the grammar does not allow stays free text."""
        self._begun += 1
        matcher = self._fresh.deep_copy()
        if matcher.consume_tokens(list(self._read(rest))):
            self._inner = RuledAnswer(matcher)

    def _leave_when_complete(self) -> None:
        if self._inner is not None and self._inner.is_complete():
            self._inner = None
            self._is_over = self._trigger.ends_answer


def _forbid(row: Any, matcher: Any) -> None:
    """One bit a token, the lowest first. What the mask does not reach is no token of the grammar's vocabulary."""
    numpy = import_module("numpy")
    mask = numpy.frombuffer(matcher.compute_bitmask(), dtype=numpy.uint8)
    allowed = numpy.unpackbits(mask, bitorder="little")[: row.size].astype(bool)
    if not allowed.any():
        raise _failed()
    row[: allowed.size][~allowed] = -numpy.inf
    row[allowed.size :] = -numpy.inf


def _failed() -> ProviderError:
    return ProviderError("the answer can't go on within its grammar", code="grammar_failed")


def _unsupported(told: str) -> ProviderError:
    reason = told.strip().partition("\n")[0][:300] or "no reason given"
    return ProviderError(f"answers can't be held to this schema: {reason}", status=400, code="schema_unsupported")
