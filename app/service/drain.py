"""The process is going away: nothing new is taken, and whoever waits is let go."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from app.errors import Draining
from app.ports.feed import Signal, Subscription


class Drain:
    """Begins once; there is no way back. Belongs to one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._listeners: set[Callable[[], None]] = set()

    def begin(self) -> None:
        self._event.set()
        for listener in tuple(self._listeners):
            listener()

    @contextmanager
    def telling(self, listener: Callable[[], None]) -> Iterator[None]:
        """``listener`` is called when draining begins while the block runs."""
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    @property
    def is_draining(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        """Returns once draining has begun."""
        await self._event.wait()

    def refuse_new(self) -> None:
        """Raises Draining where new work can't be taken any more."""
        if self.is_draining:
            raise Draining("this process is going away; ask again")


async def next_news(subscription: Subscription, drain: Drain, timeout_seconds: float) -> Sequence[Signal]:
    """The subscription's next signals; returns early, with none, when draining begins."""
    if drain.is_draining:
        return ()
    # Each reader waits at each signal: two tasks that race cost more than the signal.
    with drain.telling(subscription.wake):
        return await subscription.next_signals(timeout_seconds)
