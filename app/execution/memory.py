"""The log and the queue in memory: for the library's runs, and for tests. It passes the suite that Postgres passes."""

import hashlib
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from app.errors import ConfigurationError, LeaseLost
from app.events import AnyEvent, RunEvent, RunState, Terminated, encode_event
from app.execution.memory_approvals import QuestionBook
from app.execution.memory_rows import Row, as_told, is_under, new_record, spend_of
from app.execution.memory_sessions import InMemorySessions
from app.ids import ApprovalId, RunId, SessionId, TenantId, WorkerId
from app.policy import CeilingDimension, CeilingRoom
from app.ports.clock import Clock
from app.ports.desk import Approval, Decided, Swept
from app.ports.records import Adopted, CancelWish, Claim, LoadedRun, NewRun, Renewal, RunRecord, RunUpdate, check_child
from app.ports.sessions import Artifact


class MemoryWorkStore:
    """Belongs to one event loop. Every method is one step of it, so nothing interleaves inside. ``listener`` is told of
    the events of each append, and awaited. ``sessions`` may be shared with other logs."""

    def __init__(self, clock: Clock, sessions: InMemorySessions | None = None) -> None:
        self._book = (InMemorySessions(clock) if sessions is None else sessions).book
        self.listener: Callable[[Sequence[RunEvent]], Awaitable[None]] | None = None
        self._clock = clock
        self._rows: dict[RunId, Row] = {}
        self._questions = QuestionBook()
        self._served: dict[TenantId, int] = {}
        self._turn = 0

    async def submit(self, run: NewRun) -> RunRecord:
        """The run's row and event 1. Raises ValueError for an id that is taken, an unknown session, and a run to go on
        from that is unknown or was gone on from already."""
        if run.run_id in self._rows:
            raise ValueError(f"{run.run_id} exists")
        if run.resumes is not None and not self._can_resume(run.resumes):
            raise ValueError(f"there is no run {run.resumes} to go on from (any more)")
        row = self._new_row(run)
        if run.session_id is not None:
            now = row.record.created_at
            row.session_seq = self._book.admit(run.tenant_id, run.session_id, run.run_id, now=now)
        self._rows[run.run_id] = row
        await self._tell(self._store(row, [run.first_event]))
        return row.record

    def _can_resume(self, run_id: RunId) -> bool:
        return run_id in self._rows and all(row.new.resumes != run_id for row in self._rows.values())

    def _new_row(self, run: NewRun) -> Row:
        return Row(new=run, record=new_record(run, self._clock.now()), events=[], order=len(self._rows))

    async def hand_back(self, run_id: RunId) -> None:
        """Puts a run that has not ended into the queue, whoever held it: it is no recovery."""
        row = self._rows[run_id]
        row.holder = None
        row.record = replace(row.record, state=RunState.QUEUED)

    async def request_cancel(self, run_id: RunId, wish: CancelWish) -> RunRecord | None:
        """Writes the wish on a run that is not terminal; the first one stays. A suspended run is queued by it, or the
        suspended root that it is below. What it and the runs below it have asked is closed."""
        row = self._rows.get(run_id)
        if row is None:
            return None
        if not row.record.state.is_terminal and row.record.cancel_requested_at is None:
            row.record = replace(
                row.record,
                cancel_requested_at=self._clock.now(),
                cancel_reason=wish.reason,
                cancel_requested_by=wish.requested_by,
            )
            asking = {run_id, *(child.new.run_id for child in self._below(run_id))}
            self._questions.cancel(asking, now=self._clock.now())
            _wake(self._rows[row.new.root_run_id or run_id])
        return row.record

    def decide(self, approval_id: ApprovalId, decided: Decided) -> Approval:
        """A person's answer. The suspended root is queued by it when nothing more is asked below it. Raises ValueError
        for a question that is not pending."""
        answered = self._questions.decide(approval_id, decided, now=self._clock.now())
        if not self._questions.waits(answered.root_run_id):
            _wake(self._rows[answered.root_run_id])
        return answered

    async def find_approval(self, tenant_id: TenantId, approval_id: ApprovalId) -> Approval | None:
        return self._questions.find(tenant_id, approval_id, now=self._clock.now())

    async def sweep_waiting(self) -> Swept:
        now = self._clock.now()
        expired = self._questions.expire(now=now)
        suspended = [row for row in self._rows.values() if row.record.state is RunState.SUSPENDED]
        idle = {row.new.root_run_id or row.new.run_id for row in suspended if row.must_end(now)}
        idle |= {
            row.new.run_id for row in suspended if not self._questions.waits(row.new.root_run_id or row.new.run_id)
        }
        queued = sum(_wake(self._rows[run_id]) for run_id in sorted(idle) if self._rows[run_id].new.root_run_id is None)
        return Swept(queued=queued, expired=expired)

    def record(self, run_id: RunId) -> RunRecord:
        return self._rows[run_id].record

    def records(self) -> tuple[RunRecord, ...]:
        """Every run's, in the order in which they were made."""
        return tuple(row.record for row in self._rows.values())

    def events(self, run_id: RunId) -> tuple[RunEvent, ...]:
        return tuple(map(as_told, self._rows[run_id].events))

    def drop(self, run_id: RunId) -> None:
        """Forgets a run: its caller has what it wanted."""
        self._questions.forget(run_id)
        row = self._rows.pop(run_id, None)
        if row is not None and row.new.session_id is not None:
            self._book.withdraw(row.new.tenant_id, row.new.session_id, row.session_seq)

    async def hello(self, worker_id: WorkerId, has: frozenset[str]) -> bool:
        """Nobody asks who else is there: every worker is of this process."""
        return False

    async def ledger_room(self, claim: Claim) -> Mapping[CeilingDimension, CeilingRoom]:
        """Nobody has set a ceiling here."""
        return {}

    async def claim(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, has: frozenset[str] | None = None
    ) -> Sequence[Claim]:
        able = [row for row in self._queue() if has is None or row.new.needs <= has]
        waiting = [row for row in able if not self._is_blocked(row)]
        return [self._take(row, worker_id, lease_seconds) for row in waiting[:limit]]

    async def claim_ending(
        self, worker_id: WorkerId, *, limit: int, lease_seconds: float, max_recoveries: int | None = None
    ) -> Sequence[Claim]:
        now, enough = self._clock.now(), math.inf if max_recoveries is None else max_recoveries
        ending = [row for row in self._queue() if row.must_end(now) or row.record.recoveries > enough]
        return [self._take(row, worker_id, lease_seconds) for row in ending[:limit]]

    def _is_blocked(self, row: Row) -> bool:
        session_id = row.new.session_id
        return session_id is not None and self._book.is_blocked(row.new.tenant_id, session_id, row.session_seq)

    def _queue(self) -> list[Row]:
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

    def _take(self, row: Row, worker_id: WorkerId, lease_seconds: float) -> Claim:
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

    async def adopt(self, claim: Claim, child: NewRun) -> Adopted:
        check_child(claim, child)
        self._held(claim)
        root = self._rows[claim.root_run_id or claim.run_id]
        row = self._rows.get(child.run_id)
        if row is None:
            row = self._new_row(replace(child, root_run_id=root.new.run_id))
            self._rows[child.run_id] = row
            self._hand_to(row, claim)
            row.record = replace(row.record, started_at=row.record.created_at)
            await self._tell(self._store(row, [row.new.first_event]))
        elif row.new.parent_run_id != claim.run_id:
            raise ValueError(f"the run {child.run_id} is another one's")
        elif not row.record.state.is_terminal:
            is_left = row.record.state is RunState.RUNNING and row.fence < claim.fence
            if is_left:
                # Its root has counted the claim that was lost, and knows the most.
                recoveries = min(row.record.recoveries + 1, root.record.recoveries)
                row.record = replace(row.record, recoveries=recoveries)
            self._hand_to(row, claim)
        adopted = replace(claim, run_id=child.run_id, recoveries=row.record.recoveries, root_run_id=root.new.run_id)
        return Adopted(claim=adopted, record=row.record)

    def _hand_to(self, row: Row, claim: Claim) -> None:
        """A run below another one has no lease that could lapse."""
        row.fence, row.holder, row.lease_until = claim.fence, claim.worker_id, math.inf
        row.record = replace(row.record, state=RunState.RUNNING)

    def brought(self, claim: Claim) -> LoadedRun | None:
        return None

    async def load(self, claim: Claim) -> LoadedRun:
        row = self._held(claim)
        new = row.new
        session = None if new.session_id is None else self._book.find(new.tenant_id, new.session_id)
        owner = self._rows.get(new.root_run_id or new.run_id, row).new.agent.name
        before = self._before(row)
        return LoadedRun(
            record=row.record,
            agent=new.agent,
            events=tuple(row.events),
            cancel=row.wish,
            history=()
            if session is None
            else self._book.history(
                new.tenant_id,
                session.session_id,
                before=row.session_seq,
                without=[earlier.session_seq for earlier in before],
            ),
            last_agent=None if session is None else session.last_agent,
            session_state=self._book.state(new.tenant_id, new.session_id, owner, new.user),
            children=tuple(spend_of(child) for child in self._below(new.run_id)),
            before=tuple(tuple(earlier.events) for earlier in before),
        )

    def _before(self, row: Row) -> list[Row]:
        """The runs that this one goes on from, the first one first."""
        earlier = None if row.new.resumes is None else self._rows.get(row.new.resumes)
        return [] if earlier is None else [*self._before(earlier), earlier]

    def _below(self, run_id: RunId) -> Iterator[Row]:
        for row in self._rows.values():
            if row.new.root_run_id is not None and row.new.parent_run_id == run_id:
                yield row
                yield from self._below(row.new.run_id)

    async def append_if_owner(
        self, claim: Claim, bodies: Sequence[AnyEvent], update: RunUpdate
    ) -> tuple[RunEvent, ...]:
        row = self._held(claim)
        stored = self._store(row, bodies)
        self._summarize(row, update)
        self._ask(row, update)
        self._leave(row, update)
        await self._tell(stored)
        return stored

    async def _tell(self, events: Sequence[RunEvent]) -> None:
        if self.listener is not None:
            await self.listener(tuple(map(as_told, events)))

    def _held(self, claim: Claim) -> Row:
        held = [self._rows.get(run_id) for run_id in (claim.run_id, claim.root_run_id) if run_id is not None]
        row = held[0]
        if row is None or row.new.root_run_id != claim.root_run_id or not all(is_under(one, claim) for one in held):
            raise LeaseLost(f"{claim.run_id} is not held under fence {claim.fence}")
        return row

    def _store(self, row: Row, bodies: Sequence[AnyEvent]) -> tuple[RunEvent, ...]:
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

    def _summarize(self, row: Row, update: RunUpdate) -> None:
        ended_at = self._clock.now() if update.state.is_terminal else None
        row.record = replace(
            row.record,
            state=update.state,
            usage=update.usage,
            cost=update.cost,
            model_calls=update.model_calls,
            tool_calls=update.tool_calls,
            iterations=update.iterations,
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

    def _ask(self, row: Row, update: RunUpdate) -> None:
        """Keeps and closes questions. A root that nothing keeps waiting is queued instead of suspended."""
        new, now = row.new, self._clock.now()
        self._questions.ask(new, update.asked, now=now)
        self._questions.close(new.run_id, update.closed, now=now)
        if update.state.is_terminal:
            self._questions.cancel({new.run_id, *(child.new.run_id for child in self._below(new.run_id))}, now=now)
        if new.root_run_id is None and (row.must_end(now) or not self._questions.waits(new.run_id)):
            _wake(row)

    def _leave(self, row: Row, update: RunUpdate) -> None:
        """What goes to the session, or is kept beside it."""
        new, now = row.new, self._clock.now()
        if update.state.is_terminal and new.session_id is not None:
            if update.session_items and not self._is_blocked(row):
                told_again = [earlier.session_seq for earlier in self._before(row)]
                self._book.empty_turns(new.tenant_id, new.session_id, told_again)
            self._book.end_turn(
                new.tenant_id,
                new.session_id,
                row.session_seq,
                items=update.session_items,
                last_agent=update.last_agent,
                now=now,
            )
        if update.state_delta:
            owner = self._rows.get(new.root_run_id or new.run_id, row).new.agent.name
            self._book.store_state(new.tenant_id, new.session_id, owner, new.user, update.state_delta)

    async def save_artifact(self, claim: Claim, name: str, data: bytes, content_type: str) -> int:
        self._held(claim)
        session_id = self._session_of(claim)
        if session_id is None:
            raise ConfigurationError("the run is in no session that could keep an artifact", code="no_session")
        artifact = Artifact(
            name=name,
            version=0,
            content_type=content_type,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            created_at=self._clock.now(),
            run_id=claim.run_id,
            data=data,
        )
        return self._book.keep_artifact(claim.tenant_id, session_id, artifact)

    async def load_artifact(self, claim: Claim, name: str, version: int | None = None) -> Artifact | None:
        session_id = self._session_of(claim)
        return None if session_id is None else self._book.artifact(claim.tenant_id, session_id, name, version)

    async def list_artifacts(self, claim: Claim) -> Sequence[str]:
        session_id = self._session_of(claim)
        return () if session_id is None else self._book.artifact_names(claim.tenant_id, session_id)

    def _session_of(self, claim: Claim) -> SessionId | None:
        return self._rows[claim.root_run_id or claim.run_id].new.session_id

    async def renew(self, claims: Collection[Claim], *, lease_seconds: float) -> Mapping[RunId, Renewal]:
        renewed: dict[RunId, Renewal] = {}
        for claim in claims:
            try:
                row = self._held(claim)
            except LeaseLost:
                continue
            if claim.root_run_id is None:
                row.lease_until = self._clock.monotonic() + lease_seconds
            renewed[claim.run_id] = Renewal(wish=row.wish, extended=True)
        return renewed

    async def release(self, claim: Claim) -> None:
        try:
            row = self._held(claim)
        except LeaseLost:
            return
        if claim.root_run_id is not None:
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


def _wake(row: Row) -> bool:
    """Queues a suspended run; False for any other."""
    if row.record.state is not RunState.SUSPENDED:
        return False
    row.record = replace(row.record, state=RunState.QUEUED)
    return True
