"""A worker at work beside the test, on a clock that the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from app.errors import StoreUnavailable
from app.execution.worker import Worker, WorkerConfig
from app.ids import RunId, WorkerId
from app.ports.model import ModelProvider
from app.ports.records import Claim, LoadedRun, Renewal
from app.ports.tools import Tool
from app.providers import ScriptedStep
from app.testing import FakeClock
from tests.execution.support import Bench, RecordingStore


class WatchedStore(RecordingStore):
    """Remembers claims, renewals and releases, and fails where a test says so."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.limits: list[int] = []
        self.on_claim: Callable[[], None] = lambda: None
        self.renewals = 0
        self.released: list[RunId] = []
        self.claim_fails: Exception | None = None
        self.load_fails: Exception | None = None
        self.renew_fails: Exception | None = None
        self.extends = True
        self.release_fails: Exception | None = None

    async def claim(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, has: frozenset[str] | None = None
    ) -> Sequence[Claim]:
        self.limits.append(limit)
        self.on_claim()
        if self.claim_fails is not None:
            raise self.claim_fails
        return await super().claim(worker_id, limit=limit, lease_seconds=lease_seconds, has=has)

    async def load(self, claim: Claim) -> LoadedRun:
        if self.load_fails is not None:
            raise self.load_fails
        return await super().load(claim)

    async def renew(self, claims: Collection[Claim], *, lease_seconds: float) -> Mapping[RunId, Renewal]:
        if self.renew_fails is not None:
            raise self.renew_fails
        self.renewals += 1
        if not self.extends:
            # As Postgres tells of rows that somebody else has locked.
            return {claim.run_id: Renewal(wish=None, extended=False) for claim in claims}
        return await super().renew(claims, lease_seconds=lease_seconds)

    async def release(self, claim: Claim) -> None:
        self.released.append(claim.run_id)
        if self.release_fails is not None:
            raise self.release_fails
        await super().release(claim)


def bench_for(model: ModelProvider | Sequence[ScriptedStep], *, tools: Sequence[Tool] = ()) -> Bench:
    return Bench(model, tools=tools, clock=FakeClock(auto_advance=False), store=WatchedStore)


def watched(bench: Bench) -> WatchedStore:
    assert isinstance(bench.store, WatchedStore)
    return bench.store


@asynccontextmanager
async def at_work(bench: Bench, **config: Any) -> AsyncIterator[tuple[Worker, "asyncio.Task[None]"]]:
    """The worker, and the task that it is. It is stopped at the end, if it still runs."""
    worker = Worker(bench.runtime, WorkerId("worker-1"), WorkerConfig(**{"lease_seconds": 30, **config}))
    running = asyncio.create_task(worker.run())
    try:
        yield worker, running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until_ended(bench: Bench, *run_ids: RunId) -> None:
    """Waits for runs to end."""
    while not all(bench.store.record(run_id).state.is_terminal for run_id in run_ids):
        bench.sink.ended.clear()
        await bench.sink.ended.wait()


AWAY = StoreUnavailable()
