"""What the log and the queue promise to those who use them. One conformance suite holds for every implementation."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from app.agents import Agent, AgentVersion
from app.events import AnyEvent, RunEvent
from app.ids import ApprovalId, KeyId, RunId, TenantId, WorkerId
from app.policy import CeilingDimension, CeilingRoom
from app.ports.desk import Approval, ApprovalTx, Swept
from app.ports.erasure import ErasureTx
from app.ports.ledger import UsageTx
from app.ports.records import (
    AdmissionFacts,
    Adopted,
    CancelWish,
    Claim,
    KeyRecord,
    LoadedRun,
    LogPage,
    NewRun,
    RememberedAnswer,
    Renewal,
    RunFilter,
    RunNow,
    RunRecord,
    RunUpdate,
    Snapshot,
    StoredEventRow,
    TicketHolder,
)
from app.ports.sessions import ArtifactStore, SessionTx
from app.ports.tenancy import TenantRules
from app.ports.tenant_events import TenantEvents
from app.ports.webhooks import WebhookTx


class WorkStore(ArtifactStore, Protocol):
    """The workers' side, over all tenants. Raises StoreUnavailable when the store does not answer.

    A run below another one is never queued, and has no lease of its own: who holds its root holds it.
    """

    async def claim(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, has: frozenset[str] | None = None
    ) -> Sequence[Claim]:
        """Takes up to ``limit`` queued runs, raising each one's fence by one and setting its state to running.

        Two callers never get the same run. The tenant served longest ago comes first, then priority, then age. A run
        whose session is busy with an earlier one is left out until that has ended, and so is one that needs what is not
        in ``has`` (None: the worker has everything). A tenant gets no more running runs than it may have at once.
        """
        ...

    async def hello(self, worker_id: WorkerId, has: frozenset[str]) -> bool:
        """Says that the worker is alive and what it has; forgotten after a while without it. True where an operator
        wants it to drain."""
        ...

    async def claim_ending(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, max_recoveries: int | None = None
    ) -> Sequence[Claim]:
        """Like ``claim``, of queued runs that only need to end, because of a cancel, a deadline, or more than
        ``max_recoveries`` recoveries (None: any number will do): out of turn, also in their session, whatever they
        need, since they will take no worker's time."""
        ...

    async def adopt(self, claim: Claim, child: NewRun) -> Adopted:
        """Takes the run below the one that ``claim`` holds, under its fence: makes it, with event 1, or goes on with
        it where it exists and has not ended. One that has ended is returned as it is.

        Raises LeaseLost when the claim no longer holds, and ValueError where the run is another one's.
        """
        ...

    def brought(self, claim: Claim) -> LoadedRun | None:
        """What ``load`` would have answered when the run was claimed, where the claim brought it along. It is told
        once; None after that, and where nothing came along. What happened since is not in it."""
        ...

    async def load(self, claim: Claim) -> LoadedRun:
        """The run, its agent's version and its whole log. Raises LeaseLost when the claim no longer holds."""
        ...

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        """Appends events and writes the row's summary, in one transaction, when ``claim.fence`` is still the run's.

        Returns what was stored. Otherwise raises LeaseLost, and nothing is stored. When a run of a session ends, the
        next one of that session can be claimed: whoever appended the end tells the workers.

        Raises CeilingReached and LedgerUnavailable only where ``update.announces``; then nothing is stored either.
        """
        ...

    async def ledger_room(self, claim: Claim) -> Mapping[CeilingDimension, CeilingRoom]:
        """What the tenant's ceilings leave to the run, the least for each dimension: empty where it has none. The run's
        windows are pinned to its start. Raises LedgerUnavailable."""
        ...

    async def renew(self, claims: Collection[Claim], *, lease_seconds: float) -> Mapping[RunId, Renewal]:
        """Extends leases, and tells of each whether it did. A run that is missing from the answer is lost.

        Claims of runs below others may be among them: they are told about, and have no lease to extend.
        """
        ...

    async def release(self, claim: Claim) -> None:
        """Hands a run back to the queue, not counted as a recovery. Does nothing when the claim no longer holds, and
        for a run below another one: that goes with its root."""
        ...

    async def requeue_expired(self) -> int:
        """Queues every run whose lease has lapsed, counting a recovery each, and writes no event. Returns how many."""
        ...

    async def sweep_waiting(self) -> Swept:
        """Closes questions whose time is over, and queues suspended runs that nothing keeps waiting: every question
        answered, expired or withdrawn, a cancel asked for, or a deadline passed, their own or one below them."""
        ...

    async def find_approval(self, tenant_id: TenantId, approval_id: ApprovalId) -> Approval | None:
        """The question as it stands now."""
        ...


class TenantTx(SessionTx, ApprovalTx, WebhookTx, UsageTx, ErasureTx, Protocol):
    """One transaction of one tenant: row-level security holds below, and another tenant's rows don't exist."""

    tenant_id: TenantId

    async def now(self) -> float:
        """The store's clock, epoch seconds."""
        ...

    async def put_agent(self, agent: Agent) -> tuple[AgentVersion, bool]:
        """Stores a definition; True when it became a new version. An equal one of a retired agent revives it."""
        ...

    async def get_agent(self, name: str, version: int | None = None) -> AgentVersion | None:
        """That version, or the newest one."""
        ...

    async def list_agents(self, *, limit: int, after: str | None) -> Sequence[AgentVersion]:
        """The newest version of each agent, by name."""
        ...

    async def retire_agent(self, name: str) -> bool:
        """False when there is no such agent."""
        ...

    async def insert_run(self, run: NewRun) -> RunRecord:
        """The run's row and event 1 (``run_queued``). A run of a session waits there for those before it.

        Raises ValueError for an unknown session.
        """
        ...

    async def get_run(self, run_id: RunId) -> RunRecord | None: ...

    async def list_runs(
        self, where: RunFilter, *, limit: int, before: tuple[float, RunId] | None
    ) -> Sequence[RunRecord]:
        """Newest first: those created before that instant, or at it with a smaller id."""
        ...

    async def admission_facts(self, agent: str, version: int | None, *, max_queued: int) -> AdmissionFacts:
        """That version of the agent, or the newest one, with what else bears on a new run. Queued runs are counted no
        further than ``max_queued``, or the tenant's own limit."""
        ...

    async def count_queued(self, *, up_to: int) -> int:
        """How many of the tenant's runs are queued, counted no further than ``up_to``."""
        ...

    async def queue_wait_seconds(self) -> float:
        """How long it takes until the next of the tenant's runs is started, by how it went lately."""
        ...

    async def events_after(self, run_id: RunId, seq: int, *, limit: int) -> Sequence[StoredEventRow]:
        """Stored events with a higher number, in order."""
        ...

    async def request_cancel(self, run_id: RunId, wish: CancelWish) -> RunRecord | None:
        """Writes the wish on a run that is not terminal (the first one stays). None when there is no such run.

        A suspended run is queued by it, and so is the suspended root of a run below it. Open questions of the run and
        of those below it are cancelled.
        """
        ...

    async def find_resumed(self, run_id: RunId) -> RunId | None:
        """The run that goes on from this one, where there is one, or was one that is erased by now."""
        ...

    async def logs_before(self, run_id: RunId) -> tuple[tuple[RunEvent, ...], ...]:
        """The logs of the runs that this one goes on from, the first run's first, and its own last."""
        ...

    async def rules(self) -> TenantRules:
        """What the operator has set for this tenant."""
        ...

    async def erase_run(self, run_id: RunId) -> bool:
        """Erases a run and those below it, with all that is kept of them. False, and nothing is erased, while it has
        not ended."""
        ...

    async def remember(self, *, route: str, subject: str, key: str, body_digest: str) -> RememberedAnswer | None:
        """Takes an idempotency key for this request (None), or tells what it led to before.

        Waits for a request with the same key that is being committed at this moment.
        """
        ...

    async def settle_key(self, *, route: str, subject: str, key: str, run_id: RunId) -> None:
        """Writes what the key led to, in this transaction."""
        ...


class TenantStore(TenantEvents, Protocol):
    def begin(self, tenant_id: TenantId, *, actor: str | None = None) -> AbstractAsyncContextManager[TenantTx]:
        """A transaction that commits when the block ends well. ``actor``: whose changes those in it are, for the audit
        trail. No transaction is open across a model call, a tool call, a sleep or a stream (promise 10). Raises
        StoreUnavailable."""
        ...

    async def look(self, tenant_id: TenantId, run_id: RunId) -> RunNow | None:
        """The run with its open questions, in one statement that is its own transaction; so are the next two. All
        raise StoreUnavailable."""
        ...

    async def admission_facts(
        self, tenant_id: TenantId, agent: str, version: int | None, *, max_queued: int
    ) -> AdmissionFacts:
        """As a transaction's."""
        ...

    async def insert_run(self, run: NewRun) -> RunRecord:
        """As a transaction's: it is committed when this returns."""
        ...

    async def read_logs(
        self, tenant_id: TenantId, places: Sequence[tuple[RunId, int]], *, limit: int
    ) -> Mapping[tuple[RunId, int], LogPage]:
        """What follows those events, each a run and a number, in one statement: at most ``limit`` events in all, and
        no more than an answer should hold at once. Places that are missing were not come to: ask again."""
        ...


class KeyStore(Protocol):
    async def find_key(self, secret_hash: bytes) -> KeyRecord | None:
        """Looks a key up by its SHA-256 hash, before any tenant is known."""
        ...

    async def admit_key(self, secret_hash: bytes) -> KeyRecord | None:
        """The same for a request that is to be served: counts it against its tenant's requests per minute."""
        ...

    async def has_tenant(self, tenant: str) -> bool:
        """Whether somebody may come without a key for a tenant of that id or name. It is counted nowhere."""
        ...

    async def admit_tenant(self, tenant: str) -> KeyRecord | None:
        """The same for a request that is to be served. None where there is no such tenant; no record has a key's id."""
        ...

    async def find_holder(self, holder: TicketHolder) -> KeyRecord | None:
        """Looks up who holds a ticket, before the tenant's transaction. ``revoked``: also where the ticket's time is
        over, by the store's clock. Without a key it is the tenant's record, as ``admit_tenant`` has it."""
        ...

    async def admit_holder(self, holder: TicketHolder) -> KeyRecord | None:
        """The same for a request that is to be served: counts it against the tenant's requests per minute."""
        ...

    async def note_uses(self, uses: Mapping[KeyId, float]) -> None:
        """When keys were last used, in epoch seconds."""
        ...


class Gauges(Protocol):
    async def snapshot(self) -> Snapshot:
        """Asked once per scrape."""
        ...

    async def check(self) -> str | None:
        """None when the database answers and its schema is this release's; else ``database_unavailable`` or
        ``migrations_pending``."""
        ...
