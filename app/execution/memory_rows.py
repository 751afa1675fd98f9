"""The rows of the log in memory."""

from dataclasses import dataclass, replace

from app.conversation import Usage
from app.events import RunEvent, RunState
from app.ids import AgentName, WorkerId
from app.ports.records import CancelWish, ChildSpend, Claim, NewRun, RunRecord


@dataclass(slots=True)
class Row:
    """One run: its row, its log, and who holds it. ``lease_until`` is on the clock's monotonic time. ``session_seq`` is
    its number in its session."""

    new: NewRun
    record: RunRecord
    events: list[RunEvent]
    order: int
    fence: int = 0
    holder: WorkerId | None = None
    lease_until: float = 0.0
    session_seq: int = 0

    @property
    def wish(self) -> CancelWish | None:
        if self.record.cancel_requested_at is None:
            return None
        return CancelWish(reason=self.record.cancel_reason, requested_by=self.record.cancel_requested_by)

    def must_end(self, now: float) -> bool:
        """A cancel was asked for, or the deadline has passed."""
        return self.wish is not None or (self.new.deadline_at is not None and self.new.deadline_at <= now)


def is_under(row: Row | None, claim: Claim) -> bool:
    return row is not None and row.fence == claim.fence and row.record.state is RunState.RUNNING


def spend_of(row: Row) -> ChildSpend:
    record = row.record
    assert record.parent_run_id is not None
    return ChildSpend(
        run_id=record.run_id,
        parent_run_id=record.parent_run_id,
        usage=record.usage,
        cost=record.cost,
        model_calls=record.model_calls,
        tool_calls=record.tool_calls,
        iterations=record.iterations,
    )


def as_told(event: RunEvent) -> RunEvent:
    """The event with a body of the reader's own where that could be written into: a call that a reader masks for
    display must go out as it was asked for, and approved."""
    body = event.body
    changed = body.actions.state_delta or body.actions.artifact_delta
    if not (changed or getattr(body, "arguments", None) or getattr(body, "tool_calls", None)):
        return event
    return replace(event, body=body.model_copy(deep=True))


def new_record(run: NewRun, now: float) -> RunRecord:
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
        deterministic=run.deterministic,
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
        session_id=run.session_id,
        parent_run_id=run.parent_run_id,
        root_run_id=run.root_run_id,
        depth=run.depth,
        path=run.path or (run.agent.name,),
        team=run.team,
        resumes=run.resumes,
        first_run_id=run.first_run_id,
        resolutions=dict(run.resolutions),
    )
