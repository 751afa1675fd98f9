"""Tenants that were given up: a portion after the other, and who can't go yet is left for later."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.errors import StoreUnavailable
from app.execution.tenant_erasure import ErasurePace, TenantErasure, erase_tenants, erase_tenants_once
from app.ids import TenantId
from app.ports.erasure import Portion
from app.testing import FakeClock
from tests.execution.support import RecordingSink

FIRST, SECOND = TenantId("ten_a"), TenantId("ten_b")
PACE = ErasurePace(every_seconds=10, unused_seconds=60, pause_seconds=0.5, batch=7)


@dataclass(kw_only=True)
class Portions:
    """Tells the portions of each tenant in order. ``away``: how often it does not answer first."""

    portions: dict[TenantId, list[Portion]]
    away: int = 0
    asked: list[TenantId] = field(default_factory=list)
    bounds: set[float] = field(default_factory=set)

    async def tenants_to_erase(self, *, unused_seconds: float) -> Sequence[TenantId]:
        self.bounds.add(unused_seconds)
        if self.away:
            self.away -= 1
            raise StoreUnavailable
        return [tenant_id for tenant_id, portions in self.portions.items() if portions]

    async def erase_portion(self, tenant_id: TenantId, *, limit: int) -> Portion:
        self.bounds.add(limit)
        self.asked.append(tenant_id)
        return self.portions[tenant_id].pop(0)


@dataclass(kw_only=True)
class Job:
    """The job over these portions; ``gone`` are the tenants that it told of."""

    store: Portions
    clock: FakeClock = field(default_factory=FakeClock)
    sink: RecordingSink = field(default_factory=RecordingSink)
    gone: list[TenantId] = field(default_factory=list)

    @property
    def erasure(self) -> TenantErasure:
        return TenantErasure(store=self.store, clock=self.clock, sink=self.sink, tell=self.gone.append, pace=PACE)


async def test_portions_follow_each_other_with_a_pause_until_the_tenant_is_gone() -> None:
    job = Job(store=Portions(portions={FIRST: [Portion.MORE, Portion.MORE, Portion.GONE]}))
    before = job.clock.now()
    await erase_tenants_once(job.erasure)
    assert (job.store.asked, job.gone, job.clock.now() - before) == ([FIRST] * 3, [FIRST], 1.0)
    assert job.store.bounds == {60, 7}


async def test_one_that_can_not_go_yet_holds_up_no_other() -> None:
    job = Job(store=Portions(portions={FIRST: [Portion.WAITING], SECOND: [Portion.GONE]}))
    await erase_tenants_once(job.erasure)
    assert (job.store.asked, job.gone) == ([FIRST, SECOND], [SECOND])


async def test_one_that_another_process_is_at_is_left_to_it() -> None:
    job = Job(store=Portions(portions={FIRST: [Portion.BUSY, Portion.GONE]}))
    await erase_tenants_once(job.erasure)
    assert (job.store.asked, job.gone) == ([FIRST], [])


async def test_the_job_looks_again_after_a_while_also_where_the_store_was_away() -> None:
    store = Portions(portions={FIRST: [Portion.WAITING, Portion.GONE]}, away=1)
    job = Job(store=store, clock=FakeClock(auto_advance=False))
    task = asyncio.create_task(erase_tenants(job.erasure))
    await job.clock.wait_for_sleepers()
    assert (store.asked, job.sink.away) == ([], ["tenant erasure"])
    job.clock.advance(10)
    await job.clock.wait_for_sleepers()
    job.clock.advance(10)
    await job.clock.wait_for_sleepers()
    task.cancel()
    assert (store.asked, job.gone) == ([FIRST, FIRST], [FIRST])
