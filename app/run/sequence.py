"""A sequence that grows without being copied, for what a fold gathers over a whole log.

A tuple is copied for each item that it gains: folding a log would take the square of its length. One shared list would
not do either: a plan folds ahead of the log, so the same state is often gone on from more than once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, Self, TypeVar, overload

# Covariant, as of any sequence that never changes: mypy is told so where a version is given items of its own type.
T = TypeVar("T", covariant=True)

_BLOCK: Final = 32


@dataclass(frozen=True, slots=True)
class _Block(Generic[T]):
    """Items that no version changes any more, and those before them. ``count`` is of all of these."""

    before: "_Block[T] | None"
    items: tuple[T, ...]
    count: int


class Appended(Sequence[T]):
    """A tuple to its readers: it never changes, it equals a tuple of the same items, and slices of it are tuples.

    ``plus`` and ``with_end`` give new versions, which share all but the last items with this one: they take the same
    time however long it is. Any version can be gone on from, any number of times. Reading all of it is fast, reading
    one item far from the end is not.
    """

    __slots__ = ("_kept", "_loose")

    _kept: _Block[T] | None
    _loose: tuple[T, ...]

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._kept, self._loose = _settle(None, tuple(items))

    @classmethod
    def _of(cls, kept: _Block[T] | None, loose: tuple[T, ...]) -> Self:
        made = cls.__new__(cls)
        made._kept, made._loose = _settle(kept, loose)
        return made

    def plus(self, *items: T) -> Self:  # type: ignore[misc]
        """These items behind the others."""
        return self._of(self._kept, self._loose + items)

    def with_end(self, place: int, *items: T) -> Self:  # type: ignore[misc]
        """What stands before ``place``, which counts from 0, and then these items."""
        kept, after = self._open_at(place)
        return self._of(kept, after[: place - _count(kept)] + items)

    def _open_at(self, place: int) -> tuple[_Block[T] | None, tuple[T, ...]]:
        """The blocks that end before a place or at it, and all items behind them."""
        kept, parts = self._kept, [self._loose]
        if kept is None or kept.count <= place:
            return kept, self._loose
        while kept is not None and kept.count > place:
            parts.append(kept.items)
            kept = kept.before
        return kept, tuple(chain.from_iterable(reversed(parts)))

    def __len__(self) -> int:
        return _count(self._kept) + len(self._loose)

    def __iter__(self) -> Iterator[T]:
        return iter(self._open_at(0)[1])

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(len(self))[index]
        if isinstance(places, int):
            kept, after = self._open_at(places)
            return after[places - _count(kept)]
        if not places:
            return ()
        kept, after = self._open_at(min(places[0], places[-1]))
        return tuple(after[place - _count(kept)] for place in places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Appended | tuple):
            return NotImplemented
        return self is other or (len(self) == len(other) and tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Item by item: a long chain of blocks is deeper than Python recurses.
        return type(self), (tuple(self),)


def _count(block: _Block[T] | None) -> int:
    return 0 if block is None else block.count


def _settle(kept: _Block[T] | None, loose: tuple[T, ...]) -> tuple[_Block[T] | None, tuple[T, ...]]:
    """Moves all but the last items into blocks. As many as a block holds stay loose, since they may be replaced."""
    while len(loose) >= 2 * _BLOCK:
        kept = _Block(kept, loose[:_BLOCK], _count(kept) + _BLOCK)
        loose = loose[_BLOCK:]
    return kept, loose
