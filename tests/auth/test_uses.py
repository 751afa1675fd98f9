"""When keys were last used reaches the store now and then, and at the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.auth import Uses, keep_uses
from app.ids import KeyId
from app.testing import FakeClock
from tests.auth.keyring import Keyring

KEY = KeyId("key_1")
OTHER = KeyId("key_2")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto_advance=False)


@asynccontextmanager
async def kept(uses: Uses, keys: Keyring, clock: FakeClock) -> AsyncIterator[None]:
    """While the job runs, which is at its sleep when the block begins."""
    job = asyncio.create_task(keep_uses(uses, keys, clock))
    await clock.wait_for_sleepers()
    yield
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)


async def test_uses_are_written_every_thirty_seconds(clock: FakeClock) -> None:
    uses, keys = Uses(), Keyring()
    async with kept(uses, keys, clock):
        uses.note(KEY, 100.0)
        clock.advance(29.9)
        await asyncio.sleep(0)
        assert keys.noted == []
        clock.advance(0.1)
        await clock.wait_for_sleepers()
        assert keys.noted == [{KEY: 100.0}]


async def test_of_many_uses_the_last_one_is_written(clock: FakeClock) -> None:
    uses, keys = Uses(), Keyring()
    async with kept(uses, keys, clock):
        uses.note(KEY, 100.0)
        uses.note(KEY, 102.0)
        uses.note(KEY, 101.0)
        uses.note(OTHER, 1.0)
    assert keys.noted == [{KEY: 102.0, OTHER: 1.0}]


async def test_where_nothing_was_used_nothing_is_asked(clock: FakeClock) -> None:
    keys = Keyring()
    async with kept(Uses(), keys, clock):
        clock.advance(30)
        await clock.wait_for_sleepers()
    assert keys.noted == []


async def test_what_was_used_last_is_written_when_the_process_stops(clock: FakeClock) -> None:
    uses, keys = Uses(), Keyring()
    async with kept(uses, keys, clock):
        uses.note(KEY, 100.0)
    assert keys.noted == [{KEY: 100.0}]


async def test_what_could_not_be_written_is_written_with_the_next(clock: FakeClock) -> None:
    uses, keys = Uses(), Keyring(is_away=True)
    async with kept(uses, keys, clock):
        uses.note(KEY, 100.0)
        clock.advance(30)
        await clock.wait_for_sleepers()
        uses.note(OTHER, 101.0)
        keys.is_away = False
        clock.advance(30)
        await clock.wait_for_sleepers()
        assert keys.noted == [{KEY: 100.0, OTHER: 101.0}]


async def test_a_store_that_is_away_at_the_end_keeps_nobody_from_stopping(clock: FakeClock) -> None:
    uses, keys = Uses(), Keyring(is_away=True)
    async with kept(uses, keys, clock):
        uses.note(KEY, 100.0)
    assert keys.noted == []
