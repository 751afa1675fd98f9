"""Threads for tools that are synchronous functions.

A Python thread can't be stopped. A tool whose time is up goes on in its thread, and may still do what it was called
for; the loop only stops waiting. So such threads are counted, a full pool refuses at once instead of making runs wait
for a thread that may never come back, and none of them keeps the process from ending.
"""

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from app.errors import ToolExecutionError

DEFAULT_LIMIT: Final = 128

T = TypeVar("T")


class ToolThreads:
    """At most ``limit`` synchronous calls at a time, those that nobody waits for any more included."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"a pool has at least one thread, not {limit}")
        self.limit = limit
        self._lock = threading.Lock()
        self._busy = 0

    @property
    def busy(self) -> int:
        """How many threads run a tool now."""
        return self._busy

    async def run(self, function: Callable[[], T], *, name: str) -> T:
        """Calls the function in a thread, with the caller's context variables, and waits for it.

        Cancelling the wait ends nothing: it goes on until the thread does, which stays counted. Raises what the
        function raises, and ToolExecutionError (``tool_threads_exhausted``) when every thread is busy: the function was
        not called then.
        """
        self._take(name)
        context = contextvars.copy_context()
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()
        work = threading.Thread(target=self._work, args=(context, function, outcome), name=f"tool-{name}", daemon=True)
        try:
            work.start()
        except RuntimeError as error:  # The system has no thread left.
            self._give_back()
            raise _exhausted(name, self.limit) from error
        waiting = asyncio.wrap_future(outcome)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # A thread can't be stopped. Whoever cancelled gives it its grace time and then lets it go, and says so.
            await asyncio.wait({waiting})
            raise

    def _take(self, name: str) -> None:
        with self._lock:
            if self._busy >= self.limit:
                raise _exhausted(name, self.limit)
            self._busy += 1

    def _give_back(self) -> None:
        with self._lock:
            self._busy -= 1

    def _work(self, context: contextvars.Context, function: Callable[[], T], outcome: "Future[T]") -> None:
        try:
            result = context.run(function)
        except BaseException as error:  # noqa: BLE001 - a thread has nobody else to tell
            self._give_back()
            outcome.set_exception(as_ordinary(error))
        else:
            # Given back first: whoever has the result may count on the thread.
            self._give_back()
            outcome.set_result(result)


def as_ordinary(error: BaseException) -> Exception:
    """The exception itself, or a ToolExecutionError in place of one that would end more than the call.

    SystemExit would end the process, a CancelledError that nobody asked for looks like a cancelled drive, and
    StopIteration can't be put into a future at all: its waiter would wait for ever.
    """
    # The CancelledError of concurrent.futures is an ordinary exception, but asyncio turns it into its own.
    if isinstance(error, Exception) and not isinstance(error, StopIteration | concurrent.futures.CancelledError):
        return error
    replacement = ToolExecutionError(f"the tool raised {type(error).__name__}")
    replacement.__cause__ = error
    return replacement


def _exhausted(name: str, limit: int) -> ToolExecutionError:
    return ToolExecutionError(
        f"all {limit} threads for synchronous tools are busy, so {name} was not called", code="tool_threads_exhausted"
    )
