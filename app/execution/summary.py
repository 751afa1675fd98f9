"""The run's row as readers see it, a projection of the fold that is written with every append; and what it leaves."""

from collections.abc import Sequence
from typing import Any

from app.conversation import Message, Role, settle_dangling_calls
from app.events import AnyEvent, RunState, StateDelta
from app.ports.records import RunUpdate
from app.run import Phase, State


def summarize(
    state: State,
    bodies: Sequence[AnyEvent] = (),
    *,
    in_session: bool = False,
    given: str | tuple[Message, ...] = "",
) -> RunUpdate:
    """What the row says of this state, and what the last events of it, ``bodies``, leave in the session: changes of
    state, and with the end the history. ``given`` is the run's input."""
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
        model=state.model,
        state_delta=_changes(bodies),
        session_items=leave_in_history(state, given) if has_ended else None,
        last_agent=state.stack[-1] if has_ended and state.stack else None,
    )


def _changes(bodies: Sequence[AnyEvent]) -> dict[str, Any] | None:
    changes: dict[str, Any] = {}
    for body in bodies:
        if isinstance(body, StateDelta):
            changes.update(body.actions.state_delta or {})
    return changes or None


def leave_in_history(state: State, given: str | tuple[Message, ...]) -> tuple[Message, ...]:
    """What of an ended run its session's history keeps: the input, and what was said and done after it. A run that did
    not complete says so; one that ended before anything was said leaves nothing."""
    if state.model_calls == 0 and not state.turns:
        return ()
    asked = (Message(role=Role.USER, content=given),) if isinstance(given, str) else given
    said = tuple(state.turns)
    if state.end is not None and state.end.code is not None:
        told = f"(This was not completed: {state.end.state.value}, {state.end.code}.)"
        said = (*settle_dangling_calls(said), Message(role=Role.ASSISTANT, content=told))
    return (*asked, *settle_dangling_calls(said))
