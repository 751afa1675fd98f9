"""Waiting for a store that is away, for as long as the claim holds."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.errors import LeaseLost, StoreUnavailable
from app.execution.lease import Lease
from app.execution.runtime import Runtime

T = TypeVar("T")


async def hold(runtime: Runtime, lease: Lease, step: Callable[[], Awaitable[T]]) -> T:
    """Goes on trying while the lease surely holds: a database that blinks must not cost the claim, and with it what was
    done under it. Raises LeaseLost."""
    while True:
        try:
            return await step()
        except StoreUnavailable:
            await runtime.clock.sleep(runtime.rules.append_retry_seconds)
            if not lease.is_safe(runtime.clock):
                raise LeaseLost("the database was away for longer than the lease") from None
