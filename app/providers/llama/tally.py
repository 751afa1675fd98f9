"""Counts values by size, for figures. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from app.ports.figures import Distribution

BATCH_TOKENS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0)
BATCH_REQUESTS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
STEP_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Tally:
    """Not safe for threads."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def read(self) -> Distribution:
        return Distribution(bounds=self._bounds, counts=tuple(self._counts), total=self._total)
