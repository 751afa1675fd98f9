"""Between the loop and the one who reads its events: the loop goes on when what it stored was taken."""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.events import RunEvent
from app.execution.adk.events import Event, Teller
from app.execution.local import SilentFeed
from app.ids import RunId
from app.policy import Deadline
from app.ports.cancellation import CancellationToken
from app.ports.clock import Clock


@dataclass(kw_only=True, slots=True)
class _Text:
    """Text on its way. What is not taken yet grows, so a slow reader costs no more than the answer is long."""

    at: float
    pieces: list[str] = field(default_factory=list)


class Handover:
    """Belongs to one run and one reader. ``token`` and ``deadline`` are the run's: once it is to end, its loop waits
    for nobody, and its last events wait here."""

    def __init__(self, run_id: RunId, *, token: CancellationToken, deadline: Deadline | None, clock: Clock) -> None:
        self.run_id: Final = run_id
        self._teller = Teller(run_id)
        self._token = token
        self._deadline = deadline
        self._clock = clock
        self._told: deque[RunEvent | _Text] = deque()
        self._news = asyncio.Event()
        self._asked = asyncio.Event()
        self._is_over = False
        self._is_left = False

    async def put(self, events: Sequence[RunEvent]) -> None:
        """Called by the loop with what it stored; returns when the reader has taken it and asks for more."""
        own = [event for event in events if event.run_id == self.run_id]
        if not own or self._is_left:
            return
        self._told.extend(own)
        self._asked.clear()
        self._news.set()
        await self.wait_for(self._asked)

    def put_text(self, text: str) -> None:
        """Called with text as it is written. Never waits."""
        if self._is_left:
            return
        if not self._told or not isinstance(self._told[-1], _Text):
            self._told.append(_Text(at=self._clock.now()))
        newest = self._told[-1]
        if isinstance(newest, _Text):
            newest.pieces.append(text)
        self._news.set()

    async def take(self) -> Event | None:
        """The next event; None when the run is over and everything was taken."""
        while not self._told:
            if self._is_over:
                return None
            self._news.clear()
            self._asked.set()
            await self._news.wait()
        item = self._told.popleft()
        if isinstance(item, _Text):
            return self._teller.tell_partial("".join(item.pieces), at=item.at)
        return self._teller.tell(item)

    def end(self) -> None:
        """The run is over: nothing more will be told."""
        self._is_over = True
        self._news.set()

    def leave(self) -> None:
        """The reader has gone: the loop waits for nobody from here on."""
        self._is_left = True
        self._told.clear()
        self._asked.set()

    @property
    def is_left(self) -> bool:
        """Whether the reader has gone."""
        return self._is_left

    async def wait_for(self, event: asyncio.Event) -> None:
        """Returns when it is set, or the run is to end."""
        waits: list[Coroutine[Any, Any, object]] = [event.wait(), self._token.wait()]
        if self._deadline is not None:
            waits.append(self._clock.sleep(self._deadline.remaining(self._clock.now())))
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


class TextFeed(SilentFeed):
    """Passes a run's text on as it is written, of this run only."""

    def __init__(self, handover: Handover) -> None:
        self._handover = handover

    def announce_text(self, run_id: RunId, *, iteration: int, attempt: int, text: str, fence: int = 0) -> None:
        if run_id == self._handover.run_id and text:
            self._handover.put_text(text)
