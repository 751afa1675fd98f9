"""The pool of connections: how many there are, who gets one, and what becomes of those that broke."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.store.pool import Pool, discard
from tests.conftest import DatabaseUrls


@pytest.fixture
async def pool(shared_urls: DatabaseUrls) -> AsyncIterator[Pool]:
    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(shared_urls.app_url)

    opened = Pool(connect, size=2, timeout_seconds=5)
    yield opened
    await opened.close()


async def take_in_vain(pool: Pool) -> asyncio.Task[asyncpg.Connection]:
    """Somebody who waits for a connection, while all are borrowed."""
    waiting = asyncio.create_task(pool.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


async def test_the_connection_used_last_comes_first(pool: Pool) -> None:
    first, second = await pool.take(), await pool.take()
    pool.give_back(second)
    pool.give_back(first)
    assert await pool.take() is first
    pool.give_back(first)


async def test_there_are_never_more_than_its_size_and_who_waits_gets_one_in_turn(pool: Pool) -> None:
    first, second = await pool.take(), await pool.take()
    waiting, later = await take_in_vain(pool), await take_in_vain(pool)
    assert pool.borrowed == 2
    pool.give_back(first)
    pool.give_back(second)
    assert (await waiting, await later) == (first, second)
    pool.give_back(first)
    pool.give_back(second)
    assert pool.borrowed == 0


async def test_a_connection_that_broke_makes_room_for_who_waits(pool: Pool) -> None:
    first, second = await pool.take(), await pool.take()
    waiting = await take_in_vain(pool)
    await discard(first)
    pool.give_back(first)
    new = await waiting
    assert await new.fetchval("SELECT 1") == 1
    pool.give_back(new)
    pool.give_back(second)
    assert pool.borrowed == 0


async def test_who_was_cancelled_with_a_connection_in_hand_passes_it_on(pool: Pool) -> None:
    first, second = await pool.take(), await pool.take()
    cancelled, waiting = await take_in_vain(pool), await take_in_vain(pool)
    pool.give_back(first)
    cancelled.cancel()
    assert await waiting is first
    await asyncio.gather(cancelled, return_exceptions=True)
    pool.give_back(first)
    pool.give_back(second)
    assert pool.borrowed == 0


async def test_who_waits_too_long_is_told_and_takes_nothing(pool: Pool) -> None:
    pool = Pool(pool.connect, size=1, timeout_seconds=0.01)
    only = await pool.take()
    with pytest.raises(TimeoutError):
        await pool.take()
    pool.give_back(only)
    assert pool.borrowed == 0
    await pool.close()


async def test_a_connection_that_could_not_be_made_leaves_its_place_free() -> None:
    async def refuse() -> asyncpg.Connection:
        raise ConnectionRefusedError

    pool = Pool(refuse, size=1, timeout_seconds=0.01)
    with pytest.raises(ConnectionRefusedError):
        await pool.take()
    with pytest.raises(ConnectionRefusedError):
        await pool.take()
    assert pool.borrowed == 0


async def test_what_is_given_back_to_a_closed_pool_is_closed(pool: Pool) -> None:
    borrowed = await pool.take()
    await pool.close()
    pool.give_back(borrowed)
    assert borrowed.is_closed()
    assert pool.borrowed == 0


async def test_those_who_wait_are_counted_until_they_have_a_connection_or_give_up(pool: Pool) -> None:
    first, second = await pool.take(), await pool.take()
    served, gone = await take_in_vain(pool), await take_in_vain(pool)
    before = pool.waiting
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    without_one = pool.waiting
    pool.give_back(first)
    pool.give_back(await served)
    assert (before, without_one, pool.waiting, pool.size) == (2, 1, 0, 2)
    pool.give_back(second)
