"""A scrape asks the database one question at a time, and waits for it only so long."""

import asyncio
import time

import pytest

from app.errors import StoreUnavailable
from app.observability import Metrics, Scraper
from app.ports.records import Snapshot

SNAPSHOT = Snapshot(runs_by_state={"queued": 3}, oldest_queued_seconds=1.0)
SHOWN = b"runwright_queue_depth 3.0"


class Gauges:
    """A database that answers when it is told to."""

    def __init__(self) -> None:
        self.times_asked = 0
        self.answers = asyncio.Event()
        self.were_given_up = 0

    async def snapshot(self) -> Snapshot:
        self.times_asked += 1
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.were_given_up += 1
            raise
        return SNAPSHOT


@pytest.fixture
def gauges() -> Gauges:
    return Gauges()


def make_scraper(gauges: Gauges, *, limit_seconds: float = 5.0) -> Scraper:
    return Scraper(Metrics(), gauges.snapshot, limit_seconds=limit_seconds)


async def test_a_scrape_asks_once(gauges: Gauges) -> None:
    gauges.answers.set()
    assert SHOWN in await make_scraper(gauges).render()
    assert gauges.times_asked == 1


async def test_scrapers_that_come_at_once_share_one_answer(gauges: Gauges) -> None:
    scraper = make_scraper(gauges)
    scrapes = [asyncio.create_task(scraper.render()) for _ in range(20)]
    await asyncio.sleep(0)
    gauges.answers.set()
    answers = await asyncio.gather(*scrapes)
    assert [answer for answer in answers if SHOWN not in answer] == []
    assert gauges.times_asked == 1


async def test_a_scrape_after_another_asks_again(gauges: Gauges) -> None:
    gauges.answers.set()
    scraper = make_scraper(gauges)
    await scraper.render()
    await scraper.render()
    assert gauges.times_asked == 2


async def test_a_database_that_hangs_does_not_hang_the_scrape(gauges: Gauges) -> None:
    began_at = time.monotonic()
    answer = await make_scraper(gauges, limit_seconds=0.05).render()
    assert time.monotonic() - began_at < 2
    assert b"runwright_database_up 0.0" in answer
    assert b"runwright_queue_depth" not in answer


async def test_a_question_that_hangs_is_given_up_in_time(gauges: Gauges) -> None:
    scraper = make_scraper(gauges, limit_seconds=0.05)
    await scraper.render()
    await scraper.render()
    # Never two of them at once, or each scrape would take one more connection.
    assert gauges.times_asked - gauges.were_given_up <= 1


async def test_a_scraper_that_hangs_up_takes_nothing_from_the_others(gauges: Gauges) -> None:
    scraper = make_scraper(gauges)
    first, second = asyncio.create_task(scraper.render()), asyncio.create_task(scraper.render())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    gauges.answers.set()
    assert SHOWN in await second
    assert gauges.times_asked == 1


async def test_a_database_that_is_away_costs_only_its_own_figures() -> None:
    async def fail() -> Snapshot:
        raise StoreUnavailable("the database does not answer")

    answer = await Scraper(Metrics(), fail).render()
    assert b"runwright_database_up 0.0" in answer
    assert b"runwright_open_streams 0.0" in answer
