"""The cells of one context and the prefixes that were stored from them: what comes in, what is kept, what is freed.

Idle text does not stay in the cells: the attention of every call reads past them. It is kept as state bytes in memory
(and on disk), and brought back for a thousandth of what evaluating it takes.

Rules: (1) whatever is done to the context is done to the ledger, which refuses it first; (2) the spare sequence is
empty between two calls of this class; (3) a state is brought back only under the scope that stored it, after its
tokens were compared; (4) state bytes that can't be had any more cost their evaluation and nothing else; (5) nothing is
taken of a text that the context does not hold whole any more.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final, Protocol

from app.providers.llama.cells import CellLedger
from app.providers.llama.erasures import Erasures
from app.providers.llama.prefixes import Match, PrefixTree, Scope, Stretch

# Longer stretches would be brought back whole where only a part of them is wanted.
_LONGEST_STRETCH: Final = 1024
# Under so many tokens a stretch costs more than their evaluation, as a rest at the end.
_SHORTEST_STRETCH: Final = 4


class Decoded(Enum):
    """How a call ended. Unless it is ``DONE``, nothing of it was applied."""

    DONE = "done"
    NO_ROOM = "no_room"
    ABORTED = "aborted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Tokens that are appended to a sequence. ``has_output``: what follows after the last of them is worked out."""

    sequence: int
    start: int
    tokens: tuple[int, ...]
    has_output: bool


class CellContext(Protocol):
    """What is needed of a context: sequences 0 to ``sequences`` - 1 in ``cells`` cells.

    ``sliding_window``: so many tokens back some layers see; a longer state is not whole. None: they see everything.
    """

    cells: int
    sequences: int
    can_share: bool
    sliding_window: int | None

    def decode(self, pieces: Sequence[Piece]) -> Decoded: ...

    def holds(self, sequence: int, start: int, end: int) -> bool:
        """Whether these positions are all that a text needs which has them, too."""
        ...

    def copy(self, source: int, target: int, start: int, end: int) -> None: ...

    def cut(self, sequence: int, length: int) -> None: ...

    def clear(self) -> None: ...

    def read_state(self, sequence: int) -> bytearray: ...

    def write_state(self, sequence: int, state: bytearray, *, start: int, end: int) -> bool: ...


class Snapshots(Protocol):
    """Stored prefixes that outlive the process, in at most ``budget_bytes``."""

    budget_bytes: int

    def write(self, stretch: Stretch[bytearray]) -> None: ...

    def read(self, stretch: Stretch[bytearray]) -> bytearray | None:
        """None where the file is gone or is not what was written; then it is not there any more."""
        ...

    def remove(self, stretches: Iterable[Stretch[bytearray]]) -> None: ...


@dataclass(kw_only=True, slots=True)
class CacheTotals:
    """Counts since the start: tokens brought back from stored prefixes, and stretches kept, forgotten and lost."""

    restored_tokens: int = 0
    kept: int = 0
    forgotten: int = 0
    lost: int = 0


class Cache:
    """Owns the memory of a context. The last sequence is spare, the others are slots."""

    def __init__(
        self,
        context: CellContext,
        tree: PrefixTree[bytearray],
        *,
        tile_tokens: int = 1,
        snapshots: Snapshots | None = None,
        erasures: Erasures | None = None,
    ) -> None:
        """``erasures``: what is to leave nothing behind, for all contexts over the same store."""
        self._context = context
        self._tree = tree
        self._tile_tokens = tile_tokens
        self._snapshots = snapshots
        self._erasures = erasures or Erasures()
        self._ledger = CellLedger()
        self._spare = context.sequences - 1
        self._longest_stretch = min(_LONGEST_STRETCH, context.sliding_window or _LONGEST_STRETCH)
        self.slots = range(context.sequences - 1)
        self.totals = CacheTotals()

    @property
    def can_share(self) -> bool:
        """Whether one sequence's text can be taken for another: not in a recurrent or hybrid model."""
        return self._context.can_share

    @property
    def sliding_window(self) -> int | None:
        """So many tokens back some layers see: what is out of it may be lost while its text still runs."""
        return self._context.sliding_window

    def can_take(self, slot: int, length: int) -> bool:
        """Whether a beginning of what the slot holds can be had for another text."""
        return self._context.holds(slot, 0, length)

    @property
    def cells(self) -> int:
        """Those of the context, used or not."""
        return self._context.cells

    @property
    def used_cells(self) -> int:
        return self._ledger.used

    @property
    def stored_entries(self) -> int:
        """Stored stretches, in memory and on disk, those of other contexts over the same store included."""
        return len(self._tree)

    @property
    def stored_cells(self) -> int:
        """Tokens in these stretches."""
        return self._tree.held_tokens

    @property
    def stored_bytes(self) -> int:
        """What stored prefixes take of the memory, those of other contexts over the same store included."""
        return self._tree.held_bytes

    @property
    def free_cells(self) -> int:
        return self._context.cells - self._ledger.used

    def find(self, scope: Scope, tokens: Sequence[int]) -> Match[bytearray]:
        """The longest stored beginning that may be used. The last token is always evaluated: it tells the next."""
        if not self.can_share:
            return Match()
        most = (len(tokens) - 1) // self._tile_tokens * self._tile_tokens
        match = self._tree.match(scope, tuple(tokens[:most]))
        return _cut_match(match, match.length // self._tile_tokens * self._tile_tokens)

    def bring(self, slot: int, *, source: int | None, length: int, match: Match[bytearray]) -> int:
        """Fills an empty slot: ``length`` tokens of the sequence ``source``, then what ``match`` has beyond them.

        Returns how many tokens the slot holds: fewer than were found where a state can't be had any more.
        """
        reached = 0
        if source is not None and length:
            self._copy(source, slot, 0, length)
            reached = length
        # Bringing one back from disk may push others out of memory: not those that are about to be used.
        self._pin(match, 1)
        for stretch, end in match.parts():
            if end > reached:
                if not self._restore(stretch, slot, reached, end):
                    break
                self.totals.restored_tokens += end - reached
                reached = end
        self._pin(match, -1)
        return reached

    def decode(self, pieces: Sequence[Piece]) -> Decoded:
        """Evaluates; what is not done leaves no trace."""
        if sum(len(piece.tokens) for piece in pieces) > self.free_cells:
            return Decoded.NO_ROOM
        outcome = self._context.decode(pieces)
        if outcome is Decoded.DONE:
            for piece in pieces:
                self._ledger.fill(piece.sequence, piece.start, piece.start + len(piece.tokens))
        return outcome

    def keep(
        self, slot: int, scope: Scope, tokens: Sequence[int], marks: Iterable[int] = (), *, made_at: float = 0.0
    ) -> None:
        """Stores what is not stored yet of the text that the slot holds, whose tokens these are, as far as it is whole.

        Nothing of a text that is to be forgotten: see ``Erasures``.
        """
        if not self.can_share or self._erasures.covers(scope.owner, made_at):
            return
        text = tuple(tokens[: len(tokens) // self._tile_tokens * self._tile_tokens])
        match = self._tree.match(scope, text)
        for stretch, reached in match.parts():
            if reached == stretch.end:
                stretch.seen_at = max(stretch.seen_at, made_at)
        if len(text) - match.length < _SHORTEST_STRETCH:
            return
        for start, end in _stretches(match.length, len(text), marks, longest=self._longest_stretch):
            if not self._context.holds(slot, start, end):
                break
            self._copy(slot, self._spare, start, end)
            state = self._context.read_state(self._spare)
            self._cut(self._spare, 0)
            match = self._tree.add(match, scope, text[start:end], state, len(state), made_at=made_at)
            self.totals.kept += 1
            if self._snapshots is not None:
                self._snapshots.write(match.path[-1])
        self._shrink()

    def erase(self, owner: str, *, before: float | None = None) -> None:
        """Forgets what is stored of an owner and was made up to an instant, in memory and on disk; None: everything."""
        gone = self._tree.drop_owner(owner, before=before)
        if self._snapshots is not None:
            self._snapshots.remove(gone)

    def release(self, slot: int) -> None:
        """Empties a slot."""
        self._cut(slot, 0)
        if not self._ledger.used:
            # Puts the next text at the front of the cells: a call scans them up to the highest that is used.
            self._context.clear()

    def _restore(self, stretch: Stretch[bytearray], slot: int, start: int, end: int) -> bool:
        """Takes positions out of a stored stretch, which has to pass through the spare sequence whole."""
        if len(stretch.tokens) > self.free_cells:
            return False
        state = self._state_of(stretch)
        if state is None:
            return False
        if not self._context.write_state(self._spare, state, start=stretch.start, end=stretch.end):
            self._lose(stretch)
            return False
        self._ledger.fill(self._spare, stretch.start, stretch.end)
        self._copy(self._spare, slot, start, end)
        self._cut(self._spare, 0)
        return True

    def _state_of(self, stretch: Stretch[bytearray]) -> bytearray | None:
        if stretch.state is None:
            state = self._snapshots.read(stretch) if self._snapshots is not None else None
            if state is None:
                self._lose(stretch)
                return None
            self._tree.bring_back(stretch, state)
            self._shrink()
        return stretch.state

    @staticmethod
    def _pin(match: Match[bytearray], change: int) -> None:
        for stretch in match.path:
            stretch.pins += change

    def _lose(self, stretch: Stretch[bytearray]) -> None:
        gone = self._tree.drop(stretch)
        self.totals.lost += len(gone)
        if self._snapshots is not None:
            self._snapshots.remove(gone)

    def _shrink(self) -> None:
        forgotten = self._tree.shrink()
        self.totals.forgotten += len(forgotten)
        if self._snapshots is not None:
            # Also what is in memory only: it may be waiting to be written.
            self._snapshots.remove([*forgotten, *self._tree.shrink_disk(self._snapshots.budget_bytes)])

    def _copy(self, source: int, target: int, start: int, end: int) -> None:
        self._ledger.copy(source, target, start, end)
        self._context.copy(source, target, start, end)

    def _cut(self, sequence: int, length: int) -> None:
        self._ledger.cut(sequence, length)
        self._context.cut(sequence, length)


def _stretches(start: int, end: int, marks: Iterable[int], *, longest: int) -> Iterator[tuple[int, int]]:
    """Cuts a range at the marks inside it, and what is longer than a stretch may be into pieces."""
    edges = sorted({start, end, *(mark for mark in marks if start < mark < end)})
    for low, high in pairwise(edges):
        for first in range(low, high, longest):
            yield first, min(first + longest, high)


def _cut_match(match: Match[bytearray], length: int) -> Match[bytearray]:
    if length == match.length:
        return match
    return Match(length=length, path=tuple(stretch for stretch in match.path if stretch.start < length))
