"""Counts the cells of a KV cache that many sequences share. Pure: llama.cpp has no call that tells it.

A cell holds one evaluated token and belongs to every sequence that was copied from the one that evaluated it. It is
free again when the last of them has let it go.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class _Run:
    """Cells that were filled one after the other by one sequence, and what ranges of them each sequence holds."""

    holders: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def size(self) -> int:
        """How many cells somebody holds: the length of the union of the ranges."""
        covered, total = 0, 0
        for start, end in sorted(held for ranges in self.holders.values() for held in ranges):
            total += max(0, end - max(start, covered))
            covered = max(covered, end)
        return total


def _clip(ranges: Iterable[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    clipped = ((max(low, start), min(high, end)) for low, high in ranges)
    return [(low, high) for low, high in clipped if low < high]


def _merge(ranges: list[tuple[int, int]]) -> None:
    """Joins the last two ranges where they touch: who grows by single tokens has one range, not hundreds."""
    if len(ranges) > 1 and ranges[-2][1] == ranges[-1][0]:
        ranges[-2:] = [(ranges[-2][0], ranges[-1][1])]


class CellLedger:
    """Which sequence holds which positions, and how many cells that takes. Mirrors what is done to the context.

    Every method raises ValueError where llama.cpp would mix two texts without a word or leave a gap.
    """

    def __init__(self) -> None:
        self._runs: dict[int, list[_Run]] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        self._used = 0

    @property
    def used(self) -> int:
        """Cells that are not free."""
        return self._used

    def length(self, sequence: int) -> int:
        """The position after the last one that the sequence holds; 0 for an empty one."""
        return self._ranges.get(sequence, (0, 0))[1]

    def sequences(self) -> frozenset[int]:
        """Those that hold anything."""
        return frozenset(self._ranges)

    def fill(self, sequence: int, start: int, end: int) -> None:
        """New cells for positions ``start`` to ``end``, right after what the sequence holds."""
        if end <= start:
            raise ValueError(f"nothing to fill from {start} to {end}")
        self._extend(sequence, start, end)
        runs = self._runs.setdefault(sequence, [])
        last = runs[-1] if runs else None
        if last is not None and len(last.holders) == 1:
            last.holders[sequence].append((start, end))
            _merge(last.holders[sequence])
        else:
            runs.append(_Run(holders={sequence: [(start, end)]}))
        self._used += end - start

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        """Lets ``target`` hold the positions, too, right after what it holds. Takes no cells."""
        first, last = self._ranges.get(source, (0, 0))
        if not first <= start < end <= last:
            raise ValueError(f"sequence {source} holds {first} to {last}, not {start} to {end}")
        self._extend(target, start, end)
        runs = self._runs.setdefault(target, [])
        for run in self._runs[source]:
            taken = _clip(run.holders[source], start, end)
            if not taken:
                continue
            if target not in run.holders:
                runs.append(run)
            run.holders.setdefault(target, []).extend(taken)
            _merge(run.holders[target])

    def cut(self, sequence: int, length: int) -> None:
        """Lets go of the positions from ``length`` on."""
        first, last = self._ranges.get(sequence, (0, 0))
        if length >= last:
            return
        kept: list[_Run] = []
        for run in self._runs[sequence]:
            before = run.size()
            left = _clip(run.holders.pop(sequence), 0, length)
            if left:
                run.holders[sequence] = left
                kept.append(run)
            self._used -= before - run.size()
        if length <= first:
            del self._runs[sequence], self._ranges[sequence]
        else:
            self._runs[sequence], self._ranges[sequence] = kept, (first, length)

    def release(self, sequence: int) -> None:
        """Lets go of everything."""
        self.cut(sequence, 0)

    def _extend(self, sequence: int, start: int, end: int) -> None:
        held = self._ranges.get(sequence)
        if held is not None and held[1] != start:
            raise ValueError(f"sequence {sequence} ends at {held[1]}, not at {start}")
        self._ranges[sequence] = (start if held is None else held[0], end)
