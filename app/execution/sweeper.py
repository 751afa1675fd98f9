"""Queues again what a lost process left behind, and what waits for nothing any more. Every process sweeps; the store
sees to it that one finds each run."""

from app.errors import StoreUnavailable
from app.execution.runtime import Runtime


async def sweep(runtime: Runtime, *, every_seconds: float) -> None:
    """Runs until cancelled. Writes no event: the next claim does, when it goes on from the log."""
    while True:
        try:
            await _sweep_once(runtime)
        except StoreUnavailable:
            runtime.sink.store_away("sweep")
        await runtime.clock.sleep(every_seconds)


async def _sweep_once(runtime: Runtime) -> None:
    count = await runtime.store.requeue_expired()
    if count:
        runtime.sink.recovered(count)
        runtime.feed.announce_queued()
    swept = await runtime.store.sweep_waiting()
    for tenant_id in dict.fromkeys(tenant_id for tenant_id, _ in swept.expired):
        runtime.feed.announce_approvals(tenant_id)
    if swept.queued:
        runtime.feed.announce_queued()
