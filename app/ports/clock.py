"""Time and randomness from outside, so that a test moves the clock instead of sleeping."""

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Wall-clock time in epoch seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class IdSource(Protocol):
    def new(self, prefix: str) -> str:
        """A fresh id, ``prefix_`` and 26 base32 digits, sortable by creation time."""
        ...
