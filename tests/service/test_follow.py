"""Following a run, on a clock that tests move: what is asked for when, and what is held meanwhile."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from app.events import RunState
from app.execution.system import SystemClock
from app.ids import RunId, TenantId, WorkerId
from app.ports.records import StoredEventRow
from app.service.drain import Drain
from app.service.follow import Farewell, Frame, KeepAlive, follow
from app.service.reading import Reading
from app.store.database import Database
from app.store.signals import LocalFeed
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.testing import FakeClock
from tests.conftest import DatabaseUrls
from tests.store.support import new_run, query, submit, terminated, update, warned

PING_SECONDS = 15


@dataclass
class Watched:
    """A run whose log has seven events and no end, and its reader's right to listen."""

    reading: Reading
    feed: LocalFeed
    clock: FakeClock
    run_id: RunId
    tenant_id: TenantId
    end: Callable[[], Awaitable[object]]
    is_allowed: bool = True
    asked_at: list[float] = field(default_factory=list)

    async def ask(self) -> bool:
        self.asked_at.append(self.clock.monotonic())
        return self.is_allowed

    def follow(self, *, after: int = 0) -> AsyncGenerator[Frame, None]:
        return follow(self.reading, self.tenant_id, self.run_id, after=after, still_allowed=self.ask)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.feed.announce_stored(self.run_id)


@pytest.fixture
async def watched(empty_database: Database, tenant_id: TenantId) -> Watched:
    work = PostgresWorkStore(empty_database, SystemClock())
    run = await submit(empty_database, new_run(tenant_id))
    (claim,) = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(claim, [warned(str(number)) for number in range(6)], update())
    feed, clock = LocalFeed(), FakeClock(auto_advance=False)
    return Watched(
        reading=Reading(
            store=PostgresTenantStore(empty_database),
            feed=feed,
            clock=clock,
            drain=Drain(),
            ping_seconds=PING_SECONDS,
            poll_seconds=10_000,
            page_size=2,
        ),
        feed=feed,
        clock=clock,
        run_id=run.run_id,
        tenant_id=tenant_id,
        end=lambda: work.append_if_owner(claim, [terminated()], update(RunState.COMPLETED)),
    )


async def take(frames: AsyncGenerator[Frame, None], number: int) -> list[Frame]:
    async with asyncio.timeout(5):
        return [await anext(frames) for _ in range(number)]


def numbers(frames: list[Frame]) -> list[int]:
    return [frame.seq for frame in frames if isinstance(frame, StoredEventRow)]


async def test_a_log_of_many_pages_is_read_without_waiting_between_them(watched: Watched) -> None:
    async with aclosing(watched.follow()) as frames:
        assert numbers(await take(frames, 7)) == [1, 2, 3, 4, 5, 6, 7]


async def test_reading_begins_after_the_event_that_is_named_and_ends_with_the_run(watched: Watched) -> None:
    await watched.end()
    async with asyncio.timeout(5), aclosing(watched.follow(after=5)) as frames:
        assert numbers([frame async for frame in frames]) == [6, 7, 8]


async def test_nothing_is_held_before_the_first_frame_is_asked_for(watched: Watched) -> None:
    frames = watched.follow()
    assert watched.feed.readers == 0
    await frames.aclose()


async def test_everything_is_let_go_when_the_reader_leaves_between_two_frames(watched: Watched) -> None:
    frames = watched.follow()
    await take(frames, 1)
    assert watched.feed.readers == 1
    await frames.aclose()
    assert watched.feed.readers == 0


async def test_everything_is_let_go_when_the_reader_leaves_while_it_waits(watched: Watched) -> None:
    async with aclosing(watched.follow()) as frames:
        await take(frames, 7)
        waiting = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert (watched.feed.readers, waiting.cancelled()) == (0, True)


async def test_a_ping_comes_when_it_is_due_and_not_before(watched: Watched) -> None:
    async with aclosing(watched.follow()) as frames:
        await take(frames, 7)
        waiting = asyncio.ensure_future(anext(frames))
        watched.pass_time(PING_SECONDS - 0.1)
        too_early, _ = await asyncio.wait([waiting], timeout=0.05)
        assert (too_early, watched.asked_at) == (set(), [])
        watched.pass_time(0.1)
        async with asyncio.timeout(5):
            assert isinstance(await waiting, KeepAlive)
    assert watched.asked_at == [PING_SECONDS]


async def test_a_busy_stream_is_pinged_and_checked_as_well(watched: Watched) -> None:
    async with aclosing(watched.follow()) as frames:
        first = await take(frames, 1)
        watched.clock.advance(PING_SECONDS)
        rest = await take(frames, 7)
    assert numbers(first + rest) == [1, 2, 3, 4, 5, 6, 7]
    assert sum(isinstance(frame, KeepAlive) for frame in rest) == 1


async def test_a_reader_that_lost_its_right_is_told_at_the_next_ping_and_shown_nothing_more(watched: Watched) -> None:
    async with aclosing(watched.follow()) as frames:
        await take(frames, 7)
        watched.is_allowed = False
        watched.pass_time(PING_SECONDS)
        async with asyncio.timeout(5):
            assert [frame async for frame in frames] == [Farewell.NOT_ALLOWED]


async def test_readers_of_a_process_that_goes_away_are_told_at_once(watched: Watched) -> None:
    async with aclosing(watched.follow()) as frames:
        await take(frames, 7)
        waiting = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0)
        watched.reading.drain.begin()
        async with asyncio.timeout(5):
            assert await waiting == Farewell.GOING_AWAY


async def test_a_reader_of_a_run_that_was_erased_is_told_at_the_next_ping(
    watched: Watched, empty_urls: DatabaseUrls
) -> None:
    async with aclosing(watched.follow()) as frames:
        await take(frames, 2)
        await watched.end()
        await query(empty_urls.superuser_url, "DELETE FROM events")
        await query(empty_urls.superuser_url, "DELETE FROM runs")
        watched.clock.advance(PING_SECONDS)
        async with asyncio.timeout(5):
            assert [frame async for frame in frames] == [Farewell.ERASED]
