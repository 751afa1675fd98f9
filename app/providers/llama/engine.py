"""The thread that generates: requests in, text out, one at a time.

Rules of ownership, which keep C's memory whole:

1. The engine's thread alone calls the context, from the first request to ``close``, which it does when it ends.
2. Other threads hand over ``Generation`` objects and ask for cancels. All that both sides touch is under ``_lock``.
3. ``emit`` is called on the engine's thread and must not block. It is called no more after ``cancel`` has returned,
   but for one call that may just be under way.
4. A request that was cancelled while it waited is never evaluated. One that runs stops before its next token: the
   decode under way is aborted.
5. What the sequence holds is used again for equal leading tokens of the same tenant only: to others, how many tokens
   came from the cache would tell what a stranger asked.
6. When the thread fails, everything that waits and everything that comes later gets ProviderError ``engine_failed``.
   Nothing is tried again: what failed once inside C can't be relied on.
"""

import codecs
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from app.conversation import StopReason, Usage
from app.errors import ProviderError
from app.ids import TenantId
from app.ports.model import Timing
from app.providers.llama.context import Chooser, LlamaContext, Sampling
from app.providers.llama.weights import Weights

ENGINE_FAILED: Final = "engine_failed"
MODEL_CLOSED: Final = "model_closed"

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The end of a generation. Usage counts tokens of text: the one that ends a turn is none."""

    stop_reason: StopReason
    usage: Usage
    timing: Timing


Emission = str | Outcome | ProviderError


@dataclass(eq=False, kw_only=True, slots=True)
class Generation:
    """One request to the engine. ``emit`` gets the text in pieces, then one ``Outcome`` or one error."""

    tenant_id: TenantId
    prompt: tuple[int, ...]
    max_output_tokens: int
    emit: Callable[[Emission], None]
    queued_at: float = 0.0
    cancelled: bool = False
    finished: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCounters:
    """Totals since the start, in tokens, and how many requests wait and run now."""

    prompt_tokens_evaluated: int = 0
    prompt_tokens_cached: int = 0
    output_tokens: int = 0
    queue_depth: int = 0
    active: int = 0


@dataclass(kw_only=True, slots=True)
class _Totals:
    evaluated: int = 0
    cached: int = 0
    output: int = 0


@dataclass(kw_only=True, slots=True)
class _Held:
    """What the sequence holds, and whose it is."""

    tenant_id: TenantId | None = None
    tokens: list[int] = field(default_factory=list)


class Engine:
    """Owns a context and its thread. ``stop`` must be called once ``start`` was."""

    def __init__(
        self,
        context: LlamaContext,
        weights: Weights,
        *,
        end_tokens: frozenset[int],
        sampling: Sampling,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._context = context
        self._weights = weights
        self._end_tokens = end_tokens
        self._sampling = sampling
        self._clock = clock
        self._lock = threading.Condition()
        self._waiting: deque[Generation] = deque()
        self._active: Generation | None = None
        self._stopping = False
        self._failure: str | None = None
        self._held = _Held()
        self._totals = _Totals()
        self._thread = threading.Thread(target=self._run, name="llama-engine", daemon=True)

    @property
    def failure(self) -> str | None:
        """Why the thread ended, or None."""
        return self._failure

    def start(self) -> None:
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        """Puts a request at the end of the queue. Raises ProviderError when the engine has failed or was stopped.

        The prompt must hold 1 to ``window_tokens`` tokens.
        """
        with self._lock:
            if self._failure is not None:
                raise _engine_failed(self._failure)
            if self._stopping:
                raise ProviderError("the model was closed", code=MODEL_CLOSED)
            generation.queued_at = self._clock()
            self._waiting.append(generation)
            self._lock.notify_all()

    def cancel(self, generation: Generation) -> None:
        """Ends a request, whether it waits or runs. Does not wait for it; nothing happens to one that is over."""
        with self._lock:
            generation.cancelled = True
            if generation is self._active:
                self._context.abort()
            elif generation in self._waiting:
                self._waiting.remove(generation)

    def counters(self) -> EngineCounters:
        with self._lock:
            return EngineCounters(
                prompt_tokens_evaluated=self._totals.evaluated,
                prompt_tokens_cached=self._totals.cached,
                output_tokens=self._totals.output,
                queue_depth=len(self._waiting),
                active=int(self._active is not None),
            )

    def stop(self) -> None:
        """Interrupts what runs, refuses it and what waits, and waits for the thread. Blocks; idempotent."""
        with self._lock:
            self._stopping = True
            self._context.abort()
            self._lock.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (generation := self._next()) is not None:
                self._serve(generation)
                self._let_go(generation)
            self._refuse_all(ProviderError("the model was closed", code=MODEL_CLOSED))
        except Exception as error:  # noqa: BLE001 - the top of a thread: rule 6
            _log.exception("the engine's thread has failed")
            with self._lock:
                # Only the type: who asks for a run reads it.
                self._failure = type(error).__name__
            self._refuse_all(_engine_failed(self._failure))
        finally:
            self._context.close()

    def _let_go(self, generation: Generation) -> None:
        """One that was interrupted by ``stop`` stays active, to be refused."""
        with self._lock:
            if generation.cancelled or generation.finished:
                self._active = None

    def _next(self) -> Generation | None:
        """Waits for a request. None when the engine is stopping."""
        with self._lock:
            self._lock.wait_for(lambda: self._stopping or self._waiting)
            if self._stopping:
                return None
            self._active = self._waiting.popleft()
            self._context.resume()
            return self._active

    def _refuse_all(self, error: ProviderError) -> None:
        with self._lock:
            refused = [*([self._active] if self._active else []), *self._waiting]
            self._waiting.clear()
            self._active = None
        for generation in refused:
            self._emit(generation, error)

    def _serve(self, generation: Generation) -> None:
        started = self._clock()
        cached = self._prefill(generation)
        if cached is None:
            return
        chooser = self._context.chooser(self._sampling)
        try:
            answer = _Answer(generation=generation, cached_tokens=cached, started=started)
            self._generate(answer, chooser)
        finally:
            chooser.close()

    def _prefill(self, generation: Generation) -> int | None:
        """Brings the prompt into the sequence; returns how many of its tokens were there already, None if cancelled."""
        prompt = generation.prompt
        held = self._held
        kept = _common_length(held.tokens, prompt) if held.tenant_id == generation.tenant_id else 0
        # The last token is always evaluated: what follows it is read off its evaluation.
        kept = min(kept, len(prompt) - 1)
        if not self._context.keep(kept):
            kept = 0
        self._held = _Held(tenant_id=generation.tenant_id, tokens=list(prompt[:kept]))
        self._count(cached=kept)
        for start in range(kept, len(prompt), self._context.batch_tokens):
            chunk = prompt[start : start + self._context.batch_tokens]
            if not self._evaluate(generation, chunk):
                return None
            self._count(evaluated=len(chunk))
        return kept

    def _evaluate(self, generation: Generation, tokens: tuple[int, ...]) -> bool:
        """Appends tokens to the sequence; False when the request was cancelled, and then none of them is left."""
        if self._is_over(generation):
            return False
        if not self._context.evaluate(tokens):
            return False
        self._held.tokens.extend(tokens)
        return True

    def _generate(self, answer: "_Answer", chooser: Chooser) -> None:
        generation = answer.generation
        # Bytes of a character that several tokens share are held back until it is whole.
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while not self._is_over(generation):
            token = chooser.choose()
            now = self._clock()
            answer.first_token_at = answer.first_token_at or now
            if token in self._end_tokens:
                self._finish(answer, decoder.decode(b"", final=True), StopReason.STOP)
                return
            answer.output_tokens += 1
            self._count(output=1)
            self._emit_text(generation, decoder.decode(self._weights.piece(token)))
            is_full = len(self._held.tokens) == self._context.window_tokens
            if is_full or answer.output_tokens == generation.max_output_tokens:
                self._finish(answer, decoder.decode(b"", final=True), StopReason.LENGTH)
                return
            if not self._evaluate(generation, (token,)):
                return

    def _finish(self, answer: "_Answer", rest: str, stop_reason: StopReason) -> None:
        generation = answer.generation
        self._emit_text(generation, rest)
        first = answer.first_token_at or answer.started
        usage = Usage(
            input_tokens=len(generation.prompt),
            cached_tokens=answer.cached_tokens,
            output_tokens=answer.output_tokens,
        )
        timing = Timing(
            queue_seconds=answer.started - generation.queued_at,
            first_token_seconds=first - answer.started,
            generation_seconds=self._clock() - first,
        )
        with self._lock:
            # Before the outcome is told: who has it finds the engine idle.
            generation.finished = True
            self._active = None
        self._emit(generation, Outcome(stop_reason=stop_reason, usage=usage, timing=timing))

    def _is_over(self, generation: Generation) -> bool:
        return generation.cancelled or self._stopping

    def _emit_text(self, generation: Generation, text: str) -> None:
        if text:
            self._emit(generation, text)

    def _emit(self, generation: Generation, emission: Emission) -> None:
        if generation.cancelled:
            return
        try:
            generation.emit(emission)
        except RuntimeError:
            # The event loop that asked is closed: nobody listens any more.
            generation.cancelled = True

    def _count(self, *, evaluated: int = 0, cached: int = 0, output: int = 0) -> None:
        with self._lock:
            self._totals.evaluated += evaluated
            self._totals.cached += cached
            self._totals.output += output


@dataclass(kw_only=True, slots=True)
class _Answer:
    """A generation's state while it runs."""

    generation: Generation
    cached_tokens: int
    started: float
    first_token_at: float | None = None
    output_tokens: int = 0


def _common_length(held: list[int], prompt: tuple[int, ...]) -> int:
    pairs = zip(held, prompt, strict=False)
    return next((index for index, (mine, asked) in enumerate(pairs) if mine != asked), min(len(held), len(prompt)))


def _engine_failed(reason: str) -> ProviderError:
    error = ProviderError(f"the engine's thread has failed: {reason}", code=ENGINE_FAILED)
    # Another attempt in this process meets the same dead thread.
    error.retryable = False
    return error
