"""Following a run with those below it, on a clock that tests move: whom one listens to, and what is held meanwhile."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest

from app.events import AnyEvent, RunState, ToolCalled, Warned
from app.execution.system import SystemClock
from app.ids import CallId, RunId, TenantId, WorkerId
from app.policy import Effect
from app.ports.records import Claim, LogPage, RunRecord
from app.ports.store import TenantStore
from app.service.drain import Drain
from app.service.follow import Farewell, Frame, TreeText
from app.service.follow_tree import follow_tree
from app.service.reading import Reading
from app.service.tree import Position, TreeEvent, open_walk
from app.store.database import Database
from app.store.signals import LocalFeed
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.testing import FakeClock
from tests.conftest import DatabaseUrls
from tests.store.support import new_run, query, submit, terminated, update, warned
from tests.wrapped_store import WrappedStore

POLL_SECONDS = 100.0
PING_SECONDS = 10_000


@dataclass
class Family:
    """A run whose third event called an agent, and the run of that agent, which has one event."""

    reading: Reading
    feed: LocalFeed
    clock: FakeClock
    work: PostgresWorkStore
    root: RunRecord
    parent: Claim
    child: Claim

    async def follow(self, *, after: Position = (), reading: Reading | None = None) -> AsyncGenerator[Frame, None]:
        reading = reading or self.reading
        async with reading.store.begin(self.root.tenant_id) as tx:
            walk = await open_walk(tx, self.root, after)
        return follow_tree(reading, self.root.tenant_id, walk, self.allow)

    async def allow(self) -> bool:
        return True

    async def store(self, claim: Claim, *bodies: AnyEvent, state: RunState = RunState.RUNNING) -> None:
        await self.work.append_if_owner(claim, bodies, update(state))

    async def write(self, claim: Claim, *bodies: AnyEvent, state: RunState = RunState.RUNNING) -> None:
        await self.store(claim, *bodies, state=state)
        self.feed.announce_stored(claim.run_id)


def called(child_id: RunId) -> ToolCalled:
    return ToolCalled(
        iteration=1, call_id=CallId("call_1_1"), name="x", arguments={}, effect=Effect.ONCE, child_run_id=child_id
    )


@pytest.fixture
async def family(empty_database: Database, tenant_id: TenantId) -> Family:
    work = PostgresWorkStore(empty_database, SystemClock())
    root = await submit(empty_database, new_run(tenant_id, run_id=RunId(f"run_{'0' * 26}")))
    (parent,) = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    child_id = RunId(f"run_{'1' * 26}")
    await work.append_if_owner(parent, [warned(), called(child_id)], update())
    child = new_run(tenant_id, run_id=child_id, parent_run_id=root.run_id, root_run_id=root.run_id, depth=1)
    adopted = await work.adopt(parent, child)
    feed, clock = LocalFeed(), FakeClock(auto_advance=False)
    reading = Reading(
        store=PostgresTenantStore(empty_database),
        feed=feed,
        clock=clock,
        drain=Drain(),
        ping_seconds=PING_SECONDS,
        poll_seconds=POLL_SECONDS,
        page_size=2,
    )
    return Family(reading=reading, feed=feed, clock=clock, work=work, root=root, parent=parent, child=adopted.claim)


class MeddledStore(WrappedStore):
    """The store, and something that happens right behind the first reading of that run's log."""

    def __init__(self, store: TenantStore, run_id: RunId, meddle: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self.run_id = run_id
        self.meddle = meddle
        self.was_used = False

    async def read_logs(
        self, tenant_id: TenantId, places: Sequence[tuple[RunId, int]], *, limit: int
    ) -> Mapping[tuple[RunId, int], LogPage]:
        pages = await self.store.read_logs(tenant_id, places, limit=limit)
        if not self.was_used and self.run_id in dict(places):
            self.was_used = True
            await self.meddle()
        return pages


async def take(frames: AsyncGenerator[Frame, None], number: int) -> list[Frame]:
    async with asyncio.timeout(5):
        return [await anext(frames) for _ in range(number)]


def positions(frames: list[Frame]) -> list[Position]:
    return [frame.position for frame in frames if isinstance(frame, TreeEvent)]


UP_TO_THE_CHILD = [(1,), (2,), (3,), (3, 1)]


async def test_a_log_of_many_pages_is_read_down_into_the_child_without_waiting(family: Family) -> None:
    async with aclosing(await family.follow()) as frames:
        assert positions(await take(frames, 4)) == UP_TO_THE_CHILD


async def test_events_that_one_answer_has_no_room_for_are_read_on_without_waiting(family: Family) -> None:
    large = Warned(code="w", detail="x" * 200_000)
    await family.store(family.child, large, large, large)
    frames = await family.follow(after=(3, 1), reading=replace(family.reading, page_size=100))
    async with aclosing(frames):
        assert positions(await take(frames, 3)) == [(3, 2), (3, 3), (3, 4)]


async def test_the_stream_goes_back_to_the_parent_and_ends_with_it(family: Family) -> None:
    await family.store(family.child, warned(), terminated(), state=RunState.COMPLETED)
    await family.store(family.parent, warned(), terminated(), state=RunState.COMPLETED)
    async with asyncio.timeout(5), aclosing(await family.follow(after=(3, 1))) as frames:
        assert positions([frame async for frame in frames]) == [(3, 2), (3, 3), (4,), (5,)]


async def test_a_call_that_has_no_run_yet_is_waited_for(family: Family) -> None:
    other = RunId(f"run_{'2' * 26}")
    await family.store(family.child, called(other))
    async with aclosing(await family.follow(after=(3, 1))) as frames:
        assert positions(await take(frames, 1)) == [(3, 2)]
        waiting = asyncio.ensure_future(anext(frames))
        grandchild = new_run(
            family.root.tenant_id,
            run_id=other,
            parent_run_id=family.child.run_id,
            root_run_id=family.root.run_id,
            depth=2,
        )
        await family.work.adopt(family.child, grandchild)
        family.feed.announce_stored(other)
        async with asyncio.timeout(5):
            assert positions([await waiting]) == [(3, 2, 1)]


async def test_one_run_is_listened_to_at_a_time(family: Family) -> None:
    async with aclosing(await family.follow()) as frames:
        await take(frames, 4)
        waiting = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0)
        assert family.feed.readers == 1
        await family.write(family.child, warned())
        async with asyncio.timeout(5):
            assert positions([await waiting]) == [(3, 2)]


async def test_nothing_falls_between_the_log_of_a_child_and_listening_to_it(family: Family) -> None:
    child = family.child
    store = MeddledStore(family.reading.store, child.run_id, lambda: family.write(child, warned()))
    frames = await family.follow(reading=replace(family.reading, store=store, page_size=100))
    async with aclosing(frames):
        assert positions(await take(frames, 5)) == [*UP_TO_THE_CHILD, (3, 2)]


async def test_nothing_is_held_before_the_first_frame_is_asked_for(family: Family) -> None:
    frames = await family.follow()
    assert family.feed.readers == 0
    await frames.aclose()


async def test_everything_is_let_go_when_the_reader_leaves_within_a_child(family: Family) -> None:
    frames = await family.follow()
    await take(frames, 4)
    assert family.feed.readers == 1
    await frames.aclose()
    assert family.feed.readers == 0


async def test_text_says_whose_it_is(family: Family) -> None:
    async with aclosing(await family.follow()) as frames:
        await take(frames, 4)
        waiting = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0.05)
        family.feed.announce_text(family.child.run_id, iteration=1, attempt=1, text="Hello.")
        async with asyncio.timeout(5):
            heard = await waiting
    assert isinstance(heard, TreeText)
    assert heard.run_id == family.child.run_id


async def test_what_was_heard_of_a_child_is_not_taken_for_its_parents(family: Family) -> None:
    async with aclosing(await family.follow()) as frames:
        await take(frames, 4)
        waiting = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0.05)
        # One doorbell for all that is stored by then, and text behind it.
        await family.store(family.child, terminated(), state=RunState.COMPLETED)
        family.feed.announce_stored(family.child.run_id)
        family.feed.announce_text(family.child.run_id, iteration=2, attempt=1, text="Late.")
        async with asyncio.timeout(5):
            assert positions([await waiting]) == [(3, 2)]
        following = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0.05)
        await family.write(family.parent, warned())
        async with asyncio.timeout(5):
            assert positions([await following]) == [(4,)]


async def test_a_child_that_was_left_without_an_end_is_left_at_the_next_look(family: Family) -> None:
    async with aclosing(await family.follow()) as frames:
        await take(frames, 4)
        waiting = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0.05)
        await family.store(family.parent, terminated(RunState.FAILED), state=RunState.FAILED)
        family.clock.advance(POLL_SECONDS)
        family.feed.announce_stored(family.child.run_id)
        async with asyncio.timeout(5):
            assert positions([await waiting, *[frame async for frame in frames]]) == [(4,)]


async def test_a_reader_of_a_tree_that_was_erased_is_told_at_the_next_ping(
    family: Family, empty_urls: DatabaseUrls
) -> None:
    async with aclosing(await family.follow()) as frames:
        await take(frames, 4)
        await query(empty_urls.superuser_url, "DELETE FROM events")
        await query(empty_urls.superuser_url, "DELETE FROM runs")
        family.clock.advance(PING_SECONDS)
        async with asyncio.timeout(5):
            assert [frame async for frame in frames] == [Farewell.ERASED]
