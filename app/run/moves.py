"""How calls of a turn move: what is asked about them, and with which arguments they go out."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, assert_never

from app.conversation import ToolCall
from app.events import AnyEvent, ApprovalDenied, ApprovalGranted, ApprovalRequired, TurnCleared
from app.ids import CallId
from app.policy import ApprovalKind, Outcome
from app.run.state import CallProgress, CallStatus, State, signature_of
from app.run.transitions import IllegalEvent, label_of

if TYPE_CHECKING:
    from dataclasses import replace as evolve  # checks the fields' names and types
else:
    from app.run.state import evolve


def move_approval(state: State, body: ApprovalRequired | ApprovalGranted | ApprovalDenied, at: float) -> State:
    match body:
        case ApprovalRequired():
            is_about_call = body.ask is ApprovalKind.CALL
            return update_call(
                state,
                body,
                **({"needs_approval": True} if is_about_call else {}),
                approval_id=body.approval_id,
                asked=body.ask,
                asked_digest=body.arguments_digest,
                asked_flagged=body.flagged,
                approval_reason=body.detail,
                asked_at=at,
                expires_at=body.expires_at,
                approved=False,
            )
        case ApprovalGranted(outcome=Outcome.RETRY):
            # Whoever says so has allowed the dispatch that follows.
            return update_call(state, body, status=CallStatus.WAITING, approved=True)
        case ApprovalGranted(outcome=Outcome()):
            return update_call(state, body, approval_id=None)
        case ApprovalGranted(arguments=dict() as arguments):
            return _edit(update_call(state, body, approved=True), body.call_id, arguments)
        case ApprovalGranted():
            return update_call(state, body, approved=True)
        case ApprovalDenied():
            return update_call(state, body, approval_id=None)
        case _:
            assert_never(body)


def _edit(state: State, call_id: CallId, arguments: dict[str, Any]) -> State:
    """A person put other arguments in their place: they have passed nothing yet, and repetitions are counted by them.
    The transcript shows what will go out."""
    edited = _with_arguments(state, {call_id: arguments})

    def count_anew(progress: CallProgress) -> CallProgress:
        is_it = progress.call.call_id == call_id
        if not is_it:
            return progress
        return evolve(progress, signature=signature_of(progress.call), is_unchecked=True)

    return evolve(edited, calls=tuple(map(count_anew, edited.calls)))


def clear(state: State, body: TurnCleared) -> State:
    """The arguments that will go out are those that were cleared; the transcript shows the same."""
    cleared = _with_arguments(state, {call.call_id: call.arguments for call in body.calls})
    named = {call.call_id for call in body.calls}
    calls = (
        evolve(progress, is_unchecked=progress.is_unchecked and progress.call.call_id not in named)
        for progress in cleared.calls
    )
    return evolve(cleared, turn_cleared=True, calls=tuple(calls))


def _with_arguments(state: State, arguments: Mapping[CallId, dict[str, Any]]) -> State:
    def changed(call: ToolCall) -> ToolCall:
        if call.call_id not in arguments:
            return call
        return call.model_copy(update={"arguments": arguments[call.call_id], "raw_arguments": None})

    results = sum(progress.status is CallStatus.SETTLED for progress in state.calls)
    place = len(state.turns) - 1 - results
    said = state.turns[place]
    said = said.model_copy(update={"tool_calls": tuple(map(changed, said.tool_calls))})
    rest = tuple(state.turns[place + 1 :])
    calls = tuple(evolve(progress, call=changed(progress.call)) for progress in state.calls)
    return evolve(state, calls=calls, turns=state.turns.with_end(place, said, *rest))


def update_call(state: State, body: AnyEvent, **changes: Any) -> State:
    """One call of the newest turn moves on. A call that is not in it, or that has its outcome, moves nowhere."""
    call_id: CallId | None = getattr(body, "call_id", None)
    if not any(progress.call.call_id == call_id and progress.is_open for progress in state.calls):
        raise IllegalEvent(state.phase, f"{label_of(body)} of {call_id}, which is not open")
    calls = (evolve(progress, **changes) if progress.call.call_id == call_id else progress for progress in state.calls)
    return evolve(state, calls=tuple(calls))
