"""Which bound stops a run before its next step. The order of the questions is the contract: the first one names the
end (docs/run-loop.md, "How it ends")."""

from app.events import BudgetRefused, DeadlineExceeded
from app.run.causes import Cause
from app.run.spec import RunSpec
from app.run.state import CallProgress, State


def overdue(spec: RunSpec, state: State, now: float) -> DeadlineExceeded | None:
    """The run's deadline, if it has passed."""
    if spec.deadline is None or not spec.deadline.has_passed(now):
        return None
    return DeadlineExceeded(
        what="run",
        deadline_at=spec.deadline.at,
        iteration=state.iteration,
        author=spec.agent.name,
        detail="the run's deadline has passed",
    )


def shape_exceeded(spec: RunSpec, state: State) -> Cause | None:
    """``max_iterations`` and ``max_llm_calls``, asked before a model call. A retry is no new iteration."""
    begins_iteration = state.attempts == 0 or bool(state.calls)
    if begins_iteration and state.iteration >= spec.agent.max_iterations:
        detail = f"{state.iteration} iterations did not settle it, {spec.agent.max_iterations} are allowed"
        return Cause(code="max_iterations_exceeded", detail=detail, cap="max_iterations")
    if state.model_calls >= spec.max_llm_calls:
        detail = f"{state.model_calls} model calls were made, {spec.max_llm_calls} are allowed"
        return Cause(code="max_llm_calls_exceeded", detail=detail, cap="max_llm_calls")
    return None


def refuse_model_call(spec: RunSpec, state: State, now: float) -> BudgetRefused | None:
    """The first budget dimension, in field order, that leaves no room for one more model call."""
    used = {
        "max_input_tokens": state.usage.input_tokens,
        "max_output_tokens": state.usage.output_tokens,
        "max_model_calls": state.model_calls,
        "max_iterations": state.iteration if state.attempts == 0 or state.calls else state.iteration - 1,
    }
    for dimension, limit in spec.limits:
        if dimension == "max_seconds" and limit is not None:
            if (refusal := refuse_seconds(spec, state, now)) is not None:
                return refusal
        elif dimension in used and limit is not None and used[dimension] + 1 > limit:
            return _refusal(spec, state, dimension, limit=limit, used=used[dimension], requested=1)
    return None


def refuse_seconds(spec: RunSpec, state: State, now: float) -> BudgetRefused | None:
    """``max_seconds``: time under claims only."""
    limit = spec.limits.max_seconds
    if limit is None:
        return None
    used = active_seconds(state, now)
    if used < limit:
        return None
    return _refusal(spec, state, "max_seconds", limit=limit, used=used, requested=0)


def refuse_input(spec: RunSpec, state: State, estimated_tokens: int) -> BudgetRefused | None:
    """Asked when a prompt is there: whether the tokens that it will use still fit. No prompt is cut to fit."""
    limit = spec.limits.max_input_tokens
    if limit is None or state.usage.input_tokens + estimated_tokens <= limit:
        return None
    used = state.usage.input_tokens
    return _refusal(spec, state, "max_input_tokens", limit=limit, used=used, requested=estimated_tokens)


def refuse_tool_call(spec: RunSpec, state: State) -> BudgetRefused | None:
    """A single call past ``max_tool_calls`` is spend: the budget's end, not the shape's."""
    limit = spec.limits.max_tool_calls
    if limit is None or state.tool_calls + 1 <= limit:
        return None
    return _refusal(spec, state, "max_tool_calls", limit=limit, used=state.tool_calls, requested=1)


def refuse_dispatch(spec: RunSpec, state: State, progress: CallProgress) -> BudgetRefused | None:
    """Every attempt reserves. A first dispatch was judged with its whole turn; one more has to fit beside the calls
    that were judged and have not gone out yet."""
    limit = spec.limits.max_tool_calls
    if limit is None or progress.dispatches == 0:
        return None
    reserved = state.tool_calls + sum(other.dispatches == 0 for other in state.open_calls)
    if reserved + 1 <= limit:
        return None
    return _refusal(spec, state, "max_tool_calls", limit=limit, used=reserved, requested=1)


def remaining_output(spec: RunSpec, state: State) -> int | None:
    """Output tokens that the budget leaves; generation stops there."""
    limit = spec.limits.max_output_tokens
    return None if limit is None else limit - state.usage.output_tokens


def active_seconds(state: State, now: float) -> float:
    """Seconds under a claim until ``now``."""
    return state.active_seconds + max(0.0, now - state.last_at)


def _refusal(
    spec: RunSpec, state: State, dimension: str, *, limit: float, used: float, requested: float
) -> BudgetRefused:
    source = spec.sources.get(dimension)
    return BudgetRefused(
        dimension=dimension,
        limit=limit,
        used=used,
        requested=requested,
        source=None if source is None else source.value,
        iteration=state.iteration,
        author=spec.agent.name,
    )
