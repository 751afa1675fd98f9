"""What was erased in the database is forgotten outside of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from app.errors import StoreUnavailable
from app.execution.erasures import forget_prefixes
from app.ids import TenantId
from app.ports.retention import Erasure, Erasures
from app.testing import FakeClock
from tests.execution.support import RecordingSink

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
FIRST = Erasure(tenant_id=TENANT, at=1000.0)


@dataclass(kw_only=True)
class Told:
    """Answers in order, None for a store that is away; then nothing new."""

    answers: list[Sequence[Erasure] | None]
    asked: list[int] = field(default_factory=list)

    async def since(self, position: int) -> Erasures:
        self.asked.append(position)
        found = self.answers.pop(0) if self.answers else []
        if found is None:
            raise StoreUnavailable
        return Erasures(position=len(self.asked), found=found)


@dataclass(kw_only=True)
class Forgetting:
    told: Told
    clock: FakeClock
    sink: RecordingSink
    erased: list[tuple[TenantId, float]]

    async def turn(self) -> None:
        self.clock.advance(10)
        await self.clock.wait_for_sleepers()


@asynccontextmanager
async def forgetting(*answers: Sequence[Erasure] | None) -> AsyncIterator[Forgetting]:
    """The job, after its first look."""
    erased: list[tuple[TenantId, float]] = []
    at = Forgetting(
        told=Told(answers=list(answers)), clock=FakeClock(auto_advance=False), sink=RecordingSink(), erased=erased
    )

    async def erase(tenant_id: TenantId, before: float) -> None:
        erased.append((tenant_id, before))

    task = asyncio.create_task(forget_prefixes(at.told, erase, at.clock, 10, sink=at.sink))
    await at.clock.wait_for_sleepers()
    yield at
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_all_that_was_ever_erased_is_looked_at_first() -> None:
    async with forgetting([FIRST, Erasure(tenant_id=OTHER, at=2000.0)]) as at:
        assert at.told.asked == [0]
        assert at.erased == [(TENANT, 1060.0), (OTHER, 2060.0)]


async def test_then_only_news_is_asked_for() -> None:
    later = Erasure(tenant_id=TENANT, at=3000.0)
    async with forgetting([FIRST], [later]) as at:
        await at.turn()
        assert at.told.asked == [0, 1]
        assert at.erased == [(TENANT, 1060.0), (TENANT, 3060.0)]


async def test_what_is_told_twice_is_done_once() -> None:
    async with forgetting([FIRST], [FIRST], [FIRST]) as at:
        await at.turn()
        await at.turn()
        assert at.erased == [(TENANT, 1060.0)]


async def test_a_store_that_is_away_is_asked_the_same_again() -> None:
    async with forgetting([FIRST], None) as at:
        await at.turn()
        await at.turn()
        assert (at.told.asked, at.sink.away) == ([0, 1, 1], ["erasures"])


async def test_one_that_fails_ends_the_job_so_that_it_is_begun_anew() -> None:
    async def erase(tenant_id: TenantId, before: float) -> None:
        raise OSError("the disk")

    job = forget_prefixes(Told(answers=[[FIRST]]), erase, FakeClock(), 10)
    with pytest.raises(OSError, match="the disk"):
        await job
