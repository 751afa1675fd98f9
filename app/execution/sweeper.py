"""Queues again what a lost process left behind. Every process sweeps; the store sees to it that one finds each run."""

from app.errors import StoreUnavailable
from app.execution.runtime import Runtime


async def sweep(runtime: Runtime, *, every_seconds: float) -> None:
    """Runs until cancelled. Writes no event: the next claim does, when it goes on from the log."""
    while True:
        try:
            count = await runtime.store.requeue_expired()
        except StoreUnavailable:
            runtime.sink.store_away("sweep")
            count = 0
        if count:
            runtime.sink.recovered(count)
            runtime.feed.announce_queued()
        await runtime.clock.sleep(every_seconds)
