"""Small moves of the fold and of the decision that nothing else would miss at once: sums, resets, what is told."""

from collections.abc import Sequence
from decimal import Decimal

import pytest

from app.events import (
    AnyEvent,
    CancellationRequested,
    ClearedCall,
    DeadlineExceeded,
    OutputUnwrapped,
    OutputValidated,
    ToolFailed,
    ToolRefused,
    TurnCleared,
    WorkerLost,
)
from app.policy import BudgetLimits, RepairConfig, Spend
from app.run import AssemblePrompt, CallModel, CallProgress, Cause, IllegalEvent, Phase, State, fold
from app.run.steps.bounds import output_spent, seconds_left
from tests.builders import (
    CANCEL,
    acting_log,
    asked_about,
    assembled,
    build_agent,
    build_call,
    build_raw_call,
    build_shared,
    build_spec,
    dispatch_failed,
    dispatched,
    fold_bodies,
    granted,
    model_called,
    model_failed,
    plan_after,
    queued,
    ready_log,
    refused,
    responded,
    resumed,
    returned,
    routed,
    said_by_model,
    settled_turn,
    started,
    told_by_tool,
    tool_failed,
    turn_cleared,
)
from tests.run.samples import cause_of

_LOOK, _SET = build_call("look", number=1), build_call("set", number=2)
_NEXT_LOOK = build_call("look", iteration=2)
_ONE_TURN = (*ready_log(), *settled_turn(1, _LOOK))
_ANSWERED = (*ready_log(), model_called(), responded("Four nights."))


def find_fault(text: str) -> Sequence[str]:
    return ("it is never right",)


def costing(body: AnyEvent, cost: str) -> AnyEvent:
    return body.model_copy(update={"cost": Decimal(cost)})


def estimated_to_cost(cost: str) -> AnyEvent:
    return model_called(iteration=2).model_copy(update={"estimated_cost": Decimal(cost)})


def first_call(state: State) -> CallProgress:
    return state.calls[0]


# One iteration that cost 0.5, and a second model call that is out.
_PAID_TURN = (
    *ready_log(),
    model_called(),
    costing(responded("", _LOOK), "0.5"),
    dispatched(_LOOK),
    returned(_LOOK),
    estimated_to_cost("0.25"),
)


# --- sums ------------------------------------------------------------------------------------------------------------


def test_what_a_claim_charges_for_an_abandoned_call_comes_on_top() -> None:
    assert fold_bodies(*_PAID_TURN, resumed()).cost == Decimal("0.75")


def test_what_a_failed_attempt_costs_comes_on_top() -> None:
    failed = costing(model_failed(delay_seconds=0), "0.125")
    assert fold_bodies(*_PAID_TURN, failed).cost == Decimal("0.625")


def test_after_a_failed_attempt_no_tokens_are_out() -> None:
    state = fold_bodies(*ready_log(), model_called(estimate=50), model_failed(delay_seconds=0))
    assert state.in_flight_input_tokens == 0


# --- resets ----------------------------------------------------------------------------------------------------------


def test_a_model_call_ends_the_backoff() -> None:
    waiting = fold_bodies(*ready_log(), model_called(), model_failed(delay_seconds=5))
    assert waiting.backoff_until == 5
    assert fold_bodies(model_called(attempt=2), state=waiting).backoff_until is None


def test_a_model_call_leaves_the_calls_of_the_last_turn_behind() -> None:
    assert fold_bodies(*_ONE_TURN, model_called(iteration=2)).calls == ()


def test_calls_of_a_refused_response_are_not_the_runs() -> None:
    state = fold_bodies(*ready_log(), model_called(), responded(None, _LOOK))
    assert (state.phase, state.calls) == (Phase.REFUSED, ())


def test_a_call_about_which_somebody_is_asked_again_is_not_allowed_any_more() -> None:
    state = fold_bodies(*acting_log(_LOOK), asked_about(_LOOK), granted(_LOOK), asked_about(_LOOK, "apr_2"))
    assert (first_call(state).approved, first_call(state).approval_id) == (False, "apr_2")


def test_a_settled_call_has_no_question_left() -> None:
    state = fold_bodies(*acting_log(_LOOK), asked_about(_LOOK), refused(_LOOK))
    assert first_call(state).approval_id is None


def test_a_clearance_keeps_what_was_said_before() -> None:
    log = (*_ONE_TURN, model_called(iteration=2), responded("", _NEXT_LOOK, iteration=2), turn_cleared(_NEXT_LOOK))
    assert fold_bodies(*log).turns == (
        said_by_model("", _LOOK),
        told_by_tool(_LOOK, "done"),
        said_by_model("", _NEXT_LOOK),
    )


def test_a_request_that_was_no_json_is_counted_as_it_went_out() -> None:
    raw = build_raw_call("look", "{")
    sent = ClearedCall(call_id=raw.call_id, name="look", arguments={"city": "Kyoto"})
    went_out = dispatched(build_call("look", arguments={"city": "Kyoto"}))
    state = fold_bodies(*acting_log(raw), TurnCleared(calls=(sent,)), went_out)
    assert dict(state.repeats) == {'look {"city":"Kyoto"}': 1}


def failed_with(*signals: str) -> AnyEvent:
    return tool_failed(_LOOK).model_copy(update={"signals": signals})


def test_a_failure_that_reads_like_an_instruction_flags_the_run() -> None:
    state = fold_bodies(*acting_log(_LOOK), dispatched(_LOOK), failed_with("instruction_override"))
    assert state.is_flagged is True
    assert state.turns[-1] == told_by_tool(_LOOK, "it failed")


def test_a_failure_that_reads_like_none_does_not() -> None:
    assert fold_bodies(*acting_log(_LOOK), dispatched(_LOOK), failed_with()).is_flagged is False


# --- prompt, route, output -------------------------------------------------------------------------------------------


def test_a_run_knows_the_version_and_the_fingerprint_of_its_prompt() -> None:
    state = fold_bodies(queued(), started(), assembled())
    assert (state.prompt_version, state.fingerprint) == ("d" * 16, "f" * 16)


def test_a_routed_run_goes_on_to_its_prompt_and_is_not_routed_again() -> None:
    spec = build_spec(agent=build_agent(task_class="travel"), route=("a:large", "b:large"))
    planned = plan_after(queued(), started(), routed("b:large"), spec=spec)
    assert (planned.command, planned.events, planned.state.routed_to) == (AssemblePrompt(), (), "b:large")


def test_a_model_call_is_told_what_the_tightest_budget_leaves_it_to_write() -> None:
    # The run wrote 5 tokens, others 30 of the caller's 50.
    shared = (
        build_shared(BudgetLimits(max_output_tokens=100)),
        build_shared(BudgetLimits(max_output_tokens=50), elsewhere=Spend(output_tokens=30)),
    )
    planned = plan_after(*_ONE_TURN, shared=shared)
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=15)


def test_an_answer_that_was_found_valid_is_not_checked_again() -> None:
    planned = plan_after(*_ANSWERED, OutputValidated(), resumed(), spec=build_spec(check_output=find_fault))
    assert (cause_of(planned), planned.events) == (Cause(code=None), ())


def test_an_answer_that_was_found_valid_stands_as_valid() -> None:
    assert fold_bodies(*_ANSWERED, OutputValidated()).is_validated is True


def test_an_answer_in_a_fence_is_what_stands_inside() -> None:
    state = fold_bodies(*ready_log(), model_called(), responded('```json\n{"nights": 4}\n```'), OutputUnwrapped())
    assert state.answer == '{"nights": 4}'


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_cancel_names_the_iteration_that_it_met() -> None:
    assert plan_after(*_ONE_TURN, cancel=CANCEL).events == (
        CancellationRequested(reason="changed my mind", requested_by="ada", iteration=1, author="planner"),
    )


def test_a_lost_worker_names_the_iteration_in_which_it_was_given_up() -> None:
    planned = plan_after(*_ONE_TURN, resumed(fence=9, recoveries=4))
    assert planned.events == (WorkerLost(recoveries=4, iteration=1, author="planner"),)


@pytest.mark.parametrize(
    ("body", "label"),
    [
        (model_called(iteration=2), "model_call before every call has its outcome"),
        (returned(_SET), "tool_result of call_1_2, which is not open"),
        (refused(_SET, None), "tool_refused:fatal of call_1_2, which is not open"),
        (assembled(), "prompt_assembled"),
    ],
    ids=["model call", "result", "refusal", "not in the table"],
)
def test_an_illegal_event_names_itself_and_the_phase(body: AnyEvent, label: str) -> None:
    state = fold_bodies(*acting_log(_LOOK))
    with pytest.raises(IllegalEvent) as caught:
        fold(state, body, at=0)
    assert (caught.value.phase, caught.value.label) == (Phase.ACTING, label)
    assert str(caught.value) == f"{label} is no move of a run that is acting"


def test_a_deadline_that_has_passed_is_told_in_words() -> None:
    planned = plan_after(*_ONE_TURN, spec=build_spec(deadline_at=10), now=10)
    assert planned.events == (
        DeadlineExceeded(
            what="run", deadline_at=10, detail="the run's deadline has passed", iteration=1, author="planner"
        ),
    )


def test_a_call_that_failed_and_is_not_made_again_is_closed_by_name() -> None:
    log = (*acting_log(_SET), dispatched(_SET), dispatch_failed(_SET, delay_seconds=0))
    assert plan_after(*log, cancel=CANCEL).events[0] == ToolFailed(
        call_id=_SET.call_id,
        name="set",
        code="tool_failed",
        content="The call failed and was not made again.",
        retry_safe=True,
        detail="the run ended before the call could be made again",
        iteration=1,
        author="planner",
    )


def test_calls_of_a_turn_that_goes_back_to_the_model_say_why_they_did_not_go_out() -> None:
    spec = build_spec(agent=build_agent(repair=RepairConfig(max_attempts=1)))
    planned = plan_after(*acting_log(build_raw_call("look", "{"), _SET), spec=spec)
    assert planned.events[-1] == ToolRefused(
        call_id=_SET.call_id,
        name="set",
        code="schema_violation",
        content="The call was not made, because another call of the same answer was not right.",
        detail="the turn was not right and did not go out",
        iteration=1,
        author="planner",
    )


# --- budgets that leave the same -------------------------------------------------------------------------------------


def test_of_budgets_that_leave_equal_seconds_the_runs_own_is_named() -> None:
    own = build_shared(BudgetLimits(max_seconds=5), seconds=2)
    callers = build_shared(BudgetLimits(max_seconds=9), seconds=6)
    assert seconds_left(build_spec(), fold_bodies(*ready_log()), (own, callers), 0) == (3, own)


def test_an_answer_that_was_stopped_asks_for_nothing_more() -> None:
    spec = build_spec(limits=BudgetLimits(max_output_tokens=50))
    assert output_spent(spec, fold_bodies(*_ONE_TURN), ()).requested == 0
