"""A context without a model: cells as llama.cpp keeps them, and a next token that depends on every token before it."""

import json
from collections.abc import Sequence

from app.providers.llama.cache import Decoded, Piece
from app.providers.llama.generation import Emission, Generation, Outcome

VOCABULARY = 499
END = 0


def next_token(tokens: Sequence[int]) -> int:
    """What the fake model says after these tokens."""
    return hash(tuple(tokens)) % VOCABULARY


def answer_to(prompt: Sequence[int], limit: int, window: int) -> tuple[int, ...]:
    """The whole answer of a model that is asked alone."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < limit and len(tokens) <= window:
        token = next_token(tokens)
        if token == END:
            break
        tokens.append(token)
    return tuple(tokens[len(prompt) :])


class _Cell:
    """``holders``: how many sequences have it."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.holders = 1


class FakeContext:
    """Checks what llama.cpp does not: no text is copied onto another, and no sequence has a gap."""

    def __init__(
        self, *, cells: int, sequences: int, can_share: bool = True, sliding_window: int | None = None
    ) -> None:
        self.cells = cells
        self.sequences = sequences
        self.can_share = can_share
        self.sliding_window = sliding_window
        # From where on each sequence is whole: what was before was taken by others.
        self.firsts: dict[int, int] = {}
        self.outputs: list[int] = []
        self.calls: list[list[int]] = []
        self.aborts = 0
        self.refuses_states = False
        self.times_cleared = 0
        # By their positions, which come in order: whatever is put in follows what is there.
        self._held: dict[int, dict[int, _Cell]] = {sequence: {} for sequence in range(sequences)}
        self.used = 0

    def text(self, sequence: int) -> list[tuple[int, int]]:
        return [(position, cell.token) for position, cell in self._held[sequence].items()]

    def decode(self, pieces: Sequence[Piece]) -> Decoded:
        rows = sum(len(piece.tokens) for piece in pieces)
        assert 0 < rows <= 512
        assert len({piece.sequence for piece in pieces}) == len(pieces)
        if self.used + rows > self.cells:
            return Decoded.NO_ROOM
        if self.aborts:
            self.aborts -= 1
            return Decoded.ABORTED
        self.calls.append([len(piece.tokens) for piece in pieces])
        self.outputs = []
        for piece in pieces:
            assert 0 <= piece.sequence < self.sequences - 1
            held = self._held[piece.sequence]
            # In their order and without a gap.
            assert len(held) == piece.start
            assert not held or (next(iter(held)), next(reversed(held))) == (0, piece.start - 1)
            self._fill(piece.sequence, piece.start, piece.tokens)
            if piece.has_output:
                self.outputs.append(next_token([cell.token for cell in held.values()]))
        return Decoded.DONE

    def holds(self, sequence: int, start: int, end: int) -> bool:
        needed = start if self.sliding_window is None else max(start, end - self.sliding_window + 1)
        held = self._held[sequence]
        return start < end and end - 1 in held and max(min(held), self.firsts.get(sequence, 0)) <= needed

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        assert self.holds(source, start, end)
        held = self.text(target)
        assert not held or held[-1][0] + 1 == start
        for position in range(start, end):
            cell = self._held[target][position] = self._held[source][position]
            cell.holders += 1

    def cut(self, sequence: int, length: int) -> None:
        held = self._held[sequence]
        for position in [position for position in held if position >= length]:
            cell = held.pop(position)
            cell.holders -= 1
            self.used -= not cell.holders

    def clear(self) -> None:
        assert not self.used
        self.times_cleared += 1

    def read_state(self, sequence: int) -> bytearray:
        return bytearray(json.dumps(self.text(sequence)).encode())

    def write_state(self, sequence: int, state: bytearray, *, start: int, end: int) -> bool:
        assert not self.text(sequence)
        held = json.loads(state.decode())
        assert [position for position, _ in held] == list(range(start, end))
        if self.refuses_states:
            return False
        assert self.used + len(held) <= self.cells
        self._fill(sequence, start, [token for _, token in held])
        return True

    def _fill(self, sequence: int, start: int, tokens: Sequence[int]) -> None:
        held = self._held[sequence]
        assert not held or next(reversed(held)) < start
        held.update({start + n: _Cell(token) for n, token in enumerate(tokens)})
        self.used += len(tokens)


class FakeChooser:
    def __init__(self, context: FakeContext) -> None:
        self._context = context
        self.is_closed = False

    def choose(self, output: int) -> int:
        return self._context.outputs[output]

    def forced(self) -> list[int]:
        return []

    def is_complete(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True


class RecordingWatcher:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.waiting: set[Generation] = set()
        self.running: set[Generation] = set()
        self.evaluated = self.cached = self.output = self.times_gave_way = 0
        self.calls: list[tuple[int, int, float]] = []
        self.times_looked_up = 0

    def begin_call(self, generations: frozenset[Generation]) -> None:
        assert generations <= self.running

    def started(self, generation: Generation) -> None:
        self.running.add(generation)

    def gave_way(self, generation: Generation) -> None:
        self.running.remove(generation)
        self.times_gave_way += 1

    def ended(self, generation: Generation) -> None:
        self.running.discard(generation)

    def looked_up(self, *, cached: int) -> None:
        self.cached += cached
        self.times_looked_up += 1

    def made_call(self, *, tokens: int, requests: int, seconds: float) -> None:
        self.calls.append((tokens, requests, seconds))

    def count(self, *, evaluated: int = 0, output: int = 0) -> None:
        self.evaluated += evaluated
        self.output += output


def outcome_of(emissions: Sequence[Emission]) -> Outcome:
    """The one outcome, which must come last and once."""
    outcomes = [emission for emission in emissions if isinstance(emission, Outcome)]
    assert len(outcomes) == 1
    assert emissions[-1] is outcomes[0]
    return outcomes[0]
