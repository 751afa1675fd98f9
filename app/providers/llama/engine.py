"""The thread that generates: requests in, text out, many at a time.

Rules of ownership, which keep C's memory whole:

1. The engine's thread alone calls contexts, from the first request to ``close``, which it does when it ends.
2. Other threads hand over ``Generation`` objects and ask for cancels. All that both sides touch is under ``_lock``.
3. ``emit`` is called on the engine's thread and must not block. It is called no more after ``cancel`` has returned,
   but for one call that may just be under way.
4. A request that was cancelled while it waited is never evaluated. One that runs stops before its next token; the
   call under way is aborted where nobody else is in it.
5. What was evaluated for one tenant is used again for that tenant only: to others, how many tokens came from the
   cache would tell what a stranger asked.
6. When the thread fails, everything that waits and everything that comes later gets ProviderError ``engine_failed``.
   Nothing is tried again: what failed once inside C can't be relied on.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.errors import ProviderError
from app.ports.figures import Distribution
from app.providers.llama.context import LlamaContext
from app.providers.llama.generation import Generation, engine_failed, model_closed
from app.providers.llama.scheduler import Scheduler
from app.providers.llama.tally import BATCH_REQUESTS, BATCH_TOKENS, STEP_SECONDS, Tally

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCounters:
    """Totals since the start, in tokens, and how things stand now.

    ``prompt_tokens_restored``: the part of the cached ones that came out of the store; the rest was copied from a text
    that was running. ``gave_way``: how often a request went back to the queue for want of cells. ``cells`` and
    ``used_cells`` are of the shared context. ``lookups``: requests whose beginning was looked for, once each; ``hits``:
    those that found some of it. ``stored_entries`` are stretches of prompts, which hold ``stored_cells`` tokens. Each
    call of the model evaluated ``batch_tokens`` for ``batch_requests`` in ``step_seconds``.
    """

    prompt_tokens_evaluated: int = 0
    prompt_tokens_cached: int = 0
    prompt_tokens_restored: int = 0
    output_tokens: int = 0
    gave_way: int = 0
    queue_depth: int = 0
    active: int = 0
    cells: int = 0
    used_cells: int = 0
    lookups: int = 0
    hits: int = 0
    stored_entries: int = 0
    stored_cells: int = 0
    stored_bytes: int = 0
    batch_tokens: Distribution = field(default_factory=lambda: Distribution.empty(BATCH_TOKENS))
    batch_requests: Distribution = field(default_factory=lambda: Distribution.empty(BATCH_REQUESTS))
    step_seconds: Distribution = field(default_factory=lambda: Distribution.empty(STEP_SECONDS))


class EngineState:
    """What the engine's thread and the others both touch: who waits, who runs, and what was counted.

    Is told by schedulers what happens; see ``Watcher``.
    """

    def __init__(self, contexts: Sequence[LlamaContext]) -> None:
        self.contexts = contexts
        self.lock = threading.Condition()
        self.inbox: list[Generation] = []
        self.to_erase: list[tuple[str, float | None]] = []
        self.stopping = False
        self._waiting: set[Generation] = set()
        self._running: set[Generation] = set()
        self._in_call: frozenset[Generation] = frozenset()
        self._evaluated = self._cached = self._output = self._gave_way = self._lookups = self._hits = 0
        self._batch_tokens, self._batch_requests = Tally(BATCH_TOKENS), Tally(BATCH_REQUESTS)
        self._step_seconds = Tally(STEP_SECONDS)

    def begin_call(self, generations: frozenset[Generation]) -> None:
        with self.lock:
            self._in_call = generations
            self._abort_unless_wanted()

    def started(self, generation: Generation) -> None:
        with self.lock:
            self._waiting.discard(generation)
            if not generation.cancelled:
                self._running.add(generation)

    def gave_way(self, generation: Generation) -> None:
        with self.lock:
            self._gave_way += 1
            self._running.discard(generation)
            if not generation.cancelled:
                self._waiting.add(generation)

    def ended(self, generation: Generation) -> None:
        with self.lock:
            self._waiting.discard(generation)
            self._running.discard(generation)

    def looked_up(self, *, cached: int) -> None:
        with self.lock:
            self._lookups += 1
            self._hits += cached > 0
            self._cached += cached

    def made_call(self, *, tokens: int, requests: int, seconds: float) -> None:
        with self.lock:
            self._batch_tokens.add(tokens)
            self._batch_requests.add(requests)
            self._step_seconds.add(seconds)

    def count(self, *, evaluated: int = 0, output: int = 0) -> None:
        with self.lock:
            self._evaluated += evaluated
            self._output += output

    def arrive(self, generation: Generation) -> None:
        """Under the lock."""
        generation.queued_at = time.perf_counter()
        self.inbox.append(generation)
        self._waiting.add(generation)
        self.lock.notify_all()

    def cancel(self, generation: Generation) -> None:
        """Under the lock. A call that is for nobody any more is aborted."""
        generation.cancelled = True
        self._waiting.discard(generation)
        self._running.discard(generation)
        if generation in self._in_call:
            self._abort_unless_wanted()

    def stop(self) -> None:
        """Under the lock."""
        self.stopping = True
        self._abort_unless_wanted()
        self.lock.notify_all()

    def _abort_unless_wanted(self) -> None:
        is_wanted = not self.stopping and not all(generation.cancelled for generation in self._in_call)
        for context in self.contexts:
            (context.resume if is_wanted else context.abort)()

    def counters(self) -> EngineCounters:
        with self.lock:
            return EngineCounters(
                prompt_tokens_evaluated=self._evaluated,
                prompt_tokens_cached=self._cached,
                output_tokens=self._output,
                gave_way=self._gave_way,
                queue_depth=len(self._waiting),
                active=len(self._running),
                lookups=self._lookups,
                hits=self._hits,
                batch_tokens=self._batch_tokens.read(),
                batch_requests=self._batch_requests.read(),
                step_seconds=self._step_seconds.read(),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """A context with its scheduler."""

    context: LlamaContext
    scheduler: Scheduler


class Engine:
    """Owns contexts and their thread. ``stop`` must be called once ``start`` was.

    ``shared`` serves many requests at once, ``deterministic`` those that ask for it, one at a time; the thread makes a
    call for each in turn.
    """

    def __init__(
        self,
        state: EngineState,
        *,
        shared: Lane,
        deterministic: Lane | None = None,
    ) -> None:
        self._state = state
        self._shared = shared
        self._deterministic = deterministic
        self._lanes: Sequence[Lane] = [shared, *([deterministic] if deterministic else [])]
        self._failure: str | None = None
        # The thread has ended, so that the store belongs to whoever has the lock.
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="llama-engine", daemon=True)

    @property
    def failure(self) -> str | None:
        """Why the thread ended, or None."""
        return self._failure

    def start(self) -> None:
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        """Puts a request into the queue. Raises ProviderError when the engine has failed or was stopped.

        The prompt must hold 1 to ``window_tokens`` tokens.
        """
        with self._state.lock:
            if self._failure is not None:
                raise engine_failed(self._failure)
            if self._state.stopping:
                raise model_closed()
            self._state.arrive(generation)

    def cancel(self, generation: Generation) -> None:
        """Ends a request, whether it waits or runs. Does not wait for it; nothing happens to one that is over."""
        with self._state.lock:
            self._state.cancel(generation)

    def erase(self, owner: str, *, before: float | None = None) -> None:
        """Forgets what is stored of an owner (see ``Scope``) and was made up to an instant; None: everything.

        Done before anything else is evaluated, and also by an engine that has failed. Does not wait for it.
        """
        with self._state.lock:
            self._state.to_erase.append((owner, before))
            self._state.lock.notify_all()
            is_over = self._is_over
        if is_over:
            self._erase_noted()

    def counters(self) -> EngineCounters:
        """From any thread: the store's and the cells' figures are read while they may change, one by one."""
        caches = [lane.scheduler.cache for lane in self._lanes]
        return replace(
            self._state.counters(),
            prompt_tokens_restored=sum(cache.totals.restored_tokens for cache in caches),
            cells=caches[0].cells,
            used_cells=caches[0].used_cells,
            stored_entries=caches[0].stored_entries,
            stored_cells=caches[0].stored_cells,
            stored_bytes=caches[0].stored_bytes,
        )

    def stop(self) -> None:
        """Interrupts what runs, refuses it and what waits, and waits for the thread. Blocks; idempotent."""
        with self._state.lock:
            self._state.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._take_in():
                for lane in self._lanes:
                    lane.scheduler.step()
            self._refuse_all(model_closed())
        except Exception as error:  # noqa: BLE001 - the top of a thread: rule 6
            _log.exception("the engine's thread has failed")
            with self._state.lock:
                # Only the type: who asks for a run reads it.
                self._failure = type(error).__name__
            self._refuse_all(engine_failed(self._failure))
        finally:
            for lane in self._lanes:
                lane.context.close()
            with self._state.lock:
                self._is_over = True
            self._erase_noted()

    def _erase_noted(self) -> None:
        with self._state.lock:
            to_erase, self._state.to_erase = self._state.to_erase, []
            for owner, before in to_erase:
                # The lanes have one store.
                self._shared.scheduler.erase(owner, before=before)

    def _take_in(self) -> bool:
        """Hands arrivals to their scheduler; waits where there is nothing to do. False when the engine is stopping."""
        with self._state.lock:
            self._state.lock.wait_for(self._has_work)
            arrived, self._state.inbox = self._state.inbox, []
            if self._state.stopping:
                self._state.inbox = arrived
                return False
        self._erase_noted()
        for generation in arrived:
            if not generation.cancelled:
                self._lane_of(generation).scheduler.submit(generation)
        return True

    def _lane_of(self, generation: Generation) -> Lane:
        is_apart = generation.deterministic and self._deterministic is not None
        return self._deterministic if is_apart and self._deterministic else self._shared

    def _has_work(self) -> bool:
        state = self._state
        is_idle = all(lane.scheduler.is_idle for lane in self._lanes)
        return bool(state.stopping or state.inbox or state.to_erase or not is_idle)

    def _refuse_all(self, error: ProviderError) -> None:
        with self._state.lock:
            arrived, self._state.inbox = self._state.inbox, []
        for lane in self._lanes:
            for generation in arrived:
                if self._lane_of(generation) is lane:
                    lane.scheduler.submit(generation)
            lane.scheduler.refuse_all(error)
