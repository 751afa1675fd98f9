"""The lag is what a sleep took beyond what was asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.observability import measure_loop_lag
from app.testing import FakeClock


@asynccontextmanager
async def measuring(clock: FakeClock, lags: list[float]) -> AsyncIterator[None]:
    task = asyncio.create_task(measure_loop_lag(clock, lags.append, interval_seconds=0.5))
    await clock.wait_for_sleepers()
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_loop_that_is_on_time_has_no_lag() -> None:
    clock, lags = FakeClock(auto_advance=False), list[float]()
    async with measuring(clock, lags):
        clock.advance(0.5)
        await clock.wait_for_sleepers()
    assert lags == [0.0]


async def test_a_stalled_loop_shows_by_how_long_and_recovers() -> None:
    clock, lags = FakeClock(auto_advance=False), list[float]()
    async with measuring(clock, lags):
        clock.advance(2.75)
        await clock.wait_for_sleepers()
        clock.advance(0.5)
        await clock.wait_for_sleepers()
    assert lags == [2.25, 0.0]
