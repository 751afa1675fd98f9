"""Erases tenants that an operator has given up, once their runs have ended.

Every process looks; a portion of a tenant is erased by one at a time. What is erased goes in small portions, whatever
table it lies in, with a pause between them, and at last the tenant itself. A process that dies leaves the rest to the
next look. What models have evaluated for the tenant is forgotten by the note that the store keeps.
"""

from collections.abc import Callable
from dataclasses import dataclass

from app.errors import StoreUnavailable
from app.ids import TenantId
from app.ports.clock import Clock
from app.ports.erasure import Portion, TenantErasureStore
from app.ports.sink import EventSink


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasurePace:
    """``unused_seconds``: a request that was let in before the tenant was given up may still be at work for so long.
    ``batch``: rows between two pauses."""

    every_seconds: float = 10.0
    unused_seconds: float = 60.0
    pause_seconds: float = 0.1
    batch: int = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantErasure:
    """What the job works with. ``tell`` hears of tenants that are gone, ``sink`` of a store that is away."""

    store: TenantErasureStore
    clock: Clock
    sink: EventSink
    tell: Callable[[TenantId], None] = lambda tenant_id: None
    pace: ErasurePace = ErasurePace()


async def erase_tenants(erasure: TenantErasure) -> None:
    """Runs until cancelled."""
    while True:
        try:
            await erase_tenants_once(erasure)
        except StoreUnavailable:
            erasure.sink.store_away("tenant erasure")
        await erasure.clock.sleep(erasure.pace.every_seconds)


async def erase_tenants_once(erasure: TenantErasure) -> None:
    """Goes on with every tenant that is to go as far as it can. One whose runs have not ended is left for later."""
    store, pace = erasure.store, erasure.pace
    for tenant_id in await store.tenants_to_erase(unused_seconds=pace.unused_seconds):
        while (portion := await store.erase_portion(tenant_id, limit=pace.batch)) is Portion.MORE:
            await erasure.clock.sleep(pace.pause_seconds)
        if portion is Portion.GONE:
            erasure.tell(tenant_id)
