"""The stream of a tenant's events, of all its runs: in the order of the commits and without a gap.

9. What is told was read from the store; the feed only says that there may be news.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from app.errors import MalformedRequest, StoreUnavailable
from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Subscription
from app.ports.tenant_events import EventPlace, EventsWanted, PlacedEvent, TenantEvents
from app.service.cursors import Cursors, Listing
from app.service.follow import Farewell, KeepAlive, StillAllowed, follow_log
from app.service.reading import Reading

_ROUTE: Final = "GET /events"
# A tenant may store hundreds of events in a second: a reader rests between two looks for so long, or for as long as a
# look takes.
_PAUSE_SECONDS: Final = 0.02
# Where most is passed over, more is looked at in one statement.
_LOOKS_FURTHER: Final = 10

TenantFrame = PlacedEvent | KeepAlive | Farewell


def seal_event_place(cursors: Cursors, tenant_id: TenantId, place: EventPlace) -> str:
    """A place in the tenant's stream as readers get it: opaque, and good for this tenant only, whatever the filter."""
    return cursors.seal(_listing(tenant_id), (place.cluster, place.turn, place.run_id, place.seq))


async def find_event_place(store: TenantEvents, cursors: Cursors, tenant_id: TenantId, text: str | None) -> EventPlace:
    """The place that was given out as ``text``; None: behind everything that can be read now.

    Raises MalformedRequest (``unknown_event_id``) for what was not given out for this tenant and by this database: one
    that was restored elsewhere, or to an earlier state, counts anew. Silence would be a loss.
    """
    frontier = await store.event_frontier()
    if text is None:
        return frontier.now
    try:
        cluster, turn, run_id, seq = cursors.open(_listing(tenant_id), text)
    except MalformedRequest:
        raise _unknown_place() from None
    if cluster != frontier.now.cluster or turn > frontier.coming:
        raise _unknown_place()
    return EventPlace(cluster=cluster, turn=turn, run_id=RunId(run_id), seq=seq)


def _unknown_place() -> MalformedRequest:
    return MalformedRequest("no event of this tenant has that id", code="unknown_event_id")


def _listing(tenant_id: TenantId) -> Listing:
    return Listing(tenant_id=tenant_id, route=_ROUTE, where={})


def follow_tenant(
    reading: Reading, tenant_id: TenantId, *, after: EventPlace, wanted: EventsWanted, still_allowed: StillAllowed
) -> AsyncGenerator[TenantFrame, None]:
    """Yields what is wanted of the events behind that place, then of what comes, until a farewell."""
    return follow_log(reading, _TenantLog(reading, tenant_id, after, wanted), still_allowed)


class _TenantLog:
    """Satisfies ``follow.Log``. It has no end."""

    subscription: Subscription

    def __init__(self, reading: Reading, tenant_id: TenantId, after: EventPlace, wanted: EventsWanted) -> None:
        self._reading = reading
        self._tenant_id = tenant_id
        self._after = after
        self._wanted = wanted
        is_filtered = bool(wanted.agents or wanted.kinds)
        self._limit = reading.page_size * (_LOOKS_FURTHER if is_filtered else 1)
        self._patience = reading.poll_seconds
        self._rests_until = 0.0
        self.has_more = False
        self.has_ended = False
        self.look_at = reading.clock.monotonic()

    def open(self) -> None:
        self.subscription = self._reading.feed.subscribe_events(self._tenant_id)

    async def read_page(self) -> Sequence[PlacedEvent]:
        clock = self._reading.clock
        was_told = clock.monotonic() < self.look_at
        if not self.has_more and (rest := self._rests_until - clock.monotonic()) > 0:
            await clock.sleep(rest)
        begun = clock.monotonic()
        try:
            # A reader that leaves now leaves a connection that is used on: one that was cut off has to be made anew.
            page = await asyncio.shield(
                self._reading.store.tenant_events(self._tenant_id, self._after, self._wanted, limit=self._limit)
            )
        except ValueError:
            # Another database took over in the middle. Who comes back is told that it knows no such id.
            raise StoreUnavailable("the stream's database is another one now") from None
        ended = clock.monotonic()
        self._rests_until = ended + max(_PAUSE_SECONDS, ended - begun)
        has_moved = page.behind != self._after
        self._after = page.behind
        self.has_more = page.has_more
        self._look_again(soon=has_moved or was_told)
        return page.events

    def _look_again(self, *, soon: bool) -> None:
        """What was committed is shown only when everything that began before it is over, of which nobody tells: after
        news it is looked for soon, and then less and less often."""
        self._patience = _PAUSE_SECONDS if soon else self._patience * 2
        self.look_at = self._reading.clock.monotonic() + min(self._patience, self._reading.poll_seconds)

    async def is_kept(self) -> bool:
        return True

    def hear(self, text: AnswerDelta | AnswerSnapshot) -> None:
        """Nothing is said between the events."""
