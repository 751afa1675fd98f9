"""Guesses are slowed, and nobody else is."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from app.auth import AttemptRules, Attempts
from app.errors import StoreUnavailable, TooManyRequests, Unauthenticated
from app.testing import FakeClock

HERE = "192.0.2.1"
GOOD = b"good"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto_advance=False)


@pytest.fixture
def attempts() -> Attempts:
    return Attempts()


async def fail(attempts: Attempts, clock: FakeClock, *, address: str | None = HERE, guess: bytes = b"bad") -> None:
    """A wrong guess, which is checked."""
    with pytest.raises(Unauthenticated):
        async with attempts.attempt(address, guess, clock):
            raise Unauthenticated


async def fail_ten_times(attempts: Attempts, clock: FakeClock, *, address: str | None = HERE) -> None:
    for number in range(10):
        await fail(attempts, clock, address=address, guess=b"bad %d" % number)


async def succeed(attempts: Attempts, clock: FakeClock, *, address: str | None = HERE, secret: bytes = GOOD) -> None:
    async with attempts.attempt(address, secret, clock):
        pass


async def break_off(attempts: Attempts, clock: FakeClock, *, times: int) -> None:
    for _ in range(times):
        with pytest.raises(StoreUnavailable):
            async with attempts.attempt(HERE, GOOD, clock):
                raise StoreUnavailable


async def test_ten_guesses_are_checked_at_once_and_the_eleventh_is_not(attempts: Attempts, clock: FakeClock) -> None:
    await fail_ten_times(attempts, clock)
    with pytest.raises(TooManyRequests) as refused:
        await succeed(attempts, clock)
    assert (refused.value.code, refused.value.retry_after_seconds) == ("too_many_attempts", 6.0)


async def test_the_time_that_was_told_is_the_time_that_it_takes(attempts: Attempts, clock: FakeClock) -> None:
    await fail_ten_times(attempts, clock)
    clock.advance(5.9)
    with pytest.raises(TooManyRequests):
        await succeed(attempts, clock)
    clock.advance(0.1)
    await fail(attempts, clock)


async def test_a_refused_attempt_costs_nothing(attempts: Attempts, clock: FakeClock) -> None:
    await fail_ten_times(attempts, clock)
    with pytest.raises(TooManyRequests):
        await succeed(attempts, clock)
    clock.advance(6)
    await succeed(attempts, clock)


async def test_after_a_minute_ten_guesses_are_checked_again(attempts: Attempts, clock: FakeClock) -> None:
    await fail_ten_times(attempts, clock)
    clock.advance(60)
    await fail_ten_times(attempts, clock)
    with pytest.raises(TooManyRequests):
        await succeed(attempts, clock)


async def test_a_secret_that_was_good_passes_where_guesses_are_refused(attempts: Attempts, clock: FakeClock) -> None:
    await succeed(attempts, clock)
    await fail_ten_times(attempts, clock)
    await succeed(attempts, clock)


async def test_a_secret_that_was_good_elsewhere_passes_too(attempts: Attempts, clock: FakeClock) -> None:
    await succeed(attempts, clock, address="198.51.100.1")
    await fail_ten_times(attempts, clock)
    await succeed(attempts, clock)


async def test_a_secret_that_is_no_longer_good_is_a_guess_again(attempts: Attempts, clock: FakeClock) -> None:
    await succeed(attempts, clock)
    await fail_ten_times(attempts, clock)
    await fail(attempts, clock, guess=GOOD)
    with pytest.raises(TooManyRequests):
        await succeed(attempts, clock)


async def test_a_secret_that_was_good_long_ago_is_as_new(attempts: Attempts, clock: FakeClock) -> None:
    await succeed(attempts, clock)
    clock.advance(900)
    await fail_ten_times(attempts, clock)
    with pytest.raises(TooManyRequests):
        await succeed(attempts, clock)


async def test_a_check_that_came_to_no_end_says_nothing(attempts: Attempts, clock: FakeClock) -> None:
    await break_off(attempts, clock, times=20)
    await fail(attempts, clock)


async def test_another_address_is_another_bucket(attempts: Attempts, clock: FakeClock) -> None:
    await fail_ten_times(attempts, clock)
    await fail(attempts, clock, address="192.0.2.2")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("2001:db8:1:2::1", "2001:db8:1:2:ffff::2", id="a network of IPv6"),
        pytest.param("::ffff:192.0.2.1", "192.0.2.1", id="IPv4 in IPv6"),
        pytest.param("fe80::1%eth0", "fe80::1", id="with a zone"),
        pytest.param(None, "", id="no address"),
        pytest.param("a" * 64 + "b", "a" * 64 + "c", id="a text that is none"),
    ],
)
async def test_addresses_of_one_client_share_a_bucket(
    attempts: Attempts, clock: FakeClock, one: str | None, other: str
) -> None:
    await fail_ten_times(attempts, clock, address=one)
    with pytest.raises(TooManyRequests):
        await succeed(attempts, clock, address=other)


async def test_two_networks_of_ipv6_are_two_clients(attempts: Attempts, clock: FakeClock) -> None:
    await fail_ten_times(attempts, clock, address="2001:db8:1:2::1")
    await fail(attempts, clock, address="2001:db8:1:3::1")


async def test_guesses_at_the_same_time_are_checked_no_further_than_may_fail(
    attempts: Attempts, clock: FakeClock
) -> None:
    checked: list[int] = []

    async def guess(number: int) -> None:
        async with attempts.attempt(HERE, b"%d" % number, clock):
            checked.append(number)
            await asyncio.sleep(0)
            raise Unauthenticated

    ends = await asyncio.gather(*map(guess, range(200)), return_exceptions=True)
    assert len(checked) == 10
    assert _kinds(ends) == [Unauthenticated] * 10 + [TooManyRequests] * 190


async def test_good_secrets_that_come_at_the_same_time_wait_for_their_turn(
    attempts: Attempts, clock: FakeClock
) -> None:
    async def come(number: int) -> None:
        async with attempts.attempt(HERE, b"%d" % number, clock):
            await asyncio.sleep(0)

    ends = await asyncio.gather(*map(come, range(200)), return_exceptions=True)
    assert ends == [None] * 200


async def test_many_that_fail_with_a_secret_that_was_good_use_up_no_more_than_there_is(
    attempts: Attempts, clock: FakeClock
) -> None:
    await succeed(attempts, clock)
    all_in = asyncio.Barrier(50)

    async def come() -> None:
        async with attempts.attempt(HERE, GOOD, clock):
            await all_in.wait()
            raise Unauthenticated

    await asyncio.gather(*(come() for _ in range(50)), return_exceptions=True)
    clock.advance(6)
    await succeed(attempts, clock, secret=b"new")


async def test_who_gives_up_waiting_leaves_the_turns_to_the_others(attempts: Attempts, clock: FakeClock) -> None:
    async with AsyncExitStack() as stack:
        for number in range(10):
            await stack.enter_async_context(attempts.attempt(HERE, b"%d" % number, clock))
        given_up = asyncio.create_task(succeed(attempts, clock, secret=b"impatient"))
        waiting = asyncio.create_task(succeed(attempts, clock))
        await asyncio.sleep(0)
        given_up.cancel()
    await waiting
    assert given_up.cancelled()


async def test_no_more_is_remembered_than_there_is_room_for(clock: FakeClock) -> None:
    attempts = Attempts(AttemptRules(max_addresses=2, max_secrets=2))
    await fail_ten_times(attempts, clock)
    await fail(attempts, clock, address="192.0.2.2")
    await fail(attempts, clock, address="192.0.2.3")
    await fail(attempts, clock)


async def test_the_secret_that_was_used_longest_ago_is_forgotten_first(clock: FakeClock) -> None:
    attempts = Attempts(AttemptRules(max_secrets=2))
    await succeed(attempts, clock, secret=b"first")
    await succeed(attempts, clock, secret=b"second")
    await succeed(attempts, clock, secret=b"first")
    await succeed(attempts, clock, secret=b"third")
    await fail_ten_times(attempts, clock)
    await succeed(attempts, clock, secret=b"first")
    with pytest.raises(TooManyRequests):
        await succeed(attempts, clock, secret=b"second")


def _kinds(ends: Sequence[object]) -> list[type]:
    return sorted((type(end) for end in ends), key=lambda kind: kind is TooManyRequests)
