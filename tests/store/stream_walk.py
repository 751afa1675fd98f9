"""A walk of transactions that overlap in every way, beside an account in Python of what readers may then be told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from hypothesis import strategies as st

from app.ids import RunId
from app.ports.tenant_events import EventPlace, EventsWanted
from tests.store.streams import TENANT, StreamReader, Writer, begin_reading, names

RUNS: Final = tuple(RunId(f"run_{name}") for name in "ab")
WRITERS: Final = 3
_EVERYTHING: Final = EventsWanted()

Event = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the nth writer does, or how far the reader reads."""

    does: Literal["append", "commit", "roll_back", "read", "join"]
    writer: int
    run: int
    limit: int


def _draw_walk(seed: int, length: int) -> list[Step]:
    """Steps that are all as likely anywhere. Where Hypothesis draws each of them, transactions seldom overlap as it
    matters."""
    draw = Random(seed)
    return [
        Step(
            does=draw.choice(["append", "append", "append", "commit", "commit", "roll_back", "read", "read", "join"]),
            writer=draw.randrange(WRITERS),
            run=draw.randrange(len(RUNS)),
            limit=draw.randint(1, 3),
        )
        for _ in range(length)
    ]


walks: Final = st.builds(_draw_walk, seed=st.integers(0, 2**32), length=st.integers(10, 60))


@dataclass(kw_only=True)
class Committed:
    """A transaction's events, and between which instants it ran."""

    began: int
    ended: int
    events: list[Event]


@dataclass(kw_only=True)
class Walk:
    """``committed`` is in the order of the commits. ``places``: where the first reader has stood, with how much it had
    been told there. A newcomer has to be told what is committed after it joined."""

    writers: Sequence[Writer]
    reader: StreamReader
    committed: list[Committed] = field(default_factory=list)
    places: list[tuple[EventPlace, int]] = field(default_factory=list)
    newcomers: list[tuple[StreamReader, int]] = field(default_factory=list)
    _began: dict[int, int] = field(default_factory=dict)
    _holders: dict[RunId, int] = field(default_factory=dict)
    _now: int = 0

    async def go(self, steps: Sequence[Step]) -> None:
        """Takes the steps that can be taken, ends everything, and lets all readers read to the end."""
        for step in steps:
            self._now += 1
            await self._take(step)
        for writer in tuple(self._began):
            await self._end(writer, does="commit")
        for reader in (self.reader, *(newcomer for newcomer, _ in self.newcomers)):
            while await reader.read(limit=2):
                pass

    async def _take(self, step: Step) -> None:
        match step.does:
            case "append":
                await self._append(step.writer, RUNS[step.run])
            case "commit" | "roll_back":
                await self._end(step.writer, does=step.does)
            case "read":
                await self.reader.read(limit=step.limit)
                self.places.append((self.reader.place, len(self.reader.told)))
            case "join":
                self.newcomers.append((await begin_reading(self.reader.store), self._now))

    async def _append(self, writer: int, run_id: RunId) -> None:
        if writer not in self._began:
            self._began[writer] = self._now
            await self.writers[writer].begin()
        # Who has written to a run holds its row, and another one would wait for ever.
        if self._holders.setdefault(run_id, writer) == writer:
            await self.writers[writer].append(run_id)

    async def _end(self, writer: int, *, does: Literal["commit", "roll_back"]) -> None:
        if writer not in self._began:
            return
        began = self._began.pop(writer)
        if does == "commit":
            events: list[Event] = [*await self.writers[writer].commit()]
            self.committed.append(Committed(began=began, ended=self._now, events=events))
        else:
            await self.writers[writer].roll_back()
        self._holders = {run_id: holder for run_id, holder in self._holders.items() if holder != writer}

    # --- what must be so ---

    @property
    def told(self) -> list[Event]:
        return names(self.reader.told)

    def all_events(self) -> list[Event]:
        return [event for transaction in self.committed for event in transaction.events]

    def find_contradictions(self) -> list[tuple[Event, Event]]:
        """Events that are told before others whose transactions were over when theirs began."""
        position = {event: place for place, event in enumerate(self.told)}
        return [
            (late, early)
            for first in self.committed
            for second in self.committed
            if first.ended < second.began
            for early in first.events
            for late in second.events
            if position[late] < position[early]
        ]

    def logs(self) -> dict[str, list[int]]:
        """What was told of each run, in that order."""
        told: dict[str, list[int]] = {}
        for run_id, seq in self.told:
            told.setdefault(run_id, []).append(seq)
        return told

    async def read_again(self) -> list[tuple[list[Event], list[Event]]]:
        """From each place in which the reader has stood: what is told from there, and what has to be."""
        again = []
        for place, count in self.places:
            page = await self.reader.store.tenant_events(TENANT, place, _EVERYTHING, limit=1000)
            again.append((names(page.events), self.told[count:]))
        return again

    def missed_by_newcomers(self) -> list[set[Event]]:
        return [
            {event for one in self.committed if one.ended > joined for event in one.events} - set(names(reader.told))
            for reader, joined in self.newcomers
        ]
