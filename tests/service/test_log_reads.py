"""Reads of logs that many readers share: who is told by which statement, and that nobody misses what was stored."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from app.errors import StoreUnavailable
from app.execution.system import SystemClock
from app.ids import RunId, TenantId, WorkerId
from app.ports.records import Claim, LogPage
from app.ports.store import TenantStore
from app.service.log_reads import LogReads
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.store.support import new_run, submit, update, warned
from tests.wrapped_store import WrappedStore

LIMIT = 10
Place = tuple[RunId, int]


class WatchedStore(WrappedStore):
    """The real store. Its statements are counted, and answered when the test lets them; one that is to fail does."""

    def __init__(self, store: TenantStore) -> None:
        super().__init__(store)
        self.sent: list[list[Place]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.has_read = asyncio.Event()
        self.fails = False

    async def read_logs(self, tenant_id: TenantId, places: Sequence[Place], *, limit: int) -> Mapping[Place, LogPage]:
        self.sent.append(list(places))
        pages = await self.store.read_logs(tenant_id, places, limit=limit)
        self.has_read.set()
        await self.may_answer.wait()
        if self.fails:
            raise StoreUnavailable("the tests took it away")
        return pages


@dataclass
class World:
    """Runs of one tenant, of whose logs each has three events."""

    store: WatchedStore
    work: PostgresWorkStore
    tenant_id: TenantId
    claims: Sequence[Claim]
    reads: LogReads = field(default_factory=LogReads)

    def read(self, run: int, after: int = 0, *, limit: int = LIMIT) -> "asyncio.Task[LogPage]":
        run_id = self.claims[run].run_id
        return asyncio.create_task(self.reads.read(self.store, self.tenant_id, run_id, after=after, limit=limit))

    async def append(self, run: int) -> None:
        await self.work.append_if_owner(self.claims[run], [warned()], update())

    def place(self, run: int, after: int = 0) -> Place:
        return self.claims[run].run_id, after


@pytest.fixture
async def world(empty_database: Database, tenant_id: TenantId) -> World:
    work = PostgresWorkStore(empty_database, SystemClock())
    for _ in range(3):
        await submit(empty_database, new_run(tenant_id))
    claims = await work.claim(WorkerId("w"), limit=3, lease_seconds=60)
    for claim in claims:
        await work.append_if_owner(claim, [warned(), warned()], update())
    return World(store=WatchedStore(PostgresTenantStore(empty_database)), work=work, tenant_id=tenant_id, claims=claims)


async def pass_rounds() -> None:
    """Until all that is ready to run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


def numbers(page: LogPage) -> list[int]:
    return [event.seq for event in page.events]


async def test_readers_that_ask_for_the_same_are_told_by_one_statement(world: World) -> None:
    pages = await asyncio.gather(*(world.read(0, 1) for _ in range(20)))
    assert world.store.sent == [[world.place(0, 1)]]
    assert [numbers(page) for page in pages] == [[2, 3]] * 20


async def test_readers_are_told_the_same_events_and_not_copies(world: World) -> None:
    first, second = await asyncio.gather(world.read(0), world.read(0))
    assert first.events[0] is second.events[0]


async def test_readers_of_several_runs_are_told_by_one_statement(world: World) -> None:
    pages = await asyncio.gather(world.read(0), world.read(1, 2), world.read(2, 3))
    assert len(world.store.sent) == 1
    assert [numbers(page) for page in pages] == [[1, 2, 3], [3], []]


async def test_who_asks_while_a_statement_is_under_way_is_told_what_was_stored_meanwhile(world: World) -> None:
    world.store.may_answer.clear()
    early = world.read(0, 3)
    await world.store.has_read.wait()
    await world.append(0)
    late = world.read(0, 3)
    await pass_rounds()
    world.store.may_answer.set()
    assert (numbers(await early), numbers(await late)) == ([], [4])


async def test_all_who_ask_meanwhile_are_told_by_the_next_statement(world: World) -> None:
    world.store.may_answer.clear()
    early = world.read(0)
    await world.store.has_read.wait()
    late = [world.read(run, 2) for run in (0, 1, 2, 0)]
    await pass_rounds()
    world.store.may_answer.set()
    await asyncio.gather(early, *late)
    assert world.store.sent == [[world.place(0)], [world.place(run, 2) for run in range(3)]]


async def test_a_reader_that_leaves_takes_nobodys_answer_along(world: World) -> None:
    leaver, stayer = world.read(0), world.read(0)
    await asyncio.sleep(0)
    leaver.cancel()
    assert numbers(await stayer) == [1, 2, 3]
    assert leaver.cancelled()


async def test_nothing_is_read_for_readers_that_have_left(world: World) -> None:
    world.store.may_answer.clear()
    first = world.read(0)
    await world.store.has_read.wait()
    leaver, stayer = world.read(1), world.read(2)
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.sleep(0)
    world.store.may_answer.set()
    await asyncio.gather(first, stayer)
    assert world.store.sent == [[world.place(0)], [world.place(2)]]


async def test_a_failure_is_told_to_all_who_asked_and_the_next_one_is_told_the_log(world: World) -> None:
    world.store.fails = True
    told = await asyncio.gather(*(world.read(run) for run in (0, 0, 1)), return_exceptions=True)
    world.store.fails = False
    assert [type(error) for error in told] == [StoreUnavailable] * 3
    assert numbers(await world.read(0)) == [1, 2, 3]


async def test_readers_that_one_statement_has_no_room_for_are_told_by_the_next_ones(world: World) -> None:
    pages = await asyncio.gather(*(world.read(run, limit=2) for run in range(3)))
    assert [numbers(page) for page in pages] == [[1, 2]] * 3
    assert [page.has_more for page in pages] == [True] * 3
    assert len(world.store.sent) == 3


async def test_another_tenants_readers_have_a_statement_of_their_own_and_see_nothing(world: World) -> None:
    own = world.read(0)
    foreign = asyncio.create_task(
        world.reads.read(world.store, TenantId("ten_other"), world.claims[0].run_id, after=0, limit=LIMIT)
    )
    assert (numbers(await own), numbers(await foreign)) == ([1, 2, 3], [])
    assert len(world.store.sent) == 2


async def test_nothing_goes_on_when_nobody_asks_any_more(world: World) -> None:
    before = asyncio.all_tasks()
    await asyncio.gather(*(world.read(run) for run in range(3)))
    await pass_rounds()
    assert asyncio.all_tasks() == before
    assert world.reads.waiting == 0
