"""The process is going away: nothing new is taken, and whoever waits is let go."""

import asyncio
from collections.abc import Sequence

from app.errors import Draining
from app.ports.feed import Signal, Subscription


class Drain:
    """Begins once; there is no way back. Belongs to one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def begin(self) -> None:
        self._event.set()

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
    news = asyncio.ensure_future(subscription.next_signals(timeout_seconds))
    leaving = asyncio.ensure_future(drain.wait())
    try:
        await asyncio.wait({news, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return news.result() if news.done() else ()
    finally:
        news.cancel()
        leaving.cancel()
