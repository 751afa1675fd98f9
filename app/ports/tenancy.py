"""Tenants, their keys and limits, and what an operator may do about all of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypedDict

from app.ids import KeyId, TenantId
from app.policy.approvers import ApproverRule
from app.policy.budget import BudgetLimits
from app.policy.ceilings import Ceiling

OnLedgerError = Literal["fail", "proceed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantRules:
    """What the operator has set for a tenant, as the service asks for it at each request that needs it.

    ``max_queued`` and ``max_running``: runs at once, ``requests_per_minute``: of all routes together; None leaves each
    to the deployment. ``tools`` and ``models`` are the granted names; None grants all. ``weight`` is its part of the
    machine beside others'. ``budget`` narrows each of its runs. ``on_ledger_error``: what becomes of a run whose
    ceilings can't be asked about.
    """

    max_running: int | None = None
    max_queued: int | None = None
    requests_per_minute: int | None = None
    weight: int = 1
    tools: frozenset[str] | None = None
    models: frozenset[str] | None = None
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    ceilings: tuple[Ceiling, ...] = ()
    on_ledger_error: OnLedgerError = "fail"
    approvers: tuple[ApproverRule, ...] = ()
    allow_self_approval: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantRecord:
    """A tenant with its settings. Days count from a run's end and from a session's last use; None keeps them for good.
    ``archive``: written down before they are erased. ``erasing``: it is going, and nobody can use it any more."""

    tenant_id: TenantId
    name: str
    created_at: float
    rules: TenantRules
    runs_days: int | None
    sessions_days: int | None
    archive: bool
    paused: bool = False
    erasing: bool = False


class TenantChanges(TypedDict, total=False):
    """What is to be changed of a tenant, by the names of TenantRules and TenantRecord; what is left out stays."""

    max_running: int | None
    max_queued: int | None
    requests_per_minute: int | None
    weight: int
    tools: Collection[str] | None
    models: Collection[str] | None
    budget: BudgetLimits | None
    ceilings: Sequence[Ceiling]
    on_ledger_error: OnLedgerError
    approvers: Sequence[ApproverRule]
    allow_self_approval: bool
    runs_days: int | None
    sessions_days: int | None
    archive: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class NewKey:
    """A key to be stored; ``tenant_id`` None for an operator's. ``lifetime_seconds`` counts from now by the store's
    clock; None: it does not expire."""

    key_id: KeyId
    tenant_id: TenantId | None
    subject: str | None
    scopes: frozenset[str]
    groups: frozenset[str] = frozenset()
    description: str = ""
    lifetime_seconds: float | None = None
    secret_hash: bytes = field(repr=False, default=b"")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyInfo:
    """A key as it may be shown. ``last_used_at`` may be a minute old. ``replaces`` is the key that it was made for."""

    key_id: KeyId
    tenant_id: TenantId | None
    subject: str | None
    scopes: frozenset[str]
    groups: frozenset[str]
    description: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    replaces: KeyId | None


class PauseKind(StrEnum):
    TENANT = "tenant"
    AGENT = "agent"
    TOOL = "tool"
    MODEL = "model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """Nothing of it starts, and what runs is handed back to the queue. ``tenant_id`` None: of a tool or model, for
    everybody. ``name`` is the agent's, tool's or model's, and the tenant's id for a tenant."""

    pause_id: str
    kind: PauseKind
    name: str
    tenant_id: TenantId | None
    reason: str
    paused_by: str
    paused_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerInfo:
    """A worker that was heard of in the last two minutes."""

    worker_id: str
    has: frozenset[str]
    seen_at: float
    draining: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelFilter:
    """Which runs an operator wants ended; all conditions hold together, and at least one is set."""

    tenant_id: TenantId | None = None
    agent: str | None = None
    tool: str | None = None
    model: str | None = None
    created_before: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditEntry:
    """One change that somebody made. ``before`` and ``after`` are digests of the thing's whole row, None where there
    was or is none; ``details`` name what changed, without anything secret or anything that tenants wrote."""

    audit_id: int
    at: float
    tenant_id: TenantId | None
    actor: str
    action: str
    target: str
    before: str | None
    after: str | None
    details: Mapping[str, Any]


class OperatorStore(Protocol):
    """The operator's side, over all tenants. Each change is written to the audit trail in its own transaction.
    ``actor`` is who makes it. Names and texts may be any Unicode. Raises StoreUnavailable."""

    async def create_tenant(self, name: str, *, actor: str) -> TenantRecord | None:
        """None where there is one of that name."""
        ...

    async def ensure_tenant(self, name: str, *, actor: str) -> TenantId:
        """The tenant of that name, made where there is none."""
        ...

    async def list_tenants(self, *, limit: int | None = None, after: str | None = None) -> Sequence[TenantRecord]:
        """By name; ``after``: those with a greater one."""
        ...

    async def get_tenant(self, tenant_id: TenantId) -> TenantRecord | None: ...

    async def find_tenant(self, name: str) -> TenantRecord | None: ...

    async def set_tenant(self, tenant_id: TenantId, changes: TenantChanges, *, actor: str) -> TenantRecord | None:
        """None where there is no such tenant."""
        ...

    async def erase_tenant(self, tenant_id: TenantId, *, actor: str) -> bool:
        """Marks it: its keys are revoked at once, its open runs are asked to end, and a job erases the rest. False
        where there is no such tenant."""
        ...

    async def add_key(self, key: NewKey, *, actor: str) -> KeyInfo | None:
        """None where there is no such tenant."""
        ...

    async def list_keys(self, tenant_id: TenantId | None) -> Sequence[KeyInfo]:
        """The oldest first, also those that are revoked or expired. None: the operators'."""
        ...

    async def rotate_key(
        self, key_id: KeyId, tenant_id: TenantId | None, successor: NewKey, *, overlap_seconds: float, actor: str
    ) -> KeyInfo | None:
        """Stores a successor with the subject, scopes, groups and description of the key, which itself expires when
        the overlap is over. None where there is no such key, or it is not valid any more."""
        ...

    async def revoke_key(self, key_id: KeyId, tenant_id: TenantId | None, *, actor: str) -> bool:
        """At once, in every process. True also where it was revoked before; False where there is no such key."""
        ...

    async def add_pause(self, pause: Pause, *, actor: str) -> Pause | None:
        """The pause, or the one that there is already of the same thing. None where the tenant is unknown.
        ``paused_at`` is the store's."""
        ...

    async def list_pauses(self) -> Sequence[Pause]: ...

    async def end_pause(self, pause_id: str, *, actor: str) -> bool: ...

    async def cancel_runs(self, where: CancelFilter, *, reason: str | None, actor: str) -> int:
        """Asks every open root run that fits to end. Returns how many had not been asked before."""
        ...

    async def list_workers(self) -> Sequence[WorkerInfo]: ...

    async def drain_worker(self, worker_id: str, *, actor: str) -> bool:
        """It stops claiming and hands back what it drives, for good. False where nobody of that id was heard of."""
        ...

    async def audit_trail(
        self, *, tenant_id: TenantId | None, action: str | None, limit: int, before: int | None
    ) -> Sequence[AuditEntry]:
        """The newest first; ``before``: those with a smaller id."""
        ...
