"""What to do about the next open call: dispatch it, or settle it without. Recovery needs no path of its own: a call
that went out under an older fence and has no outcome is an orphan, whoever finds it."""

from typing import Final

from app.conversation import OUTCOME_UNKNOWN, ToolCall
from app.events import ToolFailed, ToolIndeterminate
from app.policy import Indeterminate, is_safe_to_repeat
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


def settle_orphan(spec: RunSpec, state: State, progress: CallProgress) -> ToolIndeterminate | None:
    """What is recorded of an orphan that may not be dispatched again; None where it may."""
    if may_repeat(spec, progress.call.name):
        return None
    told = OUTCOME_UNKNOWN if spec.agent.on_indeterminate is Indeterminate.SURFACE else None
    return _indeterminate(spec, state, progress.call, told=told)


def give_up_orphans(spec: RunSpec, state: State) -> tuple[ToolIndeterminate | ToolFailed, ...]:
    """What is recorded of every orphan where something else ends the run: told, so that it does not name the end."""
    return tuple(_give_up(spec, state, progress.call) for progress in state.open_calls if is_orphaned(state, progress))


def _give_up(spec: RunSpec, state: State, call: ToolCall) -> ToolIndeterminate | ToolFailed:
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
