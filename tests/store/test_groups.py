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
        self.asked_alone: list[int] = []
        self.bad: set[int] = set()
        self.away = False
        self.doors: list[asyncio.Event] = []
        self.group: Group[int, int] = Group(self._ask_one, self._ask_all, shares=shares)

    async def _ask_one(self, number: int) -> int:
        self.asked_alone.append(number)
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


async def ask_twice(desk: Desk, number: int) -> int:
    return await desk.group.ask(await desk.group.ask(number))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, nobody comes later than a group is waited for."""
    monkeypatch.setattr("app.store.groups._PATIENCE_SECONDS", 3600.0)


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


@pytest.mark.usefixtures("patient")
async def test_whoever_asks_while_a_group_is_on_its_way_is_in_the_next_one() -> None:
    desk = Desk()
    door = asyncio.Event()
    desk.doors = [door]
    first = [start(desk, 1), start(desk, 2)]
    await pass_rounds()
    second = start(desk, 3)
    await pass_rounds()
    third = start(desk, 4)
    await pass_rounds()
    before = list(desk.asked)
    door.set()
    assert await asyncio.gather(*first, second, third) == [2, 4, 6, 8]
    assert (before, desk.asked) == ([[1, 2]], [[1, 2], [3, 4]])


@pytest.mark.usefixtures("patient")
async def test_the_end_of_a_group_begins_the_next_one_and_not_the_one_after_that() -> None:
    desk = Desk()
    at_once, door = asyncio.Event(), asyncio.Event()
    at_once.set()
    desk.doors = [at_once, door]
    told = [asyncio.create_task(ask_twice(desk, number)) for number in range(16)]
    await pass_rounds()
    before = [len(numbers) for numbers in desk.asked]
    door.set()
    assert await asyncio.gather(*told) == [4 * number for number in range(16)]
    assert (before, [len(numbers) for numbers in desk.asked]) == ([16, 8], [16, 8, 8])


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
    told = await asyncio.gather(*(ask_twice(desk, number) for number in range(1, 17)))
    assert told == [4 * number for number in range(1, 17)]
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
    assert [(type(one), str(one)) for one in told] == [(StoreUnavailable, "away")] * 2
    assert told[0] is not told[1]
    assert desk.asked == [[1, 2]]


async def test_equal_questions_are_one_where_they_may_be() -> None:
    desk = Desk(shares=True)
    assert await asyncio.gather(*(desk.group.ask(number) for number in (1, 2, 1))) == [2, 4, 2]
    assert desk.asked == [[1, 2]]


async def test_who_asks_alone_is_asked_for_alone() -> None:
    desk = Desk()
    assert await desk.group.ask(1) == 2
    await asyncio.gather(desk.group.ask(2), desk.group.ask(3))
    assert desk.asked_alone == [1]


async def test_equal_questions_that_nobody_else_is_beside_are_one_that_comes_alone() -> None:
    desk = Desk(shares=True)
    assert await asyncio.gather(*(desk.group.ask(1) for _ in range(2))) == [2, 2]
    assert (desk.asked, desk.asked_alone) == ([[1]], [1])


async def test_the_error_of_equal_questions_is_told_to_each_who_asked() -> None:
    desk = Desk(shares=True)
    desk.bad = {1}
    told = await asyncio.gather(desk.group.ask(1), desk.group.ask(1), return_exceptions=True)
    assert [type(one) for one in told] == [ValueError, ValueError]


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


async def test_who_comes_after_all_have_given_up_is_answered() -> None:
    desk = Desk()
    given_up = start(desk, 1)
    await asyncio.sleep(0)
    given_up.cancel()
    await pass_rounds()
    async with asyncio.timeout(5):
        assert await desk.group.ask(2) == 4
    assert desk.asked == [[2]]


async def test_who_gives_up_keeps_the_others_from_no_error() -> None:
    desk = Desk()
    door = asyncio.Event()
    desk.doors, desk.away = [door], True
    given_up, kept = start(desk, 1), start(desk, 2)
    await pass_rounds()
    given_up.cancel()
    door.set()
    with pytest.raises(StoreUnavailable):
        await kept


async def test_nobody_waits_for_a_statement_that_was_cancelled() -> None:
    desk = Desk()
    desk.doors = [asyncio.Event()]
    before = asyncio.all_tasks()
    waiting = {start(desk, 1), start(desk, 2)}
    await pass_rounds()
    [sending] = asyncio.all_tasks() - before - waiting
    sending.cancel()
    async with asyncio.timeout(5):
        told = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in told] == [asyncio.CancelledError] * 2


async def test_nothing_is_kept_of_a_group_that_is_answered() -> None:
    desk = Desk()
    await asyncio.gather(*(desk.group.ask(number) for number in range(40)))
    await pass_rounds()
    assert desk.group._sent == set()
