"""News of runs inside and between processes. Everything here is a hint: the log is the truth (promise 9)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.ids import RunId, TenantId


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerDelta:
    """Text as it is generated: ``offset`` counts characters of this attempt's text before it. Never stored."""

    iteration: int
    attempt: int
    offset: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSnapshot:
    """The text of the attempt so far, for a reader that joins in its middle; empty where a new attempt begins."""

    iteration: int
    attempt: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Doorbell:
    """Something was stored, or may have been: read the log. ``may_have_ended``: perhaps the last of it."""

    may_have_ended: bool = False


Signal = AnswerDelta | AnswerSnapshot | Doorbell


class Subscription(Protocol):
    """One reader of one run. Opened before the log is read, so that nothing falls between the two."""

    async def next_signals(self, timeout_seconds: float) -> Sequence[Signal]:
        """Waits for news, at most so long; empty when there was none. Doorbells that wait are one."""
        ...

    def wake(self) -> None:
        """Ends a wait for news early."""
        ...

    @property
    def overflowed(self) -> bool:
        """The reader was slower than its buffer is long: deltas were lost, and it should be dropped."""
        ...

    def close(self) -> None: ...


class Feed(Protocol):
    """Publishing never waits and never raises."""

    def subscribe(self, run_id: RunId) -> Subscription: ...

    def subscribe_end(self, run_id: RunId) -> Subscription:
        """Doorbells of ``announce_ended`` alone, here and elsewhere: no step on the way wakes who waits for the end."""
        ...

    def announce_stored(self, run_id: RunId) -> None:
        """Events of this run were committed."""
        ...

    def announce_ended(self, run_id: RunId) -> None:
        """Events of this run were committed, and it is at rest now: for those who wait for nothing else."""
        ...

    def announce_queued(self) -> None:
        """A run waits for a worker: wakes the workers of this process and, soon, of the others."""
        ...

    def announce_approvals(self, tenant_id: TenantId) -> None:
        """A question of this tenant was asked, answered or closed."""
        ...

    def subscribe_approvals(self, tenant_id: TenantId) -> Subscription:
        """Doorbells of ``announce_approvals``, here and elsewhere."""
        ...

    def announce_events(self, tenant_id: TenantId) -> None:
        """Events of some run of this tenant were committed."""
        ...

    def subscribe_events(self, tenant_id: TenantId) -> Subscription:
        """Doorbells of ``announce_events``, here and elsewhere."""
        ...

    def announce_cancel(self, run_id: RunId) -> None:
        """A cancel was asked for: its holder, here or elsewhere, should look."""
        ...

    def announce_attempt(self, run_id: RunId, *, iteration: int, attempt: int, fence: int = 0) -> None:
        """A model call begins: what readers hold of an earlier attempt is void. ``fence`` is the claim's."""
        ...

    def announce_text(self, run_id: RunId, *, iteration: int, attempt: int, text: str, fence: int = 0) -> None: ...

    def forget(self, run_id: RunId) -> None:
        """The drive of this run is over here: its snapshot is dropped."""
        ...

    async def wait_for_work(self, timeout_seconds: float) -> None:
        """Returns when ``announce_queued`` was heard since the last call, or after the timeout."""
        ...

    def cancels_heard(self) -> Sequence[RunId]:
        """Run ids of cancels heard since the last call."""
        ...

    async def wait_for_cancel(self, timeout_seconds: float) -> None:
        """Returns when a cancel was heard, or after the timeout."""
        ...
