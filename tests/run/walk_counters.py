"""What of a state may never run back, and what may be spent."""

from random import Random
from typing import Final

from app.policy import BudgetLimits, Spend
from app.run import State
from app.run.spec import RunSpec
from app.run.steps.bounds import Shared, spent
from tests.run.walk_specs import PRICE

_OTHERS_STEP: Final = Spend(
    cost=PRICE, input_tokens=3, output_tokens=2, model_calls=1, tool_calls=1, iterations=1, peer_invocations=1
)


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


class Spenders:
    """What a walk's run spends of, and who spends of it beside."""

    spec: RunSpec
    state: State
    callers_limits: BudgetLimits | None
    callers_max_llm_calls: int | None
    elsewhere: Spend
    below: Spend
    _random: Random
    _now: float

    def budgets(self) -> tuple[Shared, ...]:
        """What the run spends of; nothing where no other run shares it."""
        own = Shared(limits=self.spec.limits, sources={}, elsewhere=self.below)
        if self.callers_limits is None:
            return (own,) if self.spec.team else ()
        callers = Shared(
            limits=self.callers_limits,
            sources={},
            elsewhere=self.elsewhere + self.below,
            seconds=self._now,
            max_llm_calls=self.callers_max_llm_calls,
        )
        return (own, callers)

    def _others_spend(self) -> None:
        """Other runs of the same tree spend of the caller's budget, as far as it has room for them."""
        limits = self.callers_limits
        if limits is None or self._random.random() < 0.85:
            return
        total = self.elsewhere + self.below + spent(self.state) + _OTHERS_STEP
        if fits(total, limits, self.callers_max_llm_calls):
            self.elsewhere += _OTHERS_STEP

    def _sub_agent_spends(self) -> None:
        """The run of a sub-agent goes on, as far as all budgets have room for it."""
        own = self.below + spent(self.state) + _OTHERS_STEP
        callers = self.callers_limits or self.spec.limits
        if fits(own, self.spec.limits, self.spec.max_llm_calls) and fits(
            self.elsewhere + own, callers, self.callers_max_llm_calls
        ):
            self.below += _OTHERS_STEP
