"""SIGTERM and SIGINT, from the first moment of a process to its last.

Whoever is told to stop while it starts, or again while it hands its runs back, still takes down what it has started:
the default of SIGTERM would leave the embedded Postgres behind.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """A context in which signals call the newest listener; ``otherwise`` where there is none. Belongs to one loop."""

    def __init__(self, *, otherwise: Callable[[], object]) -> None:
        self._listeners: list[Callable[[], object]] = [otherwise]
        self.were_heard = False

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for signum in _SIGNALS:
            loop.add_signal_handler(signum, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for signum in _SIGNALS:
            loop.remove_signal_handler(signum)

    @contextmanager
    def tell(self, listener: Callable[[], object]) -> Iterator[None]:
        """While the block runs, signals call this one."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def _hear(self) -> None:
        self.were_heard = True
        self._listeners[-1]()
