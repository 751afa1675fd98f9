"""The log and the queue in memory: for the library's runs, and for tests. It passes the suite that Postgres passes."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from app.conversation import Usage
from app.errors import LeaseLost
from app.events import AnyEvent, RunEvent, RunQueued, RunState, Terminated, encode_event
from app.ids import AgentName, RunId, TenantId, WorkerId
from app.ports.clock import Clock
from app.ports.records import CancelWish, Claim, LoadedRun, NewRun, RunRecord, RunUpdate


@dataclass(slots=True)
class _Row:
    """One run: its row, its log, and who holds it. ``lease_until`` is on the clock's monotonic time."""

    new: NewRun
    record: RunRecord
    events: list[RunEvent]
    order: int
    fence: int = 0
    holder: WorkerId | None = None
    lease_until: float = 0.0

    @property
    def wish(self) -> CancelWish | None:
        if self.record.cancel_requested_at is None:
            return None
        return CancelWish(reason=self.record.cancel_reason, requested_by=self.record.cancel_requested_by)


class MemoryWorkStore:
    """Belongs to one event loop. Every method is one step of it, so nothing interleaves inside. ``listener`` is told of
    the events of each append, and awaited."""

    def __init__(self, clock: Clock) -> None:
        self.listener: Callable[[Sequence[RunEvent]], Awaitable[None]] | None = None
        self._clock = clock
        self._rows: dict[RunId, _Row] = {}
        self._served: dict[TenantId, int] = {}
        self._turn = 0

    async def submit(self, run: NewRun) -> RunRecord:
        """The run's row and event 1."""
        if run.run_id in self._rows:
            raise ValueError(f"{run.run_id} exists")
        now = self._clock.now()
        row = _Row(new=run, record=_new_record(run, now), events=[], order=len(self._rows))
        self._rows[run.run_id] = row
        queued = RunQueued(
            agent=run.agent.name,
            agent_version=run.agent_version,
            depth=run.depth,
            path=run.path or (run.agent.name,),
            parent_run_id=run.parent_run_id,
        )
        await self._tell(self._store(row, [queued]))
        return row.record

    async def hand_back(self, run_id: RunId) -> None:
        """Puts a run that has not ended into the queue, whoever held it: it is no recovery."""
        row = self._rows[run_id]
        row.holder = None
        row.record = replace(row.record, state=RunState.QUEUED)

    async def request_cancel(self, run_id: RunId, wish: CancelWish) -> RunRecord | None:
        """Writes the wish on a run that is not terminal; the first one stays. A suspended run is queued by it."""
        row = self._rows.get(run_id)
        if row is None:
            return None
        state = row.record.state
        if not state.is_terminal and row.record.cancel_requested_at is None:
            row.record = replace(
                row.record,
                state=RunState.QUEUED if state is RunState.SUSPENDED else state,
                cancel_requested_at=self._clock.now(),
                cancel_reason=wish.reason,
                cancel_requested_by=wish.requested_by,
            )
        return row.record

    def record(self, run_id: RunId) -> RunRecord:
        return self._rows[run_id].record

    def events(self, run_id: RunId) -> tuple[RunEvent, ...]:
        return tuple(self._rows[run_id].events)

    def drop(self, run_id: RunId) -> None:
        """Forgets a run: its caller has what it wanted."""
        self._rows.pop(run_id, None)

    async def claim(self, worker_id: WorkerId, *, limit: int, lease_seconds: float) -> Sequence[Claim]:
        return [self._take(row, worker_id, lease_seconds) for row in self._queue()[:limit]]

    async def claim_ending(self, worker_id: WorkerId, *, limit: int, lease_seconds: float) -> Sequence[Claim]:
        now = self._clock.now()
        ending = [
            row
            for row in self._queue()
            if row.wish is not None or (row.new.deadline_at is not None and row.new.deadline_at <= now)
        ]
        return [self._take(row, worker_id, lease_seconds) for row in ending[:limit]]

    def _queue(self) -> list[_Row]:
        """Fair by tenant: each tenant's runs in their order, and the tenants in turn."""
        waiting = [row for row in self._rows.values() if row.record.state is RunState.QUEUED]
        waiting.sort(key=lambda row: (-row.new.priority, row.order))
        place: dict[TenantId, int] = {}
        ranked = []
        for row in waiting:
            tenant = row.new.tenant_id
            place[tenant] = place.get(tenant, -1) + 1
            ranked.append((place[tenant], self._served.get(tenant, 0), row.order, row))
        return [row for *_, row in sorted(ranked, key=lambda item: item[:3])]

    def _take(self, row: _Row, worker_id: WorkerId, lease_seconds: float) -> Claim:
        self._turn += 1
        self._served[row.new.tenant_id] = self._turn
        row.fence += 1
        row.holder = worker_id
        row.lease_until = self._clock.monotonic() + lease_seconds
        started_at = self._clock.now() if row.record.started_at is None else row.record.started_at
        row.record = replace(row.record, state=RunState.RUNNING, started_at=started_at)
        return Claim(
            run_id=row.new.run_id,
            tenant_id=row.new.tenant_id,
            worker_id=worker_id,
            fence=row.fence,
            recoveries=row.record.recoveries,
            lease_until=row.lease_until,
        )

    async def load(self, claim: Claim) -> LoadedRun:
        row = self._held(claim)
        return LoadedRun(record=row.record, agent=row.new.agent, events=tuple(row.events), cancel=row.wish)

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        row = self._held(claim)
        stored = self._store(row, bodies)
        self._summarize(row, update)
        await self._tell(stored)
        return stored

    async def _tell(self, events: Sequence[RunEvent]) -> None:
        if self.listener is not None:
            await self.listener(events)

    def _held(self, claim: Claim) -> _Row:
        row = self._rows.get(claim.run_id)
        if row is None or row.fence != claim.fence or row.record.state is not RunState.RUNNING:
            raise LeaseLost(f"{claim.run_id} is not held under fence {claim.fence}")
        return row

    def _store(self, row: _Row, bodies: Sequence[AnyEvent]) -> tuple[RunEvent, ...]:
        if row.events and isinstance(row.events[-1].body, Terminated):
            raise LeaseLost(f"{row.new.run_id} has ended")
        at = self._clock.now()
        first = len(row.events) + 1
        stored = tuple(
            RunEvent(run_id=row.new.run_id, seq=first + n, at=at, body=body, payload=encode_event(body))
            for n, body in enumerate(bodies)
        )
        row.events.extend(stored)
        row.record = replace(row.record, last_seq=len(row.events))
        return stored

    def _summarize(self, row: _Row, update: RunUpdate) -> None:
        ended_at = self._clock.now() if update.state.is_terminal else None
        row.record = replace(
            row.record,
            state=update.state,
            usage=update.usage,
            cost=update.cost,
            model_calls=update.model_calls,
            tool_calls=update.tool_calls,
            output_text=update.output_text,
            error_code=update.error_code,
            error_detail=update.error_detail,
            prompt_version=update.prompt_version,
            prompt_fingerprint=update.prompt_fingerprint,
            model=update.model or row.record.model,
            input=row.record.input if update.rewritten_input is None else update.rewritten_input,
            ended_at=ended_at,
        )
        if update.state is not RunState.RUNNING:
            row.holder = None

    async def renew(self, claims: Collection[Claim], *, lease_seconds: float) -> Mapping[RunId, CancelWish | None]:
        renewed: dict[RunId, CancelWish | None] = {}
        for claim in claims:
            try:
                row = self._held(claim)
            except LeaseLost:
                continue
            row.lease_until = self._clock.monotonic() + lease_seconds
            renewed[claim.run_id] = row.wish
        return renewed

    async def release(self, claim: Claim) -> None:
        try:
            row = self._held(claim)
        except LeaseLost:
            return
        row.holder = None
        row.record = replace(row.record, state=RunState.QUEUED)

    async def requeue_expired(self) -> int:
        now = self._clock.monotonic()
        lapsed = [row for row in self._rows.values() if row.record.state is RunState.RUNNING and row.lease_until <= now]
        for row in lapsed:
            row.holder = None
            row.record = replace(row.record, state=RunState.QUEUED, recoveries=row.record.recoveries + 1)
        return len(lapsed)


def _new_record(run: NewRun, now: float) -> RunRecord:
    return RunRecord(
        run_id=run.run_id,
        tenant_id=run.tenant_id,
        state=RunState.QUEUED,
        agent=AgentName(run.agent.name),
        agent_version=run.agent_version,
        input=run.input,
        context=run.context,
        user=run.user,
        subject=run.subject,
        model=run.model,
        output_schema=run.output_schema,
        deadline_at=run.deadline_at,
        budget=run.budget,
        max_llm_calls=run.max_llm_calls,
        priority=run.priority,
        metadata=dict(run.metadata),
        output_text=None,
        error_code=None,
        error_detail=None,
        prompt_version=None,
        prompt_fingerprint=None,
        usage=Usage(),
        cost=None,
        model_calls=0,
        tool_calls=0,
        cancel_requested_at=None,
        cancel_reason=None,
        cancel_requested_by=None,
        created_at=now,
        started_at=None,
        ended_at=None,
        last_seq=0,
        recoveries=0,
    )
