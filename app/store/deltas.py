"""Text of answers on its way to readers in other processes: what is sent, of which runs, and how far it has come.

Nothing is sent of a run that nobody watches. A reader's process says which run it watches and what it has of it; the
process that drives the run then sends what is missing, and goes on with what comes, for a while. Everybody hears
everything, so a frame says where its text belongs: who has that already leaves it out, and who misses what stands
before it asks again. What is lost is late, and never wrong.
"""

import json
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Self

from app.conversation import replace_surrogates
from app.ids import RunId
from app.store.signals import AnswerText, Take

WATCH_SECONDS: Final = 15.0
FLUSH_SECONDS: Final = 0.05
_LONGEST_TEXT_BYTES: Final = 7_000
# A reader that comes and goes must not have a long answer sent again each time.
_REPEATED_PER_SECOND: Final = 200_000
_LONGEST_REPEAT_PAUSE_SECONDS: Final = 0.5
_MOST_WATCHED: Final = 10_000
# Of one flush: what is more waits for the next, and hints are not kept waiting behind it.
_MOST_FRAMES: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """How much a reader has of an answer: the first ``length`` characters of that take."""

    take: Take
    length: int

    def write(self) -> str:
        return f"{self.take.fence}/{self.take.iteration}/{self.take.attempt}/{self.length}"

    @classmethod
    def parse(cls, written: str) -> Self:
        """Raises ValueError for what is none."""
        fence, iteration, attempt, length = map(int, written.split("/"))
        return cls(take=Take(fence=fence, iteration=iteration, attempt=attempt), length=length)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextFrame:
    """Text of a take, from character ``offset`` on. An empty one at 0 says that the take has begun."""

    run_id: RunId
    take: Take
    offset: int
    text: str

    def write(self) -> str:
        """In ASCII: a NUL or half a character in an answer must not cost the whole notification."""
        at = Position(take=self.take, length=self.offset)
        return f"{self.run_id} {at.write()} {json.dumps(self.text)}"

    @classmethod
    def parse(cls, written: str) -> Self:
        """Raises ValueError for what is none."""
        run_id, at, text = written.split(" ", 2)
        position = Position.parse(at)
        return cls(run_id=RunId(run_id), take=position.take, offset=position.length, text=str(json.loads(text)))


def cut(run_id: RunId, text: AnswerText, offset: int) -> Iterator[TextFrame]:
    """What follows the first ``offset`` characters, in frames that fit into a notification each."""
    # One for one, so that offsets stay. Two halves that meet would be read as one character.
    rest, at = replace_surrogates(text.since(offset)), 0
    while at < len(rest):
        piece = rest[at : at + _LONGEST_TEXT_BYTES]
        while (size := len(json.dumps(piece))) > _LONGEST_TEXT_BYTES:
            piece = piece[: len(piece) * _LONGEST_TEXT_BYTES // size]
        yield TextFrame(run_id=run_id, take=text.take, offset=offset + at, text=piece)
        at += len(piece)


@dataclass(kw_only=True, slots=True)
class _Watch:
    """``take`` and ``sent``: up to where the answer was sent. ``asked``: what the readers who asked have, the least of
    them; None as its position where one of them has nothing."""

    until: float
    take: Take | None = None
    sent: int = 0
    has_begun: bool = False
    is_asked: bool = False
    asked: Position | None = None
    repeat_at: float = 0.0

    def ask(self, has: Position | None) -> None:
        if not self.is_asked:
            self.is_asked, self.asked = True, has
        elif self.asked is None or has is None or self.asked.take != has.take:
            self.asked = None
        else:
            self.asked = min(self.asked, has, key=lambda position: position.length)

    def turn_to(self, text: AnswerText, now: float) -> bool:
        """Sets ``sent`` to where the readers are to go on. Tells whether to say first that the take begins."""
        begins = False
        if self.take != text.take:
            self.take, self.sent = text.take, 0
            begins = self.has_begun
        self.has_begun = False
        if self.is_asked and now >= self.repeat_at:
            start = _find_start(self.asked, text)
            self.is_asked, self.asked = False, None
            if start < self.sent or (start == 0 and not begins):
                pause_seconds = (self.sent - start) / _REPEATED_PER_SECOND
                self.repeat_at = now + min(pause_seconds, _LONGEST_REPEAT_PAUSE_SECONDS)
                self.sent = start
                begins = begins or text.length == 0
        return begins


class Watches:
    """The runs that readers elsewhere watch, whoever drives them: a watch may be heard before its run begins here.

    ``find`` gives the text of a run that is driven here. Times are of the monotonic clock.
    """

    def __init__(self, find: Callable[[RunId], AnswerText | None]) -> None:
        self._find = find
        self._watches: dict[RunId, _Watch] = {}
        self._changed: dict[RunId, None] = {}
        self._flush_at = 0.0

    def __len__(self) -> int:
        return len(self._watches)

    def note(self, run_id: RunId, has: Position | None, now: float) -> bool:
        """A reader elsewhere watches the run, and has so much of it. Tells whether there may be something to send."""
        watch = self._watches.pop(run_id, None)
        if watch is None or watch.until <= now:
            watch = _Watch(until=now)
        watch.until = now + WATCH_SECONDS
        watch.ask(has)
        while len(self._watches) >= _MOST_WATCHED:
            self._drop(next(iter(self._watches)))
        self._watches[run_id] = watch
        return self._find(run_id) is not None and self.change(run_id)

    def begin(self, run_id: RunId) -> bool:
        """A model call begins here. Tells whether anybody watches."""
        if (watch := self._watches.get(run_id)) is not None:
            watch.has_begun = True
        return self.change(run_id)

    def change(self, run_id: RunId) -> bool:
        """There is more text. Tells whether anybody watches."""
        if run_id not in self._watches:
            return False
        self._changed[run_id] = None
        return True

    def flush_at(self) -> float | None:
        """When to send what there is; None where there is nothing."""
        return self._flush_at if self._changed else None

    def flush(self, now: float, at_once: Container[str] = ()) -> list[TextFrame]:
        """What is to be sent now, and of the runs ``at_once`` also before its time."""
        is_due = now >= self._flush_at
        frames: list[TextFrame] = []
        for run_id in list(self._changed):
            if len(frames) >= _MOST_FRAMES:
                break
            if is_due or run_id in at_once:
                frames += self.flush_run(run_id, now, most=_MOST_FRAMES - len(frames))
        if is_due and frames:
            self._flush_at = now + FLUSH_SECONDS
        return frames

    def flush_run(self, run_id: RunId, now: float, *, most: int = _MOST_FRAMES) -> list[TextFrame]:
        """What of one run was not sent yet."""
        if run_id not in self._changed:
            return []
        del self._changed[run_id]
        watch, text = self._watches[run_id], self._find(run_id)
        if watch.until <= now:
            self._drop(run_id)
        if text is None or watch.until <= now:
            return []
        frames = [TextFrame(run_id=run_id, take=text.take, offset=0, text="")] if watch.turn_to(text, now) else []
        frames += islice(cut(run_id, text, watch.sent), most - len(frames))
        if frames:
            watch.sent = frames[-1].offset + len(frames[-1].text)
        if watch.sent < text.length or watch.is_asked:
            # Behind the others.
            self._changed[run_id] = None
        return frames

    def sweep(self, now: float) -> None:
        """Drops the watches that were not renewed."""
        for run_id in [run_id for run_id, watch in self._watches.items() if watch.until <= now]:
            self._drop(run_id)

    def _drop(self, run_id: RunId) -> None:
        self._watches.pop(run_id, None)
        self._changed.pop(run_id, None)


def _find_start(asked: Position | None, text: AnswerText) -> int:
    """Where to go on for readers that have so much."""
    if asked is None or asked.take < text.take:
        return 0
    # Readers that have heard of a newer claim want nothing of us.
    return asked.length if asked.take == text.take else text.length
