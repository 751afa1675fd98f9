"""Questions to people as they are kept: rows that outlive the worker which asked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

from app.ids import AgentName, ApprovalId, CallId, RunId, TenantId
from app.policy import ApprovalKind

Decision = Literal["approve", "deny", "succeeded", "failed", "retry"]
# Where a reader of a tenant's changes stands: which database counts there, and two numbers that only grow in it.
Place = tuple[int, int, int]


class ApprovalStatus(StrEnum):
    """PENDING until somebody answers, its time is over, or nobody has to answer any more. A question about an outcome
    that was answered is APPROVED, whatever the outcome."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewApproval:
    """A question to be kept, with the append that puts it. ``summary`` names each argument of the call with its value,
    where the tool's author lets it be shown, or else with type and length. ``expires_at`` is in epoch seconds;
    with ``asked_at`` both are of the worker's clock, and the time between them counts from the store's own."""

    approval_id: ApprovalId
    call_id: CallId
    tool: str
    agent: AgentName
    kind: ApprovalKind
    dispatch: int
    arguments_digest: str
    summary: Mapping[str, Any]
    reason: str
    flagged: bool
    expires_at: float | None
    asked_at: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedApproval:
    """A question that is closed without a person's answer."""

    approval_id: ApprovalId
    status: Literal[ApprovalStatus.EXPIRED, ApprovalStatus.CANCELLED]


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """What a person has said of a question that others have to answer, too. ``groups`` are those of that moment."""

    subject: str
    groups: frozenset[str]
    decision: Decision


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """A question as its row tells it. ``run_id`` is the run that asks and ``root_run_id`` the one that is claimed for
    it; ``subject`` and ``user`` are the asking run's. ``arguments`` are those that a person put in their place. Times
    are epoch seconds of the store's clock. One whose time is over is told as EXPIRED, also before that was written
    down.

    ``votes``: what was said while it was open, the earliest first. ``approvals_needed`` and ``approved_by`` tell of a
    decided one how many persons had to say so, and who did; of an open one the tenant's rules tell it.
    """

    approval_id: ApprovalId
    tenant_id: TenantId
    run_id: RunId
    root_run_id: RunId
    agent: AgentName
    tool: str
    call_id: CallId
    kind: ApprovalKind
    dispatch: int
    status: ApprovalStatus
    arguments_digest: str
    summary: Mapping[str, Any]
    reason: str
    flagged: bool
    user: str | None
    subject: str | None
    requested_at: float
    expires_at: float | None
    decided_at: float | None = None
    decided_by: str | None = None
    decision: Decision | None = None
    decision_reason: str = ""
    arguments: Mapping[str, Any] | None = None
    edited_digest: str | None = None
    votes: tuple[Vote, ...] = ()
    approvals_needed: int = 1
    approved_by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """A person's answer, to be written. ``arguments`` and ``edited_digest`` come together. ``earlier``: who approved
    before, or told the same outcome, where ``approvals_needed`` persons have to."""

    decision: Decision
    decided_by: str
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    edited_digest: str | None = None
    approvals_needed: int = 1
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalFilter:
    """What ``GET /approvals`` may ask for; all conditions hold together. ``run_id`` is the asking run or its root."""

    statuses: tuple[ApprovalStatus, ...] = ()
    run_id: RunId | None = None
    agent: str | None = None
    tool: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalChange:
    """A status that a question took, in the order of commits. ``position`` says where a reader goes on."""

    position: Place
    status: ApprovalStatus
    at: float
    approval: Approval


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """What a sweep over waiting runs did: how many were queued, and whose questions expired."""

    queued: int
    expired: Sequence[tuple[TenantId, ApprovalId]] = ()


class ApprovalTx(Protocol):
    """The part of a tenant's transaction that keeps questions. Who decides one locks the root run first."""

    async def get_approval(self, approval_id: ApprovalId) -> Approval | None: ...

    async def list_approvals(
        self, where: ApprovalFilter, *, limit: int, before: tuple[float, ApprovalId] | None
    ) -> Sequence[Approval]:
        """Newest first: those asked before that instant, or at it with a smaller id."""
        ...

    async def lock_approval(self, approval_id: ApprovalId) -> Approval | None:
        """Like ``get_approval``; until the transaction ends nobody else decides it and its root does not move."""
        ...

    async def decide_approval(self, approval_id: ApprovalId, decided: Decided) -> Approval:
        """Writes the answer to a pending question that is locked. The suspended root is queued by it when no question
        of it, or of the runs below it, is pending any more."""
        ...

    async def vote_approval(self, approval_id: ApprovalId, vote: Vote) -> Approval:
        """Keeps what a person says of a pending question that is locked, in place of what he said before. It stays
        pending."""
        ...

    async def pending_approvals(self, root_run_ids: Collection[RunId]) -> Mapping[RunId, tuple[ApprovalId, ...]]:
        """The open questions of each of these roots and the runs below them, the oldest first. Roots without one are
        left out. For a run below another one: its own."""
        ...

    async def approval_changes(self, after: Place, *, limit: int) -> Sequence[ApprovalChange]:
        """Changes behind that position, in the order of commits: none is ever put in before one that was read. Those of
        one question come in the order in which it took them. What a dump has brought from elsewhere comes first.

        (0, 0, 0) is before everything. Raises ValueError for a position of another database.
        """
        ...

    async def last_approval_change(self) -> Place:
        """The position behind everything that can be read now. Its first number tells this database from others."""
        ...
