"""A clock that tests move."""

import asyncio
import heapq
from itertools import count
from typing import Final

_START_AT: Final = 1_750_000_000.0


class FakeClock:
    """Satisfies ``ports.clock.Clock``; time stands still until somebody moves it.

    ``auto_advance=True``: ``sleep`` moves the time itself and returns at once, also where it races with real work: a
    test of a timeout wants ``auto_advance=False``, where a sleeper waits for ``advance``. Times are in seconds.
    """

    def __init__(self, *, start_at: float = _START_AT, auto_advance: bool = True) -> None:
        self._start_at = start_at
        self._elapsed = 0.0
        self._auto_advance = auto_advance
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._changed: list[asyncio.Future[None]] = []

    def now(self) -> float:
        return self._start_at + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        if self._auto_advance or seconds <= 0:
            self._elapsed += max(0.0, seconds)
            # Others get their turn: a loop that only sleeps must not starve the test.
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        for waiter in self._changed:
            if not waiter.done():
                waiter.set_result(None)
        self._changed.clear()
        await woken

    def advance(self, seconds: float) -> None:
        """Moves the time in one jump, as if the process had been stalled, and wakes those whose time has come.

        They run when the test next awaits. One that sleeps again sleeps from the new time on. Raises ValueError for
        a jump back.
        """
        if not seconds >= 0:
            raise ValueError(f"time does not go back, so not by {seconds} seconds")
        self._elapsed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    @property
    def sleepers(self) -> int:
        """How many wait for ``advance`` now."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def wait_for_sleepers(self, number: int = 1) -> None:
        """Returns once at least so many wait for ``advance``: the code under test has got to its sleep."""
        while self.sleepers < number:
            changed = asyncio.get_running_loop().create_future()
            self._changed.append(changed)
            await changed
