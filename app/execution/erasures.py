"""What was erased in the database is forgotten outside of it: prompts that a model keeps evaluated, in memory or on
disk, must not outlive the texts that they were made of."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from app.errors import StoreUnavailable
from app.ids import TenantId
from app.ports.clock import Clock
from app.ports.retention import ErasureFeed
from app.ports.sink import EventSink

# Between the store's clock and the one that the model goes by, and for an erasure that took its time to commit. What
# is forgotten too much is evaluated again.
_MARGIN_SECONDS: Final = 60.0

Erase = Callable[[TenantId, float], Awaitable[None]]


async def forget_prefixes(
    erasures: ErasureFeed, erase: Erase, clock: Clock, every_seconds: float, *, sink: EventSink | None = None
) -> None:
    """Runs until cancelled. ``erase`` gets a tenant, and until when (epoch seconds) what has to go was made.

    Begun anew it looks at all erasures that ever were: what lies on disk may be older than the process. One that fails
    is tried again so. ``sink`` hears of a store that is away.
    """
    position = 0
    done: Mapping[TenantId, float] = {}
    while True:
        try:
            news = await erasures.since(position)
        except StoreUnavailable:
            if sink is not None:
                sink.store_away("erasures")
        else:
            for erasure in news.found:
                if done.get(erasure.tenant_id) != erasure.at:
                    await erase(erasure.tenant_id, erasure.at + _MARGIN_SECONDS)
            # The store may tell of these once more, and of no others that were there.
            position, done = news.position, {erasure.tenant_id: erasure.at for erasure in news.found}
        await clock.sleep(every_seconds)
