"""The stream of a tenant's events: in the order of commits, and nobody misses one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

from app.events import RunState
from app.execution.system import SystemClock
from app.ids import RunId, WorkerId
from app.ports.tenant_events import EventsWanted
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.streams import INSERT_RUN, OTHER, TENANT, StreamReader, Writer, begin_reading, elsewhere, names
from tests.store.support import AGENT, new_run, query, submit, terminated, update, warned

A, B = RunId("run_a"), RunId("run_b")


@pytest.fixture
def store(empty_database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(empty_database)


@pytest.fixture
async def reader(empty_urls: DatabaseUrls, store: PostgresTenantStore) -> StreamReader:
    """Behind two runs that have no event yet."""
    await query(empty_urls.superuser_url, INSERT_RUN, TENANT, A)
    await query(empty_urls.superuser_url, INSERT_RUN, TENANT, B)
    return await begin_reading(store)


@pytest.fixture
async def begin(empty_urls: DatabaseUrls) -> AsyncIterator[Callable[[], Awaitable[Writer]]]:
    """Begins a transaction."""
    async with AsyncExitStack() as stack:

        async def open_one() -> Writer:
            connection = await asyncpg.connect(empty_urls.superuser_url)
            stack.push_async_callback(connection.close)
            writer = Writer(connection)
            await writer.begin()
            return writer

        yield open_one


Begin = Callable[[], Awaitable[Writer]]


async def append(begin: Begin, *run_ids: RunId) -> None:
    """One event of each, in a transaction of its own."""
    for run_id in run_ids:
        writer = await begin()
        await writer.append(run_id)
        await writer.commit()


async def test_events_of_all_runs_are_told_in_the_order_of_their_commits(
    empty_database: Database, store: PostgresTenantStore
) -> None:
    reader = await begin_reading(store)
    first, second = [await submit(empty_database, new_run(TENANT)) for _ in range(2)]
    work = PostgresWorkStore(empty_database, SystemClock())
    claims = {claim.run_id: claim for claim in await work.claim(WorkerId("w"), limit=2, lease_seconds=60)}
    await work.append_if_owner(claims[second.run_id], [warned(), warned()], update())
    await work.append_if_owner(claims[first.run_id], [warned(), terminated()], update(RunState.COMPLETED))
    expected = [(first.run_id, 1), (second.run_id, 1), (second.run_id, 2), (second.run_id, 3)]
    assert await reader.read() == [*expected, (first.run_id, 2), (first.run_id, 3)]


async def test_an_event_is_told_as_its_log_has_it(empty_database: Database, store: PostgresTenantStore) -> None:
    reader = await begin_reading(store)
    run = await submit(empty_database, new_run(TENANT))
    await reader.read()
    async with store.begin(TENANT) as tx:
        assert [placed.event for placed in reader.told] == await tx.events_after(run.run_id, 0, limit=9)


async def test_a_reader_goes_on_behind_what_it_has_read(reader: StreamReader, begin: Begin) -> None:
    await append(begin, A, B, A, A)
    assert await reader.read(limit=2) == [(A, 1), (B, 1)]
    assert await reader.read(limit=2) == [(A, 2), (A, 3)]
    assert await reader.read(limit=2) == []


async def test_a_page_says_whether_there_may_be_more(
    store: PostgresTenantStore, reader: StreamReader, begin: Begin
) -> None:
    await append(begin, A, B, A)
    pages = [await store.tenant_events(TENANT, reader.place, EventsWanted(), limit=limit) for limit in (2, 3, 4)]
    assert [page.has_more for page in pages] == [True, True, False]


async def test_who_begins_now_is_told_what_comes_and_nothing_that_was_there(
    store: PostgresTenantStore, reader: StreamReader, begin: Begin
) -> None:
    await append(begin, A, B)
    newcomer = await begin_reading(store)
    assert await newcomer.read() == []
    await append(begin, B)
    assert await newcomer.read() == [(B, 2)]


async def test_what_committed_first_waits_for_what_began_before_it(reader: StreamReader, begin: Begin) -> None:
    slow = await begin()
    await append(begin, A)
    assert await reader.read() == []
    await slow.append(B)
    await slow.commit()
    assert await reader.read() == [(B, 1), (A, 1)]


async def test_a_transaction_that_is_undone_holds_nothing_back_any_more(reader: StreamReader, begin: Begin) -> None:
    slow = await begin()
    await append(begin, A)
    await slow.append(B)
    await slow.roll_back()
    assert await reader.read() == [(A, 1)]


async def test_who_begins_while_an_older_transaction_runs_misses_nothing_of_it(
    store: PostgresTenantStore, reader: StreamReader, begin: Begin
) -> None:
    slow = await begin()
    await append(begin, A)
    newcomer = await begin_reading(store)
    await slow.append(B)
    await slow.commit()
    assert await newcomer.read() == [(B, 1), (A, 1)]


async def test_events_of_a_run_keep_the_order_of_its_log_where_an_older_transaction_appends_last(
    reader: StreamReader, begin: Begin
) -> None:
    old = await begin()
    await append(begin, A, A)
    await old.append(A)
    await old.commit()
    assert await reader.read() == [(A, 1), (A, 2), (A, 3)]


async def test_an_event_with_a_later_place_than_its_transactions_is_not_missed(
    reader: StreamReader, begin: Begin
) -> None:
    old = await begin()
    await append(begin, A)
    await old.append(A)
    await append(begin, B)
    meanwhile = await reader.read()
    await old.commit()
    assert meanwhile == []
    assert await reader.read() == [(A, 1), (A, 2), (B, 1)]


async def test_what_one_transaction_appends_to_several_runs_is_told_run_by_run(
    reader: StreamReader, begin: Begin
) -> None:
    writer = await begin()
    written = [await writer.append(run_id) for run_id in (B, A, B, A)]
    await writer.commit()
    assert await reader.read() == sorted(written)
    assert await reader.read() == []


async def test_a_page_may_end_within_a_transaction(reader: StreamReader, begin: Begin) -> None:
    writer = await begin()
    written = [await writer.append(run_id) for run_id in (A, A, A, B)]
    await writer.commit()
    pages = [await reader.read(limit=1) for _ in range(4)]
    assert [event for page in pages for event in page] == written


async def test_another_tenants_events_are_not_told(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, reader: StreamReader, begin: Begin
) -> None:
    await query(empty_urls.superuser_url, INSERT_RUN, OTHER, A)
    writer = await begin()
    await writer.append(A, OTHER)
    await writer.commit()
    await append(begin, B)
    theirs = await store.tenant_events(OTHER, reader.place, EventsWanted(), limit=9)
    assert await reader.read() == [(B, 1)]
    assert names(theirs.events) == [(A, 1)]


async def test_what_was_erased_is_not_told_any_more(empty_database: Database, store: PostgresTenantStore) -> None:
    reader = await begin_reading(store)
    gone, kept = [await submit(empty_database, new_run(TENANT)) for _ in range(2)]
    work = PostgresWorkStore(empty_database, SystemClock())
    claims = {claim.run_id: claim for claim in await work.claim(WorkerId("w"), limit=2, lease_seconds=60)}
    await work.append_if_owner(claims[gone.run_id], [terminated()], update(RunState.COMPLETED))
    first = await reader.read(limit=1)
    async with store.begin(TENANT) as tx:
        await tx.erase_run(gone.run_id)
    assert first == [(gone.run_id, 1)]
    assert await reader.read() == [(kept.run_id, 1)]


async def test_a_place_of_another_database_is_refused(store: PostgresTenantStore, reader: StreamReader) -> None:
    with pytest.raises(ValueError, match="another database"):
        await store.tenant_events(TENANT, elsewhere(reader.place), EventsWanted(), limit=9)


@pytest.mark.parametrize("change", ["incarnation = NULL", "incarnation = incarnation + 1, xid = xid + 1000000000000"])
async def test_what_a_dump_or_an_older_release_has_left_is_no_part_of_the_stream(
    empty_urls: DatabaseUrls, reader: StreamReader, begin: Begin, change: str
) -> None:
    await append(begin, A)
    await query(empty_urls.superuser_url, f"UPDATE events SET {change}")
    await append(begin, A, B)
    assert await reader.read() == [(A, 2), (B, 1)]


async def test_nobody_chooses_an_events_place(empty_urls: DatabaseUrls, reader: StreamReader, begin: Begin) -> None:
    chosen = """
        INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload, xid, incarnation)
        SELECT tenant_id, run_day, run_id, 1, 'warning', clock_timestamp(), 0, '{}', 3, 4 FROM runs WHERE run_id = $1
    """
    await query(empty_urls.superuser_url, chosen, A)
    assert await reader.read() == [(A, 1)]


# --- filters ---------------------------------------------------------------------------------------------------------


async def test_only_events_of_the_wanted_kinds_are_told(empty_database: Database, store: PostgresTenantStore) -> None:
    reader = await begin_reading(store)
    runs = [await submit(empty_database, new_run(TENANT)) for _ in range(2)]
    work = PostgresWorkStore(empty_database, SystemClock())
    [first, _] = await work.claim(WorkerId("w"), limit=2, lease_seconds=60)
    await work.append_if_owner(first, [warned(), terminated()], update(RunState.COMPLETED))
    told = await reader.read(wanted=EventsWanted(kinds={"run_queued", "terminated"}))
    assert told == [(runs[0].run_id, 1), (runs[1].run_id, 1), (first.run_id, 3)]


async def test_only_events_of_the_wanted_agents_runs_are_told(
    empty_database: Database, store: PostgresTenantStore
) -> None:
    reader = await begin_reading(store)
    named = [AGENT.model_copy(update={"name": name}) for name in ("clerk", "porter", "cook")]
    _, porter, cook = [await submit(empty_database, new_run(TENANT, agent=agent)) for agent in named]
    told = await reader.read(wanted=EventsWanted(agents={"cook", "porter", "nobody"}))
    assert told == [(porter.run_id, 1), (cook.run_id, 1)]


async def test_what_another_tenant_calls_its_agent_leads_to_nothing_of_it(
    empty_database: Database, store: PostgresTenantStore
) -> None:
    reader = await begin_reading(store)
    await submit(empty_database, new_run(OTHER, agent=AGENT.model_copy(update={"name": "spy"})))
    assert await reader.read(wanted=EventsWanted(agents={"spy"})) == []


async def test_all_conditions_hold_together(empty_database: Database, store: PostgresTenantStore) -> None:
    reader = await begin_reading(store)
    await submit(empty_database, new_run(TENANT))
    assert await reader.read(wanted=EventsWanted(agents={"clerk"}, kinds={"terminated"})) == []


async def test_a_reader_gets_past_what_it_does_not_want(reader: StreamReader, begin: Begin) -> None:
    await append(begin, A, A, A, B)
    nothing = [await reader.read(limit=2, wanted=EventsWanted(kinds={"terminated"})) for _ in range(2)]
    assert nothing == [[], []]
    assert await reader.read() == []


async def test_a_page_ends_where_it_holds_enough(empty_database: Database, store: PostgresTenantStore) -> None:
    reader = await begin_reading(store)
    run = await submit(empty_database, new_run(TENANT))
    work = PostgresWorkStore(empty_database, SystemClock())
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(claim, [warned("x" * 200_000) for _ in range(3)], update())
    wanted = EventsWanted(kinds={"warning"})
    assert await reader.read(wanted=wanted) == [(run.run_id, 2), (run.run_id, 3)]
    assert await reader.read(wanted=wanted) == [(run.run_id, 4)]
