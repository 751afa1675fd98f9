"""News inside one process."""

import asyncio

from app.ids import RunId, TenantId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Doorbell
from app.store.signals import LocalFeed

RUN, OTHER = RunId("run_1"), RunId("run_2")


def tell(feed: LocalFeed, text: str, *, attempt: int = 1) -> None:
    feed.announce_text(RUN, iteration=1, attempt=attempt, text=text)


async def test_a_reader_hears_what_was_stored_for_its_run_only() -> None:
    feed = LocalFeed()
    mine, other = feed.subscribe(RUN), feed.subscribe(OTHER)
    feed.announce_stored(RUN)
    assert await mine.next_signals(0) == (Doorbell(),)
    assert await other.next_signals(0) == ()


async def test_doorbells_that_wait_are_one() -> None:
    feed = LocalFeed()
    reader = feed.subscribe(RUN)
    feed.announce_stored(RUN)
    tell(feed, "a")
    feed.announce_stored(RUN)
    assert [type(signal) for signal in await reader.next_signals(0)] == [Doorbell, AnswerSnapshot, AnswerDelta]
    feed.announce_stored(RUN)
    assert await reader.next_signals(0) == (Doorbell(),)


async def test_text_comes_as_deltas_with_their_offsets() -> None:
    feed = LocalFeed()
    reader = feed.subscribe(RUN)
    feed.announce_attempt(RUN, iteration=1, attempt=1)
    tell(feed, "Hé")
    tell(feed, "llo")
    assert await reader.next_signals(0) == (
        AnswerSnapshot(iteration=1, attempt=1, text=""),
        AnswerDelta(iteration=1, attempt=1, offset=0, text="Hé"),
        AnswerDelta(iteration=1, attempt=1, offset=2, text="llo"),
    )


async def test_a_reader_that_joins_in_the_middle_gets_the_text_so_far() -> None:
    feed = LocalFeed()
    tell(feed, "Hel")
    reader = feed.subscribe(RUN)
    tell(feed, "lo")
    assert await reader.next_signals(0) == (
        AnswerSnapshot(iteration=1, attempt=1, text="Hel"),
        AnswerDelta(iteration=1, attempt=1, offset=3, text="lo"),
    )


async def test_a_new_attempt_makes_the_old_text_void() -> None:
    feed = LocalFeed()
    tell(feed, "wrong")
    feed.announce_attempt(RUN, iteration=1, attempt=2)
    reader = feed.subscribe(RUN)
    tell(feed, "right", attempt=2)
    assert await reader.next_signals(0) == (
        AnswerSnapshot(iteration=1, attempt=2, text=""),
        AnswerDelta(iteration=1, attempt=2, offset=0, text="right"),
    )


async def test_a_run_that_is_over_here_leaves_no_text() -> None:
    feed = LocalFeed()
    tell(feed, "Hello")
    feed.forget(RUN)
    assert await feed.subscribe(RUN).next_signals(0) == ()


async def test_a_reader_that_is_too_slow_loses_deltas_and_is_told() -> None:
    feed = LocalFeed(buffer_signals=3)
    slow, quick = feed.subscribe(RUN), feed.subscribe(RUN)
    tell(feed, "a")
    tell(feed, "b")
    await quick.next_signals(0)
    tell(feed, "c")
    assert slow.overflowed
    assert not quick.overflowed
    assert len(await slow.next_signals(0)) == 3


async def test_a_full_buffer_still_takes_a_doorbell() -> None:
    feed = LocalFeed(buffer_signals=2)
    reader = feed.subscribe(RUN)
    tell(feed, "a")
    tell(feed, "b")
    feed.announce_stored(RUN)
    assert (await reader.next_signals(0))[-1] == Doorbell()


async def test_waiting_ends_empty_at_the_timeout() -> None:
    assert await LocalFeed().subscribe(RUN).next_signals(0.001) == ()


async def test_a_closed_reader_is_forgotten() -> None:
    feed = LocalFeed()
    readers = [feed.subscribe(RUN), feed.subscribe(RUN)]
    readers[0].close()
    readers[0].close()
    assert feed.readers == 1
    readers[1].close()
    assert feed.readers == 0
    feed.announce_stored(RUN)
    assert await readers[1].next_signals(0) == ()


async def test_work_that_was_announced_before_the_wait_is_heard_once() -> None:
    feed = LocalFeed()
    feed.announce_queued()
    await feed.wait_for_work(60)
    await feed.wait_for_work(0.001)


async def test_cancels_are_heard_once_and_each_run_once() -> None:
    feed = LocalFeed()
    feed.announce_cancel(RUN)
    feed.announce_cancel(OTHER)
    feed.announce_cancel(RUN)
    await feed.wait_for_cancel(60)
    assert feed.cancels_heard() == (RUN, OTHER)
    assert feed.cancels_heard() == ()


async def test_the_end_is_told_on_top_of_a_doorbell_that_waits() -> None:
    feed = LocalFeed()
    reader = feed.subscribe(RUN)
    feed.announce_stored(RUN)
    feed.announce_ended(RUN)
    feed.announce_ended(RUN)
    assert await reader.next_signals(0) == (Doorbell(), Doorbell(may_have_ended=True))


async def test_a_step_after_the_end_was_told_is_no_news() -> None:
    feed = LocalFeed()
    reader = feed.subscribe(RUN)
    feed.announce_ended(RUN)
    feed.announce_stored(RUN)
    assert await reader.next_signals(0) == (Doorbell(may_have_ended=True),)


async def test_a_tenant_hears_of_its_own_questions_only() -> None:
    feed = LocalFeed()
    mine, other = feed.subscribe_approvals(TenantId("ten_1")), feed.subscribe_approvals(TenantId("ten_2"))
    feed.announce_approvals(TenantId("ten_1"))
    feed.announce_approvals(TenantId("ten_1"))
    assert await mine.next_signals(0) == (Doorbell(),)
    assert await other.next_signals(0) == ()


async def test_a_closed_reader_of_questions_is_forgotten() -> None:
    feed = LocalFeed()
    reader = feed.subscribe_approvals(TenantId("ten_1"))
    reader.close()
    reader.close()
    feed.announce_approvals(TenantId("ten_1"))
    assert feed.readers == 0
    assert await reader.next_signals(0) == ()


async def test_when_something_may_have_been_missed_readers_of_questions_look_too() -> None:
    feed = LocalFeed()
    reader = feed.subscribe_approvals(TenantId("ten_1"))
    feed.ring_everyone()
    assert await reader.next_signals(0) == (Doorbell(),)


async def test_text_of_an_older_claim_is_left_out() -> None:
    feed = LocalFeed()
    feed.announce_text(RUN, iteration=1, attempt=2, text="right", fence=2)
    feed.announce_text(RUN, iteration=1, attempt=1, text="wrong", fence=1)
    feed.announce_attempt(RUN, iteration=1, attempt=3, fence=1)
    assert await feed.subscribe(RUN).next_signals(0) == (AnswerSnapshot(iteration=1, attempt=2, text="right"),)


async def test_a_reader_stays_with_the_newest_claim_when_its_drive_is_over() -> None:
    feed = LocalFeed()
    reader = feed.subscribe(RUN)
    feed.announce_attempt(RUN, iteration=1, attempt=2, fence=2)
    feed.forget(RUN)
    feed.announce_text(RUN, iteration=1, attempt=1, text="wrong", fence=1)
    assert await reader.next_signals(0) == (AnswerSnapshot(iteration=1, attempt=2, text=""),)


async def test_who_waits_for_the_end_hears_of_no_step_and_no_text() -> None:
    feed = LocalFeed()
    waiting = feed.subscribe_end(RUN)
    feed.announce_stored(RUN)
    feed.announce_attempt(RUN, iteration=1, attempt=1)
    feed.announce_text(RUN, iteration=1, attempt=1, text="Hi")
    feed.announce_ended(OTHER)
    assert await waiting.next_signals(0) == ()
    feed.announce_ended(RUN)
    assert await waiting.next_signals(0) == (Doorbell(may_have_ended=True),)


async def test_who_waits_for_the_end_looks_for_himself_when_something_may_have_been_missed() -> None:
    feed = LocalFeed()
    waiting = feed.subscribe_end(RUN)
    feed.ring_everyone()
    assert await waiting.next_signals(0) == (Doorbell(may_have_ended=True),)


async def test_a_wait_for_an_end_that_is_over_leaves_nothing_behind() -> None:
    feed = LocalFeed()
    waiting = feed.subscribe_end(RUN)
    assert feed.readers == 1
    waiting.close()
    assert feed.readers == 0


async def test_a_wait_that_is_woken_ends_early_with_nothing() -> None:
    waiting = LocalFeed().subscribe_end(RUN)
    waiting.wake()
    async with asyncio.timeout(5):
        assert await waiting.next_signals(1000) == ()
