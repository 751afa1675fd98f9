"""A worker: claims runs while it has slots, drives them, keeps their leases, and hands them back when it goes."""

import asyncio
from functools import partial
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from app.errors import LeaseLost, StoreUnavailable
from app.execution.drive import drive
from app.execution.lease import Lease
from app.execution.perform.context import Drained
from app.execution.runtime import Runtime
from app.ids import RunId, WorkerId
from app.ports.cancellation import CancellationToken
from app.ports.records import Claim

_HELLO_SECONDS: Final = 30.0


class WorkerConfig(BaseModel):
    """``slots``: runs driven at once. Times in seconds; a lease is renewed every third of ``lease_seconds``, at
    least every half minute, and swept every sixth. ``poll_seconds`` is the slow poll beneath the wake-ups."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slots: int = Field(default=16, ge=1, le=1000)
    lease_seconds: float = Field(default=30.0, ge=1.0, le=3600)
    poll_seconds: float = Field(default=2.0, gt=0, le=60)
    drain_seconds: float = Field(default=20.0, ge=0, le=3600)


class Worker:
    """One worker of one process. ``run`` returns when ``drain`` was called, or an operator asked for it, and everything
    is handed back."""

    def __init__(self, runtime: Runtime, worker_id: WorkerId, config: WorkerConfig) -> None:
        self._runtime = runtime
        self._worker_id = worker_id
        self._config = config
        self._drain = CancellationToken()
        self._sent_away = False
        self._leases: dict[RunId, Lease] = {}
        self._tasks: dict[RunId, asyncio.Task[None]] = {}
        self._freed = asyncio.Event()
        self._ending_asked = asyncio.Event()
        self._cancels_heard = 0

    @property
    def active(self) -> int:
        """Runs that are driven now."""
        return len(self._tasks)

    @property
    def was_sent_away(self) -> bool:
        """Whether an operator told it to drain, and the process goes on without it."""
        return self._sent_away

    def drain(self) -> None:
        """Stops claiming; model calls are abandoned, running tools get the drain time."""
        self._drain.cancel("the worker is going away")
        for lease in self._leases.values():
            lease.handed_back.cancel("the worker is going away")
        self._freed.set()

    async def run(self) -> None:
        """Claims and drives until drained. What breaks the heartbeat breaks the worker: no lease lapses unseen."""
        try:
            async with asyncio.TaskGroup() as group:
                jobs = (self._keep_leases, self._hear_cancels, self._keep_ending)
                keepers = [group.create_task(job()) for job in jobs]
                while not self._drain.is_cancelled:
                    await self._fill()
                await self._finish()
                for keeper in keepers:
                    keeper.cancel()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _fill(self) -> None:
        """Claims as many runs as there are slots, then waits for a slot or for work."""
        self._freed.clear()
        free = max(0, self._config.slots - len(self._tasks))
        heard = self._cancels_heard
        claims = await self._claim(free) if free else ()
        for claim in claims:
            self._start(claim)
        if claims and self._cancels_heard > heard:
            # It may have been about one of these, and later than what the claim has seen.
            await self._renew()
        if len(claims) == free and free:
            return
        work = asyncio.create_task(self._runtime.feed.wait_for_work(self._config.poll_seconds))
        freed = asyncio.create_task(self._freed.wait())
        waits = {freed} if len(self._tasks) >= self._config.slots else {freed, work}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, freed):
                task.cancel()
            await asyncio.gather(work, freed, return_exceptions=True)

    async def _claim(self, limit: int) -> tuple[Claim, ...]:
        try:
            return tuple(
                await self._runtime.store.claim(
                    self._worker_id,
                    limit=limit,
                    lease_seconds=self._config.lease_seconds,
                    has=self._runtime.has_now(),
                )
            )
        except StoreUnavailable:
            self._runtime.sink.store_away("claim")
            return ()

    def _start(self, claim: Claim) -> asyncio.Task[None]:
        lease = Lease(claim, margin_seconds=self._runtime.rules.lease_margin_seconds)
        if self._drain.is_cancelled:
            lease.handed_back.cancel("the worker is going away")
        task = asyncio.create_task(self._drive(lease), name=f"drive {claim.run_id}")
        self._leases[claim.run_id] = lease
        self._tasks[claim.run_id] = task
        task.add_done_callback(partial(self._forget, lease))
        return task

    def _forget(self, lease: Lease, _: asyncio.Task[None]) -> None:
        # A run that this worker lost may be its own again by now, under a newer claim.
        if self._leases.get(lease.run_id) is lease:
            del self._leases[lease.run_id], self._tasks[lease.run_id]
        self._freed.set()

    async def _drive(self, lease: Lease) -> None:
        """One run. Nothing that happens to it reaches the worker."""
        try:
            await drive(self._runtime, lease, drain=lease.handed_back)
        except LeaseLost:
            self._runtime.sink.lease_lost(lease.tenant_id, lease.run_id)
        except (Drained, asyncio.CancelledError):
            await self._release(lease)
        except StoreUnavailable:
            # Nothing was lost: the lease lapses, and whoever claims the run then goes on from its log.
            self._runtime.sink.store_away("drive")
        except Exception as error:  # noqa: BLE001 - a defect in one drive must not stop the others
            self._runtime.sink.crashed(lease.tenant_id, lease.run_id, error)

    async def _release(self, lease: Lease) -> None:
        try:
            await self._runtime.store.release(lease.claim)
        except StoreUnavailable:
            self._runtime.sink.store_away("release")
            return
        self._runtime.feed.announce_queued()

    async def _finish(self) -> None:
        """Waits for the drives to reach a step where they can be handed back; after the drain time they are cut."""
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._config.drain_seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_leases(self) -> None:
        # Also where leases are long: who is not heard of for two minutes counts as gone.
        every_seconds = min(self._config.lease_seconds / 3, _HELLO_SECONDS)
        while True:
            await self._say_hello()
            await self._runtime.clock.sleep(every_seconds)
            await self._renew()

    async def _say_hello(self) -> None:
        try:
            is_to_drain = await self._runtime.store.hello(self._worker_id, self._runtime.has_now() or frozenset())
        except StoreUnavailable:
            self._runtime.sink.store_away("hello")
            return
        if is_to_drain:
            self._sent_away = True
            self.drain()

    async def _hear_cancels(self) -> None:
        while True:
            await self._runtime.feed.wait_for_cancel(self._config.poll_seconds)
            held = {lease.run_id for root in self._leases.values() for lease in root.tree()}
            cancelled = self._runtime.feed.cancels_heard()
            self._cancels_heard += len(cancelled)
            if not held.isdisjoint(cancelled):
                await self._renew()
            self._ending_asked.set()

    async def _keep_ending(self) -> None:
        """Apart from the listening: what is told of an end may take its time, and cancels of running runs must not."""
        while True:
            await self._ending_asked.wait()
            self._ending_asked.clear()
            await self._end_queued()

    async def _end_queued(self) -> None:
        """Ends queued runs whose cancel or deadline came before their turn, or that were lost too often. A slot
        beside the others is kept for them, so that long runs don't make a cancel wait."""
        while not self._drain.is_cancelled:
            try:
                claims = await self._runtime.store.claim_ending(
                    self._worker_id,
                    limit=1,
                    lease_seconds=self._config.lease_seconds,
                    max_recoveries=self._runtime.rules.max_recoveries,
                )
            except StoreUnavailable:
                self._runtime.sink.store_away("claim")
                return
            if not claims:
                return
            await asyncio.wait({self._start(claim) for claim in claims})

    async def _renew(self) -> None:
        """Extends leases. One that another claim has is lost, and its drive stops at once; one that the database could
        not extend now holds for the time that it had."""
        roots = dict(self._leases)
        leases = {lease.run_id: lease for root in roots.values() for lease in root.tree()}
        if not leases:
            return
        before = self._runtime.clock.monotonic()
        try:
            renewed = await self._runtime.store.renew(
                [lease.claim for lease in leases.values()], lease_seconds=self._config.lease_seconds
            )
        except StoreUnavailable:
            self._runtime.sink.store_away("renew")
            return
        for run_id, lease in leases.items():
            if run_id in renewed:
                lease.take_wish(renewed[run_id].wish)
        # A run below another one may have ended meanwhile: whether it is lost, its root's lease tells.
        for run_id, lease in roots.items():
            if run_id in renewed:
                if renewed[run_id].paused:
                    lease.handed_back.cancel("an operator has paused it")
                if renewed[run_id].extended:
                    lease.extend(before + self._config.lease_seconds)
            elif self._leases.get(run_id) is lease:
                lease.lost.cancel("another claim holds the run")
