"""News of runs inside one process. Nothing here waits for a reader, and nothing here is the truth (promise 9)."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from app.ids import RunId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Doorbell, Signal

_STORED: Final = Doorbell()
_ENDED: Final = Doorbell(may_have_ended=True)


class LocalSubscription:
    """Satisfies ``ports.feed.Subscription``."""

    def __init__(self, feed: "LocalFeed", run_id: RunId, *, limit: int) -> None:
        self._feed = feed
        self._run_id = run_id
        self._limit = limit
        self._signals: deque[Signal] = deque()
        self._waiting: Doorbell | None = None
        self._arrived = asyncio.Event()
        self._overflowed = False

    async def next_signals(self, timeout_seconds: float) -> Sequence[Signal]:
        if not self._signals:
            await _wait(self._arrived, timeout_seconds)
        self._arrived.clear()
        taken = tuple(self._signals)
        self._signals.clear()
        self._waiting = None
        return taken

    @property
    def overflowed(self) -> bool:
        return self._overflowed

    def close(self) -> None:
        self._feed.unsubscribe(self._run_id, self)

    def ring(self, doorbell: Doorbell) -> None:
        # The first of several is enough: whoever hears it reads all that was stored by then. Only the end is news on
        # top of it.
        if self._waiting is None or doorbell.may_have_ended > self._waiting.may_have_ended:
            self._waiting = doorbell
            self._signals.append(doorbell)
            self._arrived.set()

    def tell(self, signal: AnswerDelta | AnswerSnapshot) -> None:
        if len(self._signals) >= self._limit:
            self._overflowed = True
            self._arrived.set()
            return
        self._signals.append(signal)
        self._arrived.set()


class _Attempt:
    """The text of a model call so far, kept for readers that join in its middle."""

    def __init__(self, iteration: int, attempt: int) -> None:
        self.iteration = iteration
        self.attempt = attempt
        self.parts: list[str] = []
        self.length = 0

    def is_of(self, iteration: int, attempt: int) -> bool:
        return (self.iteration, self.attempt) == (iteration, attempt)

    def snapshot(self) -> AnswerSnapshot:
        return AnswerSnapshot(iteration=self.iteration, attempt=self.attempt, text="".join(self.parts))


class LocalFeed:
    """Satisfies ``ports.feed.Feed`` for a process that is alone. Use it on its event loop only."""

    def __init__(self, *, buffer_signals: int = 1024) -> None:
        self._buffer_signals = buffer_signals
        self._readers: dict[RunId, set[LocalSubscription]] = {}
        self._attempts: dict[RunId, _Attempt] = {}
        self._work = asyncio.Event()
        self._cancel = asyncio.Event()
        self._cancels: dict[RunId, None] = {}

    def subscribe(self, run_id: RunId) -> LocalSubscription:
        reader = LocalSubscription(self, run_id, limit=self._buffer_signals)
        self._readers.setdefault(run_id, set()).add(reader)
        if (attempt := self._attempts.get(run_id)) is not None:
            reader.tell(attempt.snapshot())
        return reader

    def unsubscribe(self, run_id: RunId, reader: LocalSubscription) -> None:
        readers = self._readers.get(run_id, set())
        readers.discard(reader)
        if not readers:
            self._readers.pop(run_id, None)

    @property
    def readers(self) -> int:
        """How many subscriptions are open."""
        return sum(len(readers) for readers in self._readers.values())

    def announce_stored(self, run_id: RunId) -> None:
        self._ring(run_id, _STORED)

    def announce_ended(self, run_id: RunId) -> None:
        self._ring(run_id, _ENDED)

    def _ring(self, run_id: RunId, doorbell: Doorbell) -> None:
        for reader in self._readers.get(run_id, ()):
            reader.ring(doorbell)

    def announce_queued(self) -> None:
        self._work.set()

    def announce_cancel(self, run_id: RunId) -> None:
        self._cancels[run_id] = None
        self._cancel.set()

    def announce_attempt(self, run_id: RunId, *, iteration: int, attempt: int) -> None:
        begun = self._attempts[run_id] = _Attempt(iteration, attempt)
        for reader in self._readers.get(run_id, ()):
            reader.tell(begun.snapshot())

    def announce_text(self, run_id: RunId, *, iteration: int, attempt: int, text: str) -> None:
        if not text:
            return
        current = self._attempts.get(run_id)
        if current is None or not current.is_of(iteration, attempt):
            self.announce_attempt(run_id, iteration=iteration, attempt=attempt)
            current = self._attempts[run_id]
        delta = AnswerDelta(iteration=iteration, attempt=attempt, offset=current.length, text=text)
        current.parts.append(text)
        current.length += len(text)
        for reader in self._readers.get(run_id, ()):
            reader.tell(delta)

    def forget(self, run_id: RunId) -> None:
        self._attempts.pop(run_id, None)

    async def wait_for_work(self, timeout_seconds: float) -> None:
        await _wait(self._work, timeout_seconds)
        self._work.clear()

    def cancels_heard(self) -> Sequence[RunId]:
        heard = tuple(self._cancels)
        self._cancels.clear()
        self._cancel.clear()
        return heard

    async def wait_for_cancel(self, timeout_seconds: float) -> None:
        await _wait(self._cancel, timeout_seconds)
        self._cancel.clear()

    def ring_everyone(self) -> None:
        """Something may have been missed: all look for themselves."""
        for run_id in self._readers:
            self._ring(run_id, _ENDED)
        self._work.set()
        self._cancel.set()


async def _wait(happened: asyncio.Event, timeout_seconds: float) -> None:
    try:
        async with asyncio.timeout(timeout_seconds):
            await happened.wait()
    except TimeoutError:
        return
