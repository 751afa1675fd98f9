"""The wish to stop, seen by whoever holds the token."""

import asyncio
from collections.abc import Callable
from weakref import WeakSet


class CancellationToken:
    """``cancel()`` once; everyone who waits on the token wakes. Belongs to one event loop; there is no way back."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._linked: WeakSet[CancellationToken] = WeakSet()
        self._listeners: list[Callable[[], None]] = []
        self.reason: str | None = None
        self.requested_by: str | None = None

    def cancel(self, reason: str | None = None, *, requested_by: str | None = None) -> None:
        """The first reason stays."""
        if not self._event.is_set():
            self.reason = reason
            self.requested_by = requested_by
            self._event.set()
            for listener in tuple(self._listeners):
                listener()
            for token in tuple(self._linked):
                token.cancel(reason, requested_by=requested_by)

    def link(self, token: "CancellationToken") -> None:
        """Cancels the other token together with this one: a cancel flows down, and never up."""
        self._linked.add(token)
        if self.is_cancelled:
            token.cancel(self.reason, requested_by=self.requested_by)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Called once, when the token is cancelled, unless it is removed before. Not where it is cancelled already."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)

    @property
    def is_cancelled(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        """Returns once the token is cancelled."""
        await self._event.wait()
