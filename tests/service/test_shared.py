"""One question for all who ask it at about the same time: for how long its answer is good, and what a failure does."""

import asyncio
from dataclasses import dataclass, field

import pytest

from app.service.shared import Shared
from app.testing import FakeClock


@dataclass
class Oracle:
    """Answers how often it was asked, when it may."""

    asked: int = 0
    fails: bool = False
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        await self.may_answer.wait()
        if self.fails:
            raise ValueError(number)
        return number


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto_advance=False)


@pytest.fixture
def oracle() -> Oracle:
    oracle = Oracle()
    oracle.may_answer.set()
    return oracle


async def test_many_who_ask_at_once_are_told_one_answer(clock: FakeClock, oracle: Oracle) -> None:
    shared: Shared[str, int] = Shared()
    assert await asyncio.gather(*(shared.ask("a", clock, oracle.ask) for _ in range(50))) == [1] * 50


async def test_an_answer_is_good_for_its_seconds_and_no_longer(clock: FakeClock, oracle: Oracle) -> None:
    shared: Shared[str, int] = Shared(seconds=1)
    first = await shared.ask("a", clock, oracle.ask)
    clock.advance(0.9)
    second = await shared.ask("a", clock, oracle.ask)
    clock.advance(0.1)
    assert (first, second, await shared.ask("a", clock, oracle.ask)) == (1, 1, 2)


async def test_each_key_has_an_answer_of_its_own(clock: FakeClock, oracle: Oracle) -> None:
    shared: Shared[str, int] = Shared()
    assert [await shared.ask(key, clock, oracle.ask) for key in "aba"] == [1, 2, 1]


async def test_who_leaves_takes_nobodys_answer_along(clock: FakeClock, oracle: Oracle) -> None:
    shared: Shared[str, int] = Shared()
    oracle.may_answer.clear()
    leaver, stayer = (asyncio.create_task(shared.ask("a", clock, oracle.ask)) for _ in range(2))
    await asyncio.sleep(0)
    leaver.cancel()
    await asyncio.sleep(0)
    oracle.may_answer.set()
    assert await stayer == 1


async def test_a_failure_is_told_to_those_who_wait_and_is_not_remembered(clock: FakeClock, oracle: Oracle) -> None:
    shared: Shared[str, int] = Shared()
    oracle.fails = True
    told = await asyncio.gather(*(shared.ask("a", clock, oracle.ask) for _ in range(2)), return_exceptions=True)
    oracle.fails = False
    assert [type(error) for error in told] == [ValueError] * 2
    assert await shared.ask("a", clock, oracle.ask) == 2


async def test_what_is_out_of_date_is_not_kept(clock: FakeClock, oracle: Oracle) -> None:
    shared: Shared[str, int] = Shared(seconds=1)
    await asyncio.gather(*(shared.ask(key, clock, oracle.ask) for key in "abc"))
    clock.advance(1)
    await shared.ask("d", clock, oracle.ask)
    assert len(shared) == 1
