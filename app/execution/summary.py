"""The run's row as readers see it, a projection of the fold that is written with every append; and what it leaves."""

from collections.abc import Sequence
from typing import Any, Final

from app.conversation import NOT_MADE, Message, Role, settle_dangling_calls
from app.events import AnyEvent, ApprovalDenied, ApprovalRequired, RunState
from app.ids import AgentName
from app.ports.desk import ApprovalStatus, ClosedApproval, NewApproval
from app.ports.records import RunUpdate
from app.run import CallProgress, Phase, State

_REFUSALS: Final = frozenset({"guardrail_refusal", "hook_refusal", "hook_failed"})
_WITHHELD: Final = "(This message was refused.)"


def summarize(
    state: State,
    bodies: Sequence[AnyEvent] = (),
    *,
    in_session: bool = False,
    given: str | tuple[Message, ...] = "",
    now: float | None = None,
) -> RunUpdate:
    """What the row says of this state, and what the last events of it, ``bodies``, leave in the session: changes of
    state, and with the end the history. ``given`` is the run's input. ``now`` is of the clock by which questions
    expire."""
    end = state.end
    passing = RunState.SUSPENDED if state.phase is Phase.HELD else RunState.RUNNING
    has_ended = end is not None and in_session
    return RunUpdate(
        state=passing if end is None else end.state,
        usage=state.usage,
        cost=state.cost,
        model_calls=state.model_calls,
        tool_calls=state.tool_calls,
        iterations=state.iteration,
        output_text=state.answer if end is not None and end.code is None else None,
        error_code=None if end is None else end.code,
        error_detail=None if end is None or end.code is None else end.detail,
        prompt_version=state.prompt_version,
        prompt_fingerprint=state.fingerprint,
        # Whoever takes the run up again gives this one to the run's own agent.
        model=state.model if state.stack[-1:] == state.path[-1:] else None,
        state_delta=_changes(bodies),
        asked=tuple(_ask(body, now) for body in bodies if body.kind == "approval_required"),
        closed=tuple(_close(body) for body in bodies if body.kind == "approval_denied"),
        session_items=leave_in_history(state, given) if has_ended else None,
        last_agent=state.stack[-1] if has_ended and state.stack else None,
    )


def _ask(body: ApprovalRequired, now: float | None) -> NewApproval:
    return NewApproval(
        approval_id=body.approval_id,
        call_id=body.call_id,
        tool=body.name,
        agent=AgentName(body.author),
        kind=body.ask,
        dispatch=body.dispatch,
        arguments_digest=body.arguments_digest,
        summary=body.summary,
        reason=body.detail,
        flagged=body.flagged,
        expires_at=body.expires_at,
        asked_at=now,
    )


def _close(body: ApprovalDenied) -> ClosedApproval:
    """A person's no is on its row already; of the others nobody has to answer any more."""
    expired = body.cause == "expired"
    return ClosedApproval(
        approval_id=body.approval_id, status=ApprovalStatus.EXPIRED if expired else ApprovalStatus.CANCELLED
    )


def _changes(bodies: Sequence[AnyEvent]) -> dict[str, Any] | None:
    changes: dict[str, Any] = {}
    for body in bodies:
        if body.kind == "state_delta":
            changes.update(body.actions.state_delta or {})
    return changes or None


def _not_made(progress: CallProgress) -> Message:
    call = progress.call
    return Message(role=Role.TOOL, content=NOT_MADE, call_id=call.call_id, name=call.name)


def _is_refused(state: State) -> bool:
    """Whether the run ended because an agent that it was handed to has checks that refused the input."""
    return not state.is_entered and state.end is not None and state.end.code in _REFUSALS


def leave_in_history(state: State, given: str | tuple[Message, ...]) -> tuple[Message, ...]:
    """What of an ended run its session's history keeps: the input, and what was said and done after it. A run that did
    not complete says so; one that ended before anything was said leaves nothing."""
    if state.model_calls == 0 and not state.turns:
        return ()
    asked = (Message(role=Role.USER, content=given),) if isinstance(given, str) else given
    if _is_refused(state):
        # Whom it was kept from reads this history next.
        asked = (*asked[:-1], asked[-1].model_copy(update={"content": _WITHHELD}))
    said = tuple(message for message in state.turns if message.content or message.tool_calls)
    said = (*said, *(_not_made(progress) for progress in state.open_calls if not progress.dispatches))
    if state.end is not None and state.end.code is not None:
        told = f"(This was not completed: {state.end.state.value}, {state.end.code}.)"
        said = (*settle_dangling_calls(said), Message(role=Role.ASSISTANT, content=told))
    return (*asked, *settle_dangling_calls(said))
