"""One question for all who ask it at about the same time."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

from app.ports.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Shared(Generic[K, V]):
    """Answers by their key, each good for ``seconds`` from when it was asked for. A failure is told to those who wait
    for it, and then forgotten. Belongs to one event loop."""

    def __init__(self, *, seconds: float = 1.0) -> None:
        self._seconds: Final = seconds
        # In the order in which they were asked.
        self._asked: dict[K, tuple[float, asyncio.Task[V]]] = {}

    def __len__(self) -> int:
        return len(self._asked)

    async def ask(self, key: K, clock: Clock, question: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """What was answered within the last ``seconds``, or is answered now. Raises what ``question`` raises."""
        now = clock.monotonic()
        self._forget_before(now - self._seconds)
        found = self._asked.get(key)
        if found is None:
            found = self._asked[key] = now, asyncio.create_task(question())
            found[1].add_done_callback(lambda task: self._forget_failure(key, task))
        # Who leaves takes nobody's answer along.
        return await asyncio.shield(found[1])

    def _forget_before(self, then: float) -> None:
        for key, (asked_at, _) in list(self._asked.items()):
            if asked_at > then:
                return
            del self._asked[key]

    def _forget_failure(self, key: K, task: asyncio.Task[V]) -> None:
        if not task.cancelled() and task.exception() is None:
            return
        found = self._asked.get(key)
        if found is not None and found[1] is task:
            del self._asked[key]
