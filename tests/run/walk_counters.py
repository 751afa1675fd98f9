"""What of a state may never run back, and what may be spent."""

from app.policy import BudgetLimits, Spend
from app.run import State


class Counters(tuple[float, ...]):
    """Counters of a state; one set is at most another where each of them is."""

    def __le__(self, other: tuple[float, ...]) -> bool:
        return all(mine <= yours for mine, yours in zip(self, other, strict=True))


def counters_of(state: State) -> Counters:
    return Counters(
        (
            state.seq,
            state.fence,
            state.recoveries,
            state.iteration,
            state.model_calls,
            state.tool_calls,
            state.usage.input_tokens,
            state.usage.output_tokens,
            float(state.cost or 0),
            state.repairs,
            state.turns_dropped,
            state.is_flagged,
            state.active_seconds,
            len(state.turns),
            len(state.landed),
            len(state.shared),
            sum(state.repeats.values()),
        )
    )


def fits(total: Spend, limits: BudgetLimits, max_llm_calls: int | None) -> bool:
    """Whether a budget, and the cap on model calls, have room for all that is spent."""
    bounds = [(total.charged_to(name), limit) for name, limit in limits if limit is not None]
    return all(used <= limit for used, limit in [*bounds, (total.model_calls, max_llm_calls or total.model_calls)])
