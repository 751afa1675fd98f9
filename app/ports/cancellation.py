"""The wish to stop, seen by whoever holds the token."""

import asyncio


class CancellationToken:
    """``cancel()`` once; everyone who waits on the token wakes. Belongs to one event loop; there is no way back."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason: str | None = None
        self.requested_by: str | None = None

    def cancel(self, reason: str | None = None, *, requested_by: str | None = None) -> None:
        """The first reason stays."""
        if not self._event.is_set():
            self.reason = reason
            self.requested_by = requested_by
            self._event.set()

    @property
    def is_cancelled(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        """Returns once the token is cancelled."""
        await self._event.wait()
