"""What is asked when a prompt is there, and how long a run has been under a claim."""

from decimal import Decimal

import pytest

from app.events import BudgetRefused
from app.policy import BudgetLimits, Scope
from app.run.steps.bounds import active_seconds, refuse_input
from tests.builders import build_call, build_spec, fold_bodies, ready_log, resumed, settled_turn

# One turn used 10 input tokens.
_STATE = fold_bodies(*ready_log(), *settled_turn(1, build_call("look")), at=100)


@pytest.mark.parametrize(("tokens", "fits"), [(1, True), (90, True), (91, False)])
def test_a_prompt_passes_whose_tokens_still_fit(tokens: int, fits: bool) -> None:
    spec = build_spec(limits=BudgetLimits(max_input_tokens=100))
    assert (refuse_input(spec, _STATE, (), estimated_tokens=tokens, estimated_cost=None) is None) is fits


def test_a_prompt_of_any_length_fits_where_nobody_set_a_ceiling() -> None:
    assert refuse_input(build_spec(), _STATE, (), estimated_tokens=10**9, estimated_cost=Decimal(10**9)) is None


def test_a_prompt_that_does_not_fit_says_what_it_asked_for() -> None:
    spec = build_spec(limits=BudgetLimits(max_input_tokens=100), sources={"max_input_tokens": Scope.REQUEST})
    assert refuse_input(spec, _STATE, (), estimated_tokens=91, estimated_cost=None) == BudgetRefused(
        dimension="max_input_tokens",
        limit=100,
        used=10,
        requested=91,
        source="request",
        iteration=1,
        author="planner",
    )


@pytest.mark.parametrize(("now", "seconds"), [(100, 0), (107.5, 7.5), (90, 0)])
def test_a_run_is_under_its_claim_until_now(now: float, seconds: float) -> None:
    assert active_seconds(_STATE, now) == seconds


def test_the_time_between_two_claims_is_not_counted() -> None:
    assert active_seconds(fold_bodies(resumed(), state=_STATE, at=500), 503) == 3
