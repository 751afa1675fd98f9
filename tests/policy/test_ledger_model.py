"""The ledger beside a model that only keeps lists: whatever is done in whatever order, both say the same."""

from decimal import Decimal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from app.errors import BudgetExceededError
from app.policy import BudgetLimits, Reservation, RunBudget, Scope, Spend, most_restrictive

_FIELDS = [
    "cost",
    "input_tokens",
    "output_tokens",
    "model_calls",
    "tool_calls",
    "iterations",
    "peer_invocations",
]
_COSTS = st.decimals(min_value=0, max_value=3, places=18)
_COUNTS = st.integers(min_value=0, max_value=3)
_SPENDS = st.builds(Spend, cost=_COSTS, **dict.fromkeys(_FIELDS[1:], _COUNTS))
_CEILINGS = st.none() | st.integers(min_value=1, max_value=12)
_LIMITS = st.builds(BudgetLimits, **{f"max_{name}": _CEILINGS for name in _FIELDS})


class _StoppedClock:
    def now(self) -> float:
        return 0.0


class LedgerBesideModel(RuleBasedStateMachine):
    """``held``, ``recorded`` and ``figures`` are the model; sums are taken anew each time."""

    reservations: Bundle[Reservation] = Bundle("reservations")

    @initialize(limits=_LIMITS)
    def open(self, limits: BudgetLimits) -> None:
        resolved = most_restrictive({Scope.AGENT: limits})
        self.budget = RunBudget(resolved=resolved, clock=_StoppedClock())
        self.held: list[Reservation] = []
        self.recorded: list[Spend] = []
        self.figures: dict[str, Spend] = {}

    @rule(target=reservations, spend=_SPENDS, below=st.booleans())
    def reserve(self, spend: Spend, below: bool) -> MultipleResults[Reservation]:
        budget = self.budget.child() if below else self.budget
        expected = self.first_past_ceiling([*self.used(), *self.promised(), spend])
        granted, refused = try_reserve(budget, spend)
        assert refused == expected
        self.held.extend(granted)
        return multiple(*granted)

    @rule(reservation=consumes(reservations), actual=_SPENDS)
    def record(self, reservation: Reservation, actual: Spend) -> None:
        self.budget.record(reservation, actual)
        self.held.remove(reservation)
        self.recorded.append(actual)

    @rule(holder=st.sampled_from(["run_1", "run_2"]), spend=_SPENDS)
    def settle(self, holder: str, spend: Spend) -> None:
        self.budget.settle(holder, spend)
        self.figures[holder] = spend

    @invariant()
    def spent_is_what_was_used_and_promised(self) -> None:
        assert vars_of(self.budget.spent) == totals([*self.used(), *self.promised()])

    @invariant()
    def others_spent_the_rest(self) -> None:
        rest = [*self.recorded, *self.promised(), self.figures.get("run_2", Spend())]
        assert vars_of(self.budget.spent_by_others("run_1")) == totals(rest)

    @invariant()
    def what_remains_is_the_ceiling_without_what_was_spent(self) -> None:
        spent = totals([*self.used(), *self.promised()])
        ceilings = {name: getattr(self.budget.limits, f"max_{name}") for name in _FIELDS}
        left = {name: None if limit is None else max(0, limit - spent[name]) for name, limit in ceilings.items()}
        assert {name: self.budget.remaining(f"max_{name}") for name in _FIELDS} == left

    @invariant()
    def the_check_tells_of_what_was_used_past_a_ceiling(self) -> None:
        assert overshot(self.budget) == self.first_past_ceiling(self.used())

    def used(self) -> list[Spend]:
        return [*self.recorded, *self.figures.values()]

    def promised(self) -> list[Spend]:
        return [reservation.spend for reservation in self.held]

    def first_past_ceiling(self, spends: list[Spend]) -> str | None:
        spent = totals(spends)
        ceilings = {name: getattr(self.budget.limits, f"max_{name}") for name in _FIELDS}
        past = [f"max_{name}" for name, limit in ceilings.items() if limit is not None and spent[name] > limit]
        return past[0] if past else None


def try_reserve(budget: RunBudget, spend: Spend) -> tuple[list[Reservation], str | None]:
    """The reservation, or the dimension that had no room for it."""
    try:
        return [budget.reserve(spend)], None
    except BudgetExceededError as refused:
        return [], refused.dimension


def overshot(budget: RunBudget) -> str | None:
    """The dimension that the check names, if it names one."""
    try:
        budget.check()
    except BudgetExceededError as overshoot:
        return overshoot.dimension
    return None


def vars_of(spend: Spend) -> dict[str, Decimal | int]:
    return {name: getattr(spend, name) for name in _FIELDS}


def totals(spends: list[Spend]) -> dict[str, Decimal | int]:
    return {name: sum(getattr(spend, name) for spend in spends) for name in _FIELDS}


TestLedgerBesideModel = LedgerBesideModel.TestCase
TestLedgerBesideModel.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
