"""Reads of runs' logs, shared by all readers of a process: who asks for the same is told the same, and what the readers
of one tenant ask for at a time is one statement.

9. Nobody is told what was read before it was asked for: whoever asks joins a statement that has not been sent yet. So
what was stored before a doorbell is among what is read after it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.ids import RunId, TenantId
from app.ports.records import LogPage
from app.ports.store import TenantStore

# Of one statement: many readers are behind it, and its answer has to stay small.
_MOST_PLACES: Final = 64
# Statements at a time, of different tenants: the pool is there for other requests, too.
_AT_ONCE: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asker:
    """Whose statement it is. Only what is read with the same limit is read together."""

    store: TenantStore
    tenant_id: TenantId
    limit: int


_Place = tuple[RunId, int]
_Answer = asyncio.Future[LogPage]


class LogReads:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._asked: dict[_Asker, dict[_Place, list[_Answer]]] = {}
        self._turns: Final = asyncio.Semaphore(_AT_ONCE)
        self._serving: Final = set[asyncio.Task[None]]()

    @property
    def waiting(self) -> int:
        """How many places are asked for that no statement was sent for yet."""
        return sum(map(len, self._asked.values()))

    async def read(self, store: TenantStore, tenant_id: TenantId, run_id: RunId, *, after: int, limit: int) -> LogPage:
        """The run's events after that number, as they are stored now or later. Raises StoreUnavailable."""
        asker = _Asker(store=store, tenant_id=tenant_id, limit=limit)
        places = self._asked.get(asker)
        if places is None:
            places = self._asked[asker] = {}
            serving = asyncio.create_task(self._serve(asker, places))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        answer: _Answer = asyncio.get_running_loop().create_future()
        places.setdefault((run_id, after), []).append(answer)
        return await answer

    async def _serve(self, asker: _Asker, places: dict[_Place, list[_Answer]]) -> None:
        """Until nobody asks any more. Whoever asks meanwhile is in the next statement."""
        try:
            while places:
                async with self._turns:
                    await self._read_some(asker, places)
        finally:
            del self._asked[asker]
            # Left over only where the process ends in the middle.
            _cancel(places)

    async def _read_some(self, asker: _Asker, places: dict[_Place, list[_Answer]]) -> None:
        asked = _take(places)
        if not asked:
            return
        try:
            pages = await asker.store.read_logs(asker.tenant_id, list(asked), limit=asker.limit)
        except Exception as error:  # noqa: BLE001 - it is raised by all who asked
            for waiting in asked.values():
                _tell(waiting, error)
            return
        except BaseException:
            _cancel(asked)
            raise
        for place, waiting in asked.items():
            page = pages.get(place)
            if page is None:
                # The statement was full before it came to these.
                places[place] = [*waiting, *places.get(place, ())]
            else:
                _tell(waiting, page)


def _take(places: dict[_Place, list[_Answer]]) -> Mapping[_Place, list[_Answer]]:
    """The first of them, without those whose readers have left."""
    taken: dict[_Place, list[_Answer]] = {}
    while places and len(taken) < _MOST_PLACES:
        place = next(iter(places))
        waiting = [answer for answer in places.pop(place) if not answer.done()]
        if waiting:
            taken[place] = waiting
    return taken


def _tell(waiting: list[_Answer], told: LogPage | Exception) -> None:
    for answer in waiting:
        if answer.done():
            continue
        if isinstance(told, Exception):
            answer.set_exception(told)
        else:
            answer.set_result(told)


def _cancel(asked: Mapping[_Place, list[_Answer]]) -> None:
    for waiting in asked.values():
        for answer in waiting:
            answer.cancel()
