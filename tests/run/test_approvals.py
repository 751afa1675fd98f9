"""Approvals: which calls people are asked about, when the run waits for them, and what an answer is good for."""

import pytest

from app.events import AnyEvent, ApprovalDenied, CancellationRequested, ToolFailed, TurnCleared
from app.ids import ApprovalId
from app.policy import BudgetLimits
from app.run import (
    AskApproval,
    CallModel,
    ClearTurn,
    DispatchTool,
    DispatchTools,
    IllegalEvent,
    Phase,
    RequestApproval,
    Suspend,
    Terminate,
    WaitUntil,
    fold,
)
from app.run.invariants import broken_invariants
from tests.builders import (
    CANCEL,
    acting_log,
    asked_about,
    build_agent,
    build_call,
    build_spec,
    denied,
    dispatch_failed,
    dispatched,
    fold_bodies,
    granted,
    plan_after,
    refused,
    resumed,
    returned,
    suspended,
    told_by_tool,
    turn_cleared,
)
from tests.run.samples import cap_of, cause_of

_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)
_ASKS = build_spec(approved_by_people=("set", "pay"))

# Two of three calls wait for people.
_ASKED: tuple[AnyEvent, ...] = (
    *acting_log(_LOOK, _SET, _PAY),
    asked_about(_SET, "apr_1"),
    asked_about(_PAY, "apr_2"),
    turn_cleared(_LOOK, _SET, _PAY),
)


# --- asking ----------------------------------------------------------------------------------------------------------


def test_a_turn_with_a_call_that_people_approve_is_cleared_whole_first() -> None:
    assert plan_after(*acting_log(_LOOK, _PAY), spec=_ASKS).command == ClearTurn()


def test_a_turn_without_such_a_call_goes_out_unasked() -> None:
    assert isinstance(plan_after(*acting_log(_LOOK), spec=_ASKS).command, DispatchTool)


def test_the_caps_are_asked_before_people() -> None:
    spec = build_spec(approved_by_people=("pay",), limits=BudgetLimits(max_parallel_tool_calls=1))
    assert cap_of(plan_after(*acting_log(_LOOK, _PAY), spec=spec)) == ("fan_out_exceeded", "max_parallel_tool_calls")


def test_nobody_is_asked_about_a_turn_that_is_refused() -> None:
    spec = build_spec(agent=build_agent(tools=("pay",)), approved_by_people=("pay",))
    assert cap_of(plan_after(*acting_log(_PAY, _LOOK), spec=spec)) == ("tool_not_allowed", None)


def test_a_question_is_put_to_a_person_before_anything_of_the_turn_goes_out() -> None:
    assert plan_after(*_ASKED, spec=_ASKS).command == AskApproval(call_id=_SET.call_id)


def test_questions_are_put_one_after_the_other_in_the_models_order() -> None:
    planned = plan_after(*_ASKED, granted(_SET, "apr_1"), spec=_ASKS)
    assert planned.command == AskApproval(call_id=_PAY.call_id)


def test_when_every_question_is_answered_the_turn_goes_out_from_its_beginning() -> None:
    planned = plan_after(*_ASKED, granted(_SET, "apr_1"), granted(_PAY, "apr_2"), spec=_ASKS)
    assert planned.command == DispatchTool(call_id=_LOOK.call_id, dispatch=1)


def test_a_question_that_a_hook_asks_holds_the_turn_back_as_well() -> None:
    log = (*acting_log(_LOOK), asked_about(_LOOK), turn_cleared(_LOOK))
    assert plan_after(*log, spec=build_spec(gates_dispatch=True)).command == AskApproval(call_id=_LOOK.call_id)


def test_after_a_restart_the_same_question_is_asked_and_no_new_one() -> None:
    planned = plan_after(*_ASKED, granted(_SET, "apr_1"), resumed(), spec=_ASKS)
    assert planned.command == AskApproval(call_id=_PAY.call_id)
    assert planned.state.calls[2].approval_id == ApprovalId("apr_2")


def test_a_question_holds_what_it_is_about_and_until_when_it_stands() -> None:
    state = fold_bodies(*acting_log(_PAY), at=10)
    question = asked_about(_PAY, "apr_1", reason="every call of pay needs an approval", expires_at=900.0)
    progress = fold(state, question, at=20).calls[0]
    assert (progress.approval_reason, progress.asked_at, progress.expires_at) == (question.detail, 20, 900)


def test_people_may_only_be_asked_about_a_call_that_is_open() -> None:
    state = fold_bodies(*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK))
    with pytest.raises(IllegalEvent, match="not open"):
        fold(state, asked_about(_LOOK), at=0)


@pytest.mark.parametrize(
    ("stop", "end"),
    [
        ({"cancel": CANCEL}, ("cancelled", None)),
        ({"spec": build_spec(approved_by_people=("set", "pay"), deadline_at=50)}, ("deadline_exceeded", None)),
        (
            {"spec": build_spec(approved_by_people=("set", "pay"), limits=BudgetLimits(max_seconds=50))},
            ("budget_exhausted", "max_seconds"),
        ),
    ],
    ids=["cancel", "deadline", "seconds"],
)
def test_a_run_that_waits_for_people_can_be_stopped(stop: dict[str, object], end: tuple[str, str | None]) -> None:
    assert cap_of(plan_after(*_ASKED, **{"spec": _ASKS, "now": 60.0, **stop})) == end  # type: ignore[arg-type]


# --- waiting without a worker ----------------------------------------------------------------------------------------

_HELD = (*_ASKED, suspended("apr_1", "apr_2"))


def test_the_rest_of_the_questions_is_asked_while_one_is_put_off() -> None:
    planned = plan_after(*_ASKED, spec=_ASKS, deferred=("apr_1",))
    assert planned.command == AskApproval(call_id=_PAY.call_id)


def test_when_every_open_question_is_put_off_the_run_gives_its_worker_back() -> None:
    planned = plan_after(*_ASKED, spec=_ASKS, deferred=("apr_1", "apr_2"))
    assert planned.command == Suspend(approval_ids=(ApprovalId("apr_1"), ApprovalId("apr_2")))


def test_a_run_waits_only_for_answers_that_are_missing() -> None:
    planned = plan_after(*_ASKED, granted(_SET, "apr_1"), spec=_ASKS, deferred=("apr_2",))
    assert planned.command == Suspend(approval_ids=(ApprovalId("apr_2"),))


def test_a_run_that_waits_is_held() -> None:
    assert fold_bodies(*_HELD).phase is Phase.HELD


def test_a_later_claim_asks_again() -> None:
    assert plan_after(*_HELD, resumed(), spec=_ASKS).command == AskApproval(call_id=_SET.call_id)


def test_a_run_that_is_cancelled_while_it_waits_ends_by_that_at_its_next_claim() -> None:
    assert cap_of(plan_after(*_HELD, resumed(), spec=_ASKS, cancel=CANCEL)) == ("cancelled", None)


def test_the_deadline_runs_while_a_person_thinks() -> None:
    spec = build_spec(approved_by_people=("set", "pay"), deadline_at=50)
    assert cap_of(plan_after(*_HELD, resumed(), spec=spec, now=50)) == ("deadline_exceeded", None)


def test_the_time_that_a_person_takes_is_not_charged() -> None:
    held = fold_bodies(*_HELD, at=10)
    assert fold(held, resumed(), at=90_000).active_seconds == 0


def test_a_run_that_is_held_keeps_everything_that_it_had() -> None:
    before, after = fold_bodies(*_ASKED), fold_bodies(*_HELD, resumed())
    assert (after.calls, after.turns, after.usage, after.tool_calls) == (
        before.calls,
        before.turns,
        before.usage,
        before.tool_calls,
    )


# --- answers ---------------------------------------------------------------------------------------------------------


def test_a_call_that_was_denied_is_told_to_the_model_and_the_rest_of_the_turn_goes_out() -> None:
    log = (*_ASKED, denied(_SET, "apr_1"), refused(_SET, "Too late in the year."), granted(_PAY, "apr_2"))
    planned = plan_after(*log, spec=_ASKS)
    assert planned.state.turns[-1] == told_by_tool(_SET, "Too late in the year.")
    assert planned.command == DispatchTool(call_id=_LOOK.call_id, dispatch=1)


def test_a_turn_of_which_everything_was_denied_goes_back_to_the_model() -> None:
    log = (*acting_log(_PAY), asked_about(_PAY), turn_cleared(_PAY), denied(_PAY), refused(_PAY))
    assert plan_after(*log, spec=_ASKS).command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_a_call_that_was_denied_counts_as_no_tool_call() -> None:
    state = fold_bodies(*acting_log(_PAY), asked_about(_PAY), denied(_PAY), refused(_PAY))
    assert (state.tool_calls, dict(state.repeats), tuple(state.landed)) == (0, {}, ())


def test_a_denial_may_end_the_run() -> None:
    planned = plan_after(*_ASKED, denied(_SET, "apr_1"), refused(_SET, None), spec=_ASKS)
    assert cap_of(planned) == ("approval_denied", None)


def test_a_decision_about_another_question_fails_the_run() -> None:
    planned = plan_after(*_ASKED, refused(_SET, None, code="approval_mismatch"), spec=_ASKS)
    assert cap_of(planned) == ("approval_mismatch", None)


def test_a_run_that_stops_still_knows_which_questions_nobody_has_to_answer_any_more() -> None:
    state = fold_bodies(*_ASKED, granted(_SET, "apr_1"), CancellationRequested())
    assert [progress.approval_id for progress in state.pending_approvals] == ["apr_2"]


def test_a_question_that_is_withdrawn_is_open_no_more() -> None:
    state = fold_bodies(*_ASKED, granted(_SET, "apr_1"), CancellationRequested(), denied(_PAY, "apr_2"))
    assert state.pending_approvals == ()


def test_a_grant_lets_its_call_go_out_also_after_a_restart() -> None:
    log = (*acting_log(_PAY), asked_about(_PAY), turn_cleared(_PAY), granted(_PAY), resumed())
    assert plan_after(*log, spec=_ASKS).command == DispatchTool(call_id=_PAY.call_id, dispatch=1)


# --- one grant, one dispatch -----------------------------------------------------------------------------------------

_SENT = (*acting_log(_SET, _PAY), asked_about(_SET), turn_cleared(_SET, _PAY), granted(_SET), dispatched(_SET))
_ASKS_FOR_SET = build_spec(approved_by_people=("set",))


def test_a_dispatch_uses_its_grant_up() -> None:
    progress = fold_bodies(*_SENT).calls[0]
    assert (progress.approved, progress.approval_id, progress.needs_approval) == (False, None, True)


def test_a_call_that_goes_out_again_is_asked_about_again() -> None:
    planned = plan_after(*_SENT, dispatch_failed(_SET, delay_seconds=0), spec=_ASKS_FOR_SET)
    assert planned.command == RequestApproval(call_id=_SET.call_id)


def test_people_are_asked_when_the_backoff_is_over_and_not_before() -> None:
    planned = plan_after(*_SENT, dispatch_failed(_SET, delay_seconds=5), spec=_ASKS_FOR_SET, at=10, now=12)
    assert planned.command == WaitUntil(at=15)


def test_the_second_question_is_put_to_a_person() -> None:
    log = (*_SENT, dispatch_failed(_SET, delay_seconds=0), asked_about(_SET, "apr_2"))
    assert plan_after(*log, spec=_ASKS_FOR_SET).command == AskApproval(call_id=_SET.call_id)


def test_the_second_grant_lets_it_go_out_a_second_time() -> None:
    log = (*_SENT, dispatch_failed(_SET, delay_seconds=0), asked_about(_SET, "apr_2"), granted(_SET, "apr_2"))
    assert plan_after(*log, spec=_ASKS_FOR_SET).command == DispatchTool(call_id=_SET.call_id, dispatch=2)


def test_the_rest_of_the_turn_waits_for_the_answer_about_a_second_dispatch() -> None:
    log = (*_SENT, dispatch_failed(_SET, delay_seconds=0), asked_about(_SET, "apr_2"))
    planned = plan_after(*log, spec=_ASKS_FOR_SET, deferred=("apr_2",))
    assert planned.command == Suspend(approval_ids=(ApprovalId("apr_2"),))


def test_a_call_that_a_lost_claim_sent_is_asked_about_before_it_goes_out_again() -> None:
    planned = plan_after(*_SENT, resumed(), spec=_ASKS_FOR_SET)
    assert planned.command == RequestApproval(call_id=_SET.call_id)


def test_the_question_about_a_call_that_a_lost_claim_sent_is_put_to_a_person() -> None:
    planned = plan_after(*_SENT, resumed(), asked_about(_SET, "apr_2"), spec=_ASKS_FOR_SET)
    assert planned.command == AskApproval(call_id=_SET.call_id)


def test_a_call_that_a_lost_claim_sent_goes_out_with_its_new_grant() -> None:
    planned = plan_after(*_SENT, resumed(), asked_about(_SET, "apr_2"), granted(_SET, "apr_2"), spec=_ASKS_FOR_SET)
    assert planned.command == DispatchTool(call_id=_SET.call_id, dispatch=2)


def test_a_second_dispatch_that_no_budget_holds_is_refused_before_anybody_is_asked() -> None:
    spec = build_spec(approved_by_people=("set",), limits=BudgetLimits(max_tool_calls=2))
    planned = plan_after(*_SENT, dispatch_failed(_SET, delay_seconds=0), spec=spec)
    assert cap_of(planned) == ("budget_exhausted", "max_tool_calls")


def test_a_lost_call_that_may_not_be_repeated_is_never_asked_about_again() -> None:
    log = (*acting_log(_PAY), asked_about(_PAY), turn_cleared(_PAY), granted(_PAY), dispatched(_PAY), resumed())
    assert cap_of(plan_after(*log, spec=_ASKS)) == ("tool_indeterminate", None)


def test_a_lost_call_is_told_of_where_something_else_ends_the_run() -> None:
    planned = plan_after(*_SENT, resumed(), spec=_ASKS_FOR_SET, cancel=CANCEL)
    first, *_ = planned.events
    assert isinstance(first, ToolFailed)
    assert (first.call_id, cause_of(planned).code) == (_SET.call_id, "cancelled")


def test_a_question_about_a_lost_call_is_withdrawn_where_something_else_ends_the_run() -> None:
    planned = plan_after(*_SENT, resumed(), asked_about(_SET, "apr_2"), spec=_ASKS_FOR_SET, cancel=CANCEL)
    withdrawn = [(event.approval_id, event.cause) for event in planned.events if isinstance(event, ApprovalDenied)]
    still_open = [(progress.approval_id, "cancelled") for progress in planned.state.pending_approvals]
    # What is still open at the end is withdrawn there.
    assert withdrawn + still_open == [("apr_2", "cancelled")]


def test_a_lost_call_with_its_new_grant_is_told_of_where_something_else_ends_the_run() -> None:
    log = (*_SENT, resumed(), asked_about(_SET, "apr_2"), granted(_SET, "apr_2"))
    planned = plan_after(*log, spec=_ASKS_FOR_SET, cancel=CANCEL)
    assert [event.kind for event in planned.events] == ["tool_error", "cancellation_requested"]
    assert broken_invariants(planned.state) == []


def test_a_call_that_was_never_asked_about_needs_no_answer_when_it_goes_out_again() -> None:
    log = (*acting_log(_SET), dispatched(_SET), dispatch_failed(_SET, delay_seconds=0))
    assert plan_after(*log).command == DispatchTool(call_id=_SET.call_id, dispatch=2)


def test_granted_calls_that_may_be_out_together_go_out_together() -> None:
    spec = build_spec(
        agent=build_agent(concurrency={"max_concurrent_tools": 2}),
        approved_by_people=("set",),
        parallel_safe=("look", "set"),
    )
    log = (*acting_log(_LOOK, _SET), asked_about(_SET), TurnCleared(calls=()), granted(_SET))
    assert isinstance(plan_after(*log, spec=spec).command, DispatchTools)


def test_an_answer_ends_no_run_by_itself() -> None:
    assert not isinstance(plan_after(*_ASKED, granted(_SET, "apr_1"), spec=_ASKS).command, Terminate)
