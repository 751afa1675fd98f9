"""Plain records that the store hands in and out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from app.agents import USER_AUTHOR, Agent, AgentVersion
from app.conversation import Message, Usage
from app.events import RunEvent, RunQueued, RunState
from app.ids import AgentName, ApprovalId, CallId, KeyId, RunId, SessionId, TenantId, WorkerId
from app.policy import Outcome, ResolvedBudget, Spend
from app.ports.desk import ClosedApproval, NewApproval
from app.ports.tenancy import OnLedgerError, TenantRules


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContextInput:
    """Context of a request beside its input: both are wrapped as untrusted data in the prompt."""

    pinned: tuple[str, ...] = ()
    retrieved: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRun:
    """A run to be accepted. What may not drift is fixed here: version, deadline (epoch seconds), budget.

    ``input`` is what the caller sent: one text, or messages ending in a user's. ``output_schema`` is the form of the
    answer; None leaves it to the agent. ``deterministic``: its agent is, or was asked to be for this run. ``path``
    names the agents from the root down to this one, empty for a root. ``agent`` travels along for logs that keep no
    versions of their own; the Postgres store keeps name and version.
    ``team`` pins the versions of the agents below it, by name. ``root_run_id`` is the run that was claimed, None for a
    root itself. ``needs`` names what a worker must have to drive it (``model:…``, ``tool:…``). ``resumes`` is the run
    that it goes on from and ``first_run_id`` the first of that chain; ``resolutions`` say what became of calls that the
    earlier run left open.
    """

    run_id: RunId
    tenant_id: TenantId
    agent: Agent
    agent_version: int | None
    input: str | tuple[Message, ...]
    context: RunContextInput = RunContextInput()
    user: str | None = None
    subject: str | None = None
    model: str | None = None
    output_schema: dict[str, Any] | None = None
    deterministic: bool = False
    deadline_at: float | None = None
    budget: ResolvedBudget
    max_llm_calls: int
    depth: int = 0
    path: tuple[str, ...] = ()
    parent_run_id: RunId | None = None
    priority: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    session_id: SessionId | None = None
    root_run_id: RunId | None = None
    team: Mapping[str, int] | None = None
    needs: frozenset[str] = frozenset()
    resumes: RunId | None = None
    first_run_id: RunId | None = None
    resolutions: Mapping[CallId, Outcome] = field(default_factory=dict)
    on_ledger_error: OnLedgerError = "fail"

    @property
    def first_event(self) -> RunQueued:
        """Event 1 of its log."""
        return RunQueued(
            author=USER_AUTHOR,
            agent=self.agent.name,
            agent_version=self.agent_version,
            depth=self.depth,
            path=self.path or (self.agent.name,),
            session_id=self.session_id,
            parent_run_id=self.parent_run_id,
            resumes=self.resumes,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """The run as its row tells it. Where the loop stands is in the log only; this is its summary for readers.

    ``cost`` is None while nothing that has a price was used.
    """

    run_id: RunId
    tenant_id: TenantId
    state: RunState
    agent: AgentName
    agent_version: int | None
    input: str | tuple[Message, ...]
    context: RunContextInput
    user: str | None
    subject: str | None
    model: str | None
    output_schema: dict[str, Any] | None
    deadline_at: float | None
    budget: ResolvedBudget
    max_llm_calls: int
    priority: int
    metadata: Mapping[str, str]
    output_text: str | None
    error_code: str | None
    error_detail: str | None
    prompt_version: str | None
    prompt_fingerprint: str | None
    usage: Usage
    cost: Decimal | None
    model_calls: int
    tool_calls: int
    cancel_requested_at: float | None
    cancel_reason: str | None
    cancel_requested_by: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    last_seq: int
    recoveries: int
    iterations: int = 0
    deterministic: bool = False
    session_id: SessionId | None = None
    parent_run_id: RunId | None = None
    root_run_id: RunId | None = None
    depth: int = 0
    path: tuple[str, ...] = ()
    team: Mapping[str, int] | None = None
    resumes: RunId | None = None
    first_run_id: RunId | None = None
    resolutions: Mapping[CallId, Outcome] = field(default_factory=dict)
    on_ledger_error: OnLedgerError = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredEventRow:
    """An event as it lies in the log, not decoded: ``payload`` is sent on to readers as it is."""

    seq: int
    kind: str
    at: float
    payload: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LogPage:
    """Events of one run that follow each other. ``has_more``: there may be more of them already."""

    events: tuple[StoredEventRow, ...]
    has_more: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The right to drive one run until the lease ends. ``fence`` is named by every write.

    ``lease_until`` is on this process's monotonic clock, taken before the database was asked: it never claims too much.
    ``root_run_id`` is set on the claim of a run below another one, which ``WorkStore.adopt`` gave: such a claim holds
    for as long as the root's.
    """

    run_id: RunId
    tenant_id: TenantId
    worker_id: WorkerId
    fence: int
    recoveries: int
    lease_until: float
    root_run_id: RunId | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunNow:
    """A run as its row tells it, and the open questions that a suspended one waits for, the oldest first."""

    record: RunRecord
    waiting_for: tuple[ApprovalId, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmissionFacts:
    """What has to be known before a run is accepted: the store's time in epoch seconds, the tenant's rules, how many of
    its runs are queued, and the agent's version; None where there is none."""

    now: float
    rules: TenantRules
    queued: int
    version: AgentVersion | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Adopted:
    """A run below another one, under the claim to drive it. One that has ended is told by ``record.state``: its claim
    holds nothing."""

    claim: Claim
    record: RunRecord


def check_child(claim: Claim, child: NewRun) -> None:
    """Raises ValueError for a run that is not to be below the one which the claim holds, or is of a session."""
    root = claim.root_run_id or claim.run_id
    if child.parent_run_id != claim.run_id or child.root_run_id not in {None, root} or child.session_id is not None:
        raise ValueError(f"{child.run_id} is to be adopted below {claim.run_id}, and says otherwise")
    if child.tenant_id != claim.tenant_id:
        raise ValueError(f"{child.run_id} is of another tenant")


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelWish:
    """Somebody asked for the run's end."""

    reason: str | None
    requested_by: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Renewal:
    """A claim that still holds. ``wish`` is the run's cancel, if asked for.

    ``extended`` is False where somebody else had the run's row at this moment: the lease then ends when it would have
    ended. For a run below another one it tells of its root's lease, where that is among those to be renewed.
    ``paused``: an operator has paused its tenant, its agent, or a tool or model that it needs.
    """

    wish: CancelWish | None
    extended: bool
    paused: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildSpend:
    """What a run below this one has used itself, without the runs below it."""

    run_id: RunId
    parent_run_id: RunId
    usage: Usage
    cost: Decimal | None
    model_calls: int
    tool_calls: int
    iterations: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRun:
    """All that a drive needs. ``cancel`` is the wish that stood when it was loaded.

    ``agent`` is whole: its team is inside it, in the versions that were pinned. ``history`` is the session's before
    this run, ``last_agent`` who answered in it last. ``session_state`` holds what was stored, by keys with their
    scopes. ``children`` are all runs below this one, at whatever depth. ``before`` are the logs of the runs that it
    goes on from, the first run's first; what those left in the session's history is not in ``history``. ``terms`` are
    the tenant's as they stand now: what it was granted, its weight and its ceilings.
    """

    record: RunRecord
    agent: Agent
    events: tuple[RunEvent, ...]
    cancel: CancelWish | None
    history: tuple[Message, ...] = ()
    last_agent: str | None = None
    session_state: Mapping[str, Any] = field(default_factory=dict)
    children: tuple[ChildSpend, ...] = ()
    before: tuple[tuple[RunEvent, ...], ...] = ()
    terms: TenantRules = field(default_factory=TenantRules)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunUpdate:
    """The row's summary after an append, written in the same transaction. A ``state`` other than running drops the
    lease, and a terminal one sets ``ended_at``; ``rewritten_input`` replaces the input where a hook rewrote it.

    ``session_items`` is what the run leaves in its session's history, and ``last_agent`` who answered: both come with
    the terminal append. ``state_delta`` is stored with the events that tell it; a value of None deletes its key.

    ``asked`` are the questions to people that these events put, ``closed`` those that nobody has to answer any more: a
    decision that was made meanwhile stays. A root that is to be suspended is queued instead where nothing keeps it
    waiting: a cancel was asked for, its deadline has passed, or every question of it and of the runs below it was
    decided meanwhile.

    What the row's totals grow by is charged to the tenant's ceilings. ``held`` is what stays reserved of them for this
    run after the append, and ``announces`` says that a call is about to go out: such an append is refused where a
    ceiling has no room for it."""

    state: RunState
    usage: Usage
    model_calls: int
    tool_calls: int
    cost: Decimal | None = None
    output_text: str | None = None
    error_code: str | None = None
    error_detail: str | None = None
    prompt_version: str | None = None
    prompt_fingerprint: str | None = None
    model: str | None = None
    rewritten_input: str | tuple[Message, ...] | None = None
    iterations: int = 0
    session_items: tuple[Message, ...] | None = None
    last_agent: str | None = None
    state_delta: Mapping[str, Any] | None = None
    asked: tuple[NewApproval, ...] = ()
    closed: tuple[ClosedApproval, ...] = ()
    held: Spend | None = None
    announces: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """What ``GET /runs`` may ask for; all conditions hold together. Times are epoch seconds."""

    states: tuple[RunState, ...] = ()
    agent: str | None = None
    user: str | None = None
    created_after: float | None = None
    created_before: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    session_id: SessionId | None = None
    parent_run_id: RunId | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRecord:
    """What a key's hash leads to. ``tenant_id`` is None for an operator's key. The secret is stored nowhere.
    ``revoked``: also where it has expired by the store's clock. ``retry_after_seconds``: its tenant's requests per
    minute are used up, and so long it has to wait."""

    key_id: KeyId
    tenant_id: TenantId | None
    subject: str | None
    scopes: frozenset[str]
    expires_at: float | None
    revoked: bool
    groups: frozenset[str] = frozenset()
    retry_after_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TicketHolder:
    """Who was given a ticket, until epoch seconds ``until``. ``key_id`` is None where that was not by a key."""

    tenant_id: TenantId
    key_id: KeyId | None
    until: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedAnswer:
    """What an idempotency key led to. ``run_id`` None: the first request is still in progress."""

    body_digest: str
    run_id: RunId | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Figures of the whole deployment for a scrape. ``unclaimable`` counts queued runs for which no worker that was
    seen lately has what they need; ``approvals_pending`` the open questions, the oldest of them so many seconds old;
    ``notices_waiting`` the webhooks' notices that have not arrived and may still; ``workers`` those that were seen
    lately and take runs."""

    runs_by_state: Mapping[str, int]
    oldest_queued_seconds: float
    unclaimable: int = 0
    approvals_pending: int = 0
    oldest_approval_seconds: float = 0.0
    notices_waiting: int = 0
    oldest_notice_seconds: float = 0.0
    workers: int = 0
