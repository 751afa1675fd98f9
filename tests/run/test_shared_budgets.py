"""A run spends of its own budget and of those of the runs that led to it: what others took of them is not there."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from app.conversation import Usage
from app.events import AnyEvent, BudgetRefused, FanOutRefused
from app.policy import BudgetLimits, Scope, Spend
from app.run import CallModel, DispatchTool, Phase, Situation, State, Terminate, plan
from app.run.steps.bounds import (
    Shared,
    output_spent,
    overshot,
    refuse_input,
    remaining_output,
    seconds_left,
    seconds_spent,
    spent,
    tightest_width,
    tool_calls_left,
)
from tests.builders import (
    acting_log,
    build_call,
    build_shared,
    build_spec,
    dispatch_failed,
    dispatched,
    fold_bodies,
    model_called,
    model_failed,
    plan_after,
    ready_log,
    responded,
    resumed,
    returned,
    settled_turn,
)
from tests.run.samples import LOGS, cap_of

_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)
_SPEC = build_spec()

# One iteration: 10 input and 5 output tokens, one model call, one tool call.
_ONE_TURN = (*ready_log(), *settled_turn(1, _LOOK))


def with_caller(limits: BudgetLimits, **elsewhere: Any) -> tuple[Shared, ...]:
    """An own budget without ceilings, and the caller's, of which others have spent."""
    return (build_shared(), build_shared(limits, elsewhere=Spend(**elsewhere)))


def paid(cost: str | None) -> AnyEvent:
    return responded("", _LOOK).model_copy(update={"cost": None if cost is None else Decimal(cost)})


# --- what others have spent ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "elsewhere", "cap"),
    [
        ({"max_input_tokens": 20}, {"input_tokens": 10}, "max_input_tokens"),
        ({"max_output_tokens": 9}, {"output_tokens": 4}, "max_output_tokens"),
        ({"max_model_calls": 3}, {"model_calls": 2}, "max_model_calls"),
        ({"max_iterations": 3}, {"iterations": 2}, "max_iterations"),
        ({"max_cost": "0.5"}, {"cost": Decimal("0.5")}, "max_cost"),
    ],
)
def test_what_others_spent_of_a_callers_budget_is_not_there_for_the_next_model_call(
    limits: dict[str, Any], elsewhere: dict[str, Any], cap: str
) -> None:
    shared = with_caller(BudgetLimits(**limits), **elsewhere)
    assert cap_of(plan_after(*_ONE_TURN, shared=shared)) == ("budget_exhausted", cap)


@pytest.mark.parametrize(
    ("limits", "elsewhere"),
    [
        ({"max_input_tokens": 21}, {"input_tokens": 10}),
        ({"max_output_tokens": 10}, {"output_tokens": 4}),
        ({"max_model_calls": 4}, {"model_calls": 2}),
        ({"max_iterations": 4}, {"iterations": 2}),
        ({"max_cost": "0.500001"}, {"cost": Decimal("0.5")}),
        ({"max_tool_calls": 1}, {"tool_calls": 9}),
        ({"max_peer_invocations": 1}, {"peer_invocations": 9}),
    ],
)
def test_a_callers_budget_with_room_for_one_more_lets_it_pass(
    limits: dict[str, Any], elsewhere: dict[str, Any]
) -> None:
    shared = with_caller(BudgetLimits(**limits), **elsewhere)
    assert isinstance(plan_after(*_ONE_TURN, shared=shared).command, CallModel)


def test_a_refusal_names_the_budget_that_had_no_room() -> None:
    shared = (
        build_shared(BudgetLimits(max_model_calls=9), sources={"max_model_calls": Scope.REQUEST}),
        build_shared(
            BudgetLimits(max_model_calls=3),
            elsewhere=Spend(model_calls=2),
            sources={"max_model_calls": Scope.DEPLOYMENT},
        ),
    )
    assert plan_after(*_ONE_TURN, shared=shared).events == (
        BudgetRefused(
            dimension="max_model_calls",
            limit=3,
            used=3,
            requested=1,
            source="deployment",
            iteration=1,
            author="planner",
        ),
    )


def test_of_budgets_that_bind_together_the_runs_own_names_the_end() -> None:
    shared = (
        build_shared(BudgetLimits(max_model_calls=1), sources={"max_model_calls": Scope.REQUEST}),
        build_shared(BudgetLimits(max_model_calls=1), sources={"max_model_calls": Scope.TENANT}),
    )
    (refusal,) = plan_after(*_ONE_TURN, shared=shared).events
    assert isinstance(refusal, BudgetRefused)
    assert refusal.source == "request"


def test_the_order_of_dimensions_comes_before_the_order_of_budgets() -> None:
    shared = (build_shared(BudgetLimits(max_iterations=1)), build_shared(BudgetLimits(max_input_tokens=10)))
    assert cap_of(plan_after(*_ONE_TURN, shared=shared)) == ("budget_exhausted", "max_input_tokens")


def test_the_budgets_of_the_situation_hold_in_place_of_the_specs() -> None:
    spec = build_spec(limits=BudgetLimits(max_model_calls=1))
    assert isinstance(plan_after(*_ONE_TURN, spec=spec, shared=(build_shared(),)).command, CallModel)


def test_a_model_call_may_write_what_the_tightest_budget_leaves() -> None:
    shared = (
        build_shared(BudgetLimits(max_output_tokens=100)),
        build_shared(BudgetLimits(max_output_tokens=50), elsewhere=Spend(output_tokens=30)),
    )
    assert remaining_output(_SPEC, fold_bodies(*_ONE_TURN), shared) == 15


def test_an_answer_that_was_stopped_names_the_budget_that_left_least() -> None:
    shared = (
        build_shared(BudgetLimits(max_output_tokens=100)),
        build_shared(
            BudgetLimits(max_output_tokens=50),
            elsewhere=Spend(output_tokens=30),
            sources={"max_output_tokens": Scope.AGENT},
        ),
    )
    refusal = output_spent(_SPEC, fold_bodies(*_ONE_TURN), shared)
    assert (refusal.dimension, refusal.limit, refusal.used, refusal.source) == ("max_output_tokens", 50, 50, "agent")


# --- calls -----------------------------------------------------------------------------------------------------------


def test_a_single_call_past_a_callers_ceiling_is_spend() -> None:
    shared = with_caller(BudgetLimits(max_tool_calls=3), tool_calls=3)
    assert cap_of(plan_after(*acting_log(_LOOK), shared=shared)) == ("budget_exhausted", "max_tool_calls")


@pytest.mark.parametrize(("elsewhere", "left"), [(0, 2), (1, 1), (2, 0), (9, 0)])
def test_a_turn_that_would_only_partly_fit_in_a_callers_budget_is_refused_entire(elsewhere: int, left: int) -> None:
    shared = with_caller(BudgetLimits(max_tool_calls=2), tool_calls=elsewhere)
    assert plan_after(*acting_log(_LOOK, _SET, _PAY), shared=shared).events == (
        FanOutRefused(cap="max_tool_calls", requested=3, limit=left, iteration=1, author="planner"),
    )


def test_a_turn_may_be_as_wide_as_the_tightest_budget_allows() -> None:
    shared = (
        build_shared(BudgetLimits(max_parallel_tool_calls=3)),
        build_shared(BudgetLimits(max_parallel_tool_calls=2)),
    )
    planned = plan_after(*acting_log(_LOOK, _SET, _PAY), shared=shared)
    assert cap_of(planned) == ("fan_out_exceeded", "max_parallel_tool_calls")


def test_a_call_that_goes_out_again_needs_room_in_every_budget() -> None:
    shared = with_caller(BudgetLimits(max_tool_calls=3), tool_calls=2)
    log = (*acting_log(_SET), dispatched(_SET), dispatch_failed(_SET, delay_seconds=0))
    assert cap_of(plan_after(*log, shared=shared)) == ("budget_exhausted", "max_tool_calls")


@pytest.mark.parametrize("ask", [tool_calls_left, remaining_output])
def test_where_no_budget_sets_a_ceiling_nothing_is_short(ask: Any) -> None:
    assert ask(_SPEC, fold_bodies(*_ONE_TURN), (build_shared(), build_shared())) is None


def test_where_no_budget_sets_a_width_a_turn_may_have_any() -> None:
    assert tightest_width(_SPEC, (build_shared(), build_shared())) is None


# --- seconds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "passes"), [(4.9, True), (5.0, False), (9.0, False)])
def test_a_callers_seconds_run_by_the_callers_clock(seconds: float, passes: bool) -> None:
    shared = (build_shared(), build_shared(BudgetLimits(max_seconds=5), seconds=seconds))
    planned = plan_after(*ready_log(), shared=shared, now=1_000)
    assert isinstance(planned.command, CallModel) is passes


def test_a_callers_seconds_end_a_run_between_two_calls() -> None:
    shared = (build_shared(), build_shared(BudgetLimits(max_seconds=5), seconds=5))
    log = (*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK))
    assert cap_of(plan_after(*log, shared=shared)) == ("budget_exhausted", "max_seconds")


@pytest.mark.parametrize(
    ("own", "callers", "left"), [(10, None, 7), (None, 10, 4), (10, 10, 4), (10, 30, 7), (1, 30, 0), (None, None, None)]
)
def test_the_least_that_any_budget_leaves_of_its_seconds_is_left(
    own: float | None, callers: float | None, left: float | None
) -> None:
    shared = (
        build_shared(BudgetLimits(max_seconds=own)),
        build_shared(BudgetLimits(max_seconds=callers), seconds=6),
    )
    found = seconds_left(_SPEC, fold_bodies(*ready_log()), shared, 3)
    assert (None if found is None else found[0]) == left


def test_work_that_was_cut_off_names_the_budget_whose_seconds_ended() -> None:
    shared = (
        build_shared(BudgetLimits(max_seconds=60), sources={"max_seconds": Scope.REQUEST}),
        build_shared(BudgetLimits(max_seconds=10), seconds=10, sources={"max_seconds": Scope.TENANT}),
    )
    assert seconds_spent(_SPEC, fold_bodies(*ready_log()), shared, 3) == BudgetRefused(
        dimension="max_seconds", limit=10, used=10, requested=0, source="tenant", author="planner"
    )


def test_nothing_is_cut_off_where_no_budget_bounds_the_seconds() -> None:
    with pytest.raises(AssertionError, match="no budget bounds the seconds"):
        seconds_spent(_SPEC, fold_bodies(*ready_log()), (), 3)


# --- cost ------------------------------------------------------------------------------------------------------------


def cost_after(*bodies: AnyEvent) -> Decimal | None:
    return fold_bodies(*bodies).cost


def test_what_has_no_price_has_no_cost() -> None:
    assert cost_after(*ready_log(), model_called(), paid(None)) is None


def test_costs_add_up_without_rounding() -> None:
    first = (*ready_log(), model_called(), paid("1000000000000.000000000001"), dispatched(_LOOK), returned(_LOOK))
    second = responded("Four nights.").model_copy(update={"cost": Decimal("0.000000000000000001")})
    assert cost_after(*first, model_called(iteration=2), second) == Decimal("1000000000000.000000000001000001")


def test_what_has_a_price_is_charged_beside_what_has_none() -> None:
    second = responded("Four nights.").model_copy(update={"cost": Decimal("0.25")})
    first = (*ready_log(), model_called(), paid(None), dispatched(_LOOK), returned(_LOOK))
    assert cost_after(*first, model_called(iteration=2), second) == Decimal("0.25")


def test_an_attempt_that_failed_costs_what_it_is_estimated_to_have_used() -> None:
    failed = model_failed(delay_seconds=0).model_copy(update={"cost": Decimal("0.25")})
    assert cost_after(*ready_log(), model_called(), failed) == Decimal("0.25")


def estimated_to_cost(cost: str | None) -> AnyEvent:
    return model_called(estimate=50).model_copy(update={"estimated_cost": None if cost is None else Decimal(cost)})


def test_a_model_call_that_is_out_counts_with_what_it_is_estimated_to_cost() -> None:
    state = fold_bodies(*ready_log(), estimated_to_cost("0.25"))
    assert (spent(state).cost, state.cost) == (Decimal("0.25"), None)


def test_a_claim_charges_what_the_call_that_it_abandons_is_estimated_to_cost() -> None:
    state = fold_bodies(*ready_log(), estimated_to_cost("0.25"), resumed())
    assert (spent(state).cost, state.cost) == (Decimal("0.25"), Decimal("0.25"))


@pytest.mark.parametrize("outcome", [paid("0.5"), model_failed(delay_seconds=0), resumed()], ids=lambda b: b.kind)
def test_an_estimate_is_charged_once(outcome: AnyEvent) -> None:
    assert fold_bodies(*ready_log(), estimated_to_cost("0.25"), outcome).in_flight_cost is None


def test_a_claim_that_abandons_a_call_without_a_price_charges_nothing() -> None:
    assert cost_after(*ready_log(), estimated_to_cost(None), resumed()) is None


@pytest.mark.parametrize(("estimate", "fits"), [("0", True), ("0.5", True), ("0.500001", False)])
def test_a_prompt_has_to_fit_in_what_is_left_of_the_cost(estimate: str, fits: bool) -> None:
    shared = with_caller(BudgetLimits(max_cost=Decimal("1")), cost=Decimal("0.5"))
    state = fold_bodies(*ready_log())
    refusal = refuse_input(_SPEC, state, shared, estimated_tokens=1, estimated_cost=Decimal(estimate))
    assert (refusal is None) is fits


def test_a_prompt_that_costs_too_much_says_so() -> None:
    spec = build_spec(limits=BudgetLimits(max_cost=Decimal("1")), sources={"max_cost": Scope.AGENT})
    state = fold_bodies(*ready_log(), model_called(), paid("0.75"))
    refusal = refuse_input(spec, state, (), estimated_tokens=1, estimated_cost=Decimal("0.5"))
    assert refusal == BudgetRefused(
        dimension="max_cost", limit=1, used=0.75, requested=0.5, source="agent", iteration=1, author="planner"
    )


# --- what a run has spent itself -------------------------------------------------------------------------------------


def test_a_run_has_spent_what_its_log_says() -> None:
    assert spent(fold_bodies(*_ONE_TURN)) == Spend(
        input_tokens=10, output_tokens=5, model_calls=1, tool_calls=1, iterations=1
    )


def test_a_model_call_that_is_out_counts_with_its_estimate() -> None:
    assert spent(fold_bodies(*ready_log(), model_called(estimate=50))).input_tokens == 50


def test_the_estimate_of_a_call_that_is_out_is_not_counted_twice() -> None:
    said = responded("Four nights.", usage=Usage(input_tokens=40))
    assert spent(fold_bodies(*ready_log(), model_called(estimate=50), said)).input_tokens == 40


@pytest.mark.parametrize(
    ("bodies", "calls"),
    [
        ((*acting_log(_LOOK, _PAY), dispatched(_LOOK)), 2),
        ((*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK)), 2),
        ((*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK), dispatched(_PAY)), 2),
        (LOGS[Phase.HELD], 1),
    ],
    ids=["one is out", "one is back", "both went out", "held"],
)
def test_calls_of_a_turn_that_may_go_out_are_reserved(bodies: Sequence[AnyEvent], calls: int) -> None:
    # Or a run that the first call starts could take the room that the second one was promised.
    assert spent(fold_bodies(*bodies)).tool_calls == calls


def test_a_run_that_stops_reserves_nothing() -> None:
    state = fold_bodies(*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK))
    stopped = plan(build_spec(deadline_at=1), state, (), Situation(now=2))
    assert isinstance(stopped.command, Terminate)
    assert spent(stopped.state).tool_calls == 1


def test_a_turn_that_was_judged_goes_out_whole_whatever_others_have_spent_since() -> None:
    shared = with_caller(BudgetLimits(max_tool_calls=2), tool_calls=9)
    log = (*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK))
    assert plan_after(*log, shared=shared).command == DispatchTool(call_id=_PAY.call_id, dispatch=1)


def test_what_was_used_past_a_ceiling_is_told_by_its_dimension() -> None:
    spec = build_spec(limits=BudgetLimits(max_cost=Decimal("0.5"), max_output_tokens=4, max_tool_calls=9))
    state = State(cost=Decimal("0.75"), usage=Usage(output_tokens=5))
    assert overshot(spec, state) == ("max_cost: 0.75 used, 0.5 allowed", "max_output_tokens: 5 used, 4 allowed")


def test_a_ceiling_that_was_only_reached_is_none_that_was_passed() -> None:
    spec = build_spec(limits=BudgetLimits(max_output_tokens=5))
    assert overshot(spec, State(usage=Usage(output_tokens=5))) == ()
