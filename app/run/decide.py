"""``decide(spec, state, situation)`` is pure and answers one command. It is the only place where a run's next step is
chosen: starting, resuming and recovering come through here alike."""

from dataclasses import dataclass

from app.events import (
    AgentTransfer,
    AnyEvent,
    CancellationRequested,
    ModelRouted,
    SummarySkipped,
    WorkerLost,
)
from app.events.body import Actions
from app.ids import ApprovalId
from app.run.causes import Cause
from app.run.commands import (
    AskApproval,
    AssemblePrompt,
    CallModel,
    ClearTurn,
    Command,
    Record,
    RequestApproval,
    Suspend,
    Terminate,
    WaitUntil,
)
from app.run.spec import RunSpec, acting
from app.run.state import CallStatus, Phase, State
from app.run.steps.answer import settle_answer
from app.run.steps.bounds import (
    Shared,
    overdue,
    refuse_depth,
    refuse_dispatch,
    refuse_model_call,
    refuse_seconds,
    remaining_output,
    shape_exceeded,
)
from app.run.steps.calls import close_open_calls, is_orphaned, next_dispatch, settle_orphan
from app.run.steps.turn import refuse_turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What stands outside the log: the time (epoch seconds), whether somebody asked for the end, what others spend of
    the same budgets (the run's own first, then those of its callers), and which questions a gate has put off."""

    now: float
    cancel: "Cancel | None" = None
    shared: tuple[Shared, ...] = ()
    deferred: frozenset[ApprovalId] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancel:
    """The wish that the run ends."""

    reason: str | None = None
    requested_by: str | None = None


def decide(spec: RunSpec, state: State, situation: Situation) -> Command:
    """The next thing to do about a run that a claim holds."""
    spec = acting(spec, state.stack)
    match state.phase:
        case Phase.STOPPING:
            # Whatever ended the run, also while a person was asked or another call was out.
            if left := close_open_calls(spec, state):
                return Record(events=left)
            return Terminate(cause=state.cause or Cause(code="internal_error"))
        case Phase.ANSWERED:
            return settle_answer(spec, state)
        case Phase.READY | Phase.ACTING:
            stop = _stop_before_step(spec, state, situation)
            if stop is not None:
                return _record_end(spec, state, stop)
            if state.open_calls:
                return _next_call(spec, state, situation)
            return _end_turn(spec, state) or _next_model_call(spec, state, situation)
        case _:
            raise AssertionError(f"there is nothing to decide about a run that is {state.phase}")


def _stop_before_step(spec: RunSpec, state: State, situation: Situation) -> AnyEvent | None:
    """Cancel, deadline, recoveries: asked between any two steps."""
    if situation.cancel is not None:
        return CancellationRequested(
            reason=situation.cancel.reason,
            requested_by=situation.cancel.requested_by,
            iteration=state.iteration,
            author=spec.agent.name,
        )
    late = overdue(spec, state, situation.now)
    if late is not None:
        return late
    if state.recoveries > spec.max_recoveries:
        return WorkerLost(recoveries=state.recoveries, iteration=state.iteration, author=spec.agent.name)
    return None


def _record_end(spec: RunSpec, state: State, stop: AnyEvent) -> Record:
    """What ends the run while calls are open. What is known of those is recorded first: nobody will find out more."""
    return Record(events=(*close_open_calls(spec, state), stop))


def _next_call(spec: RunSpec, state: State, situation: Situation) -> Command:
    if _is_to_be_judged(state):
        refused = refuse_turn(spec, state, situation.shared)
        if refused:
            return Record(events=refused)
        if spec.gates_dispatch or any(p.call.name in spec.approved_by_people for p in state.open_calls):
            return ClearTurn()
    refusal = refuse_seconds(spec, state, situation.shared, situation.now)
    if refusal is not None:
        return _record_end(spec, state, refusal)
    if state.pending_approvals:
        return _next_approval(state, situation)
    progress = state.open_calls[0]
    if is_orphaned(state, progress):
        settled = settle_orphan(spec, state, progress)
        if settled is not None:
            return settled
    elif progress.status is CallStatus.DISPATCHED:
        raise AssertionError(f"{progress.call.call_id} is out under this claim and has brought no outcome")
    refusal = refuse_dispatch(spec, state, progress, situation.shared)
    if refusal is not None:
        return _record_end(spec, state, refusal)
    if state.backoff_until is not None and situation.now < state.backoff_until:
        return WaitUntil(at=state.backoff_until)
    # A sub-agent that is gone back to was allowed when it began.
    if progress.needs_approval and not progress.approved and progress.child_run_id is None:
        return RequestApproval(call_id=progress.call.call_id)
    return next_dispatch(spec, state)


def _is_to_be_judged(state: State) -> bool:
    """A turn is judged before any of it goes out, and anew where a person changed arguments, once every question was
    answered."""
    if state.pending_approvals:
        return False
    nothing_went_out = all(progress.dispatches == 0 for progress in state.calls)
    is_changed = any(progress.is_unchecked for progress in state.open_calls)
    return is_changed or (nothing_went_out and not state.turn_cleared)


def _end_turn(spec: RunSpec, state: State) -> Record | None:
    """What the turn's calls asked for, now that all of them have their outcome: another agent, or no more words."""
    iteration, author = state.iteration, spec.agent.name
    asker = state.handover
    if asker is not None and (to_agent := asker.transfer_to) is not None:
        actions = Actions(transfer_to_agent=to_agent, escalate=asker.escalates or None)
        moved = AgentTransfer(from_agent=author, to_agent=to_agent, actions=actions, iteration=iteration, author=author)
        return Record(events=(moved,))
    if state.skipped:
        answer = "\n".join(state.skipped)
        return Record(events=(SummarySkipped(answer=answer, final=True, iteration=iteration, author=author),))
    return None


def _next_approval(state: State, situation: Situation) -> Command:
    """Every question of the turn is answered before any of its calls goes out."""
    pending = [progress for progress in state.pending_approvals if progress.approval_id not in situation.deferred]
    if pending:
        return AskApproval(call_id=pending[0].call.call_id)
    return Suspend(approval_ids=tuple(p.approval_id for p in state.pending_approvals if p.approval_id is not None))


def _next_model_call(spec: RunSpec, state: State, situation: Situation) -> Command:
    # A run that was handed over is no other delegation than before.
    refused = refuse_depth(spec, state, situation.shared) if state.fingerprint is None else None
    if refused is not None:
        return Record(events=(refused,))
    exceeded = shape_exceeded(spec, state, situation.shared)
    if exceeded is not None:
        return Terminate(cause=exceeded)
    refusal = refuse_model_call(spec, state, situation.shared, situation.now)
    if refusal is not None:
        return Record(events=(refusal,))
    if spec.route and state.routed_to is None:
        chosen = ModelRouted(task_class=spec.agent.task_class, model=spec.route[0], author=spec.agent.name)
        return Record(events=(chosen,))
    if not state.is_entered:
        return AssemblePrompt()
    if state.backoff_until is not None and situation.now < state.backoff_until:
        return WaitUntil(at=state.backoff_until)
    is_new = state.attempts == 0 or bool(state.calls)
    return CallModel(
        iteration=state.iteration + 1 if is_new else state.iteration,
        attempt=1 if is_new else state.attempts + 1,
        max_output_tokens=remaining_output(spec, state, situation.shared),
    )
