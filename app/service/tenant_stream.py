"""The stream of a tenant's events, of all its runs: in the order of the commits and without a gap.

9. What is told was read from the store; the feed only says that there may be news.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from app.errors import StoreUnavailable
from app.ids import RunId, TenantId
from app.ports.tenant_events import EventPlace, EventsWanted, PlacedEvent, TenantEvents
from app.service.cursors import Cursors
from app.service.follow import Farewell, KeepAlive, StillAllowed, follow_log
from app.service.reading import Reading
from app.service.tenant_log import Places, TenantLog

_PLACES: Final = Places(route="GET /events", unknown="no event of this tenant has that id")
# A tenant may store hundreds of events in a second: a reader rests between two looks for so long, or for as long as a
# look takes.
_PAUSE_SECONDS: Final = 0.02
# Where most is passed over, more is looked at in one statement.
_LOOKS_FURTHER: Final = 10

TenantFrame = PlacedEvent | KeepAlive | Farewell


def seal_event_place(cursors: Cursors, tenant_id: TenantId, place: EventPlace) -> str:
    """A place in the tenant's stream as readers get it."""
    return _PLACES.seal(cursors, tenant_id, (place.cluster, place.turn, place.run_id, place.seq))


async def find_event_place(store: TenantEvents, cursors: Cursors, tenant_id: TenantId, text: str | None) -> EventPlace:
    """The place that was given out as ``text``; None: behind everything that can be read now. Raises MalformedRequest
    (``unknown_event_id``)."""
    frontier = await store.event_frontier()
    if text is None:
        return frontier.now
    cluster, turn, run_id, seq = _PLACES.open(cursors, tenant_id, text, frontier)
    return EventPlace(cluster=cluster, turn=turn, run_id=RunId(run_id), seq=seq)


def follow_tenant(
    reading: Reading, tenant_id: TenantId, *, after: EventPlace, wanted: EventsWanted, still_allowed: StillAllowed
) -> AsyncGenerator[TenantFrame, None]:
    """Yields what is wanted of the events behind that place, then of what comes, until a farewell."""
    return follow_log(reading, _Events(reading, tenant_id, after, wanted), still_allowed)


class _Events(TenantLog):
    """Satisfies ``follow.Log``."""

    def __init__(self, reading: Reading, tenant_id: TenantId, after: EventPlace, wanted: EventsWanted) -> None:
        super().__init__(reading, tenant_id)
        self._after = after
        self._wanted = wanted
        is_filtered = bool(wanted.agents or wanted.kinds)
        self._limit = reading.page_size * (_LOOKS_FURTHER if is_filtered else 1)
        self._rests_until = 0.0

    def open(self) -> None:
        self.subscription = self._reading.feed.subscribe_events(self._tenant_id)

    async def read_page(self) -> Sequence[PlacedEvent]:
        clock = self._reading.clock
        was_told = self._was_told
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
