"""The fake clock moves only when it is told to, and wakes exactly those whose time has come."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.testing import FakeClock


async def test_an_advancing_clock_sleeps_without_waiting_and_moves_both_times() -> None:
    clock = FakeClock(start_at=100.0)
    await clock.sleep(30)
    assert (clock.now(), clock.monotonic()) == (130.0, 30.0)


async def test_a_waiting_clock_wakes_a_sleeper_only_at_its_time() -> None:
    clock = FakeClock(auto_advance=False)
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.wait_for_sleepers()
    clock.advance(9.5)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(0.5)
    await sleeper
    assert clock.sleepers == 0


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    clock = FakeClock(auto_advance=False)
    woken: list[int] = []

    async def sleep_and_tell(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleep_and_tell(seconds)) for seconds in (3, 1, 2)]
    await clock.wait_for_sleepers(3)
    clock.advance(3)
    await asyncio.gather(*tasks)
    assert woken == [1, 2, 3]


async def test_a_cancelled_sleeper_is_not_counted_and_harms_nobody() -> None:
    clock = FakeClock(auto_advance=False)
    sleeper = asyncio.create_task(clock.sleep(10))
    await clock.wait_for_sleepers()
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    assert clock.sleepers == 0
    clock.advance(20)
    assert clock.monotonic() == 20


async def test_a_sleep_of_no_time_returns_on_a_waiting_clock() -> None:
    clock = FakeClock(auto_advance=False)
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.monotonic() == 0


@pytest.mark.parametrize("seconds", [-0.001, float("nan")])
def test_time_does_not_go_back(seconds: float) -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(seconds)
    assert clock.monotonic() == 0


@given(st.lists(st.floats(min_value=0, max_value=1e6)))
def test_both_times_move_by_the_sum_of_the_jumps(jumps: list[float]) -> None:
    clock = FakeClock(start_at=5.0)
    list(map(clock.advance, jumps))
    assert clock.monotonic() == sum(jumps)
    assert clock.now() == 5.0 + clock.monotonic()
