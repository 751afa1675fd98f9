"""When keys were last used: collected in memory, and written now and then."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from app.errors import StoreUnavailable
from app.ids import KeyId
from app.ports.clock import Clock
from app.ports.store import KeyStore

_EVERY_SECONDS: Final = 30.0
_LAST_SECONDS: Final = 5.0


class Uses:
    """What this process has seen since it was last asked."""

    def __init__(self) -> None:
        self._seen: dict[KeyId, float] = {}

    def note(self, key_id: KeyId, at: float) -> None:
        """``at`` is in epoch seconds."""
        self._seen[key_id] = max(at, self._seen.get(key_id, at))

    def take(self) -> Mapping[KeyId, float]:
        """What was noted and not taken yet."""
        taken, self._seen = self._seen, {}
        return taken


async def keep_uses(uses: Uses, keys: KeyStore, clock: Clock, *, every_seconds: float = _EVERY_SECONDS) -> None:
    """Writes them until it is cancelled, and once more then. What could not be written is tried again."""
    try:
        while True:
            await clock.sleep(every_seconds)
            with contextlib.suppress(StoreUnavailable):
                await _write(uses, keys)
    finally:
        with contextlib.suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await _write(uses, keys)


async def _write(uses: Uses, keys: KeyStore) -> None:
    taken = uses.take()
    if not taken:
        return
    try:
        await keys.note_uses(taken)
    except BaseException:
        for key_id, at in taken.items():
            uses.note(key_id, at)
        raise
