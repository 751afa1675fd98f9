"""What to do about the next open call: dispatch it, or settle it without. Recovery needs no path of its own: a call
that went out under an older fence and has no outcome is an orphan, whoever finds it."""

from typing import Final

from app.conversation import OUTCOME_UNKNOWN, ToolCall
from app.events import AnyEvent, ApprovalDenied, ToolFailed, ToolIndeterminate
from app.policy import Indeterminate, is_safe_to_repeat
from app.run.commands import DispatchTool, DispatchTools
from app.run.spec import RunSpec
from app.run.state import CallProgress, CallStatus, State

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
    out again goes alone."""
    group: list[CallProgress] = []
    for progress in state.open_calls[: spec.agent.concurrency.max_concurrent_tools]:
        if progress.dispatches > 0 or progress.call.name not in spec.parallel_safe:
            break
        group.append(progress)
    if len(group) < 2:
        return _dispatch(state.open_calls[0])
    return DispatchTools(dispatches=tuple(map(_dispatch, group)))


def _dispatch(progress: CallProgress) -> DispatchTool:
    return DispatchTool(call_id=progress.call.call_id, dispatch=progress.dispatches + 1)


def settle_orphan(spec: RunSpec, state: State, progress: CallProgress) -> ToolIndeterminate | None:
    """What is recorded of an orphan that may not be dispatched again; None where it may."""
    if may_repeat(spec, progress.call.name):
        return None
    told = OUTCOME_UNKNOWN if spec.agent.on_indeterminate is Indeterminate.SURFACE else None
    return _indeterminate(spec, state, progress.call, told=told)


def give_up_orphans(spec: RunSpec, state: State) -> tuple[AnyEvent, ...]:
    """What is recorded of every orphan where something else ends the run: told, so that it does not name the end.
    Nobody has to answer any more whether it may go out again."""
    orphans = [progress for progress in state.open_calls if is_orphaned(state, progress)]
    return tuple(event for progress in orphans for event in _give_up(spec, state, progress))


def _give_up(spec: RunSpec, state: State, progress: CallProgress) -> tuple[AnyEvent, ...]:
    outcome = _outcome_of(spec, state, progress.call)
    if not progress.waits_for_approval or progress.approval_id is None:
        return (outcome,)
    withdrawn = ApprovalDenied(
        call_id=progress.call.call_id,
        name=progress.call.name,
        approval_id=progress.approval_id,
        cause="cancelled",
        iteration=state.iteration,
        author=spec.agent.name,
    )
    return (withdrawn, outcome)


def _outcome_of(spec: RunSpec, state: State, call: ToolCall) -> ToolIndeterminate | ToolFailed:
    if not may_repeat(spec, call.name):
        return _indeterminate(spec, state, call, told=OUTCOME_UNKNOWN)
    return ToolFailed(
        call_id=call.call_id,
        name=call.name,
        code="tool_failed",
        content=OUTCOME_UNKNOWN,
        retry_safe=True,
        detail=_LOST,
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
