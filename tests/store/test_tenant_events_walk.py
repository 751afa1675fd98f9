"""However transactions overlap, each reader of a tenant's stream is told every event once, in an order that holds."""

import asyncio
from contextlib import AsyncExitStack

import asyncpg
from hypothesis import HealthCheck, given, settings

from app.store.database import Database, DatabaseConfig
from app.store.tenant import PostgresTenantStore
from tests.conftest import DatabaseUrls
from tests.store.stream_walk import RUNS, WRITERS, Event, Step, Walk, walks
from tests.store.streams import INSERT_RUN, TENANT, Writer, begin_reading
from tests.store.support import query

CLEAR = "WITH e AS (DELETE FROM events) DELETE FROM runs"


async def walked(urls: DatabaseUrls, steps: list[Step]) -> tuple[Walk, list[tuple[list[Event], list[Event]]]]:
    """The walk, and what was told when it was read again."""
    async with AsyncExitStack() as stack:
        database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
        stack.push_async_callback(database.close)
        await query(urls.superuser_url, CLEAR)
        for run_id in RUNS:
            await query(urls.superuser_url, INSERT_RUN, TENANT, run_id)
        writers = []
        for _ in range(WRITERS):
            connection = await asyncpg.connect(urls.superuser_url)
            stack.push_async_callback(connection.close)
            writers.append(Writer(connection))
        walk = Walk(writers=writers, reader=await begin_reading(PostgresTenantStore(database)))
        await walk.go(steps)
        return walk, await walk.read_again()


@given(steps=walks)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_event_is_told_once_and_in_order_whoever_reads_from_wherever(
    empty_urls: DatabaseUrls, steps: list[Step]
) -> None:
    walk, again = asyncio.run(walked(empty_urls, steps))
    assert sorted(walk.told) == sorted(walk.all_events())
    assert walk.logs() == {run_id: sorted(numbers) for run_id, numbers in walk.logs().items()}
    assert walk.find_contradictions() == []
    assert [told for told, _ in again] == [expected for _, expected in again]
    assert walk.missed_by_newcomers() == [set() for _ in walk.newcomers]
