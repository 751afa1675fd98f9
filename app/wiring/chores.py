"""What a process does from time to time beside its work."""

import asyncio
from dataclasses import dataclass
from typing import Final

from app.errors import StoreUnavailable
from app.observability import get_logger
from app.store.database import Database
from app.store.maintenance import maintain
from app.wiring.doctor import measure_skew

_MAINTENANCE_SECONDS: Final = 3600.0
_RETRY_SECONDS: Final = 60.0


@dataclass(slots=True)
class Skew:
    """By how much this machine's clock was ahead of the database's when last looked at, in seconds."""

    seconds: float = 0.0


async def keep_maintained(database: Database) -> None:
    """Runs until cancelled."""
    while True:
        try:
            await maintain(database)
        except StoreUnavailable:
            get_logger("runwright.process").warning("database_unavailable", doing="maintenance")
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        await asyncio.sleep(_MAINTENANCE_SECONDS)


async def watch_skew(database: Database, skew: Skew) -> None:
    """Runs until cancelled."""
    while True:
        try:
            skew.seconds = await measure_skew(database)
        except StoreUnavailable:
            get_logger("runwright.process").warning("database_unavailable", doing="clock")
        await asyncio.sleep(_RETRY_SECONDS)
