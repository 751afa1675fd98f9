"""News of runs inside one process. Nothing here waits for a reader, and nothing here is the truth (promise 9)."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Doorbell, Signal

_STORED: Final = Doorbell()
_ENDED: Final = Doorbell(may_have_ended=True)

K = TypeVar("K")


class LocalSubscription:
    """Satisfies ``ports.feed.Subscription``. ``leave`` is called when it is closed."""

    def __init__(self, leave: Callable[["LocalSubscription"], None], *, limit: int) -> None:
        self._leave = leave
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

    def wake(self) -> None:
        self._arrived.set()

    @property
    def overflowed(self) -> bool:
        return self._overflowed

    def close(self) -> None:
        self._leave(self)

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


@dataclass(frozen=True, kw_only=True, order=True, slots=True)
class Take:
    """Which model call of a run a text is of. The later one is the greater one: a claim's fence comes first."""

    fence: int
    iteration: int
    attempt: int


class AnswerText:
    """The text of a model call so far, kept for readers that join in its middle."""

    def __init__(self, take: Take) -> None:
        self.take = take
        self.length = 0
        self._parts: list[str] = []

    def add(self, text: str) -> AnswerDelta:
        """Goes on with this text."""
        offset = self.length
        self._parts.append(text)
        self.length += len(text)
        return AnswerDelta(iteration=self.take.iteration, attempt=self.take.attempt, offset=offset, text=text)

    def since(self, offset: int) -> str:
        """What follows the first ``offset`` characters."""
        missing, newest = self.length - offset, deque[str]()
        for part in reversed(self._parts):
            if missing <= 0:
                break
            newest.appendleft(part[-missing:])
            missing -= len(part)
        return "".join(newest)

    def snapshot(self) -> AnswerSnapshot:
        return AnswerSnapshot(iteration=self.take.iteration, attempt=self.take.attempt, text="".join(self._parts))


@dataclass(kw_only=True, slots=True)
class _Drives:
    """Of one run in this process: two for a moment, where a process took back a run that it had lost unawares."""

    newest: int = -1
    count: int = 0


class LocalFeed:
    """Satisfies ``ports.feed.Feed`` for a process that is alone. Use it on its event loop only."""

    def __init__(self, *, buffer_signals: int = 1024) -> None:
        self._buffer_signals = buffer_signals
        self._readers: dict[RunId, set[LocalSubscription]] = {}
        self._end_readers: dict[RunId, set[LocalSubscription]] = {}
        self._approval_readers: dict[TenantId, set[LocalSubscription]] = {}
        self._event_readers: dict[TenantId, set[LocalSubscription]] = {}
        self._texts: dict[RunId, AnswerText] = {}
        self._drives: dict[RunId, _Drives] = {}
        self._fences: dict[RunId, int] = {}
        self._work = asyncio.Event()
        self._cancel = asyncio.Event()
        self._cancels: dict[RunId, None] = {}

    def subscribe(self, run_id: RunId) -> LocalSubscription:
        reader = LocalSubscription(partial(self.unsubscribe, run_id), limit=self._buffer_signals)
        self._readers.setdefault(run_id, set()).add(reader)
        if (text := self._texts.get(run_id)) is not None:
            reader.tell(text.snapshot())
        return reader

    def unsubscribe(self, run_id: RunId, reader: LocalSubscription) -> None:
        _leave(self._readers, run_id, reader)
        self._tidy(run_id)

    def subscribe_end(self, run_id: RunId) -> LocalSubscription:
        return self._join(self._end_readers, run_id)

    def subscribe_approvals(self, tenant_id: TenantId) -> LocalSubscription:
        return self._join(self._approval_readers, tenant_id)

    def subscribe_events(self, tenant_id: TenantId) -> LocalSubscription:
        return self._join(self._event_readers, tenant_id)

    def _join(self, of: dict[K, set[LocalSubscription]], key: K) -> LocalSubscription:
        reader = LocalSubscription(partial(_leave, of, key), limit=self._buffer_signals)
        of.setdefault(key, set()).add(reader)
        return reader

    @property
    def readers(self) -> int:
        """How many subscriptions are open."""
        of_all = (self._readers, self._end_readers, self._approval_readers, self._event_readers)
        return sum(len(readers) for of in of_all for readers in of.values())

    def announce_stored(self, run_id: RunId) -> None:
        self._ring(run_id, _STORED)

    def announce_ended(self, run_id: RunId) -> None:
        self._ring(run_id, _ENDED)
        for reader in self._end_readers.get(run_id, ()):
            reader.ring(_ENDED)

    def _ring(self, run_id: RunId, doorbell: Doorbell) -> None:
        for reader in self._readers.get(run_id, ()):
            reader.ring(doorbell)

    def announce_queued(self) -> None:
        self._work.set()

    def announce_approvals(self, tenant_id: TenantId) -> None:
        self._ring_approvals(tenant_id)

    def _ring_approvals(self, tenant_id: TenantId) -> None:
        for reader in self._approval_readers.get(tenant_id, ()):
            reader.ring(_STORED)

    def announce_events(self, tenant_id: TenantId) -> None:
        self._ring_events(tenant_id)

    def _ring_events(self, tenant_id: TenantId) -> None:
        for reader in self._event_readers.get(tenant_id, ()):
            reader.ring(_STORED)

    def announce_cancel(self, run_id: RunId) -> None:
        self._cancels[run_id] = None
        self._cancel.set()

    def announce_attempt(self, run_id: RunId, *, iteration: int, attempt: int, fence: int = 0) -> None:
        self._begin_here(run_id, Take(fence=fence, iteration=iteration, attempt=attempt))

    def announce_text(self, run_id: RunId, *, iteration: int, attempt: int, text: str, fence: int = 0) -> None:
        if not text:
            return
        take = Take(fence=fence, iteration=iteration, attempt=attempt)
        current = self._texts.get(run_id)
        if current is None or current.take != take:
            current = self._begin_here(run_id, take)
        if current is not None:
            self._tell(run_id, current.add(text))

    def _begin_here(self, run_id: RunId, take: Take) -> AnswerText | None:
        """None where a newer claim has been heard of: whoever says this has lost the run, and doesn't know it yet."""
        drives = self._drives.setdefault(run_id, _Drives())
        if take.fence > drives.newest:
            drives.newest, drives.count = take.fence, drives.count + 1
        return self._begin(run_id, take) if self._is_current(run_id, take) else None

    def _is_current(self, run_id: RunId, take: Take) -> bool:
        """Whether no newer claim has been heard of, as far back as somebody reads or the text is kept."""
        return take.fence >= self._fences.get(run_id, take.fence)

    def _begin(self, run_id: RunId, take: Take, text: str = "") -> AnswerText:
        self._fences[run_id] = take.fence
        begun = self._texts[run_id] = AnswerText(take)
        if text:
            begun.add(text)
        self._tell(run_id, begun.snapshot())
        return begun

    def _tell(self, run_id: RunId, signal: AnswerDelta | AnswerSnapshot) -> None:
        for reader in self._readers.get(run_id, ()):
            reader.tell(signal)

    def forget(self, run_id: RunId) -> None:
        drives = self._drives.get(run_id)
        if drives is None:
            return
        drives.count -= 1
        if not drives.count:
            if self._find_own(run_id) is not None:
                del self._texts[run_id]
            del self._drives[run_id]
            self._tidy(run_id)

    def _tidy(self, run_id: RunId) -> None:
        if run_id not in self._readers and run_id not in self._texts:
            self._fences.pop(run_id, None)

    def _find_own(self, run_id: RunId) -> AnswerText | None:
        """The text of a run that is driven here, unless a newer claim has been heard of."""
        drives, text = self._drives.get(run_id), self._texts.get(run_id)
        return text if drives is not None and text is not None and text.take.fence <= drives.newest else None

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
        # Not announce_ended: nothing is said to others.
        for run_id in {*self._readers, *self._end_readers}:
            LocalFeed.announce_ended(self, run_id)
        for tenant_id in self._approval_readers:
            self._ring_approvals(tenant_id)
        for tenant_id in self._event_readers:
            self._ring_events(tenant_id)
        self._work.set()
        self._cancel.set()


def _leave(of: dict[K, set[LocalSubscription]], key: K, reader: LocalSubscription) -> None:
    readers = of.get(key, set())
    readers.discard(reader)
    if not readers:
        of.pop(key, None)


async def _wait(happened: asyncio.Event, timeout_seconds: float) -> None:
    try:
        async with asyncio.timeout(timeout_seconds):
            await happened.wait()
    except TimeoutError:
        return
