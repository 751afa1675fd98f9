"""A run that goes on from one that failed: the earlier log says where, and the calls that it left open stay open.

Its own log begins anew, and so do its counts of tokens, costs and calls. Iterations go on, and so the ids of calls and
their idempotency keys; so do repetitions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from app.events import (
    AgentTransfer,
    ModelCall,
    ModelResponded,
    RunEvent,
    SummarySkipped,
    ToolFailed,
    ToolResult,
    ToolResultTruncated,
)
from app.run.fold import fold
from app.run.state import CallProgress, CallStatus, Phase, State
from app.run.steps.calls import is_closing

if TYPE_CHECKING:
    from dataclasses import replace as evolve  # checks the fields' names and types
else:
    from app.run.state import evolve


# What was recorded before one of these is settled: the turn before it is over.
_ENDS_A_TURN: Final = (ModelCall, ModelResponded, AgentTransfer, SummarySkipped)


def fold_chain(before: Sequence[Sequence[RunEvent]], events: Sequence[RunEvent]) -> State:
    """The fold of a run's log, where ``before`` are the logs of the runs that it goes on from, the first one's
    first."""
    return _fold_on(_left_by(before), events)


def unresolved(logs: Sequence[Sequence[RunEvent]]) -> tuple[CallProgress, ...]:
    """Calls of the newest turn that went out and of which nobody knows what became, in the model's order: whoever goes
    on from the last of these runs has to say. Calls that may be repeated are none of them, but for those of
    sub-agents."""
    left = _left_by(logs)
    if left is None:
        return ()
    once = {call_id for call_id, _ in left.landed}
    return tuple(
        progress
        for progress in left.calls
        if progress.status is CallStatus.DISPATCHED
        and (progress.call.call_id in once or progress.child_run_id is not None)
    )


def _left_by(logs: Sequence[Sequence[RunEvent]]) -> State | None:
    """Where the last of these runs stood before its end; None where there is none."""
    left: State | None = None
    for log in logs:
        left = _fold_on(left, _without_end(left, log))
    return left


def _fold_on(left: State | None, events: Sequence[RunEvent]) -> State:
    state = State()
    for state in _states(left, events):  # noqa: B007 - the last one is wanted
        pass
    return state


def _states(left: State | None, events: Sequence[RunEvent]) -> Iterator[State]:
    """The state after each event."""
    state = State()
    for event in events:
        state = fold(state, event.body, at=event.at)
        if left is not None and state.phase is Phase.QUEUED:
            state = _take_over(state, left)
        yield state


def _take_over(queued: State, left: State) -> State:
    """A run that was accepted, with what was said and done before it. Questions that were open are put anew, and a
    sub-agent begins anew. A model call that was out is made again, as the same iteration."""
    was_out = left.phase in (Phase.THINKING, Phase.READY) and left.attempts > 0
    return evolve(
        queued,
        iteration=left.iteration - 1 if was_out else left.iteration,
        stack=left.stack,
        is_entered=left.is_entered,
        entered_after=left.entered_after,
        is_passed_over=left.is_passed_over,
        prompt_version=left.prompt_version,
        fingerprint=left.fingerprint,
        model=left.model,
        routed_to=left.routed_to,
        turns=left.turns,
        calls=tuple(map(_reopen, left.calls)),
        turn_cleared=left.turn_cleared and any(progress.dispatches for progress in left.calls),
        repeats=left.repeats,
        landed=left.landed,
        repairs=left.repairs,
        turns_dropped=left.turns_dropped,
        is_flagged=left.is_flagged,
        shared=left.shared,
    )


def _reopen(progress: CallProgress) -> CallProgress:
    """Where people were to be asked they are asked again, all of them before any call goes out."""
    is_asked_anew = progress.needs_approval and progress.dispatches == 0 and progress.status is CallStatus.WAITING
    return replace(
        progress,
        fence=0,
        approval_id=None,
        approved=False,
        is_unchecked=progress.is_unchecked or is_asked_anew,
        child_run_id=None,
    )


def _without_end(left: State | None, log: Sequence[RunEvent]) -> list[RunEvent]:
    """The log up to what ended the run, without what was recorded only because it ended; but with what came of calls
    that were still out."""
    newest = max((place for place, event in enumerate(log) if isinstance(event.body, _ENDS_A_TURN)), default=-1)
    end = _place_of_end(left, log)
    going_on = [event for place, event in enumerate(log[:end]) if place <= newest or not is_closing(event.body)]
    return going_on + [event for event in log[end:] if _is_late_outcome(event)]


def _place_of_end(left: State | None, log: Sequence[RunEvent]) -> int:
    """Where the event stands that settled the end."""
    for place, state in enumerate(_states(left, log)):
        if state.phase is Phase.STOPPING:
            return place
    return len(log)


def _is_late_outcome(event: RunEvent) -> bool:
    match event.body:
        case ToolResult() | ToolResultTruncated():
            return True
        case ToolFailed(fatal=False):
            return not is_closing(event.body)
        case _:
            return False
