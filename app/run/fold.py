"""State is ``fold(log)`` (promise 1). An event changes the phase by the table, and the rest of the state here."""

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from app.conversation import NOT_MADE, OUTCOME_UNKNOWN, Message, Role, ToolCall, Usage, UsageSource
from app.conversation.answers import unwrap_fence
from app.events import (
    AgentTransfer,
    AnyEvent,
    AttemptFailed,
    CallbackOverride,
    ModelCall,
    ModelResponded,
    RepairRequested,
    RunEvent,
    RunResumed,
    SummarySkipped,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
)
from app.policy import Effect, call_signature
from app.policy.prices import EXACT
from app.run.blame import cause_of
from app.run.moves import clear, move_approval, update_call
from app.run.state import CallProgress, CallStatus, Phase, State, signature_of
from app.run.transitions import IllegalEvent, label_of, next_phase

if TYPE_CHECKING:
    from dataclasses import replace as evolve  # checks the fields' names and types
else:
    from app.run.state import evolve


# Matches go by the kind: whether an event is of a class costs five times as much, of each class that is asked about.
_BEGIN_CLAIMS: Final = ("run_started", "run_resumed")


def fold_all(state: State, events: Iterable[RunEvent]) -> State:
    """Folds events in their order."""
    for event in events:
        state = fold(state, event.body, at=event.at)
    return state


def fold(state: State, body: AnyEvent, *, at: float) -> State:
    """The state after one more event, which the log holds at ``at``. Raises IllegalEvent and changes nothing."""
    phase = next_phase(state.phase, body)
    moved = _apply(state, body, at)
    # Only a claim's own time counts: between two claims a run waits, for a worker or for a person.
    begins_claim = body.kind in _BEGIN_CLAIMS
    elapsed = 0.0 if begins_claim or moved.fence == 0 else max(0.0, at - state.last_at)
    cause = moved.cause
    if phase is Phase.STOPPING and cause is None:
        cause = cause_of(state, body)
    return evolve(
        moved,
        phase=phase,
        cause=cause,
        seq=state.seq + 1,
        active_seconds=state.active_seconds + elapsed,
        last_at=at,
    )


def _apply(state: State, body: AnyEvent, at: float) -> State:
    match body.kind:
        case "model_call":
            return _begin_model_call(state, body)
        case "model_response":
            return _take_response(state, body)
        case "tool_call":
            return _dispatch(state, body)
        case "tool_result":
            return _take_result(state, body)
        case "tool_error":
            settled = _settle(state, body, body.content)
            return evolve(settled, is_flagged=True) if body.signals else settled
        case "tool_refused":
            return _settle(state, body, NOT_MADE if body.content is None else body.content)
        case "tool_indeterminate":
            return _settle(state, body, OUTCOME_UNKNOWN if body.content is None else body.content)
        case "attempt_failed":
            return _fail_attempt(state, body, at)
        case "turn_cleared":
            return clear(state, body)
        case "approval_required" | "approval_granted" | "approval_denied":
            return move_approval(state, body, at)
        case "repair_requested":
            return _begin_repair(state, body)
        case _:
            return _apply_to_run(state, body)


def _apply_to_run(state: State, body: AnyEvent) -> State:
    """Events about the run as a whole."""
    match body.kind:
        case "run_queued":
            return evolve(state, depth=body.depth, path=body.path, stack=(body.agent,))
        case "run_suspended":
            return evolve(state, waiting_for=body.approval_ids)
        case "run_started":
            return evolve(state, fence=body.fence, stack=(body.starts_with,) if body.starts_with else state.stack)
        case "run_resumed":
            return _resume(state, body)
        case "history_trimmed":
            return evolve(state, turns_dropped=state.turns_dropped + body.turns_dropped)
        case "model_routed":
            return evolve(state, routed_to=body.model)
        case "model_fell_back":
            # The next model has attempts of its own.
            return evolve(state, routed_to=body.to_model, failures=0)
        case "prompt_assembled":
            return evolve(
                state, prompt_version=body.version, fingerprint=body.fingerprint, is_entered=True, is_passed_over=False
            )
        case "callback_override" if label_of(body) == "callback_override:instead":
            return _stand_in(state, body)
        case "callback_override" if body.point == "after_agent":
            return evolve(state, has_left=True)
        case "agent_transfer":
            return _hand_over(state, body)
        case "summary_skipped":
            return _skip_summary(state, body)
        case "output_unwrapped":
            return evolve(state, answer=unwrap_fence(state.answer or ""))
        case "output_validated":
            return evolve(state, is_validated=True)
        case "state_delta":
            return evolve(state, shared={**state.shared, **(body.actions.state_delta or {})})
        case "terminated":
            return evolve(state, end=body)
        case _:
            return state


def estimate_in_flight(state: State) -> Usage:
    """What the model call that is out is charged with where nobody learns more."""
    return Usage(input_tokens=state.in_flight_input_tokens, source=UsageSource.HEURISTIC)


def _resume(state: State, body: RunResumed) -> State:
    """Promise 8: whoever held the run before took the answer with him, and what it cost is only estimated."""
    moved = evolve(state, fence=body.fence, recoveries=body.recoveries, waiting_for=())
    if state.phase is not Phase.THINKING:
        return moved
    # The first version of the event did not say what it charges.
    abandoned = body.usage or estimate_in_flight(state)
    return evolve(
        moved,
        usage=state.usage + abandoned,
        cost=_add_cost(state.cost, state.in_flight_cost),
        in_flight_input_tokens=0,
        in_flight_cost=None,
    )


def _begin_model_call(state: State, body: ModelCall) -> State:
    if state.open_calls:
        raise IllegalEvent(state.phase, "model_call before every call has its outcome")
    return evolve(
        state,
        iteration=body.iteration,
        attempts=body.attempt,
        failures=state.failures if body.iteration == state.iteration else 0,
        model_calls=state.model_calls + 1,
        model=body.model,
        in_flight_input_tokens=body.estimated_input_tokens,
        in_flight_cost=body.estimated_cost,
        output_ceiling=body.max_output_tokens,
        calls=(),
        turn_cleared=False,
        backoff_until=None,
    )


def _stand_in(state: State, body: CallbackOverride) -> State:
    """A callback speaks for the agent, which has not begun, or for the model: that is an iteration, and no call."""
    if state.open_calls:
        raise IllegalEvent(state.phase, "a stand-in before every call has its outcome")
    moved = evolve(state, iteration=body.iteration, attempts=0, failures=0, calls=(), turn_cleared=False)
    return evolve(moved, is_passed_over=True) if body.point == "before_agent" else moved


def _hand_over(state: State, body: AgentTransfer) -> State:
    """The run goes on under another agent, which has not said anything yet."""
    if state.open_calls:
        raise IllegalEvent(state.phase, "agent_transfer before every call has its outcome")
    return evolve(
        state,
        stack=(*state.stack, body.to_agent),
        is_entered=False,
        entered_after=state.iteration,
        calls=(),
        turn_cleared=False,
        attempts=0,
        failures=0,
        model=None,
        routed_to=None,
        backoff_until=None,
    )


def _skip_summary(state: State, body: SummarySkipped) -> State:
    """The turn is closed: what its results asked for is done."""
    if state.open_calls:
        raise IllegalEvent(state.phase, "summary_skipped before every call has its outcome")
    return evolve(state, answer=body.answer, calls=(), turn_cleared=False)


def _take_response(state: State, body: ModelResponded) -> State:
    said = Message(role=Role.ASSISTANT, content=body.text or "", tool_calls=body.tool_calls)
    has_spoken = body.text is not None
    if state.phase is Phase.ANSWERED:
        # Said beside the answer, which stays.
        return evolve(state, turns=state.turns.plus(said))
    return evolve(
        state,
        usage=state.usage + body.usage,
        cost=_add_cost(state.cost, body.cost),
        in_flight_input_tokens=0,
        in_flight_cost=None,
        turns=state.turns.plus(said) if has_spoken else state.turns,
        calls=tuple(map(_begin_call, body.tool_calls)) if has_spoken else (),
        answer=body.text if has_spoken and not body.tool_calls else None,
    )


def _add_cost(total: Decimal | None, cost: Decimal | None) -> Decimal | None:
    return total if cost is None else EXACT.add(total or Decimal(), cost)


def _begin_call(call: ToolCall) -> CallProgress:
    return CallProgress(call=call, signature=signature_of(call))


def _fail_attempt(state: State, body: AttemptFailed, at: float) -> State:
    moved = state
    if body.delay_seconds is not None:
        # Of calls that are out together, the latest instant holds for all.
        moved = evolve(state, backoff_until=max(at + body.delay_seconds, state.backoff_until or 0.0))
    if body.subject == "model":
        return evolve(
            moved,
            failures=state.failures + 1,
            usage=state.usage + (body.usage or Usage()),
            cost=_add_cost(state.cost, body.cost),
            in_flight_input_tokens=0,
            in_flight_cost=None,
        )
    if body.call_id is None or body.delay_seconds is None:
        return moved
    return update_call(moved, body, status=CallStatus.WAITING)


def _begin_repair(state: State, body: RepairRequested) -> State:
    """What was wrong with an answer is told as the next message, and the next model call is no retry. What was wrong
    with calls is told as their results."""
    moved = evolve(state, repairs=state.repairs + 1)
    if state.phase is not Phase.ANSWERED:
        return moved
    told = Message(role=Role.USER, content=body.detail)
    return evolve(moved, turns=state.turns.plus(told), attempts=0, answer=None)


def _dispatch(state: State, body: ToolCalled) -> State:
    moved = update_call(
        state,
        body,
        status=CallStatus.DISPATCHED,
        dispatches=body.dispatch,
        fence=state.fence,
        approved=False,
        is_unchecked=False,
        approval_id=None,
        child_run_id=body.child_run_id,
    )
    # Every attempt is charged; a retry is no new request. A sub-agent that is gone back to was never left.
    goes_back = body.dispatch > 1 and body.child_run_id is not None
    moved = evolve(moved, backoff_until=None, tool_calls=state.tool_calls + (0 if goes_back else 1))
    if body.dispatch > 1:
        return moved
    asked = next(progress for progress in state.calls if progress.call.call_id == body.call_id)
    signature = asked.signature or call_signature(body.name, body.arguments)
    return evolve(
        moved,
        repeats=state.repeats.insert(signature, state.repeats.get(signature, 0) + 1),
        landed=state.landed.plus((body.call_id, body.name)) if body.effect is Effect.ONCE else state.landed,
    )


def _take_result(state: State, body: ToolResult) -> State:
    """A result, and what it asks for when the turn is through."""
    asked = update_call(
        state,
        body,
        transfer_to=body.actions.transfer_to_agent,
        escalates=bool(body.actions.escalate),
        answer=body.answer,
    )
    moved = _settle(asked, body, body.content)
    if body.signals:
        moved = evolve(moved, is_flagged=True)
    given = next(progress for progress in state.calls if progress.call.call_id == body.call_id)
    if given.dispatches or given.signature is None:
        return moved
    # A callback answered: the model asked for it all the same.
    return evolve(moved, repeats=state.repeats.insert(given.signature, state.repeats.get(given.signature, 0) + 1))


def _settle(state: State, body: ToolResult | ToolFailed | ToolRefused | ToolIndeterminate, content: str) -> State:
    """The model reads the results in the order of its calls, whichever came first."""
    result = Message(role=Role.TOOL, content=content, call_id=body.call_id, name=body.name)
    moved = update_call(state, body, status=CallStatus.SETTLED, approval_id=None, approved=False)
    ids = [progress.call.call_id for progress in state.calls]
    after = state.calls[ids.index(body.call_id) + 1 :]
    place = len(state.turns) - sum(progress.status is CallStatus.SETTLED for progress in after)
    return evolve(moved, turns=state.turns.with_end(place, result, *state.turns[place:]))
