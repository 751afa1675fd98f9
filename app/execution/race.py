"""Work is raced against whatever may cut it off; what does not stop when told is dropped, not waited for."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from app.ports.cancellation import CancellationToken
from app.ports.clock import Clock

T = TypeVar("T")


class Cut(StrEnum):
    """What cut work off. LOST: the lease, so nothing may be written of it. RUN: the run's deadline. SECONDS: the
    budget's. STEP: the step's own ceiling. In the order of precedence, where two come at the same moment.
    """

    LOST = "lost"
    CANCEL = "cancel"
    DRAIN = "drain"
    RUN = "run"
    SECONDS = "seconds"
    STEP = "step"


class WorkBroke(Exception):
    """Work ended in an exception that is meant to end a thread, a process or a task, and that nobody may end with it:
    a failure like any other."""


class SelfCancelled(Exception):
    """Work ended in ``asyncio.CancelledError`` that nobody outside it asked for: a failure like any other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CutOff:
    """``orphaned``: the work was told to stop and did not within the grace time; it was let go."""

    cut: Cut
    orphaned: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """At this many seconds from now, this cut."""

    cut: Cut
    seconds: float


class Orphans:
    """Keeps what was let go from being destroyed while it still runs, and its end from going unobserved."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._observe)

    def _observe(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def __len__(self) -> int:
        return len(self._tasks)


_AT_WORK: Final[ContextVar["asyncio.Task[Any] | None"]] = ContextVar("at_work", default=None)


def is_at_work() -> bool:
    """Whether a run's own work is asking, in the task that its run waits for: what that task waits for, the run waits
    for too. Work that it started beside itself is not."""
    task = asyncio.current_task()
    return task is not None and _AT_WORK.get() is task


async def _as_ordinary(work: Coroutine[Any, Any, T]) -> T:
    _AT_WORK.set(asyncio.current_task())
    try:
        return await work
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as error:
        # In a task of its own SystemExit would stop the event loop.
        raise WorkBroke(type(error).__name__) from error


class _Finish:
    """Where a race ends: by the work, or by what ``came`` to cut it off. A task for each rival would cost more than
    most steps of a run."""

    def __init__(self) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.came: set[Cut] = set()

    def cut_off(self, cut: Cut) -> None:
        self.came.add(cut)
        self.end()

    def end(self, _: object = None) -> None:
        if not self.reached.done():
            self.reached.set_result(None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Racetrack:
    """What every race of one run shares. ``grace_seconds`` bounds the waiting for work that was told to stop."""

    clock: Clock
    orphans: Orphans
    grace_seconds: float
    tokens: Sequence[tuple[Cut, CancellationToken]]

    async def race(self, work: Coroutine[Any, Any, T], bounds: Sequence[Bound]) -> T | CutOff:
        """The work's own end, or what cut it off. Work that raises, raises here; work that cancelled itself raises
        SelfCancelled.

        Being cancelled from outside cancels the work, gives it its grace, and goes on being cancelled.
        """
        for cut, token in self.tokens:
            if token.is_cancelled:
                work.close()
                return CutOff(cut=cut, orphaned=False)
        task = asyncio.ensure_future(_as_ordinary(work))
        finish = _Finish()
        task.add_done_callback(finish.end)
        listeners = [(token, partial(finish.cut_off, cut)) for cut, token in self.tokens]
        for token, listener in listeners:
            token.add_listener(listener)
        alarm = self._alarm(bounds, finish)
        try:
            await finish.reached
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        finally:
            for token, listener in listeners:
                token.remove_listener(listener)
            if alarm is not None:
                alarm.cancel()
        if task.cancelled():
            # Nobody cancelled us: passed on as it is, it would look as if somebody had, and the run would be handed
            # back, taken up and cancelled again without end.
            raise SelfCancelled("the work cancelled itself")
        if task.done():
            return task.result()
        cut = next(cut for cut in Cut if cut in finish.came)
        return CutOff(cut=cut, orphaned=not await self._stop(task))

    def _alarm(self, bounds: Sequence[Bound], finish: "_Finish") -> asyncio.Task[None] | None:
        if not bounds:
            return None
        first = min(bounds, key=lambda bound: bound.seconds)
        alarm = asyncio.ensure_future(self.clock.sleep(first.seconds))
        alarm.add_done_callback(lambda ended: None if ended.cancelled() else finish.cut_off(first.cut))
        return alarm

    async def _stop(self, task: asyncio.Task[Any]) -> bool:
        """Tells the work to stop. False when it did not within the grace time, by the loop's own clock: the run's
        clock may be one that a test holds still."""
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=self.grace_seconds)
        finally:
            # Also where we are cancelled while we wait.
            if not task.done():
                self.orphans.keep(task)
        if not task.done():
            return False
        if not task.cancelled():
            task.exception()
        return True
