"""The ledger against a model of the cache that gives each cell the set of its sequences, as llama.cpp does."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.providers.llama.cells import CellLedger

SEQUENCES = st.integers(0, 4)
SIZES = st.integers(1, 9)


class LedgerAgainstCells(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = CellLedger()
        self.cells: list[tuple[int, set[int]]] = []

    def positions(self, sequence: int) -> list[int]:
        return sorted(position for position, holders in self.cells if sequence in holders)

    def end(self, sequence: int) -> int:
        return max(self.positions(sequence), default=-1) + 1

    @rule(sequence=SEQUENCES, size=SIZES, first=st.integers(0, 3))
    def fill(self, sequence: int, size: int, first: int) -> None:
        start = self.end(sequence) or first
        self.ledger.fill(sequence, start, start + size)
        self.cells += [(position, {sequence}) for position in range(start, start + size)]

    @precondition(lambda self: self.cells)
    @rule(source=SEQUENCES, taker=SEQUENCES, data=st.data())
    def copy(self, source: int, taker: int, data: st.DataObject) -> None:
        held = self.positions(source)
        start = self.end(taker)
        if source == taker or not held:
            return
        if start == 0:
            start = data.draw(st.sampled_from(held))
        if start not in held:
            return
        end = data.draw(st.integers(start + 1, held[-1] + 1))
        self.ledger.copy(source, taker, start, end)
        for position, holders in self.cells:
            if source in holders and start <= position < end:
                holders.add(taker)

    @rule(sequence=SEQUENCES, length=st.integers(0, 30))
    def cut(self, sequence: int, length: int) -> None:
        self.ledger.cut(sequence, length)
        for position, holders in self.cells:
            if position >= length:
                holders.discard(sequence)
        self.cells = [cell for cell in self.cells if cell[1]]

    @invariant()
    def both_count_alike(self) -> None:
        assert self.ledger.used == len(self.cells)
        assert self.ledger.sequences() == {holder for _, holders in self.cells for holder in holders}
        assert [self.ledger.length(sequence) for sequence in range(5)] == [self.end(n) for n in range(5)]


LedgerAgainstCells.TestCase.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)
test_the_ledger_counts_cells_as_the_cache_does = LedgerAgainstCells.TestCase


def test_a_copy_onto_another_text_is_refused() -> None:
    ledger = CellLedger()
    ledger.fill(0, 0, 4)
    ledger.fill(1, 0, 2)

    with pytest.raises(ValueError, match="sequence 1 ends at 2, not at 0"):
        ledger.copy(0, 1, 0, 4)
    assert (ledger.used, ledger.length(1)) == (6, 2)


def test_cells_that_several_hold_in_part_are_counted_once() -> None:
    ledger = CellLedger()
    ledger.fill(0, 0, 10)
    for holder, end in ((1, 9), (2, 3), (3, 6)):
        ledger.copy(0, holder, 1, end)
    ledger.copy(0, 4, 5, 8)

    assert ledger.used == 10
    ledger.release(0)
    assert ledger.used == 8


def test_a_copy_of_what_is_not_held_is_refused() -> None:
    ledger = CellLedger()
    ledger.fill(0, 0, 4)

    with pytest.raises(ValueError, match="holds 0 to 4, not 2 to 5"):
        ledger.copy(0, 1, 2, 5)
    with pytest.raises(ValueError, match="nothing to fill"):
        ledger.fill(0, 4, 4)


def test_a_prefix_in_common_is_counted_once_and_freed_with_its_last_holder() -> None:
    ledger = CellLedger()
    ledger.fill(0, 0, 100)
    ledger.copy(0, 1, 0, 80)
    ledger.fill(1, 80, 90)
    together = ledger.used
    ledger.release(0)

    assert (together, ledger.used) == (110, 90)
    ledger.release(1)
    assert ledger.used == 0
