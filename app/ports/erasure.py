"""Erasing what belongs to one person, and all of a tenant."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from app.ids import TenantId


@dataclass(frozen=True, kw_only=True, slots=True)
class UserErased:
    """What one portion has erased; ``runs`` with those below others. ``is_open``: something of it has not ended, and
    whoever erases undoes the portion. ``is_done``: nothing of the user is left."""

    runs: int
    sessions: int
    is_open: bool
    is_done: bool


class ErasureTx(Protocol):
    """The part of a tenant's transaction that erases what belongs to a user."""

    async def has_open_runs(self, user: str) -> bool:
        """Whether a run has not ended that is the user's, or in a session that is his or that he had a run in."""
        ...

    async def erase_user(self, user: str, *, target: str, limit: int) -> UserErased:
        """Erases up to ``limit`` of his runs and sessions with all that is kept of them, and with the last of them the
        state that is kept for him. ``target`` stands for him in the audit trail."""
        ...


class Portion(StrEnum):
    """How far the erasure of a tenant has come. WAITING: a run of it has not ended. BUSY: somebody else is at it, or
    holds a row. GONE: nothing of it is left."""

    MORE = "more"
    WAITING = "waiting"
    BUSY = "busy"
    GONE = "gone"


class TenantErasureStore(Protocol):
    """What the job needs that erases tenants. Raises StoreUnavailable."""

    async def tenants_to_erase(self, *, unused_seconds: float) -> Sequence[TenantId]:
        """Those that nobody can use any more for so long, the first one first."""
        ...

    async def erase_portion(self, tenant_id: TenantId, *, limit: int) -> Portion:
        """Erases up to ``limit`` rows in a transaction of its own, whatever table they are in; then the tenant itself.
        Runs that have not ended are asked to."""
        ...
