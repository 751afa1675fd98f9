"""Feeds of several processes without a database: what one says lies before the others until a test hands it over."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from app.ids import RunId
from app.ports.feed import AnswerDelta, AnswerSnapshot, Doorbell, Signal
from app.store.database import DatabaseConfig
from app.store.feed import PostgresFeed
from app.store.signals import LocalSubscription
from app.testing import FakeClock

RUN = RunId("run_1")
STEP_SECONDS = 0.1


@dataclass(kw_only=True)
class Process:
    """``inbox``: what the others said and this one has not heard."""

    feed: PostgresFeed
    inbox: deque[str] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """Under which its hints go."""
        return self.feed.name

    def hear(self) -> None:
        """One hint, where there is one."""
        if self.inbox:
            self.feed.hear(self.inbox.popleft())


class Wire:
    """So many processes on one channel. ``said`` is all that was ever sent."""

    def __init__(self, count: int = 2) -> None:
        self.clock = FakeClock()
        self.processes: list[Process] = []
        self.said: list[str] = []
        for _ in range(count):
            self.join()
        self.settle(1.0)

    def join(self) -> Process:
        """One more process, which has heard nothing of what was said before."""
        config = DatabaseConfig(url="postgresql://nobody@/none")
        process = Process(feed=PostgresFeed(config, monotonic=self.clock.monotonic))
        process.feed.catch_up()
        self.processes.append(process)
        return process

    def send(self, process: Process) -> list[str]:
        """Puts what the process has to say before the others."""
        hints = process.feed.take_hints()
        self.said += hints
        for other in self.processes:
            if other is not process:
                other.inbox.extend(hints)
        return hints

    def send_all(self) -> None:
        for process in self.processes:
            self.send(process)

    def settle(self, seconds: float = 0.3) -> None:
        """So much time passes, in small steps; whatever is said is heard."""
        for _ in range(round(seconds / STEP_SECONDS)):
            self.clock.advance(STEP_SECONDS)
            self.send_all()
            for process in self.processes:
                while process.inbox:
                    process.hear()


@dataclass
class Reader:
    """What somebody who follows the frames has on the screen. Fails at a delta that does not go on where it ends."""

    subscription: LocalSubscription
    heard: list[Signal] = field(default_factory=list)
    iteration: int = 0
    attempt: int = 0
    text: str = ""

    async def read(self, timeout_seconds: float = 0) -> Sequence[Signal]:
        """Takes what there is, or waits so long for it."""
        signals = await self.subscription.next_signals(timeout_seconds)
        for signal in signals:
            self._take(signal)
        self.heard += signals
        return signals

    def _take(self, signal: Signal) -> None:
        match signal:
            case AnswerSnapshot():
                self.iteration, self.attempt, self.text = signal.iteration, signal.attempt, signal.text
            case AnswerDelta():
                place = (signal.iteration, signal.attempt, signal.offset)
                assert place == (self.iteration, self.attempt, len(self.text)), f"{signal} after {self.text!r}"
                assert signal.text
                self.text += signal.text
            case Doorbell():
                pass


@dataclass
class Speaker:
    """Drives the run in a process, under one claim."""

    process: Process
    fence: int = 1
    iteration: int = 1
    attempt: int = 1

    def begin(self, attempt: int = 1, *, iteration: int = 1) -> None:
        self.attempt, self.iteration = attempt, iteration
        self.process.feed.announce_attempt(RUN, iteration=iteration, attempt=attempt, fence=self.fence)

    def say(self, text: str) -> None:
        tell = partial(self.process.feed.announce_text, RUN, iteration=self.iteration, attempt=self.attempt)
        tell(text=text, fence=self.fence)


def subscribe(process: Process) -> "Reader":
    return Reader(process.feed.subscribe(RUN))


def snapshot(text: str, *, attempt: int = 1) -> AnswerSnapshot:
    return AnswerSnapshot(iteration=1, attempt=attempt, text=text)


def delta(offset: int, text: str, *, attempt: int = 1) -> AnswerDelta:
    return AnswerDelta(iteration=1, attempt=attempt, offset=offset, text=text)
