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

from app.errors import MalformedRequest, StoreUnavailable
from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Doorbell, Signal, Subscription
from app.ports.records import RunRecord, StoredEventRow
from app.service.drain import next_news
from app.service.reading import Reading


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepAlive:
    """Nothing happened for a while; the reader's right to listen was checked."""


class Farewell(StrEnum):
    """Why the stream ends before the run does. Its reader comes back by id and misses nothing."""

    GOING_AWAY = "server going away, reconnect"
    TOO_SLOW = "reader too slow, reconnect"
    NOT_ALLOWED = "key no longer valid"
    DATABASE_AWAY = "database unavailable, reconnect"


Frame = StoredEventRow | AnswerDelta | AnswerSnapshot | KeepAlive | Farewell


def check_position(run: RunRecord, after: int) -> bool:
    """Whether there is or will be anything to read after event number ``after``.

    Raises MalformedRequest (``unknown_event_id``) for a number that this run never had: a silent replay would show
    everything twice, and silence would be a loss.
    """
    if not 0 <= after <= run.last_seq:
        raise MalformedRequest("this run has no event with that id", code="unknown_event_id")
    return not (run.state.is_terminal and after == run.last_seq)


async def follow(
    reading: Reading,
    tenant_id: TenantId,
    run_id: RunId,
    *,
    after: int,
    still_allowed: Callable[[], Awaitable[bool]],
) -> AsyncGenerator[Frame, None]:
    """Yields the run's stored events after number ``after``, then what comes, until ``terminated`` or a farewell.

    ``still_allowed`` is asked before each keep-alive. Nothing is held before the first item is asked for, and
    everything is let go when the generator ends or is closed.
    """
    # Before the first look at the log, so that nothing falls between the two.
    subscription = reading.feed.subscribe(run_id)
    try:
        log = _Log(reading, tenant_id, run_id, after)
        watch = _Watch(reading, subscription, still_allowed)
        signals: deque[Signal] = deque([Doorbell()])
        while True:
            signal = signals.popleft() if signals else None
            if isinstance(signal, Doorbell):
                page = await log.read_page()
                for event in page:
                    yield event
                if log.has_ended:
                    return
                if len(page) == reading.page_size:
                    signals.appendleft(signal)
            elif signal is not None and log.is_news(signal):
                yield signal
            farewell = await watch.find_reason_to_end()
            if farewell is not None:
                yield farewell
                return
            if watch.take_keep_alive():
                yield KeepAlive()
            if not signals:
                signals.extend(await watch.wait(look_at=log.look_at))
    except StoreUnavailable:
        yield Farewell.DATABASE_AWAY
    finally:
        subscription.close()


class _Log:
    """The run's stored events, read once each."""

    def __init__(self, reading: Reading, tenant_id: TenantId, run_id: RunId, after: int) -> None:
        self._reading = reading
        self._tenant_id = tenant_id
        self._run_id = run_id
        self._after = after
        self._answered_iteration = 0
        self.has_ended = False
        self.look_at = reading.clock.monotonic()

    async def read_page(self) -> Sequence[StoredEventRow]:
        async with self._reading.store.begin(self._tenant_id) as tx:
            page = await tx.events_after(self._run_id, self._after, limit=self._reading.page_size)
        for event in page:
            if event.kind == "model_response":
                self._answered_iteration = json.loads(event.payload)["iteration"]
        if page:
            self._after = page[-1].seq
            self.has_ended = page[-1].kind == "terminated"
        self.look_at = self._reading.clock.monotonic() + self._reading.poll_seconds
        return page

    def is_news(self, text: AnswerDelta | AnswerSnapshot) -> bool:
        """False for text that a stored response has overtaken: the whole of it was sent already."""
        return text.iteration > self._answered_iteration


class _Watch:
    """Looks after one stream: its pace, its pings, and whether it may go on."""

    def __init__(
        self, reading: Reading, subscription: Subscription, still_allowed: Callable[[], Awaitable[bool]]
    ) -> None:
        self._reading = reading
        self._subscription = subscription
        self._still_allowed = still_allowed
        self._ping_at = reading.clock.monotonic() + reading.ping_seconds

    async def find_reason_to_end(self) -> Farewell | None:
        if self._subscription.overflowed:
            return Farewell.TOO_SLOW
        if self._reading.drain.is_draining:
            return Farewell.GOING_AWAY
        if self._is_ping_due() and not await self._still_allowed():
            return Farewell.NOT_ALLOWED
        return None

    def take_keep_alive(self) -> bool:
        """True once each time that a ping is due."""
        if not self._is_ping_due():
            return False
        self._ping_at = self._reading.clock.monotonic() + self._reading.ping_seconds
        return True

    async def wait(self, *, look_at: float) -> Sequence[Signal]:
        """What the feed says next; a doorbell of our own when the log was not looked at for too long."""
        now = self._reading.clock.monotonic()
        if now >= look_at:
            return [Doorbell()]
        return await next_news(self._subscription, self._reading.drain, max(0.0, min(look_at, self._ping_at) - now))

    def _is_ping_due(self) -> bool:
        return self._reading.clock.monotonic() >= self._ping_at
