"""That a tenant has new events is said inside a process and between processes, and costs little however often."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import asyncpg

from app.ids import RunId, TenantId
from app.ports.feed import Doorbell
from app.store.database import DatabaseConfig
from app.store.feed import CHANNEL, PostgresFeed
from app.store.signals import LocalFeed
from tests.conftest import DatabaseUrls
from tests.store.support import query
from tests.store.wire import Process, Wire

TENANT, OTHER = TenantId("ten_1"), TenantId("ten_2")
RUN = RunId("run_1")
LONG_SECONDS = 30.0
LISTENERS = """
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')
"""


@contextlib.asynccontextmanager
async def running(urls: DatabaseUrls) -> AsyncIterator[PostgresFeed]:
    feed = PostgresFeed(DatabaseConfig(url=urls.app_url))
    task = asyncio.create_task(feed.run())
    try:
        await asyncio.wait_for(feed.wait_connected(), LONG_SECONDS)
        yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def announce_much(feed: PostgresFeed) -> float:
    """The same over and over. How long that took, in seconds."""
    begun = time.monotonic()
    for _ in range(200):
        feed.announce_events(TENANT)
        feed.announce_stored(RUN)
        feed.announce_ended(RUN)
        await asyncio.sleep(0.001)
    return time.monotonic() - begun


def subscribe_much(feed: PostgresFeed) -> None:
    for number in range(100):
        feed.subscribe_events(TenantId(f"ten_{number}"))
        feed.subscribe_approvals(TenantId(f"ten_{number}"))
        feed.subscribe(RunId(f"run_{number}"))


async def test_readers_of_a_tenant_hear_of_its_events_and_of_no_others() -> None:
    feed = LocalFeed()
    mine, other = feed.subscribe_events(TENANT), feed.subscribe_events(OTHER)
    feed.announce_events(TENANT)
    feed.announce_events(TENANT)
    assert await mine.next_signals(0) == (Doorbell(),)
    assert await other.next_signals(0) == ()


async def test_who_may_have_missed_something_looks_for_itself() -> None:
    feed = LocalFeed()
    reader = feed.subscribe_events(TENANT)
    feed.ring_everyone()
    assert await reader.next_signals(0) == (Doorbell(),)


async def test_a_reader_that_has_left_is_forgotten() -> None:
    feed = LocalFeed()
    reader = feed.subscribe_events(TENANT)
    counted = feed.readers
    reader.close()
    assert (counted, feed.readers) == (1, 0)


async def test_events_are_heard_of_in_other_processes_by_their_tenant(
    wire: Wire, here: Process, there: Process
) -> None:
    mine, other = there.feed.subscribe_events(TENANT), there.feed.subscribe_events(OTHER)
    here.feed.announce_events(TENANT)
    wire.settle()
    assert await mine.next_signals(0) == (Doorbell(),)
    assert await other.next_signals(0) == ()


async def test_what_is_heard_of_elsewhere_is_not_said_again(here: Process, there: Process) -> None:
    there.feed.take_hints()
    there.feed.hear(f"{here.name} events {TENANT}")
    assert [hint for hint in there.feed.take_hints() if " events " in hint] == []


async def test_however_often_something_is_announced_one_notice_goes_out_in_20_ms(empty_urls: DatabaseUrls) -> None:
    heard: list[str] = []
    listener = await asyncpg.connect(empty_urls.superuser_url)
    await listener.add_listener(CHANNEL, lambda *told: heard.append(str(told[-1])))
    async with running(empty_urls) as feed:
        seconds = await announce_much(feed)
    await listener.execute("SELECT 1")
    await listener.close()
    # The same is said in each of them, so they are as many as the statements; the last one says farewell.
    assert 1 <= len([hint for hint in heard if " events " in hint]) <= seconds / 0.02 + 2


async def test_a_process_holds_one_connection_for_news_whoever_reads(empty_urls: DatabaseUrls) -> None:
    async with running(empty_urls) as feed:
        subscribe_much(feed)
        await announce_much(feed)
        assert len(await query(empty_urls.superuser_url, LISTENERS)) == 1
