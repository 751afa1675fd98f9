"""The two streams over all of a tenant as tests drive them: how something happens in each, and how it is seen."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import httpx

from app.events import Warned
from app.ids import RunId, TenantId
from app.ports.tenant_events import EventPlace
from app.service.approval_stream import seal_place
from app.service.tenant_stream import seal_event_place
from tests.api.harness import AS_STREAM, Service, SseFrame, eventually, read_frames, stored
from tests.api.questions import ask, decide, new_question, put_question, told

# What a frame is told apart by: of a change its status and its approval, of an event its run and its number.
Seen = tuple[str | None, str] | tuple[str, int]


class TenantStream(ABC):
    """``narrowed`` is a filter under which one of ``some`` is told, and ``narrowed_to`` the place of that."""

    path: str
    narrowed: str
    narrowed_to: int

    @abstractmethod
    async def happen(self, service: Service) -> Seen:
        """Something that the stream tells of."""

    @abstractmethod
    async def happen_often(self, service: Service) -> Sequence[Seen]:
        """More than a page of it."""

    @abstractmethod
    async def some(self, service: Service) -> tuple[str, Sequence[Seen]]:
        """An id behind which they come, and several things of three runs that happened."""

    @abstractmethod
    def see(self, frame: SseFrame) -> Seen: ...

    @abstractmethod
    def seal(self, service: Service, cluster: int, turn: int) -> str:
        """The id of a place in that turn."""

    async def now(self, service: Service) -> str:
        """An id behind which everything comes that a test does."""
        place = (await service.deps.store.event_frontier()).now
        return self.seal(service, place.cluster, place.turn)

    @contextlib.asynccontextmanager
    async def follow(
        self, live: httpx.AsyncClient, query: str = "", **headers: str
    ) -> AsyncIterator[tuple[AsyncIterator[SseFrame], httpx.Response]]:
        async with live.stream("GET", f"{self.path}{query}", headers=AS_STREAM | headers) as response:
            assert response.status_code == 200, await response.aread()
            yield read_frames(response), response

    async def refuse(self, live: httpx.AsyncClient, query: str = "", **headers: str) -> tuple[int, str]:
        """How a stream is refused: status and code. One that was opened instead would have no end."""
        async with asyncio.timeout(10):
            return told(await live.get(f"{self.path}{query}", headers=AS_STREAM | headers))

    async def follow_behind(self, live: httpx.AsyncClient, place: str | None, number: int) -> list[SseFrame]:
        """So many frames that follow that id."""
        async with self.follow(live, **{"Last-Event-ID": str(place)}) as (frames, _):
            return await take(frames, number)

    async def follow_while(
        self, service: Service, live: httpx.AsyncClient, act: Callable[[], Awaitable[object]], number: int
    ) -> list[SseFrame]:
        """So many frames that come once a reader is there and something was done."""
        async with self.follow(live) as (frames, _):
            await eventually(lambda: service.feed.readers == 1)
            await act()
            return await take(frames, number)

    def see_all(self, frames: Sequence[SseFrame]) -> list[Seen]:
        return [self.see(frame) for frame in frames]


async def take(frames: AsyncIterator[SseFrame], number: int) -> list[SseFrame]:
    """So many that are no pings."""
    taken: list[SseFrame] = []
    async with asyncio.timeout(10):
        while len(taken) < number:
            taken += stored([await anext(frames)])
    return taken


def tenant_of(service: Service) -> TenantId:
    return TenantId(service.keys.tenant_id)


class Approvals(TenantStream):
    path = "/approvals/events"
    narrowed = "?status=cancelled"
    narrowed_to = 5

    async def happen(self, service: Service) -> Seen:
        # The scribe announces events of runs and no questions.
        return "pending", await ask(service, await service.submit())

    async def happen_often(self, service: Service) -> Sequence[Seen]:
        run_id = await service.submit()
        asked = [new_question(call=call) for call in range(250)]
        await put_question(service, run_id, *asked)
        return [("pending", new.approval_id) for new in asked]

    async def some(self, service: Service) -> tuple[str, Sequence[Seen]]:
        last = await self.now(service)
        run_ids = [await service.submit() for _ in range(3)]
        first, second, third = [await ask(service, run_id) for run_id in run_ids]
        await decide(service, first)
        await decide(service, second, "deny")
        await service.client.post(f"/runs/{run_ids[2]}/cancel")
        fourth = await ask(service, await service.submit())
        pending = [("pending", name) for name in (first, second, third)]
        return last, [*pending, ("approved", first), ("denied", second), ("cancelled", third), ("pending", fourth)]

    def see(self, frame: SseFrame) -> Seen:
        return frame.event, frame.json["id"]

    def seal(self, service: Service, cluster: int, turn: int) -> str:
        return seal_place(service.deps.cursors, tenant_of(service), (cluster, turn, 0))


class Events(TenantStream):
    path = "/events"
    narrowed = "?kind=terminated"
    narrowed_to = 6

    async def happen(self, service: Service) -> Seen:
        return await service.submit(), 1

    async def happen_often(self, service: Service) -> Sequence[Seen]:
        run_id = await service.submit()
        await service.scribe.write(run_id, *(Warned(code="w", detail=str(number)) for number in range(250)))
        return [(run_id, seq) for seq in range(1, 252)]

    async def some(self, service: Service) -> tuple[str, Sequence[Seen]]:
        last = await self.now(service)
        runs = [await service.submit() for _ in range(3)]
        await service.scribe.write(runs[1], Warned(code="a", detail=""), Warned(code="b", detail=""))
        await service.scribe.write(runs[0], Warned(code="c", detail=""))
        await service.scribe.end(runs[1])
        await service.scribe.end(runs[0])
        await service.scribe.end(runs[2])
        queued = [(run_id, 1) for run_id in runs]
        ends = [(runs[1], 4), (runs[0], 3), (runs[2], 2)]
        return last, [*queued, (runs[1], 2), (runs[1], 3), (runs[0], 2), *ends]

    def see(self, frame: SseFrame) -> Seen:
        return frame.json["run_id"], frame.json["seq"]

    def seal(self, service: Service, cluster: int, turn: int) -> str:
        place = EventPlace(cluster=cluster, turn=turn, run_id=RunId(""), seq=0)
        return seal_event_place(service.deps.cursors, tenant_of(service), place)


APPROVALS = Approvals()
EVENTS = Events()
