"""Following a tenant's events, on a clock that tests move: when the store is asked, and what ends a stream."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest

from app.errors import MalformedRequest
from app.ids import RunId, TenantId
from app.ports.tenant_events import EventPlace, EventsPage, EventsWanted, PlacedEvent
from app.service.cursors import Cursors
from app.service.drain import Drain
from app.service.follow import Farewell
from app.service.reading import Reading
from app.service.tenant_stream import TenantFrame, find_event_place, follow_tenant, seal_event_place
from app.store.database import Database
from app.store.signals import LocalFeed
from app.store.tenant import PostgresTenantStore
from app.testing import FakeClock
from tests.store.support import new_run, submit
from tests.wrapped_store import WrappedStore

CURSORS = Cursors(b"a secret of the tests, 32 bytes..")
POLL_SECONDS = 2.0


class CountingStore(WrappedStore):
    """Remembers when it was asked for a page, and how far."""

    def __init__(self, store: PostgresTenantStore, clock: FakeClock) -> None:
        super().__init__(store)
        self.clock = clock
        self.asked_at: list[float] = []
        self.limits: list[int] = []

    async def tenant_events(
        self, tenant_id: TenantId, after: EventPlace, wanted: EventsWanted, *, limit: int
    ) -> EventsPage:
        self.asked_at.append(round(self.clock.monotonic(), 3))
        self.limits.append(limit)
        return await super().tenant_events(tenant_id, after, wanted, limit=limit)


@dataclass
class Watched:
    """A tenant without events, and a reader behind all."""

    database: Database
    store: CountingStore
    feed: LocalFeed
    drain: Drain
    tenant_id: TenantId
    place: EventPlace

    def follow(self, **changes: object) -> AsyncGenerator[TenantFrame, None]:
        reading = Reading(
            store=self.store,
            feed=self.feed,
            clock=self.store.clock,
            drain=self.drain,
            ping_seconds=1000,
            poll_seconds=POLL_SECONDS,
            page_size=2,
        )
        asked = {"after": self.place, "wanted": EventsWanted(), **changes}
        return follow_tenant(reading, self.tenant_id, still_allowed=always, **asked)  # type: ignore[arg-type]

    async def submit(self) -> RunId:
        return (await submit(self.database, new_run(self.tenant_id))).run_id


async def always() -> bool:
    return True


@pytest.fixture
async def watched(shared_database: Database, tenant_id: TenantId) -> Watched:
    store = CountingStore(PostgresTenantStore(shared_database), FakeClock(auto_advance=False))
    return Watched(
        database=shared_database,
        store=store,
        feed=LocalFeed(),
        drain=Drain(),
        tenant_id=tenant_id,
        place=(await store.event_frontier()).now,
    )


async def take(frames: AsyncGenerator[TenantFrame, None], number: int) -> list[TenantFrame]:
    async with asyncio.timeout(5):
        return [await anext(frames) for _ in range(number)]


def runs(frames: list[TenantFrame]) -> list[RunId]:
    return [frame.place.run_id for frame in frames if isinstance(frame, PlacedEvent)]


async def test_many_pages_are_read_without_waiting_between_them(watched: Watched) -> None:
    submitted = [await watched.submit() for _ in range(5)]
    async with aclosing(watched.follow()) as frames:
        assert runs(await take(frames, 5)) == submitted
    assert watched.store.asked_at == [0.0, 0.0, 0.0]


async def test_where_most_is_passed_over_more_is_looked_at_at_once(watched: Watched) -> None:
    await watched.submit()
    async with aclosing(watched.follow()) as frames:
        await take(frames, 1)
    async with aclosing(watched.follow(wanted=EventsWanted(kinds={"run_queued"}))) as frames:
        await take(frames, 1)
    assert watched.store.limits == [2, 20]


async def test_whatever_is_announced_the_store_is_asked_once_in_20_ms(watched: Watched) -> None:
    async with aclosing(watched.follow()) as frames:
        waiting = asyncio.ensure_future(anext(frames))
        await asked(watched, 1)
        watched.feed.announce_events(watched.tenant_id)
        await asyncio.wait([waiting], timeout=0.05)
        too_early = list(watched.store.asked_at)
        watched.store.clock.advance(0.02)
        await asked(watched, 2)
        await leave(waiting)
    assert too_early == [0.0]
    assert watched.store.asked_at == [0.0, 0.02]


async def asked(watched: Watched, times: int) -> None:
    """Returns when the store was asked so many times."""
    async with asyncio.timeout(5):
        while len(watched.store.asked_at) < times:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


async def leave(waiting: "asyncio.Future[TenantFrame]") -> None:
    waiting.cancel()
    await asyncio.wait([waiting])


async def test_a_stream_whose_database_became_another_one_says_farewell(watched: Watched) -> None:
    elsewhere = replace(watched.place, cluster=watched.place.cluster + 1)
    async with aclosing(watched.follow(after=elsewhere)) as frames:
        assert await take(frames, 1) == [Farewell.DATABASE_AWAY]


async def test_it_ends_where_the_process_goes_away_and_lets_everything_go(watched: Watched) -> None:
    watched.drain.begin()
    async with aclosing(watched.follow()) as frames:
        assert await take(frames, 1) == [Farewell.GOING_AWAY]
    assert watched.feed.readers == 0


async def test_nothing_is_held_before_the_first_frame_is_asked_for(watched: Watched) -> None:
    frames = watched.follow()
    assert watched.feed.readers == 0
    await frames.aclose()


async def test_a_place_is_found_again_by_what_was_given_out_for_it(watched: Watched) -> None:
    await watched.submit()
    async with aclosing(watched.follow()) as frames:
        [told] = await take(frames, 1)
    assert isinstance(told, PlacedEvent)
    sealed = seal_event_place(CURSORS, watched.tenant_id, told.place)
    assert await find_event_place(watched.store, CURSORS, watched.tenant_id, sealed) == told.place


async def test_a_place_is_good_for_its_tenant_only(watched: Watched) -> None:
    sealed = seal_event_place(CURSORS, watched.tenant_id, watched.place)
    with pytest.raises(MalformedRequest, match="no event of this tenant"):
        await find_event_place(watched.store, CURSORS, TenantId("ten_other"), sealed)
