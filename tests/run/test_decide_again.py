"""Trying again after an attempt that failed, and asking before a turn goes out."""

import pytest

from app.events import (
    AnyEvent,
    ClearedCall,
    HookRefusal,
    TurnCleared,
)
from app.policy import BudgetLimits
from app.run import (
    CallModel,
    ClearTurn,
    DispatchTool,
    RunSpec,
    Situation,
    WaitUntil,
    decide,
)
from tests.builders import (
    CANCEL,
    acting_log,
    build_agent,
    build_call,
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
)
from tests.run.samples import cap_of

_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)


# --- retries of a model call -----------------------------------------------------------------------------------------

_FAILED_ONCE = (*ready_log(), model_called(), model_failed(delay_seconds=2))


def test_a_backoff_is_waited_for() -> None:
    assert plan_after(*_FAILED_ONCE, at=10, now=10).command == WaitUntil(at=12)


def test_after_the_backoff_the_same_iteration_is_tried_again() -> None:
    assert plan_after(*_FAILED_ONCE, at=10, now=12).command == CallModel(iteration=1, attempt=2, max_output_tokens=None)


def test_a_run_can_be_stopped_in_its_backoff() -> None:
    assert cap_of(plan_after(*_FAILED_ONCE, at=10, now=10, cancel=CANCEL)) == ("cancelled", None)


def test_a_retry_is_no_new_iteration() -> None:
    spec = build_spec(agent=build_agent(max_iterations=1), limits=BudgetLimits(max_iterations=1))
    assert isinstance(plan_after(*_FAILED_ONCE, spec=spec, now=5).command, CallModel)


@pytest.mark.parametrize(
    ("spec", "end"),
    [
        (build_spec(limits=BudgetLimits(max_model_calls=1)), ("budget_exhausted", "max_model_calls")),
        (build_spec(max_llm_calls=1), ("max_llm_calls_exceeded", "max_llm_calls")),
    ],
)
def test_every_attempt_reserves_against_the_bounds(spec: RunSpec, end: tuple[str, str]) -> None:
    assert cap_of(plan_after(*_FAILED_ONCE, spec=spec, now=5)) == end


def test_the_last_attempts_error_is_the_runs() -> None:
    assert cap_of(plan_after(*ready_log(), model_called(), model_failed())) == ("provider_error", None)


def test_a_model_call_that_a_claim_abandoned_is_made_again() -> None:
    planned = plan_after(*ready_log(), model_called(), resumed())
    assert planned.command == CallModel(iteration=1, attempt=2, max_output_tokens=None)


def test_what_an_abandoned_call_may_have_used_counts_against_the_budget() -> None:
    spec = build_spec(limits=BudgetLimits(max_input_tokens=50))
    planned = plan_after(*ready_log(), model_called(estimate=50), resumed(), spec=spec)
    assert cap_of(planned) == ("budget_exhausted", "max_input_tokens")


# --- hooks before a dispatch -----------------------------------------------------------------------------------------

_GATED = build_spec(gates_dispatch=True)


def test_where_a_hook_wants_to_be_asked_the_whole_turn_is_cleared_first() -> None:
    assert plan_after(*acting_log(_LOOK, _PAY), spec=_GATED).command == ClearTurn()


def test_a_turn_that_is_cleared_goes_out() -> None:
    planned = plan_after(*acting_log(_LOOK), TurnCleared(calls=()), spec=_GATED)
    assert planned.command == DispatchTool(call_id=_LOOK.call_id, dispatch=1)


def test_after_a_restart_nobody_is_asked_again_about_a_cleared_turn() -> None:
    planned = plan_after(*acting_log(_LOOK), TurnCleared(calls=()), resumed(), spec=_GATED)
    assert isinstance(planned.command, DispatchTool)


def test_the_caps_are_asked_before_the_hooks() -> None:
    spec = build_spec(gates_dispatch=True, limits=BudgetLimits(max_parallel_tool_calls=1))
    assert cap_of(plan_after(*acting_log(_LOOK, _PAY), spec=spec)) == ("fan_out_exceeded", "max_parallel_tool_calls")


def test_a_refused_dispatch_ends_the_run_with_nothing_sent() -> None:
    refusal = HookRefusal(hook="guard", point="before_tool_dispatch")
    assert cap_of(plan_after(*acting_log(_LOOK, _PAY), refusal, spec=_GATED)) == ("hook_refusal", None)


def turn_with_rewrite(iteration: int) -> tuple[AnyEvent, ...]:
    """A turn in which the model asks for Kyoto and a hook takes the name out."""
    asked = build_call("look", iteration=iteration, arguments={"city": "Kyoto"})
    hidden = build_call("look", iteration=iteration, arguments={"city": "[redacted]"})
    clearance = TurnCleared(calls=(ClearedCall(call_id=asked.call_id, name="look", arguments={"city": "[redacted]"}),))
    said = responded("", asked, iteration=iteration)
    return (model_called(iteration=iteration), said, clearance, dispatched(hidden), returned(hidden))


def test_a_request_that_a_hook_rewrites_each_time_is_still_a_repetition() -> None:
    again = build_call("look", iteration=4, arguments={"city": "Kyoto"})
    log = (*ready_log(), *turn_with_rewrite(1), *turn_with_rewrite(2), *turn_with_rewrite(3))
    planned = plan_after(*log, model_called(iteration=4), responded("", again), spec=_GATED)
    assert cap_of(planned) == ("repeated_call", "max_repeated_calls")


# --- retries of a tool -----------------------------------------------------------------------------------------------

_SET_FAILED = (*acting_log(_SET, _LOOK), dispatched(_SET), dispatch_failed(_SET, delay_seconds=2))


def test_a_tools_backoff_is_waited_for() -> None:
    assert plan_after(*_SET_FAILED, at=10, now=10).command == WaitUntil(at=12)


def test_after_its_backoff_a_tool_is_dispatched_again_before_the_next_call() -> None:
    assert plan_after(*_SET_FAILED, at=10, now=12).command == DispatchTool(call_id=_SET.call_id, dispatch=2)


def test_a_crash_in_a_tools_backoff_waits_only_the_rest() -> None:
    assert plan_after(*_SET_FAILED, resumed(), at=10, now=11).command == WaitUntil(at=12)


def test_a_second_dispatch_has_to_fit_beside_the_calls_that_have_not_gone_out() -> None:
    exact = build_spec(limits=BudgetLimits(max_tool_calls=3))
    assert plan_after(*_SET_FAILED, spec=exact, now=9).command == DispatchTool(call_id=_SET.call_id, dispatch=2)


def test_a_second_dispatch_that_does_not_fit_is_spend_and_ends_the_run() -> None:
    planned = plan_after(*_SET_FAILED, spec=build_spec(limits=BudgetLimits(max_tool_calls=2)), now=9)
    assert cap_of(planned) == ("budget_exhausted", "max_tool_calls")


def test_a_call_that_is_out_under_this_claim_can_not_be_decided_about() -> None:
    state = fold_bodies(*acting_log(_LOOK), dispatched(_LOOK))
    with pytest.raises(AssertionError, match="call_1_1 is out under this claim"):
        decide(build_spec(), state, Situation(now=0))
