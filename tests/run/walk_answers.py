"""What must be true of the answers of people in the log of any walk, read from the log alone."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
    TurnCleared,
)
from app.ids import CallId
from app.policy import ApprovalKind, Effect, Indeterminate, Outcome
from app.run.transitions import label_of
from tests.run.walk_checks import bodies_of, steps_of
from tests.run.walks import Walk

_OUTCOMES = (ToolResult, ToolFailed, ToolIndeterminate, ToolRefused)


def about_calls(walk: Walk) -> Iterator[tuple[CallId, AnyEvent]]:
    """The events that are about one call."""
    for body in bodies_of(walk):
        call_id: CallId | None = getattr(body, "call_id", None)
        if call_id is not None:
            yield call_id, body


def made_too_often(walk: Walk) -> dict[CallId, int]:
    """Calls of ``once`` tools that were made more often than once, and once more for each time that a person, or
    whoever resumed the run, wanted that."""
    wanted = Counter(
        call_id
        for call_id, body in about_calls(walk)
        if isinstance(body, ApprovalGranted) and body.outcome is Outcome.RETRY
    )
    taken_over = {call_id for call_id, outcome in walk.spec.resolutions.items() if outcome is Outcome.RETRY}
    begun_before = walk.spec.resolutions.keys()
    allowed = {
        call_id: wanted[call_id] + (call_id in taken_over if call_id in begun_before else 1)
        for call_id in walk.calls_of(Effect.ONCE)
    }
    return {call_id: times for call_id, times in walk.calls_of(Effect.ONCE).items() if times > allowed[call_id]}


def asked_about_no_loss(walk: Walk) -> list[CallId]:
    """Questions about the outcome of a call that was not out, or of an agent that wants nobody to be asked."""
    out: set[CallId] = set()
    found = []
    for role, body in steps_of(walk):
        match body:
            case ToolCalled():
                out.add(body.call_id)
            case ApprovalRequired(ask=ApprovalKind.OUTCOME):
                if body.call_id not in out or role.agent.on_indeterminate is not Indeterminate.ASK:
                    found.append(body.call_id)
            case ToolResult() | ToolFailed() | ToolIndeterminate() | ToolRefused():
                out.discard(body.call_id)
    return found


def settled_otherwise(walk: Walk) -> list[CallId]:
    """Calls of which something else was told than a person said of them."""
    said: dict[CallId, Outcome] = {}
    found = []
    for call_id, body in about_calls(walk):
        match body:
            case ApprovalGranted(outcome=Outcome() as outcome):
                said[call_id] = outcome
            case ToolCalled() if said.pop(call_id, Outcome.RETRY) is not Outcome.RETRY:
                found.append(call_id)
            # A callback may stand in for what shall be made again.
            case ToolResult() if said.pop(call_id, Outcome.SUCCEEDED) is Outcome.FAILED:
                found.append(call_id)
            case ToolFailed() if said.pop(call_id, Outcome.FAILED) is Outcome.SUCCEEDED:
                found.append(call_id)
    return found


def unanswered_but_known(walk: Walk) -> list[CallId]:
    """Calls of which nobody said what became, and that are told to be something else than unknown."""
    denied: set[CallId] = set()
    asked: dict[CallId, ApprovalKind] = {}
    found = []
    for call_id, body in about_calls(walk):
        match body:
            case ApprovalRequired():
                asked[call_id] = body.ask
            case ApprovalDenied() if asked[call_id] is ApprovalKind.OUTCOME:
                denied.add(call_id)
            case ToolCalled() | ToolResult() | ToolFailed() | ToolRefused() if call_id in denied:
                found.append(call_id)
    return found


def sent_otherwise_than_edited(walk: Walk) -> list[CallId]:
    """Calls that went out before the turn was cleared with the arguments that a person had put, or without these."""
    put: dict[CallId, dict[str, Any]] = {}
    cleared: dict[CallId, dict[str, Any]] = {}
    found = []
    for body in bodies_of(walk):
        match body:
            case ApprovalGranted(arguments=dict() as arguments):
                put[body.call_id] = arguments
                cleared = {}
            case TurnCleared():
                cleared = {call.call_id: call.arguments for call in body.calls}
            case ToolCalled() if body.call_id in put and cleared.get(body.call_id) != body.arguments:
                found.append(body.call_id)
    return found


def edited_after_it_went_out(walk: Walk) -> list[CallId]:
    """Calls whose arguments were changed between two dispatches: they have one idempotency key."""
    sent: dict[CallId, dict[str, Any]] = {}
    found = []
    for call_id, body in about_calls(walk):
        if isinstance(body, ToolCalled) and sent.setdefault(call_id, body.arguments) != body.arguments:
            found.append(call_id)
    return found


def rows_of(walk: Walk) -> set[tuple[str, str]]:
    """The phases of the walk, each with the row that it was left by, or stayed in."""
    return {(phase, label_of(body)) for phase, (_, body) in zip(walk.phases, walk.log, strict=True)}


def left_without_outcome(walk: Walk) -> set[CallId]:
    """Calls that went out, in this run or before it, and of which the log does not tell what became."""
    open_calls = set(walk.spec.resolutions) if walk.before else set()
    for call_id, body in about_calls(walk):
        if isinstance(body, ToolCalled):
            open_calls.add(call_id)
        elif isinstance(body, _OUTCOMES):
            open_calls.discard(call_id)
    return open_calls
