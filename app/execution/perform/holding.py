"""Waiting for a store that is away, for as long as the claim holds."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.errors import LeaseLost, StoreUnavailable
from app.execution.perform.context import DriveContext

T = TypeVar("T")


async def hold(context: DriveContext, step: Callable[[], Awaitable[T]]) -> T:
    """Goes on trying while the lease surely holds: a database that blinks must not cost the claim, and with it what was
    done under it. Raises LeaseLost."""
    clock = context.runtime.clock
    while True:
        try:
            return await step()
        except StoreUnavailable:
            await clock.sleep(context.runtime.rules.append_retry_seconds)
            if not context.lease.is_safe(clock):
                raise LeaseLost("the database was away for longer than the lease") from None
