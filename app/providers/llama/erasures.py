"""Until when what was made for a tenant has to be forgotten.

What is stored is dropped at once, elsewhere. This is for what is on its way: a request that began before the erasure
holds text from before it, and must leave nothing behind when it ends.
"""

import threading
import time
from collections.abc import Callable


class Erasures:
    """The latest erasure of each tenant since the process began. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._latest = 0.0
        self._instants: dict[str, float] = {}
        self._lock = threading.Lock()

    def now(self) -> float:
        """Epoch seconds that never go back: an erasure is later than the requests before it, whatever is done to the
        machine's clock."""
        with self._lock:
            return self._now()

    def note(self, owner: str, before: float | None) -> None:
        """What was made for the owner up to this instant is to be forgotten; None: what was made until now.

        An instant that is still to come is now: what comes later was not there to be erased.
        """
        with self._lock:
            instant = self._now() if before is None else min(before, self._now())
            self._instants[owner] = max(instant, self._instants.get(owner, instant))

    def covers(self, owner: str, made_at: float) -> bool:
        """Whether something that was made for the owner at this instant is to be forgotten."""
        with self._lock:
            instant = self._instants.get(owner)
        return instant is not None and made_at <= instant

    def _now(self) -> float:
        self._latest = max(self._latest, self._clock())
        return self._latest
