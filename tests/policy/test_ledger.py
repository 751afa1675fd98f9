"""One account for a whole tree of runs: nothing is promised past a ceiling, and nothing that was spent is forgotten."""

from dataclasses import dataclass
from decimal import Decimal

import pytest

from app.errors import AdkError, BudgetExceededError, RunError
from app.policy import BudgetLimits, RunBudget, Scope, Spend, UnlimitedBudget, most_restrictive

_CHARGED = [
    "max_cost",
    "max_input_tokens",
    "max_output_tokens",
    "max_model_calls",
    "max_tool_calls",
    "max_iterations",
    "max_peer_invocations",
]
_SHAPES = ["max_delegation_depth", "max_parallel_tool_calls"]
_TEN = BudgetLimits.model_validate(dict.fromkeys([*_CHARGED, *_SHAPES], 10))


@dataclass
class HandClock:
    """Stands still until a test sets it, backwards too."""

    at: float = 1_000.0

    def now(self) -> float:
        return self.at


def open_budget(clock: HandClock | None = None, *, limits: BudgetLimits = _TEN) -> RunBudget:
    return RunBudget(resolved=most_restrictive({Scope.TENANT: limits}), clock=clock or HandClock())


def spend(dimension: str, amount: int) -> Spend:
    """So much of one dimension and nothing of the others."""
    name = dimension.removeprefix("max_")
    kind = type(getattr(Spend(), name))
    return Spend(**{name: kind(amount)})


def refusal_of(budget: RunBudget, wanted: Spend) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as caught:
        budget.reserve(wanted)
    return caught.value


def overshoot_of(budget: RunBudget) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as caught:
        budget.check()
    return caught.value


def facts(error: BudgetExceededError) -> tuple[object, ...]:
    return (error.dimension, error.limit, error.used, error.requested, error.source)


def test_every_charged_dimension_is_one_of_the_limits() -> None:
    assert set(_CHARGED) | set(_SHAPES) | {"max_seconds"} == set(BudgetLimits.model_fields)


@pytest.mark.parametrize("dimension", _CHARGED)
def test_a_reservation_may_reach_a_ceiling(dimension: str) -> None:
    budget = open_budget()
    budget.reserve(spend(dimension, 10))
    assert (budget.spent, budget.remaining(dimension)) == (spend(dimension, 10), 0)


@pytest.mark.parametrize("dimension", _CHARGED)
def test_a_reservation_past_a_ceiling_is_refused_and_says_all_about_it(dimension: str) -> None:
    budget = open_budget()
    budget.reserve(spend(dimension, 8))
    assert facts(refusal_of(budget, spend(dimension, 3))) == (dimension, 10, 8, 3, "tenant")


def test_a_refused_reservation_holds_nothing() -> None:
    budget = open_budget()
    refusal_of(budget, Spend(tool_calls=1, model_calls=11))
    assert budget.spent == Spend()


def test_a_refusal_is_told_to_people() -> None:
    budget = open_budget(limits=BudgetLimits(max_cost=Decimal("0.50")))
    budget.reserve(Spend(cost=Decimal("0.4")))
    told = str(refusal_of(budget, Spend(cost=Decimal("1E-1") + Decimal("1E-7"))))
    assert told == "max_cost is 0.5, set by tenant: 0.4 used, 0.1000001 more asked for"


def test_a_refusal_without_a_source_names_none() -> None:
    resolved = most_restrictive({Scope.AGENT: BudgetLimits(max_tool_calls=1)})
    budget = RunBudget(resolved=type(resolved)(limits=resolved.limits, sources={}), clock=HandClock())
    refused = refusal_of(budget, Spend(tool_calls=2))
    assert (refused.source, str(refused)) == (None, "max_tool_calls is 1: 0 used, 2 more asked for")


def test_the_first_dimension_in_field_order_is_named() -> None:
    refused = refusal_of(open_budget(), Spend(peer_invocations=99, tool_calls=99, output_tokens=99))
    assert refused.dimension == "max_output_tokens"


def test_a_tenth_of_a_unit_past_the_cost_is_past_it() -> None:
    budget = open_budget(limits=BudgetLimits(max_cost=Decimal("0.3")))
    budget.reserve(Spend(cost=Decimal("0.1")))
    budget.reserve(Spend(cost=Decimal("0.2")))
    assert refusal_of(budget, Spend(cost=Decimal("1E-18"))).dimension == "max_cost"


def test_an_unbounded_budget_refuses_nothing() -> None:
    budget = open_budget(limits=BudgetLimits.unbounded())
    budget.record(budget.reserve(Spend(cost=Decimal(10**9), tool_calls=10**9)), Spend(input_tokens=10**12))
    budget.check()
    assert budget.spent == Spend(input_tokens=10**12)


def test_what_is_recorded_takes_the_place_of_what_was_reserved() -> None:
    budget = open_budget()
    budget.record(budget.reserve(Spend(input_tokens=8)), Spend(input_tokens=3, output_tokens=1))
    assert budget.spent == Spend(input_tokens=3, output_tokens=1)


def test_a_reservation_can_be_given_back_unused() -> None:
    budget = open_budget()
    budget.record(budget.reserve(Spend(tool_calls=10)), Spend())
    assert budget.remaining("max_tool_calls") == 10


def test_a_reservation_is_recorded_once() -> None:
    budget = open_budget()
    reservation = budget.reserve(Spend(tool_calls=2))
    budget.record(reservation, Spend(tool_calls=1))
    with pytest.raises(ValueError, match="not held"):
        budget.record(reservation, Spend(tool_calls=1))
    assert budget.spent == Spend(tool_calls=1)


def test_equal_reservations_are_two() -> None:
    budget = open_budget()
    first, second = budget.reserve(Spend(tool_calls=2)), budget.reserve(Spend(tool_calls=2))
    budget.record(first, Spend())
    budget.record(second, Spend(tool_calls=1))
    assert budget.spent == Spend(tool_calls=1)


def test_a_reservation_of_another_budget_is_not_recorded() -> None:
    budget = open_budget()
    with pytest.raises(ValueError, match="not held"):
        budget.record(open_budget().reserve(Spend()), Spend(tool_calls=1))
    assert budget.spent == Spend()


@pytest.mark.parametrize("dimension", _CHARGED)
def test_an_overshoot_is_charged_and_told_by_the_check(dimension: str) -> None:
    budget = open_budget()
    budget.record(budget.reserve(spend(dimension, 1)), spend(dimension, 11))
    assert facts(overshoot_of(budget)) == (dimension, 10, 11, 0, "tenant")


@pytest.mark.parametrize("dimension", _CHARGED)
def test_use_up_to_a_ceiling_is_no_overshoot(dimension: str) -> None:
    budget = open_budget()
    budget.record(budget.reserve(Spend()), spend(dimension, 10))
    budget.check()
    assert budget.remaining(dimension) == 0


def test_after_an_overshoot_nothing_is_left_and_nothing_is_lent() -> None:
    budget = open_budget()
    budget.record(budget.reserve(Spend()), Spend(input_tokens=12))
    assert budget.remaining("max_input_tokens") == 0


def test_after_an_overshoot_of_the_cost_nothing_is_left() -> None:
    budget = open_budget()
    budget.record(budget.reserve(Spend()), Spend(cost=Decimal("10.5")))
    assert budget.remaining("max_cost") == 0


def test_after_an_overshoot_nothing_else_is_reserved_either() -> None:
    budget = open_budget()
    budget.record(budget.reserve(Spend()), Spend(input_tokens=12))
    assert facts(refusal_of(budget, Spend(tool_calls=1))) == ("max_input_tokens", 10, 12, 0, "tenant")


def test_what_is_only_reserved_overshoots_nothing() -> None:
    budget = open_budget()
    first = budget.reserve(Spend(input_tokens=5))
    budget.reserve(Spend(input_tokens=5))
    budget.record(first, Spend(input_tokens=7))
    budget.check()
    assert budget.spent == Spend(input_tokens=12)


@pytest.mark.parametrize("dimension", _SHAPES)
def test_depth_and_width_are_not_used_up(dimension: str) -> None:
    budget = open_budget()
    budget.reserve(Spend(tool_calls=9, peer_invocations=9))
    assert budget.remaining(dimension) == 10


def test_an_open_dimension_has_no_remainder() -> None:
    assert open_budget(limits=BudgetLimits(max_cost=Decimal(1))).remaining("max_tool_calls") is None


def test_the_remaining_cost_is_a_decimal() -> None:
    budget = open_budget()
    budget.reserve(Spend(cost=Decimal("0.1")))
    assert repr(budget.remaining("max_cost")) == "Decimal('9.9')"


@pytest.mark.parametrize("dimension", ["tool_calls", "max_patience", "filled"])
def test_an_unknown_dimension_has_no_remainder_to_ask_for(dimension: str) -> None:
    with pytest.raises(ValueError, match=dimension):
        open_budget().remaining(dimension)


def test_a_budget_tells_its_limits_and_who_set_them() -> None:
    budget = open_budget(limits=BudgetLimits(max_tool_calls=3))
    assert (budget.limits, budget.sources) == (BudgetLimits(max_tool_calls=3), {"max_tool_calls": Scope.TENANT})


def timed(clock: HandClock) -> RunBudget:
    return open_budget(clock, limits=BudgetLimits(max_seconds=60, max_tool_calls=1))


def test_time_does_not_run_before_the_first_spending() -> None:
    clock = HandClock()
    budget = timed(clock)
    clock.at += 3_600
    budget.check()
    assert budget.remaining("max_seconds") == 60


def test_time_runs_from_the_first_reservation_on() -> None:
    clock = HandClock()
    budget = timed(clock)
    budget.reserve(Spend())
    clock.at += 20
    budget.reserve(Spend())
    clock.at += 30
    assert (budget.elapsed_seconds, budget.remaining("max_seconds")) == (50, 10)


def test_a_settled_figure_starts_the_time_too() -> None:
    clock = HandClock()
    budget = timed(clock)
    budget.settle("run_1", Spend())
    clock.at += 20
    budget.reserve(Spend())
    assert (budget.elapsed_seconds, budget.remaining("max_seconds")) == (20, 40)


def test_no_time_has_passed_before_anything_was_spent() -> None:
    clock = HandClock()
    budget = timed(clock)
    clock.at += 20
    assert budget.elapsed_seconds == 0


def test_a_refused_reservation_does_not_start_the_time() -> None:
    clock = HandClock()
    budget = timed(clock)
    refusal_of(budget, Spend(tool_calls=2))
    clock.at += 20
    assert budget.remaining("max_seconds") == 60


def test_at_the_last_moment_before_the_time_is_up_the_check_is_silent() -> None:
    clock = HandClock()
    budget = timed(clock)
    budget.reserve(Spend())
    clock.at += 59.5
    budget.check()
    assert budget.remaining("max_seconds") == 0.5


def test_when_the_time_is_up_the_check_says_so() -> None:
    clock = HandClock()
    budget = timed(clock)
    budget.reserve(Spend())
    clock.at += 60
    assert facts(overshoot_of(budget)) == ("max_seconds", 60, 60, 0, "tenant")


def test_when_the_time_is_up_nothing_is_reserved() -> None:
    clock = HandClock()
    budget = timed(clock)
    budget.reserve(Spend())
    clock.at += 61.5
    assert str(refusal_of(budget, Spend())) == "max_seconds is 60, set by tenant: 61.5 used, 0 more asked for"


def test_long_after_the_time_is_up_no_time_is_left() -> None:
    clock = HandClock()
    budget = timed(clock)
    budget.reserve(Spend())
    clock.at += 3_600
    assert budget.remaining("max_seconds") == 0


def test_a_clock_that_is_set_back_gives_no_time_away() -> None:
    clock = HandClock()
    budget = timed(clock)
    budget.reserve(Spend())
    clock.at -= 20
    assert budget.remaining("max_seconds") == 60


def test_what_a_child_spends_its_parent_no_longer_has() -> None:
    parent = open_budget()
    child = parent.child().child()
    child.record(child.reserve(Spend(peer_invocations=1)), Spend(peer_invocations=4))
    assert (parent.remaining("max_peer_invocations"), parent.spent) == (6, Spend(peer_invocations=4))


def test_a_tree_of_runs_can_not_break_together_what_each_would_keep() -> None:
    parent = open_budget()
    parent.reserve(Spend(tool_calls=4))
    parent.child().reserve(Spend(tool_calls=4))
    assert facts(refusal_of(parent.child(), Spend(tool_calls=4))) == ("max_tool_calls", 10, 8, 4, "tenant")


def test_a_child_has_its_parents_limits() -> None:
    parent = open_budget()
    assert (parent.child().limits, parent.child().sources) == (parent.limits, parent.sources)


def test_the_time_of_a_child_runs_since_its_parents_first_reservation() -> None:
    clock = HandClock()
    parent = timed(clock)
    parent.reserve(Spend())
    clock.at += 20
    child = parent.child()
    child.reserve(Spend())
    assert child.remaining("max_seconds") == 40


def test_a_settled_figure_is_charged() -> None:
    budget = open_budget()
    budget.settle("run_1", Spend(input_tokens=4))
    assert budget.spent == Spend(input_tokens=4)


def test_a_later_figure_of_one_holder_takes_the_place_of_its_earlier_one() -> None:
    budget = open_budget()
    budget.settle("run_1", Spend(input_tokens=4))
    budget.settle("run_1", Spend(input_tokens=6, tool_calls=1))
    assert budget.spent == Spend(input_tokens=6, tool_calls=1)


def test_a_settled_figure_past_a_ceiling_is_told_by_the_check() -> None:
    budget = open_budget()
    budget.settle("run_1", Spend(input_tokens=11))
    assert facts(overshoot_of(budget)) == ("max_input_tokens", 10, 11, 0, "tenant")


def test_a_settled_figure_leaves_less_room_for_others() -> None:
    budget = open_budget()
    budget.settle("run_1", Spend(tool_calls=6))
    assert facts(refusal_of(budget.child(), Spend(tool_calls=5))) == ("max_tool_calls", 10, 6, 5, "tenant")


def test_what_others_spent_is_all_but_the_holders_own_figure() -> None:
    budget = open_budget()
    budget.settle("run_1", Spend(tool_calls=1))
    budget.child().settle("run_2", Spend(tool_calls=2))
    budget.reserve(Spend(tool_calls=3))
    assert budget.spent_by_others("run_1") == Spend(tool_calls=5)


def test_for_a_holder_that_has_settled_nothing_all_was_spent_by_others() -> None:
    budget = open_budget()
    budget.settle("run_1", Spend(tool_calls=1))
    assert budget.spent_by_others("run_9") == Spend(tool_calls=1)


@pytest.mark.parametrize("reason", ["", " ", "\n\t"])
def test_a_run_without_a_budget_needs_a_reason(reason: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        UnlimitedBudget(reason)


def test_the_reason_for_no_budget_is_kept_as_it_was_given() -> None:
    assert UnlimitedBudget(" nightly batch ").reason == " nightly batch "


def test_an_exceeded_budget_may_be_told_without_any_facts() -> None:
    error = BudgetExceededError()
    assert (str(error), facts(error)) == ("BudgetExceededError", (None,) * 5)


def test_an_exceeded_budget_ends_a_run_under_its_own_code_and_is_not_tried_again() -> None:
    error: AdkError = BudgetExceededError("spent", dimension="max_cost")
    assert (isinstance(error, RunError), error.code, error.retryable) == (True, "budget_exhausted", False)
