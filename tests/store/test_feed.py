"""News between processes: two feeds on one database stand for two processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Doorbell
from app.store.database import DatabaseConfig
from app.store.feed import PostgresFeed
from tests.conftest import DatabaseUrls
from tests.store.support import query
from tests.store.wire import Reader

RUN = RunId("run_1")
LONG_SECONDS = 30.0
END_LISTENERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')
"""


@contextlib.asynccontextmanager
async def running(feed: PostgresFeed) -> AsyncIterator[PostgresFeed]:
    task = asyncio.create_task(feed.run())
    try:
        await asyncio.wait_for(feed.wait_connected(), LONG_SECONDS)
        yield feed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def read_to_length(reader: Reader, length: int) -> None:
    while len(reader.text) < length:
        await reader.read(LONG_SECONDS)


@pytest.fixture
async def here(shared_urls: DatabaseUrls) -> AsyncIterator[PostgresFeed]:
    async with running(PostgresFeed(DatabaseConfig(url=shared_urls.app_url))) as feed:
        yield feed


@pytest.fixture
async def there(shared_urls: DatabaseUrls) -> AsyncIterator[PostgresFeed]:
    async with running(PostgresFeed(DatabaseConfig(url=shared_urls.app_url))) as feed:
        # The wake-up that a new connection causes is over.
        await feed.wait_for_work(0)
        await feed.wait_for_cancel(0)
        yield feed


async def test_what_is_stored_here_is_heard_there(here: PostgresFeed, there: PostgresFeed) -> None:
    reader = there.subscribe(RUN)
    here.announce_stored(RUN)
    assert await reader.next_signals(LONG_SECONDS) == (Doorbell(),)


async def test_an_end_here_is_heard_as_an_end_there(here: PostgresFeed, there: PostgresFeed) -> None:
    reader = there.subscribe(RUN)
    here.announce_ended(RUN)
    assert await reader.next_signals(LONG_SECONDS) == (Doorbell(may_have_ended=True),)


async def test_who_waits_for_an_end_there_hears_of_it_alone(here: PostgresFeed, there: PostgresFeed) -> None:
    waiting, reader = there.subscribe_end(RUN), there.subscribe(RUN)
    here.announce_stored(RUN)
    await reader.next_signals(LONG_SECONDS)
    assert await waiting.next_signals(0) == ()
    here.announce_ended(RUN)
    assert await waiting.next_signals(LONG_SECONDS) == (Doorbell(may_have_ended=True),)


async def test_what_is_stored_here_is_heard_here_at_once_and_once(here: PostgresFeed, there: PostgresFeed) -> None:
    reader = here.subscribe(RUN)
    here.announce_stored(RUN)
    at_once = await reader.next_signals(0)
    # When the other side has heard it, our own hint has been round too.
    listener = there.subscribe(RunId("run_2"))
    here.announce_stored(RunId("run_2"))
    await listener.next_signals(LONG_SECONDS)
    assert at_once == (Doorbell(),)
    assert await reader.next_signals(0) == ()


async def test_a_queued_run_wakes_workers_there(here: PostgresFeed, there: PostgresFeed) -> None:
    waiting = asyncio.create_task(there.wait_for_work(LONG_SECONDS))
    here.announce_queued()
    await asyncio.wait_for(waiting, LONG_SECONDS / 2)


async def test_a_cancel_is_heard_there(here: PostgresFeed, there: PostgresFeed) -> None:
    here.announce_cancel(RUN)
    await asyncio.wait_for(there.wait_for_cancel(LONG_SECONDS), LONG_SECONDS / 2)
    assert there.cancels_heard() == (RUN,)


async def test_a_burst_of_more_runs_than_one_hint_holds_is_heard_whole(here: PostgresFeed, there: PostgresFeed) -> None:
    runs = [RunId(f"run_{number:026}") for number in range(1000)]
    readers = [there.subscribe(run) for run in runs]
    for run in runs:
        here.announce_stored(run)
    heard = await asyncio.gather(*(reader.next_signals(LONG_SECONDS) for reader in readers))
    assert heard == [(Doorbell(),)] * 1000


async def test_text_is_heard_there_by_who_asks_for_it(here: PostgresFeed, there: PostgresFeed) -> None:
    here.announce_text(RUN, iteration=1, attempt=1, text="Hel", fence=1)
    reader = there.subscribe(RUN)
    assert await reader.next_signals(LONG_SECONDS) == (AnswerSnapshot(iteration=1, attempt=1, text="Hel"),)
    here.announce_text(RUN, iteration=1, attempt=1, text="lo", fence=1)
    assert await reader.next_signals(LONG_SECONDS) == (AnswerDelta(iteration=1, attempt=1, offset=3, text="lo"),)


@pytest.mark.parametrize("text", ["\x00", "\ud83d", "🙂" * 20_000, '\x01\\"' * 9_000])
async def test_no_text_breaks_a_notification(here: PostgresFeed, there: PostgresFeed, text: str) -> None:
    here.announce_text(RUN, iteration=1, attempt=1, text=text, fence=1)
    reader = Reader(there.subscribe(RUN))
    async with asyncio.timeout(LONG_SECONDS):
        await read_to_length(reader, len(text))
    assert reader.text == text.replace("\ud83d", "\ufffd")


async def test_text_goes_on_after_a_lost_connection(
    shared_urls: DatabaseUrls, here: PostgresFeed, there: PostgresFeed
) -> None:
    here.announce_text(RUN, iteration=1, attempt=1, text="Hel", fence=1)
    reader = Reader(there.subscribe(RUN))
    await read_to_length(reader, 3)
    await query(shared_urls.superuser_url, END_LISTENERS)
    here.announce_text(RUN, iteration=1, attempt=1, text="lo", fence=1)
    async with asyncio.timeout(LONG_SECONDS):
        await read_to_length(reader, 5)
    assert reader.text == "Hello"


async def test_a_question_here_is_heard_there_by_its_tenant(here: PostgresFeed, there: PostgresFeed) -> None:
    mine, other = there.subscribe_approvals(TenantId("ten_1")), there.subscribe_approvals(TenantId("ten_2"))
    here.announce_approvals(TenantId("ten_1"))
    assert await mine.next_signals(LONG_SECONDS) == (Doorbell(),)
    assert await other.next_signals(0) == ()


async def test_after_a_lost_connection_all_look_for_themselves_and_hear_again(
    shared_urls: DatabaseUrls, here: PostgresFeed, there: PostgresFeed
) -> None:
    reader = there.subscribe(RUN)
    await query(shared_urls.superuser_url, END_LISTENERS)
    rung = await reader.next_signals(LONG_SECONDS)
    await asyncio.wait_for(here.wait_connected(), LONG_SECONDS)
    await asyncio.wait_for(there.wait_connected(), LONG_SECONDS)
    await reader.next_signals(0)
    here.announce_stored(RUN)
    assert rung == (Doorbell(may_have_ended=True),)
    assert await reader.next_signals(LONG_SECONDS) == (Doorbell(),)


async def test_what_waits_at_the_end_is_still_said(shared_urls: DatabaseUrls, there: PostgresFeed) -> None:
    reader = there.subscribe(RUN)
    async with running(PostgresFeed(DatabaseConfig(url=shared_urls.app_url))) as leaving:
        leaving.announce_stored(RUN)
    assert await reader.next_signals(LONG_SECONDS) == (Doorbell(),)


async def test_without_a_database_nothing_raises_and_the_process_hears_itself() -> None:
    feed = PostgresFeed(DatabaseConfig(url="postgresql://nobody@/none?host=/nonexistent"))
    task = asyncio.create_task(feed.run())
    reader = feed.subscribe(RUN)
    feed.announce_stored(RUN)
    feed.announce_queued()
    feed.announce_cancel(RUN)
    heard = await reader.next_signals(LONG_SECONDS)
    still_running = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert heard == (Doorbell(),)
    assert still_running
