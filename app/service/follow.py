"""The reader's side of a run: what is stored, in order and without a gap, and between it the text as it is written.

Promises kept here (the architecture's numbers):

9. Stored events can't be missed: they are read from the log by ``seq``; what the feed says is a hint. Deltas may be
   dropped.
10. No transaction is open while a reader waits or is being sent to.
"""

import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from app.errors import StoreUnavailable
from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Doorbell, Signal, Subscription
from app.ports.records import RunRecord, StoredEventRow
from app.service.drain import next_news
from app.service.reading import Reading
from app.service.tree import TreeEvent, unknown_position


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepAlive:
    """Nothing happened for a while; the reader's right to listen was checked."""


class Farewell(StrEnum):
    """Why the stream ends before the run does. Its reader comes back by id and misses nothing."""

    GOING_AWAY = "server going away, reconnect"
    TOO_SLOW = "reader too slow, reconnect"
    NOT_ALLOWED = "key no longer valid"
    DATABASE_AWAY = "database unavailable, reconnect"
    ERASED = "the run was erased"


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeText:
    """Text as it is generated, where several runs are read as one. ``run_id`` is whose it is."""

    run_id: RunId
    text: AnswerDelta | AnswerSnapshot


Frame = StoredEventRow | TreeEvent | AnswerDelta | AnswerSnapshot | TreeText | KeepAlive | Farewell
StillAllowed = Callable[[], Awaitable[bool]]


Read = TypeVar("Read", covariant=True)


class Log(Protocol[Read]):
    """What a stream reads, page by page. ``subscription`` is open before its run's log is read, so that nothing falls
    between the two; ``look_at`` is when to read without being told to, on the monotonic clock."""

    subscription: Subscription
    look_at: float
    has_more: bool
    has_ended: bool

    def open(self) -> None: ...

    async def read_page(self) -> Sequence[Read]: ...

    async def is_kept(self) -> bool:
        """Whether the run is still there: one that was erased with its session has no end that a reader could see."""
        ...

    def hear(self, text: AnswerDelta | AnswerSnapshot) -> Read | None:
        """The frame for it; None for text that a stored response has overtaken: the whole of it was sent already."""
        ...


def check_position(run: RunRecord, after: int) -> bool:
    """Whether there is or will be anything to read after event number ``after``.

    Raises MalformedRequest (``unknown_event_id``) for a number that this run never had: a silent replay would show
    everything twice, and silence would be a loss.
    """
    if not 0 <= after <= run.last_seq:
        raise unknown_position()
    return not (run.state.is_terminal and after == run.last_seq)


def follow(
    reading: Reading, tenant_id: TenantId, run_id: RunId, *, after: int, still_allowed: StillAllowed
) -> AsyncGenerator[Frame, None]:
    """Yields the run's stored events after number ``after``, then what comes, until ``terminated`` or a farewell."""
    return follow_log(reading, _RunLog(reading, tenant_id, run_id, after), still_allowed)


async def follow_log(
    reading: Reading, log: Log[Read], still_allowed: StillAllowed
) -> AsyncGenerator[Read | KeepAlive | Farewell, None]:
    """Yields what the log holds and what is heard, until its end or a farewell.

    Before each keep-alive ``still_allowed`` is asked, and whether the run is still there. Nothing is held before the
    first item is asked for, and everything is let go when the generator ends or is closed.
    """
    log.open()
    try:
        watch = _Watch(reading, log, still_allowed)
        signals: deque[Signal] = deque([Doorbell()])
        is_replaying = True
        while True:
            signal = signals.popleft() if signals else None
            if isinstance(signal, Doorbell):
                heard = log.subscription
                page = await log.read_page()
                for frame in page:
                    yield frame
                if is_replaying:
                    reading.replayed(len(page))
                    is_replaying = log.has_more
                if log.has_ended:
                    return
                if log.subscription is not heard:
                    # What else was heard is of a run that the log has gone past.
                    signals.clear()
                if log.has_more:
                    signals.appendleft(signal)
            elif signal is not None and (text := log.hear(signal)) is not None:
                yield text
            farewell = await watch.find_reason_to_end()
            if farewell is not None:
                yield farewell
                return
            if watch.take_keep_alive():
                yield KeepAlive()
            if not signals:
                signals.extend(await watch.wait())
    except StoreUnavailable:
        yield Farewell.DATABASE_AWAY
    finally:
        log.subscription.close()


class _RunLog:
    """One run's stored events, read once each."""

    subscription: Subscription

    def __init__(self, reading: Reading, tenant_id: TenantId, run_id: RunId, after: int) -> None:
        self._reading = reading
        self._tenant_id = tenant_id
        self._run_id = run_id
        self._after = after
        self._answered_iteration = 0
        self.has_more = False
        self.has_ended = False
        self.look_at = reading.clock.monotonic()

    def open(self) -> None:
        self.subscription = self._reading.feed.subscribe(self._run_id)

    async def read_page(self) -> Sequence[StoredEventRow]:
        page = await self._reading.read_log(self._tenant_id, self._run_id, self._after)
        for event in page.events:
            if event.kind == "model_response":
                self._answered_iteration = json.loads(event.payload)["iteration"]
        if page.events:
            self._after = page.events[-1].seq
            self.has_ended = page.events[-1].kind == "terminated"
        self.has_more = page.has_more
        self.look_at = self._reading.next_look()
        return page.events

    async def is_kept(self) -> bool:
        return await self._reading.is_kept(self._tenant_id, self._run_id)

    def hear(self, text: AnswerDelta | AnswerSnapshot) -> Frame | None:
        return text if text.iteration > self._answered_iteration else None


class _Watch:
    """Looks after one stream: its pace, its pings, and whether it may go on."""

    def __init__(self, reading: Reading, log: Log[object], still_allowed: StillAllowed) -> None:
        self._reading = reading
        self._log = log
        self._still_allowed = still_allowed
        self._ping_at = reading.first_ping()

    async def find_reason_to_end(self) -> Farewell | None:
        if self._log.subscription.overflowed:
            return Farewell.TOO_SLOW
        if self._reading.drain.is_draining:
            return Farewell.GOING_AWAY
        if self._is_ping_due():
            if not await self._still_allowed():
                return Farewell.NOT_ALLOWED
            if not await self._log.is_kept():
                return Farewell.ERASED
        return None

    def take_keep_alive(self) -> bool:
        """True once each time that a ping is due."""
        if not self._is_ping_due():
            return False
        self._ping_at = self._reading.clock.monotonic() + self._reading.ping_seconds
        return True

    async def wait(self) -> Sequence[Signal]:
        """What the feed says next; a doorbell of our own when the log was not looked at for too long."""
        now = self._reading.clock.monotonic()
        if now >= self._log.look_at:
            return [Doorbell()]
        seconds = max(0.0, min(self._log.look_at, self._ping_at) - now)
        return await next_news(self._log.subscription, self._reading.drain, seconds)

    def _is_ping_due(self) -> bool:
        return self._reading.clock.monotonic() >= self._ping_at
