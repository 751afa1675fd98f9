"""Figures that one room keeps and another one shows."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """How often values came up, by size. ``counts`` has one for each of the upper ``bounds``, each bound included, and
    a last one for what is above all of them. ``total`` is the sum of the values."""

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: Sequence[float]) -> "Distribution":
        return cls(bounds=bounds, counts=(0,) * (len(bounds) + 1))
