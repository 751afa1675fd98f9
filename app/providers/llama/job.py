"""One request while the engine has it: its tokens, how far they are evaluated, and what was said of it."""

import codecs
from collections.abc import Callable
from typing import Protocol

from app.conversation import StopReason, Usage
from app.ports.model import Timing
from app.providers.llama.generation import Emission, Generation, Outcome
from app.providers.llama.planning import Lane
from app.providers.llama.prefixes import Scope


class Chooser(Protocol):
    """Takes the tokens of one answer. To be closed."""

    def choose(self, output: int) -> int:
        """The next token, by the ``output``-th row that the last call has worked out."""
        ...

    def forced(self) -> list[int]:
        """What can only follow after the last token, and so needs no evaluation to be known."""
        ...

    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        ...

    def close(self) -> None: ...


class Job:
    """A generation in the engine. Keeps its text when it has to give way; ``slot`` is None while it waits."""

    def __init__(self, generation: Generation, *, arrival: int) -> None:
        self.generation = generation
        self.arrival = arrival
        self.scope: Scope = generation.scope
        self.tokens = list(generation.prompt)
        self.prompt_length = len(self.tokens)
        self.slot: int | None = None
        self.evaluated = 0
        self.promised = 0
        self.kept = 0
        self.waits_for: tuple[Job, int] | None = None
        self.chooser: Chooser | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._started_at: float | None = None
        self._first_token_at: float | None = None
        self._cached: int | None = None

    @property
    def tenant(self) -> str:
        return str(self.generation.tenant_id)

    @property
    def weight(self) -> int:
        return self.generation.weight

    @property
    def pending(self) -> int:
        """How many of its tokens wait to be evaluated."""
        return len(self.tokens) - self.evaluated

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def tokens_left(self) -> int:
        """How many more it may write."""
        return self.generation.max_output_tokens - self.output_tokens

    @property
    def is_cancelled(self) -> bool:
        return self.generation.cancelled

    def lane(self, slot: int) -> Lane:
        is_generating = self.output_tokens > 0
        return Lane(slot=slot, pending=self.pending, is_generating=is_generating, left=self.tokens_left)

    def begin(self, slot: int, *, found: int, now: float) -> None:
        """It has a slot, in which its first ``found`` tokens are evaluated."""
        self.slot = slot
        self.evaluated = self.kept = found
        self.waits_for = None
        if self._started_at is None:
            self._started_at = now
            self._cached = min(found, self.prompt_length)

    def give_way(self) -> None:
        self.slot = None
        self.evaluated = self.promised = 0

    def append(self, token: int, piece: bytes, *, now: float) -> None:
        """The answer goes on. Bytes of a character that several tokens share are held back until it is whole."""
        if self._first_token_at is None:
            self._first_token_at = now
        self.tokens.append(token)
        self._say(self._decoder.decode(piece))

    def finish(self, stop_reason: StopReason, *, now: float) -> None:
        """Tells the rest of the text and the outcome."""
        self._say(self._decoder.decode(b"", final=True))
        started = self._started_at or now
        first = self._first_token_at or now
        usage = Usage(
            input_tokens=self.prompt_length, cached_tokens=self._cached or 0, output_tokens=self.output_tokens
        )
        timing = Timing(
            queue_seconds=started - self.generation.queued_at,
            first_token_seconds=first - started,
            generation_seconds=now - first,
        )
        tokens = tuple(self.tokens[self.prompt_length :])
        self.emit(Outcome(stop_reason=stop_reason, usage=usage, timing=timing, tokens=tokens))

    def emit(self, emission: Emission) -> None:
        """Tells the one who asked, unless it was cancelled."""
        if not self.generation.cancelled:
            self._call(self.generation.emit, emission)

    def close(self) -> None:
        """Frees what choosing tokens took. Idempotent."""
        chooser, self.chooser = self.chooser, None
        if chooser is not None:
            chooser.close()

    def _say(self, text: str) -> None:
        if text:
            self.emit(text)

    def _call(self, emit: Callable[[Emission], None], emission: Emission) -> None:
        try:
            emit(emission)
        except RuntimeError:
            # The event loop that asked is closed: nobody listens any more.
            self.generation.cancelled = True
