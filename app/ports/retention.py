"""Keeping for so long and no longer: what is due, the archive, and who has to forget what was erased."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.ids import RunId, SessionId, TenantId


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A tenant to look after. ``archive``: nothing of it is erased that was not archived."""

    tenant_id: TenantId
    archive: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DueRun:
    """A root run in no session, kept for long enough. ``ended_at`` in epoch seconds."""

    run_id: RunId
    ended_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OldSession:
    """A session from before the instant from which on sessions are kept. ``is_due``: not used since then either."""

    session_id: SessionId
    created_at: float
    is_due: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLine:
    """One row of one table, to be kept outside the database. ``day`` (YYYY-MM-DD, UTC) is that of its run's end or of
    its session's last use, ``text`` JSON in one line."""

    day: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Erasure:
    """Texts of a tenant were erased. ``at`` (epoch seconds of the store's clock): what was kept elsewhere up to then
    has to go."""

    tenant_id: TenantId
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Erasures:
    """``position`` is where to ask on from."""

    position: int
    found: Sequence[Erasure]


class RetentionStore(Protocol):
    """What the job needs, over all tenants. Raises StoreUnavailable.

    Whatever is erased is looked at again under its lock: a setting that was changed, or a session that is used again,
    counts up to that moment.
    """

    async def take_turn(self, *, hold_seconds: float, archives: bool) -> Turn | None:
        """The tenant that was looked after longest ago; nobody else gets it for so long. Those that want an archive
        only for who has one. None when none is due."""
        ...

    async def hold_turn(self, tenant_id: TenantId, seconds: float) -> None:
        """From now on nobody else gets the tenant for so long."""
        ...

    async def old_sessions(self, tenant_id: TenantId, *, limit: int, after: OldSession | None) -> Sequence[OldSession]:
        """The oldest first, due or not."""
        ...

    async def runs_of_session(self, tenant_id: TenantId, session_id: SessionId, *, limit: int) -> Sequence[RunId]:
        """The newest first: a run that another one goes on from comes after that one."""
        ...

    async def due_runs(self, tenant_id: TenantId, *, limit: int, after: DueRun | None) -> Sequence[DueRun]:
        """The oldest first. A run that another one goes on from stays as long as that one."""
        ...

    async def erase_due_run(self, tenant_id: TenantId, run_id: RunId) -> bool:
        """Erases it with the runs below it, in a transaction of its own. False where it is locked at this moment, not
        due any more, or gone; waits for nobody."""
        ...

    async def erase_due_session(self, tenant_id: TenantId, session_id: SessionId) -> bool:
        """Erases what a session without runs keeps. False as above, and while it has a run."""
        ...

    def read_run(self, tenant_id: TenantId, run_id: RunId) -> AsyncIterator[ArchiveLine]:
        """The run and those below it, with their events and the questions that they asked."""
        ...

    def read_session(self, tenant_id: TenantId, session_id: SessionId) -> AsyncIterator[ArchiveLine]:
        """What a session keeps beside its runs: itself, history, state and artifacts."""
        ...

    async def drop_empty_partition(self) -> bool:
        """Gives the space of one day's events back, where none is left. False when there is nothing to do now."""
        ...


class Archive(Protocol):
    async def put(self, tenant_id: TenantId, lines: Sequence[ArchiveLine]) -> None:
        """Returns when they are there to stay. Raises OSError; then some of them may be there."""
        ...


class ErasureFeed(Protocol):
    async def since(self, position: int) -> Erasures:
        """Those that were not yet to be seen at that position, and perhaps some that were. From 0: all tenants that
        anything was ever erased of. Raises StoreUnavailable."""
        ...
