"""A scrape: the process's own figures, and the deployment's as the database tells them, in bounded time.

However many scrapers come at once, the database is asked one question at a time, and one that hangs costs each of them
no more than the limit.
"""

import asyncio
from collections.abc import Awaitable, Callable

from app.errors import StoreUnavailable
from app.observability.metrics import Metrics
from app.ports.records import Snapshot


class Scraper:
    """Belongs to one event loop. ``ask`` raises StoreUnavailable where the database is away."""

    def __init__(self, metrics: Metrics, ask: Callable[[], Awaitable[Snapshot]], *, limit_seconds: float = 2.0) -> None:
        self._metrics = metrics
        self._ask = ask
        self._limit_seconds = limit_seconds
        self._asking: asyncio.Task[Snapshot | None] | None = None

    async def render(self) -> bytes:
        """All figures in the text format; without the deployment's where the database does not answer in time."""
        return self._metrics.render(await self._find_snapshot())[0]

    async def _find_snapshot(self) -> Snapshot | None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_in_time(), name="scrape")
        # Not shield: who gives up leaves the question to the others, and to its own limit.
        done, _ = await asyncio.wait({self._asking}, timeout=self._limit_seconds)
        return next(iter(done)).result() if done else None

    async def _ask_in_time(self) -> Snapshot | None:
        try:
            async with asyncio.timeout(self._limit_seconds):
                return await self._ask()
        except (StoreUnavailable, TimeoutError):
            return None
