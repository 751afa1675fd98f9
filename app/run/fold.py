"""State is ``fold(log)`` (promise 1). An event changes the phase by the table, and the rest of the state here."""

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, assert_never

from app.conversation import OUTCOME_UNKNOWN, Message, Role, StopReason, ToolCall, Usage, UsageSource
from app.conversation.answers import unwrap_fence
from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    AttemptFailed,
    BudgetRefused,
    CancellationRequested,
    DeadlineExceeded,
    DepthExceeded,
    FanOutRefused,
    GuardrailRefusal,
    HistoryTrimmed,
    HookRefusal,
    ModelCall,
    ModelFellBack,
    ModelResponded,
    ModelRouted,
    OutputUnwrapped,
    OutputValidated,
    PromptAssembled,
    RepairRequested,
    RepeatDetected,
    RunEvent,
    RunQueued,
    RunResumed,
    RunStarted,
    SchemaViolation,
    StateDelta,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
    TurnCleared,
    WorkerLost,
)
from app.ids import CallId
from app.policy import Effect, call_signature
from app.policy.prices import EXACT
from app.run.causes import STATE_BY_CODE, Cause
from app.run.state import CallProgress, CallStatus, Phase, State, signature_of
from app.run.transitions import IllegalEvent, label_of, next_phase

if TYPE_CHECKING:
    from dataclasses import replace as evolve  # checks the fields' names and types
else:
    from app.run.state import evolve


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
    begins_claim = isinstance(body, RunStarted | RunResumed)
    elapsed = 0.0 if begins_claim or moved.fence == 0 else max(0.0, at - state.last_at)
    cause = moved.cause
    if phase is Phase.STOPPING and cause is None:
        cause = _cause_of(state, body)
    return evolve(
        moved,
        phase=phase,
        cause=cause,
        seq=state.seq + 1,
        active_seconds=state.active_seconds + elapsed,
        last_at=at,
    )


def _apply(state: State, body: AnyEvent, at: float) -> State:
    match body:
        case ModelCall():
            return _begin_model_call(state, body)
        case ModelResponded():
            return _take_response(state, body)
        case ToolCalled():
            return _dispatch(state, body)
        case ToolResult():
            settled = _settle(state, body, body.content)
            return evolve(settled, is_flagged=True) if body.signals else settled
        case ToolFailed():
            settled = _settle(state, body, body.content)
            return evolve(settled, is_flagged=True) if body.signals else settled
        case ToolRefused() | ToolIndeterminate():
            return _settle(state, body, OUTCOME_UNKNOWN if body.content is None else body.content)
        case AttemptFailed():
            return _fail_attempt(state, body, at)
        case TurnCleared():
            return _clear(state, body)
        case ApprovalRequired() | ApprovalGranted() | ApprovalDenied():
            return _move_approval(state, body, at)
        case RepairRequested():
            return _begin_repair(state, body)
        case _:
            return _apply_to_run(state, body)


def _apply_to_run(state: State, body: AnyEvent) -> State:
    """Events about the run as a whole."""
    match body:
        case RunQueued():
            return evolve(state, depth=body.depth, path=body.path)
        case RunStarted():
            return evolve(state, fence=body.fence)
        case RunResumed():
            return _resume(state, body)
        case HistoryTrimmed():
            return evolve(state, turns_dropped=state.turns_dropped + body.turns_dropped)
        case ModelRouted():
            return evolve(state, routed_to=body.model)
        case ModelFellBack():
            # The next model has attempts of its own.
            return evolve(state, routed_to=body.to_model, failures=0)
        case PromptAssembled():
            return evolve(state, prompt_version=body.version, fingerprint=body.fingerprint)
        case OutputUnwrapped():
            return evolve(state, answer=unwrap_fence(state.answer or ""))
        case OutputValidated():
            return evolve(state, is_validated=True)
        case StateDelta():
            return evolve(state, shared={**state.shared, **(body.actions.state_delta or {})})
        case Terminated():
            return evolve(state, end=body)
        case _:
            return state


def estimate_in_flight(state: State) -> Usage:
    """What the model call that is out is charged with where nobody learns more."""
    return Usage(input_tokens=state.in_flight_input_tokens, source=UsageSource.HEURISTIC)


def _resume(state: State, body: RunResumed) -> State:
    """Promise 8: whoever held the run before took the answer with him, and what it cost is only estimated."""
    moved = evolve(state, fence=body.fence, recoveries=body.recoveries)
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


def _take_response(state: State, body: ModelResponded) -> State:
    said = Message(role=Role.ASSISTANT, content=body.text or "", tool_calls=body.tool_calls)
    has_spoken = body.text is not None
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
    return _update_call(moved, body, status=CallStatus.WAITING)


def _clear(state: State, body: TurnCleared) -> State:
    """The arguments that will go out are those that were cleared; the transcript shows the same."""
    cleared = {call.call_id: call.arguments for call in body.calls}

    def as_cleared(call: ToolCall) -> ToolCall:
        if call.call_id not in cleared:
            return call
        return call.model_copy(update={"arguments": cleared[call.call_id], "raw_arguments": None})

    calls = tuple(replace(progress, call=as_cleared(progress.call)) for progress in state.calls)
    said = state.turns[-1]
    said = said.model_copy(update={"tool_calls": tuple(as_cleared(call) for call in said.tool_calls)})
    return evolve(state, turn_cleared=True, calls=calls, turns=state.turns.with_end(len(state.turns) - 1, said))


def _begin_repair(state: State, body: RepairRequested) -> State:
    """What was wrong with an answer is told as the next message, and the next model call is no retry. What was wrong
    with calls is told as their results."""
    moved = evolve(state, repairs=state.repairs + 1)
    if state.phase is not Phase.ANSWERED:
        return moved
    told = Message(role=Role.USER, content=body.detail)
    return evolve(moved, turns=state.turns.plus(told), attempts=0, answer=None)


def _move_approval(state: State, body: ApprovalRequired | ApprovalGranted | ApprovalDenied, at: float) -> State:
    match body:
        case ApprovalRequired():
            return _update_call(
                state,
                body,
                needs_approval=True,
                approval_id=body.approval_id,
                approval_reason=body.detail,
                asked_at=at,
                expires_at=body.expires_at,
                approved=False,
            )
        case ApprovalGranted():
            return _update_call(state, body, approved=True)
        case ApprovalDenied():
            return _update_call(state, body, approval_id=None)
        case _:
            assert_never(body)


def _dispatch(state: State, body: ToolCalled) -> State:
    moved = _update_call(
        state,
        body,
        status=CallStatus.DISPATCHED,
        dispatches=body.dispatch,
        fence=state.fence,
        approved=False,
        approval_id=None,
    )
    # Every attempt is charged; a retry is no new request.
    moved = evolve(moved, backoff_until=None, tool_calls=state.tool_calls + 1)
    if body.dispatch > 1:
        return moved
    asked = next(progress for progress in state.calls if progress.call.call_id == body.call_id)
    signature = asked.signature or call_signature(body.name, body.arguments)
    return evolve(
        moved,
        repeats=state.repeats.insert(signature, state.repeats.get(signature, 0) + 1),
        landed=state.landed.plus((body.call_id, body.name)) if body.effect is Effect.ONCE else state.landed,
    )


def _settle(state: State, body: ToolResult | ToolFailed | ToolRefused | ToolIndeterminate, content: str) -> State:
    """The model reads the results in the order of its calls, whichever came first."""
    result = Message(role=Role.TOOL, content=content, call_id=body.call_id, name=body.name)
    moved = _update_call(state, body, status=CallStatus.SETTLED, approval_id=None, approved=False)
    ids = [progress.call.call_id for progress in state.calls]
    after = state.calls[ids.index(body.call_id) + 1 :]
    place = len(state.turns) - sum(progress.status is CallStatus.SETTLED for progress in after)
    return evolve(moved, turns=state.turns.with_end(place, result, *state.turns[place:]))


def _update_call(state: State, body: AnyEvent, **changes: Any) -> State:
    """One call of the newest turn moves on. A call that is not in it, or that has its outcome, moves nowhere."""
    call_id: CallId | None = getattr(body, "call_id", None)
    if call_id not in {progress.call.call_id for progress in state.open_calls}:
        raise IllegalEvent(state.phase, f"{label_of(body)} of {call_id}, which is not open")

    def update(progress: CallProgress) -> CallProgress:
        return progress if progress.call.call_id != call_id else replace(progress, **changes)

    return evolve(state, calls=tuple(update(progress) for progress in state.calls))


def _cause_of(state: State, body: AnyEvent) -> Cause:
    """What an event that settles the end says about why. The first one names it."""
    match body:
        case CancellationRequested():
            return Cause(code="cancelled", detail=body.reason or "cancelled on request")
        case DeadlineExceeded():
            return Cause(code="deadline_exceeded", detail=body.detail or f"the {body.what} ran past its deadline")
        case BudgetRefused():
            detail = f"{body.dimension}: {body.used:g} used, {body.requested:g} asked for, {body.limit:g} allowed"
            return Cause(code="budget_exhausted", detail=detail, cap=body.dimension)
        case FanOutRefused():
            detail = f"the turn asks for {body.requested} calls, {body.limit} are allowed"
            return Cause(code="fan_out_exceeded", detail=detail, cap=body.cap)
        case RepeatDetected():
            detail = f"{body.name} was called {body.count} times with the same arguments, {body.limit} are allowed"
            return Cause(code="repeated_call", detail=detail, cap="max_repeated_calls")
        case DepthExceeded():
            detail = f"depth {body.depth} of {body.limit}: {'→'.join(body.path)}"
            return Cause(code="delegation_depth_exceeded", detail=detail, cap="max_delegation_depth")
        case SchemaViolation():
            return Cause(code="schema_violation", detail="; ".join(body.problems))
        case GuardrailRefusal():
            return Cause(code="guardrail_refusal", detail=f"{body.guardrail}: {body.detail}")
        case HookRefusal():
            return Cause(code=body.code, detail=f"{body.hook}: {body.detail}")
        case WorkerLost():
            return Cause(code="worker_lost", detail=f"the run was recovered {body.recoveries} times")
        case ToolRefused():
            return Cause(code=body.code, detail=f"{body.name}: {body.detail}")
        case ToolFailed():
            # A tool's own code says what went wrong with it, not how the run ended.
            code = body.code if body.code in STATE_BY_CODE else "tool_failed"
            return Cause(code=code, detail=f"{body.name}: {body.detail}")
        case ToolIndeterminate():
            return Cause(code="tool_indeterminate", detail=f"{body.name}: {body.detail}")
        case AttemptFailed():
            return Cause(code=body.code, detail=body.detail)
        case ModelResponded():
            return _cause_of_response(state, body)
        case _:
            raise AssertionError(f"{body.kind} ends no run")


def _cause_of_response(state: State, body: ModelResponded) -> Cause:
    if body.stop_reason is not StopReason.LENGTH:
        return Cause(code="empty_model_output", detail="the model answered with nothing")
    ceiling = state.output_ceiling
    if ceiling is not None and body.usage.output_tokens >= ceiling:
        detail = f"the answer reached the {ceiling} output tokens that were left"
        return Cause(code="budget_exhausted", detail=detail, cap="max_output_tokens")
    return Cause(code="output_truncated", detail="the answer reached the model's own limit and is cut")
