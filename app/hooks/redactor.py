"""Taking personal and secret data out of what the model, the log and the caller see."""

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from app.hooks.patterns import compile_pattern
from app.hooks.sensitive import FINDERS, Finder, matches_of
from app.ports.hooks import HookDecision, HookPoint, HookSubject

_LONG: Final = 20_000
DEFAULT_POINTS: Final = frozenset(
    {
        HookPoint.BEFORE_PROMPT_ASSEMBLY,
        HookPoint.BEFORE_MODEL_CALL,
        HookPoint.AFTER_MODEL_RESPONSE,
        HookPoint.AFTER_TOOL_RESULT,
        HookPoint.BEFORE_OUTPUT_VALIDATION,
    }
)
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
_MARK: Final = re.compile(r"\[redacted:[a-z][a-z0-9_]{0,31}\]")


class Redactor:
    """Replaces what it finds by ``[redacted:<kind>]`` wherever text goes in or out of a run.

    Kinds: ``private_key`` blocks, ``api_key`` (tokens with a known beginning), ``email``, ``iban`` and ``card`` (with
    their check digits), ``phone`` (with a country's code). ``patterns`` adds kinds, or replaces the kind of that name;
    they run on Python's ``re`` and are the operator's code, so write them bounded. A text that was redacted stays as it
    is when it is redacted again. Arguments of tools are left alone, unless ``points`` says so: a tool that has to write
    to an address needs it. Raises ValueError for a kind, a pattern or points that can't be.
    """

    def __init__(
        self,
        patterns: Mapping[str, str] | None = None,
        name: str = "redactor",
        points: Collection[HookPoint] = DEFAULT_POINTS,
    ) -> None:
        if not points:
            raise ValueError("without points nothing would ever be redacted")
        if not set(points) <= set(DEFAULT_POINTS) | {HookPoint.BEFORE_TOOL_DISPATCH}:
            raise ValueError("nothing can be redacted once a run has ended")
        self.name = name
        self.points = frozenset(points)
        self._finders: dict[str, Finder] = dict(FINDERS)
        for kind, pattern in (patterns or {}).items():
            if not _KIND.fullmatch(kind):
                raise ValueError(f"{kind!r} can't be a kind: lower-case letters, digits and underscores, at most 32")
            self._finders[kind] = matches_of(compile_pattern(pattern))

    async def decide(self, subject: HookSubject) -> HookDecision:
        text = subject.content
        # A long text takes its time, and the event loop has others to serve.
        redacted, kinds = await asyncio.to_thread(self._redact, text) if len(text) > _LONG else self._redact(text)
        if not kinds:
            return HookDecision.proceed()
        return HookDecision.rewrite(redacted, f"redacted: {', '.join(sorted(kinds))}")

    def redact(self, text: str) -> str:
        """The text with marks in the place of what was found."""
        return self._redact(text)[0]

    def _redact(self, text: str) -> tuple[str, set[str]]:
        """Again, until nothing is found: a mark can set apart what was hidden in a longer word. Every round leaves
        less text outside of marks, so it ends."""
        kinds: set[str] = set()
        while True:
            found: set[str] = set()
            for kind, find in self._finders.items():
                text, changed = _replace(text, kind, find)
                if changed:
                    found.add(kind)
            if not found:
                return text, kinds
            kinds |= found


def _replace(text: str, kind: str, find: Finder) -> tuple[str, bool]:
    """One kind, in what lies between the marks that are there already."""
    pieces: list[str] = []
    for piece, mark in _between_marks(text):
        position = 0
        for start, end in find(piece):
            pieces += (piece[position:start], f"[redacted:{kind}]")
            position = end
        pieces += (piece[position:], mark)
    replaced = "".join(pieces)
    return replaced, replaced != text


def _between_marks(text: str) -> Iterator[tuple[str, str]]:
    """Each piece of text with the mark that follows it."""
    position = 0
    for mark in _MARK.finditer(text):
        yield text[position : mark.start()], mark[0]
        position = mark.end()
    yield text[position:], ""
