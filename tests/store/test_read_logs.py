"""Pages of several logs in one statement: what fits, what is left out, and that a walk along them sees every event."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.execution.system import SystemClock
from app.ids import RunId, TenantId, WorkerId
from app.ports.records import LogPage
from app.service.log_reads import LogReads
from app.store.database import Database
from app.store.tenant import PAGE, PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import NUL, new_run, query, submit, update, warned

# More than one page is to hold, in four events.
LARGE = "x" * 100_000
LONGER = """
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    SELECT r.tenant_id, r.run_day, r.run_id, 2 + n, 'warning', now(), 1, '{}'
    FROM runs r, generate_series(1, 3000) AS n WHERE r.run_id = $1
"""


@dataclass
class Logs:
    store: PostgresTenantStore
    work: PostgresWorkStore
    database: Database
    tenant_id: TenantId

    async def make(self, *details: Sequence[str]) -> list[RunId]:
        """A run for each: ``run_queued``, and a warning of each detail."""
        for _ in details:
            await submit(self.database, new_run(self.tenant_id))
        claims = await self.work.claim(WorkerId("w"), limit=len(details), lease_seconds=60)
        for claim, texts in zip(claims, details, strict=True):
            await self.work.append_if_owner(claim, [warned(text) for text in texts], update())
        return [claim.run_id for claim in claims]

    async def read(self, *places: tuple[RunId, int], limit: int = 100) -> list[tuple[list[int], bool] | None]:
        """Of each place the numbers of its events, and whether there may be more; None for what was not come to."""
        pages: Mapping[tuple[RunId, int], LogPage] = await self.store.read_logs(self.tenant_id, places, limit=limit)
        return [_told(pages.get(place)) for place in places]


def _told(page: LogPage | None) -> tuple[list[int], bool] | None:
    return None if page is None else ([event.seq for event in page.events], page.has_more)


@pytest.fixture
def logs(empty_database: Database, tenant_id: TenantId) -> Logs:
    work = PostgresWorkStore(empty_database, SystemClock())
    return Logs(store=PostgresTenantStore(empty_database), work=work, database=empty_database, tenant_id=tenant_id)


async def test_each_log_is_read_behind_its_own_place(logs: Logs) -> None:
    a, b = await logs.make("xy", "xyz")
    assert await logs.read((b, 2), (a, 0)) == [([3, 4], False), ([1, 2, 3], False)]


async def test_one_run_may_be_read_at_several_places(logs: Logs) -> None:
    [run] = await logs.make("xyz")
    assert await logs.read((run, 3), (run, 0)) == [([4], False), ([1, 2, 3, 4], False)]


async def test_a_full_page_tells_that_there_may_be_more_and_leaves_out_the_places_behind_it(logs: Logs) -> None:
    a, b, c = await logs.make("xy", "xy", "xy")
    assert await logs.read((a, 1), (b, 0), (c, 0), limit=4) == [([2, 3], False), ([1, 2], True), None]


async def test_a_page_that_is_full_at_the_end_of_a_log_says_so_of_that_log(logs: Logs) -> None:
    a, b = await logs.make("x", "x")
    assert await logs.read((a, 0), (b, 2), limit=2) == [([1, 2], True), None]


async def test_a_page_holds_no_more_bytes_than_it_takes_to_pass_the_bound(logs: Logs) -> None:
    [run] = await logs.make([LARGE] * 6)
    assert await logs.read((run, 0)) == [([1, 2, 3, 4], True)]
    assert await logs.read((run, 4)) == [([5, 6, 7], True)]


async def test_an_event_that_is_larger_than_a_page_is_read_by_itself(logs: Logs) -> None:
    [run] = await logs.make([LARGE * 5, "small"])
    assert await logs.read((run, 1)) == [([2], True)]


async def test_the_logs_of_runs_that_are_another_tenants_or_nobodys_are_empty(logs: Logs) -> None:
    [run] = await logs.make("x")
    foreign = await logs.store.read_logs(TenantId("ten_other"), [(run, 0)], limit=9)
    assert (foreign[run, 0].events, await logs.read((RunId("run_none"), 0))) == ((), [([], False)])


async def test_what_was_stored_is_read_to_the_last_character(logs: Logs) -> None:
    [run] = await logs.make([NUL])
    page = (await logs.store.read_logs(logs.tenant_id, [(run, 1)], limit=9))[run, 1]
    async with logs.store.begin(logs.tenant_id) as tx:
        assert page.events == tuple(await tx.events_after(run, 1, limit=9))


async def test_a_page_of_a_long_log_does_not_read_the_rest_of_it(logs: Logs, empty_urls: DatabaseUrls) -> None:
    [run] = await logs.make("x")
    await query(empty_urls.superuser_url, LONGER, run)
    connection = await asyncpg.connect(empty_urls.superuser_url)
    # With a plan that sorts all that it finds.
    await connection.execute("SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_seqscan = off")
    rows = await connection.fetch(f"EXPLAIN (ANALYZE, TIMING OFF) {PAGE}", logs.tenant_id, run, 5, 10)
    await connection.close()
    read = [float(count) for row in rows for count in re.findall(r"actual rows=([0-9.]+)", row[0])]
    assert max(read) == 10


async def test_pages_in_the_middle_of_a_long_log_hold_what_follows(logs: Logs, empty_urls: DatabaseUrls) -> None:
    [run] = await logs.make("x")
    await query(empty_urls.superuser_url, LONGER, run)
    assert await logs.read((run, 1_500), limit=3) == [([1_501, 1_502, 1_503], True)]


async def _walk(reads: LogReads, logs: Logs, run: RunId, limit: int) -> list[int]:
    seen: list[int] = []
    page = LogPage(events=(), has_more=True)
    while page.has_more:
        after = seen[-1] if seen else 0
        page = await reads.read(logs.store, logs.tenant_id, run, after=after, limit=limit)
        seen += [event.seq for event in page.events]
    return seen


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6), limit=st.integers(1, 9))
async def test_readers_of_any_logs_at_once_see_every_event_once_and_in_order(
    logs: Logs, lengths: list[int], limit: int
) -> None:
    runs, reads = await logs.make(*(["x"] * length for length in lengths)), LogReads()
    seen = await asyncio.gather(*(_walk(reads, logs, run, limit) for run in runs))
    async with logs.store.begin(logs.tenant_id) as tx:
        stored = [[event.seq for event in await tx.events_after(run, 0, limit=100)] for run in runs]
    assert seen == stored
