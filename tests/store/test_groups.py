"""Questions of the same moment are asked in one statement, and nobody gets another one's answer, error or delay."""

import asyncio
from collections.abc import Sequence

import pytest

from app.errors import StoreUnavailable
from app.store.groups import Group


class Desk:
    """Doubles numbers, and notes how it was asked. ``bad`` breaks a statement; ``doors`` are what it waits for."""

    def __init__(self, *, shares: bool = False) -> None:
        self.asked: list[list[int]] = []
        self.bad: set[int] = set()
        self.away = False
        self.doors: list[asyncio.Event] = []
        self.group: Group[int, int] = Group(self._ask_one, self._ask_all, shares=shares)

    async def _ask_one(self, number: int) -> int:
        [told] = await self._ask_all([number])
        return told

    async def _ask_all(self, numbers: Sequence[int]) -> Sequence[int]:
        self.asked.append(list(numbers))
        if self.doors:
            await self.doors.pop(0).wait()
        if self.away:
            raise StoreUnavailable("away")
        if self.bad & set(numbers):
            raise ValueError("bad")
        return [2 * number for number in numbers]


def start(desk: Desk, number: int) -> "asyncio.Task[int]":
    return asyncio.create_task(desk.group.ask(number))


async def pass_rounds() -> None:
    """Until all that is ready to run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_asked_at_the_same_time_is_asked_together() -> None:
    desk = Desk()
    assert await asyncio.gather(*(desk.group.ask(number) for number in (1, 2, 3))) == [2, 4, 6]
    assert desk.asked == [[1, 2, 3]]


async def test_what_is_asked_meanwhile_goes_with_the_next_group() -> None:
    desk = Desk()
    door = asyncio.Event()
    desk.doors = [door]
    first = start(desk, 1)
    await pass_rounds()
    others = [start(desk, 2), start(desk, 3)]
    await pass_rounds()
    door.set()
    assert await asyncio.gather(first, *others) == [2, 4, 6]
    assert desk.asked == [[1], [2, 3]]


async def test_who_comes_later_does_not_wait_for_a_group_that_is_kept_waiting() -> None:
    desk = Desk()
    desk.doors = [asyncio.Event()]
    stuck = start(desk, 1)
    await pass_rounds()
    async with asyncio.timeout(5):
        assert await desk.group.ask(2) == 4
    assert not stuck.done()
    stuck.cancel()


async def test_a_group_is_no_larger_than_a_statement_should_be() -> None:
    desk = Desk()
    await asyncio.gather(*(desk.group.ask(number) for number in range(40)))
    assert [len(numbers) for numbers in desk.asked] == [32, 8]


async def test_what_the_first_of_a_group_ask_next_is_on_its_way_before_the_last_go_on() -> None:
    desk = Desk()

    async def ask_twice(number: int) -> int:
        return await desk.group.ask(await desk.group.ask(number))

    assert await asyncio.gather(*map(ask_twice, range(1, 17))) == [4 * number for number in range(1, 17)]
    first, second, *_ = desk.asked
    assert (len(first), second) == (16, [2, 4, 6, 8, 10, 12, 14, 16])


async def test_an_error_is_told_to_whose_question_broke_the_statement_and_to_nobody_else() -> None:
    desk = Desk()
    desk.bad = {2}
    told = await asyncio.gather(*(desk.group.ask(number) for number in (1, 2, 3)), return_exceptions=True)
    assert [told[0], type(told[1]), told[2]] == [2, ValueError, 6]


async def test_a_database_that_is_away_is_told_to_all_and_nothing_is_asked_again() -> None:
    desk = Desk()
    desk.away = True
    told = await asyncio.gather(*(desk.group.ask(number) for number in (1, 2)), return_exceptions=True)
    assert [type(one) for one in told] == [StoreUnavailable, StoreUnavailable]
    assert told[0] is not told[1]
    assert desk.asked == [[1, 2]]


async def test_equal_questions_are_one_where_they_may_be() -> None:
    desk = Desk(shares=True)
    assert await asyncio.gather(*(desk.group.ask(number) for number in (1, 2, 1))) == [2, 4, 2]
    assert desk.asked == [[1, 2]]


async def test_equal_questions_are_asked_each_where_each_one_counts() -> None:
    desk = Desk()
    await asyncio.gather(desk.group.ask(1), desk.group.ask(1))
    assert desk.asked == [[1, 1]]


async def test_who_gave_up_before_the_group_began_is_not_asked_for() -> None:
    desk = Desk()
    given_up, kept = start(desk, 1), start(desk, 2)
    await asyncio.sleep(0)
    given_up.cancel()
    assert await kept == 4
    assert desk.asked == [[2]]


async def test_who_gives_up_while_the_group_is_on_its_way_takes_nothing_from_the_others() -> None:
    desk = Desk()
    door = asyncio.Event()
    desk.doors = [door]
    given_up, kept = start(desk, 1), start(desk, 2)
    await pass_rounds()
    given_up.cancel()
    door.set()
    assert await kept == 4
    with pytest.raises(asyncio.CancelledError):
        await given_up
