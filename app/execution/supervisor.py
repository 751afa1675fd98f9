"""Starts and stops what runs beside the requests: one line a job."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from app.execution.runtime import Runtime
from app.execution.worker import Worker

Job = Callable[[], Awaitable[None]]

# A worker that failed is not called well before it has held out for so long.
_PROBATION_SECONDS: Final = 10.0


class Supervisor:
    """Keeps jobs alive: one that fails is told to the log and begun again after a second. The worker drains at the
    end, the others just stop."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        worker: Worker | None,
        jobs: Mapping[str, Job],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._runtime = runtime
        self._worker = worker
        self._jobs = dict(jobs)
        self._failed = failed
        self._tasks: list[asyncio.Task[None]] = []
        self._working: asyncio.Task[None] | None = None
        self._worker_failed_at = -math.inf

    def start(self) -> None:
        """Starts the jobs."""
        self._tasks = [asyncio.create_task(self._keep(name, job), name=name) for name, job in self._jobs.items()]

    def start_worker(self) -> None:
        """Starts claiming, once what runs need is there."""
        if self._worker is not None:
            self._working = asyncio.create_task(self._keep("worker", self._watched(self._worker)), name="worker")

    @property
    def driven_runs(self) -> int:
        """Runs that this process drives now."""
        return 0 if self._worker is None else self._worker.active

    @property
    def is_drained(self) -> bool:
        """Whether an operator told the worker to take nothing more."""
        return self._worker is not None and self._worker.was_sent_away

    @property
    def is_working(self) -> bool:
        """Whether the worker runs, where this process has one, and has not failed just now. One that was told to go
        does what it shall."""
        if self._worker is None or self.is_drained:
            return True
        if self._working is None or self._working.done():
            return False
        return self._runtime.clock.monotonic() - self._worker_failed_at >= _PROBATION_SECONDS

    def begin_drain(self) -> None:
        """The worker claims nothing more and hands back what it can; ``stop`` waits for that."""
        if self._worker is not None:
            self._worker.drain()

    async def stop(self) -> None:
        """Drains the worker, then stops the jobs: leases are kept and lapsed ones swept until nothing runs here."""
        self.begin_drain()
        if self._working is not None:
            await asyncio.gather(self._working, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _watched(self, worker: Worker) -> Job:
        async def run() -> None:
            try:
                await worker.run()
            except Exception:
                self._worker_failed_at = self._runtime.clock.monotonic()
                raise

        return run

    async def _keep(self, name: str, job: Job) -> None:
        while True:
            try:
                await job()
                return
            except Exception as error:  # noqa: BLE001 - a job that fails is begun again, and says so
                self._failed(name, error)
                await self._runtime.clock.sleep(1.0)
