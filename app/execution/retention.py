"""Erases what a tenant's setting no longer keeps, after it was archived where that is asked for.

Every process looks; a tenant is looked after by one at a time. Everything is done in small portions with a pause
between them, each run and each session in a short transaction of its own that waits for nobody: what is locked is left
for the next time. The store's clock says what is due.

A run in no session goes when it ended so many days ago. A session goes when it was not used for so many days, its runs
with it: first those, then its history, state and artifacts, so that a session that is used again meanwhile still has
all that was said. A process that dies between archive and erasure leaves what the next one archives again.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from app.errors import StoreUnavailable
from app.ids import RunId, SessionId, TenantId
from app.ports.clock import Clock
from app.ports.retention import Archive, ArchiveLine, DueRun, OldSession, RetentionStore, Turn
from app.ports.sink import EventSink


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionPace:
    """How gently it goes. ``batch``: runs between two pauses. ``hold_seconds``: how long a portion may take before
    another process takes the tenant; a pause is far below it. ``archive_bytes``: what is archived at once, about."""

    every_seconds: float = 600.0
    pause_seconds: float = 0.2
    hold_seconds: float = 300.0
    batch: int = 50
    archive_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Retained:
    """What one look at a tenant has erased. Runs below others are not counted."""

    tenant_id: TenantId
    runs: int = 0
    sessions: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """What the job works with. ``archive`` None: tenants that want one are left to processes that have one. ``tell``
    hears of what was erased, ``sink`` of a store that is away."""

    store: RetentionStore
    archive: Archive | None
    clock: Clock
    sink: EventSink
    tell: Callable[[Retained], None] = lambda retained: None
    pace: RetentionPace = RetentionPace()


async def retain(retention: Retention) -> None:
    """Runs until cancelled. A tenant whose archive fails is left for later, and the error goes on to whoever keeps
    this job alive: the others' turns come when it is begun again."""
    while True:
        try:
            await retain_once(retention)
        except StoreUnavailable:
            retention.sink.store_away("retention")
        await retention.clock.sleep(retention.pace.every_seconds)


async def retain_once(retention: Retention) -> None:
    """Looks after every tenant whose turn it is, then gives back the space of days that are empty."""
    store, pace = retention.store, retention.pace
    archives = retention.archive is not None
    while (turn := await store.take_turn(hold_seconds=pace.hold_seconds, archives=archives)) is not None:
        try:
            retained = await _Look(retention, turn).look()
        finally:
            # Also one whose archive fails or whose rows can't be read: the others are not kept waiting by it.
            await store.hold_turn(turn.tenant_id, pace.every_seconds)
        if retained.runs or retained.sessions:
            retention.tell(retained)
    while await store.drop_empty_partition():
        await retention.clock.sleep(pace.pause_seconds)


class _Look:
    """One tenant's turn."""

    def __init__(self, retention: Retention, turn: Turn) -> None:
        self._store = retention.store
        self._clock = retention.clock
        self._pace = retention.pace
        self._tenant_id = turn.tenant_id
        self._archive = retention.archive if turn.archive else None
        assert self._archive is not None or not turn.archive, "the turn is another process's"

    async def look(self) -> Retained:
        runs, sessions = 0, 0
        async for session_id in self._due_sessions():
            runs += await self._retain_runs_of(session_id)
            sessions += await self._retain_session(session_id)
        return Retained(tenant_id=self._tenant_id, runs=runs + await self._retain_runs(), sessions=sessions)

    async def _due_sessions(self) -> AsyncIterator[SessionId]:
        after: OldSession | None = None
        while page := await self._store.old_sessions(self._tenant_id, limit=10 * self._pace.batch, after=after):
            for session in page:
                if session.is_due:
                    yield session.session_id
            after = page[-1]
            await self._pause()

    async def _retain_runs_of(self, session_id: SessionId) -> int:
        erased, portion = 0, 1
        # A portion of which nothing was erased: what is left is locked, or the session is used again.
        while portion:
            runs = await self._store.runs_of_session(self._tenant_id, session_id, limit=self._pace.batch)
            portion = await self._erase_runs(runs)
            erased += portion
        return erased

    async def _retain_session(self, session_id: SessionId) -> bool:
        if await self._store.runs_of_session(self._tenant_id, session_id, limit=1):
            return False
        await self._keep([self._store.read_session(self._tenant_id, session_id)])
        return await self._store.erase_due_session(self._tenant_id, session_id)

    async def _retain_runs(self) -> int:
        erased = 0
        after: DueRun | None = None
        while page := await self._store.due_runs(self._tenant_id, limit=self._pace.batch, after=after):
            erased += await self._erase_runs([run.run_id for run in page])
            after = page[-1]
        return erased

    async def _erase_runs(self, runs: Sequence[RunId]) -> int:
        if not runs:
            return 0
        await self._keep(self._store.read_run(self._tenant_id, run_id) for run_id in runs)
        erased = 0
        for run_id in runs:
            erased += await self._store.erase_due_run(self._tenant_id, run_id)
        await self._pause()
        return erased

    async def _keep(self, sources: Iterable[AsyncIterator[ArchiveLine]]) -> None:
        """Returns when all of it is in the archive, where there is to be one."""
        if self._archive is None:
            return
        lines: list[ArchiveLine] = []
        size = 0
        for source in sources:
            async for line in source:
                lines.append(line)
                size += len(line.text)
                if size >= self._pace.archive_bytes:
                    await self._archive.put(self._tenant_id, lines)
                    lines, size = [], 0
        if lines:
            await self._archive.put(self._tenant_id, lines)

    async def _pause(self) -> None:
        await self._store.hold_turn(self._tenant_id, self._pace.hold_seconds)
        await self._clock.sleep(self._pace.pause_seconds)
