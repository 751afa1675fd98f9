"""Which bound stops a run before its next step. The order of the questions is the contract: the first one names the
end (docs/run-loop.md, "How it ends")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from app.events import BudgetRefused, DeadlineExceeded, DepthExceeded
from app.policy import BudgetLimits, Scope, Spend
from app.policy.prices import EXACT
from app.run.causes import Cause
from app.run.spec import RunSpec
from app.run.state import CallProgress, Phase, State


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """One budget that a run spends of. ``elsewhere`` is what all but this run have spent of it, and reserved.
    ``seconds`` is how long it has been spent of, where the run's own time is not what counts. ``max_llm_calls`` is the
    cap of the run whose budget it is, over everything below that run."""

    limits: BudgetLimits
    sources: Mapping[str, Scope]
    elsewhere: Spend
    seconds: float | None = None
    max_llm_calls: int | None = None


_DIMENSIONS: Final = tuple(BudgetLimits.model_fields)
_NOTHING: Final = Spend()
_FREE: Final = _NOTHING.cost


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


def shape_exceeded(spec: RunSpec, state: State, shared: Sequence[Shared] = ()) -> Cause | None:
    """``max_iterations`` and ``max_llm_calls``, asked before a model call. A retry is no new iteration. The cap on
    model calls is over the whole tree: the run's own, and that of every run that led to it."""
    if begins_iteration(state) and state.iteration >= spec.agent.max_iterations:
        detail = f"{state.iteration} iterations did not settle it, {spec.agent.max_iterations} are allowed"
        return Cause(code="max_iterations_exceeded", detail=detail, cap="max_iterations")
    caps = [(spec.max_llm_calls, shared[0].elsewhere.model_calls if shared else 0)]
    caps += [(one.max_llm_calls, one.elsewhere.model_calls) for one in shared[1:] if one.max_llm_calls is not None]
    for cap, elsewhere in caps:
        made = state.model_calls + elsewhere
        if made >= cap:
            detail = f"{made} model calls were made, max_llm_calls allows {cap}"
            return Cause(code="max_llm_calls_exceeded", detail=detail, cap="max_llm_calls")
    return None


def begins_iteration(state: State) -> bool:
    """Whether the next model call is a new iteration, and no retry of the last one."""
    return state.attempts == 0 or bool(state.calls)


def spent(state: State) -> Spend:
    """What the run itself has spent so far, and reserved: a model call that is out counts with its estimate, and so do
    those of the model's calls that have not gone out yet."""
    waits = state.phase in (Phase.ACTING, Phase.HELD)
    reserved = sum(progress.dispatches == 0 for progress in state.open_calls) if waits else 0
    return Spend(
        cost=_FREE if state.cost is state.in_flight_cost is None else _cost_of(state),
        input_tokens=state.usage.input_tokens + state.in_flight_input_tokens,
        output_tokens=state.usage.output_tokens,
        model_calls=state.model_calls,
        tool_calls=state.tool_calls + reserved,
        iterations=state.iteration,
    )


def _cost_of(state: State) -> Decimal:
    return EXACT.add(state.cost or Decimal(), state.in_flight_cost or Decimal())


def budgets_of(spec: RunSpec, shared: Sequence[Shared]) -> Sequence[Shared]:
    """The budgets that a run spends of, its own first."""
    return shared or (Shared(limits=spec.limits, sources=spec.sources, elsewhere=_NOTHING),)


def refuse_depth(spec: RunSpec, state: State, shared: Sequence[Shared]) -> DepthExceeded | BudgetRefused | None:
    """Depth and call path, then peer invocations of the callers' budgets: asked before a prompt is assembled."""
    budgets = budgets_of(spec, shared)
    depths = (budget.limits.max_delegation_depth for budget in budgets)
    deepest = min((depth for depth in depths if depth is not None), default=None)
    if deepest is not None and state.depth > deepest:
        return DepthExceeded(depth=state.depth, limit=deepest, path=state.path, author=spec.agent.name)
    if state.depth == 0:
        return None
    for budget in budgets[1:]:
        limit, used = budget.limits.max_peer_invocations, budget.elsewhere.peer_invocations
        if limit is not None and used + 1 > limit:
            return _refusal(spec, state, "max_peer_invocations", budget, limit=limit, used=used, requested=1)
    return None


def refuse_model_call(spec: RunSpec, state: State, shared: Sequence[Shared], now: float) -> BudgetRefused | None:
    """The first budget dimension, in field order, that leaves no room for one more model call."""
    own = spent(state)
    used: Mapping[str, Decimal | int] = {
        "max_cost": own.cost,
        "max_input_tokens": own.input_tokens,
        "max_output_tokens": own.output_tokens,
        "max_model_calls": own.model_calls,
        "max_iterations": own.iterations if begins_iteration(state) else own.iterations - 1,
    }
    for dimension in _DIMENSIONS:
        if dimension == "max_seconds":
            if (late := refuse_seconds(spec, state, shared, now)) is not None:
                return late
        elif dimension in used:
            requested = 0 if dimension == "max_cost" else 1
            refusal = _refuse(spec, state, shared, dimension, used=used[dimension], requested=requested)
            if refusal is not None:
                return refusal
    return None


def _refuse(
    spec: RunSpec,
    state: State,
    shared: Sequence[Shared],
    dimension: str,
    *,
    used: Decimal | int,
    requested: Decimal | int,
) -> BudgetRefused | None:
    """The first budget that has no room for what is requested, or for anything at all."""
    for budget in budgets_of(spec, shared):
        limit: Decimal | int | None = getattr(budget.limits, dimension)
        if limit is None:
            continue
        total = used + budget.elsewhere.charged_to(dimension)
        if total >= limit or total + requested > limit:
            return _refusal(spec, state, dimension, budget, limit=limit, used=total, requested=requested)
    return None


def refuse_seconds(spec: RunSpec, state: State, shared: Sequence[Shared], now: float) -> BudgetRefused | None:
    """``max_seconds``: of the run's own budget, time under claims only."""
    for budget in budgets_of(spec, shared):
        limit = budget.limits.max_seconds
        used = active_seconds(state, now) if budget.seconds is None else budget.seconds
        if limit is not None and used >= limit:
            return _refusal(spec, state, "max_seconds", budget, limit=limit, used=used, requested=0)
    return None


def seconds_spent(spec: RunSpec, state: State, shared: Sequence[Shared], now: float) -> BudgetRefused:
    """What is recorded of work that was cut off where a budget's seconds ended."""
    left = seconds_left(spec, state, shared, now)
    if left is None:
        raise AssertionError("no budget bounds the seconds")
    limit = left[1].limits.max_seconds or 0.0
    return _refusal(spec, state, "max_seconds", left[1], limit=limit, used=limit, requested=0)


def seconds_left(spec: RunSpec, state: State, shared: Sequence[Shared], now: float) -> tuple[float, Shared] | None:
    """The least that any budget leaves of its seconds, and that budget; None where seconds are open."""
    left = [
        (max(0.0, limit - (active_seconds(state, now) if budget.seconds is None else budget.seconds)), budget)
        for budget in budgets_of(spec, shared)
        if (limit := budget.limits.max_seconds) is not None
    ]
    return min(left, key=lambda pair: pair[0], default=None)


def refuse_input(
    spec: RunSpec,
    state: State,
    shared: Sequence[Shared],
    *,
    estimated_tokens: int,
    estimated_cost: Decimal | None,
) -> BudgetRefused | None:
    """Asked when a prompt is there: whether the tokens that it will use, and what they cost, still fit. No prompt is
    cut to fit."""
    own = spent(state)
    if estimated_cost is not None:
        refusal = _refuse(spec, state, shared, "max_cost", used=own.cost, requested=estimated_cost)
        if refusal is not None:
            return refusal
    return _refuse(spec, state, shared, "max_input_tokens", used=own.input_tokens, requested=estimated_tokens)


def refuse_tool_call(spec: RunSpec, state: State, shared: Sequence[Shared]) -> BudgetRefused | None:
    """A single call past ``max_tool_calls`` is spend: the budget's end, not the shape's."""
    return _refuse(spec, state, shared, "max_tool_calls", used=state.tool_calls, requested=1)


def refuse_dispatch(
    spec: RunSpec, state: State, progress: CallProgress, shared: Sequence[Shared]
) -> BudgetRefused | None:
    """Every attempt reserves. A first dispatch was judged with its whole turn; one more has to fit beside the calls
    that were judged and have not gone out yet."""
    if progress.dispatches == 0 or progress.child_run_id is not None:
        return None
    reserved = state.tool_calls + sum(other.dispatches == 0 for other in state.open_calls)
    return _refuse(spec, state, shared, "max_tool_calls", used=reserved, requested=1)


def tool_calls_left(spec: RunSpec, state: State, shared: Sequence[Shared]) -> int | None:
    """The least that any budget leaves of ``max_tool_calls``; None where they are open."""
    left = [
        limit - state.tool_calls - budget.elsewhere.tool_calls
        for budget in budgets_of(spec, shared)
        if (limit := budget.limits.max_tool_calls) is not None
    ]
    return min(left, default=None)


def tightest_width(spec: RunSpec, shared: Sequence[Shared]) -> int | None:
    """The narrowest ``max_parallel_tool_calls``."""
    widths = [budget.limits.max_parallel_tool_calls for budget in budgets_of(spec, shared)]
    return min((width for width in widths if width is not None), default=None)


def remaining_output(spec: RunSpec, state: State, shared: Sequence[Shared]) -> int | None:
    """Output tokens that the budgets leave; generation stops there."""
    left = [remaining for remaining, _ in _output_left(spec, state, shared)]
    return min(left, default=None)


def output_spent(spec: RunSpec, state: State, shared: Sequence[Shared]) -> BudgetRefused:
    """What is recorded of an answer that was stopped where its budget of output tokens ended."""
    _, budget = min(_output_left(spec, state, shared), key=lambda pair: pair[0])
    limit = budget.limits.max_output_tokens or 0
    return _refusal(spec, state, "max_output_tokens", budget, limit=limit, used=limit, requested=0)


def _output_left(spec: RunSpec, state: State, shared: Sequence[Shared]) -> list[tuple[int, Shared]]:
    return [
        (limit - state.usage.output_tokens - budget.elsewhere.output_tokens, budget)
        for budget in budgets_of(spec, shared)
        if (limit := budget.limits.max_output_tokens) is not None
    ]


def overshot(spec: RunSpec, state: State) -> tuple[str, ...]:
    """What the run has used past a ceiling of its own, a line each: what a call takes is known only afterwards."""
    own = spent(state)
    used = {dimension: own.charged_to(dimension) for dimension in _DIMENSIONS}
    past = (
        (dimension, used[dimension], limit)
        for dimension, limit in spec.limits
        if limit is not None and used[dimension] > limit
    )
    return tuple(f"{dimension}: {amount} used, {limit} allowed" for dimension, amount, limit in past)


def active_seconds(state: State, now: float) -> float:
    """Seconds under a claim until ``now``."""
    return state.active_seconds + max(0.0, now - state.last_at)


def _refusal(  # noqa: PLR0913 - the facts of a refusal
    spec: RunSpec,
    state: State,
    dimension: str,
    budget: Shared,
    *,
    limit: Decimal | float,
    used: Decimal | float,
    requested: Decimal | float,
) -> BudgetRefused:
    source = budget.sources.get(dimension)
    return BudgetRefused(
        dimension=dimension,
        limit=float(limit),
        used=float(used),
        requested=float(requested),
        source=None if source is None else source.value,
        iteration=state.iteration,
        author=spec.agent.name,
    )
