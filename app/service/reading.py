"""What it takes to watch a run from outside."""

from dataclasses import dataclass

from app.ports.clock import Clock
from app.ports.feed import Feed
from app.ports.store import TenantStore
from app.service.drain import Drain


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """``poll_seconds``: how long news that the feed lost can stay unseen; the log is asked at least so often."""

    store: TenantStore
    feed: Feed
    clock: Clock
    drain: Drain
    ping_seconds: float = 15.0
    poll_seconds: float = 2.0
    page_size: int = 100
