"""What an event that settles a run's end says about why."""

from app.conversation import StopReason
from app.events import (
    AnyEvent,
    AttemptFailed,
    BudgetRefused,
    CancellationRequested,
    DeadlineExceeded,
    DepthExceeded,
    FanOutRefused,
    GuardrailRefusal,
    HookRefusal,
    ModelResponded,
    RepeatDetected,
    SchemaViolation,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    WorkerLost,
)
from app.run.causes import STATE_BY_CODE, Cause
from app.run.state import State


def cause_of(state: State, body: AnyEvent) -> Cause:
    """What an event that settles the end says about why. The first one names it."""
    match body:
        case CancellationRequested():
            return Cause(code="cancelled", detail=body.reason or "cancelled on request")
        case DeadlineExceeded():
            return Cause(code="deadline_exceeded", detail=body.detail or f"the {body.what} ran past its deadline")
        case BudgetRefused():
            detail = f"{body.dimension}: {body.used:g} used, {body.requested:g} asked for, {body.limit:g} allowed"
            if body.window_seconds is not None:
                detail += f" in {body.window_seconds} seconds"
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
            return Cause(code=body.code, detail=f"{body.name}: {body.detail}")
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
