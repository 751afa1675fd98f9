"""What to do about the next open call: dispatch it, or settle it without. Recovery needs no path of its own: a call
that went out under an older fence and has no outcome is an orphan, whoever finds it."""

from typing import Final

from app.conversation import OUTCOME_UNKNOWN, ToolCall
from app.events import AnyEvent, ApprovalDenied, ToolFailed, ToolIndeterminate
from app.policy import Indeterminate, is_safe_to_repeat
from app.run.commands import DispatchTool, DispatchTools, Record, RequestOutcome
from app.run.spec import RunSpec
from app.run.state import CallProgress, CallStatus, State
from app.run.steps.outcomes import tell_outcome

_NOT_AGAIN: Final = "The call failed and was not made again."
_ENDED_FIRST: Final = "the run ended before the call could be made again"
_LOST: Final = "the process that dispatched the call was lost before it recorded an outcome"


def is_orphaned(state: State, progress: CallProgress) -> bool:
    """Dispatched under a claim that is gone: nobody will bring its outcome."""
    return progress.status is CallStatus.DISPATCHED and progress.fence < state.fence


def may_repeat(spec: RunSpec, name: str) -> bool:
    """By the tool's declared effect, or the agent's list."""
    effect = spec.effects.get(name)
    return effect is not None and is_safe_to_repeat(name, effect, spec.agent.idempotent_tools)


def next_dispatch(spec: RunSpec, state: State) -> DispatchTool | DispatchTools:
    """The next open call; together with those right after it where all of them may be out at once. A call that goes
    out again goes alone, unless it goes back into a run that it has begun."""
    group: list[CallProgress] = []
    for progress in state.open_calls[: spec.agent.concurrency.max_concurrent_tools]:
        is_again = progress.dispatches > 0 and progress.child_run_id is None
        if is_again or progress.call.name not in spec.parallel_safe:
            break
        group.append(progress)
    if len(group) < 2:
        return _dispatch(state.open_calls[0])
    return DispatchTools(dispatches=tuple(map(_dispatch, group)))


def _dispatch(progress: CallProgress) -> DispatchTool:
    return DispatchTool(call_id=progress.call.call_id, dispatch=progress.dispatches + 1)


def settle_orphan(spec: RunSpec, state: State, progress: CallProgress) -> Record | RequestOutcome | None:
    """What is done about an orphan that may not be dispatched again; None where it may. Of one that an earlier run left
    behind somebody has said already what became of it."""
    resolution = spec.resolutions.get(progress.call.call_id) if was_taken_over(progress) else None
    if resolution is not None:
        iteration, author = state.iteration, spec.agent.name
        told = tell_outcome(progress.call, resolution, reason="", iteration=iteration, author=author)
        return Record(events=told) if told else None
    if may_repeat(spec, progress.call.name):
        return None
    if spec.agent.on_indeterminate is Indeterminate.ASK:
        return RequestOutcome(call_id=progress.call.call_id)
    unknown = OUTCOME_UNKNOWN if spec.agent.on_indeterminate is Indeterminate.SURFACE else None
    return Record(events=(_indeterminate(spec, state, progress.call, told=unknown),))


def was_taken_over(progress: CallProgress) -> bool:
    """Dispatched by an earlier run, from which this one goes on: claims count from 1."""
    return progress.status is CallStatus.DISPATCHED and progress.fence == 0


def close_open_calls(spec: RunSpec, state: State) -> tuple[AnyEvent, ...]:
    """What is recorded of calls that are still open where something else ends the run: nobody has to answer any more,
    and a call that went out has an outcome. It is told, so that it does not name the end."""
    return tuple(event for progress in state.open_calls for event in _close(spec, state, progress))


def is_closing(event: AnyEvent) -> bool:
    """Whether ``close_open_calls`` made the event."""
    match event:
        case ApprovalDenied():
            return event.cause == "cancelled"
        case ToolFailed():
            return event.detail in (_LOST, _ENDED_FIRST)
        case _:
            return isinstance(event, ToolIndeterminate)


def _close(spec: RunSpec, state: State, progress: CallProgress) -> tuple[AnyEvent, ...]:
    closed: list[AnyEvent] = []
    if progress.waits_for_approval and progress.approval_id is not None:
        withdrawn = ApprovalDenied(
            call_id=progress.call.call_id,
            name=progress.call.name,
            approval_id=progress.approval_id,
            cause="cancelled",
            iteration=state.iteration,
            author=spec.agent.name,
        )
        closed.append(withdrawn)
    # Also one that a person let go out once more, and that did not.
    if progress.dispatches > 0 and not may_repeat(spec, progress.call.name):
        closed.append(_indeterminate(spec, state, progress.call, told=OUTCOME_UNKNOWN))
    elif progress.status is CallStatus.DISPATCHED:
        closed.append(_failed(spec, state, progress.call, told=OUTCOME_UNKNOWN, detail=_LOST))
    elif progress.dispatches > 0:
        closed.append(_failed(spec, state, progress.call, told=_NOT_AGAIN, detail=_ENDED_FIRST))
    return tuple(closed)


def _failed(spec: RunSpec, state: State, call: ToolCall, *, told: str, detail: str) -> ToolFailed:
    return ToolFailed(
        call_id=call.call_id,
        name=call.name,
        code="tool_failed",
        content=told,
        retry_safe=True,
        detail=detail,
        iteration=state.iteration,
        author=spec.agent.name,
    )


def _indeterminate(spec: RunSpec, state: State, call: ToolCall, *, told: str | None) -> ToolIndeterminate:
    return ToolIndeterminate(
        call_id=call.call_id,
        name=call.name,
        content=told,
        detail=_LOST,
        iteration=state.iteration,
        author=spec.agent.name,
    )
