"""What it takes to watch a run from outside."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from app.ids import RunId, TenantId
from app.ports.clock import Clock
from app.ports.feed import Feed
from app.ports.records import LogPage
from app.ports.store import TenantStore
from app.service.drain import Drain
from app.service.log_reads import LogReads
from app.service.shared import Shared

_LOOKS_PER_POLL: Final = 8


def _ignore(_: int) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """``poll_seconds``: how long news that the feed lost can stay unseen; the log is asked at least so often.

    ``spread_pings``, from 0 to 1: by up to which part of ``ping_seconds`` a stream's first ping comes early, so that
    streams that began together don't ask together for ever. ``reads`` and ``kept`` are shared by all of a process.
    ``replayed`` is told how many items a reader was sent that had been stored before it came.
    """

    store: TenantStore
    feed: Feed
    clock: Clock
    drain: Drain
    ping_seconds: float = 15.0
    poll_seconds: float = 2.0
    page_size: int = 100
    spread_pings: float = 0.0
    reads: LogReads = field(default_factory=LogReads)
    kept: Shared[tuple[TenantStore, TenantId, RunId], bool] = field(default_factory=Shared)
    replayed: Callable[[int], None] = _ignore

    async def read_log(self, tenant_id: TenantId, run_id: RunId, after: int) -> LogPage:
        """The run's events after that number, as they are stored now or later. Raises StoreUnavailable."""
        return await self.reads.read(self.store, tenant_id, run_id, after=after, limit=self.page_size)

    async def is_kept(self, tenant_id: TenantId, run_id: RunId) -> bool:
        """Whether the run is still there, or was a second ago. Raises StoreUnavailable."""

        async def look() -> bool:
            return await self.store.look(tenant_id, run_id) is not None

        return await self.kept.ask((self.store, tenant_id, run_id), self.clock, look)

    def next_look(self) -> float:
        """When to read without being told to, on the monotonic clock. Readers that are due at about the same time are
        due at the same instant, so that one statement does for them."""
        due, step = self.clock.monotonic() + self.poll_seconds, self.poll_seconds / _LOOKS_PER_POLL
        return math.floor(due / step) * step

    def first_ping(self) -> float:
        """When a stream that begins now is first pinged, on the monotonic clock."""
        early = self.spread_pings * random.random()  # noqa: S311 - nobody gains by guessing it
        return self.clock.monotonic() + self.ping_seconds * (1 - early)
