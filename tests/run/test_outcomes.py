"""A call that went out and of which nobody knows what became: a person is asked, and his word settles it. And the
arguments that a person puts in the place of a call's own."""

import pytest

from app.conversation import OUTCOME_UNKNOWN, ToolCall
from app.events import (
    AnyEvent,
    ApprovalDenied,
    ApprovalGranted,
    ApprovalRequired,
    CancellationRequested,
    ToolFailed,
    ToolIndeterminate,
)
from app.ids import ApprovalId
from app.policy import ApprovalKind, BudgetLimits, Indeterminate, LoopConfig, Outcome, arguments_digest
from app.run import (
    AskApproval,
    CallModel,
    CallStatus,
    ClearTurn,
    DispatchTool,
    IllegalEvent,
    Phase,
    RequestApproval,
    RequestOutcome,
    Suspend,
    Terminate,
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
    dispatched,
    fold_bodies,
    granted,
    outcome_lost,
    plan_after,
    resumed,
    returned,
    said_by_model,
    settled_turn,
    suspended,
    tool_failed,
    turn_cleared,
)
from tests.run.samples import cap_of

_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)
_ASKS = build_spec(agent=build_agent(on_indeterminate=Indeterminate.ASK))
_LOST = (*acting_log(_PAY, _LOOK), dispatched(_PAY), resumed())


def outcome_asked(call: ToolCall, approval_id: str = "apr_1", *, dispatch: int = 1) -> ApprovalRequired:
    asked = asked_about(call, approval_id)
    return asked.model_copy(update={"ask": ApprovalKind.OUTCOME, "dispatch": dispatch})


def told(call: ToolCall, outcome: Outcome, approval_id: str = "apr_1") -> ApprovalGranted:
    return granted(call, approval_id).model_copy(update={"outcome": outcome})


def edited(call: ToolCall, approval_id: str = "apr_1", **arguments: object) -> ApprovalGranted:
    digest = arguments_digest(call.name, arguments)
    return granted(call, approval_id).model_copy(update={"arguments": arguments, "edited_digest": digest})


# --- asking ----------------------------------------------------------------------------------------------------------


def test_the_question_is_put_before_anything_else_goes_out() -> None:
    planned = plan_after(*_LOST, spec=_ASKS)
    assert (planned.events, planned.command) == ((), RequestOutcome(call_id=_PAY.call_id))


def test_then_a_person_is_asked() -> None:
    assert plan_after(*_LOST, outcome_asked(_PAY), spec=_ASKS).command == AskApproval(call_id=_PAY.call_id)


def test_the_call_is_still_out_while_he_is_asked() -> None:
    progress = fold_bodies(*_LOST, outcome_asked(_PAY)).calls[0]
    assert (progress.status, progress.asked, progress.approved) == (CallStatus.DISPATCHED, ApprovalKind.OUTCOME, False)


def test_the_question_alone_makes_no_call_one_that_people_have_to_allow() -> None:
    assert fold_bodies(*_LOST, outcome_asked(_PAY)).calls[0].needs_approval is False


@pytest.mark.parametrize("call", [_LOOK, _SET], ids=["read", "idempotent"])
def test_nobody_is_asked_about_a_call_that_may_be_repeated(call: ToolCall) -> None:
    planned = plan_after(*acting_log(call), dispatched(call), resumed(), spec=_ASKS)
    assert planned.command == DispatchTool(call_id=call.call_id, dispatch=2)


def test_nobody_is_asked_once_something_else_ends_the_run() -> None:
    planned = plan_after(*_LOST, spec=_ASKS, cancel=CANCEL)
    first, *_ = planned.events
    assert isinstance(first, ToolIndeterminate)
    assert (first.content, cap_of(planned)) == (OUTCOME_UNKNOWN, ("cancelled", None))


def test_after_a_restart_the_same_question_is_asked() -> None:
    planned = plan_after(*_LOST, outcome_asked(_PAY), resumed(fence=3, recoveries=2), spec=_ASKS)
    assert planned.command == AskApproval(call_id=_PAY.call_id)


def test_two_that_were_lost_together_are_asked_about_one_after_the_other() -> None:
    second = build_call("pay", number=4)
    both = (*acting_log(_PAY, second), dispatched(_PAY), dispatched(second), resumed(), outcome_asked(_PAY))
    planned = plan_after(*both, told(_PAY, Outcome.SUCCEEDED), returned(_PAY), spec=_ASKS)
    assert planned.command == RequestOutcome(call_id=second.call_id)


def test_a_call_that_outran_its_own_time_waits_for_a_word_under_the_same_claim() -> None:
    state = fold_bodies(*acting_log(_PAY), dispatched(_PAY), outcome_asked(_PAY))
    assert broken_invariants(state) == []
    planned = plan_after(*acting_log(_PAY), dispatched(_PAY), outcome_asked(_PAY), spec=_ASKS)
    assert planned.command == AskApproval(call_id=_PAY.call_id)


def test_a_call_beside_it_may_still_be_told_what_became_of_it() -> None:
    """Two were out together, and the first one outran its time: the second one's result is the next event."""
    second = build_call("pay", number=4)
    state = fold_bodies(*acting_log(_PAY, second), dispatched(_PAY), dispatched(second), outcome_asked(_PAY))
    assert broken_invariants(state) == []


def test_a_put_off_question_about_an_outcome_suspends_the_run() -> None:
    planned = plan_after(*_LOST, outcome_asked(_PAY), spec=_ASKS, deferred=("apr_1",))
    assert planned.command == Suspend(approval_ids=(ApprovalId("apr_1"),))


def test_a_run_that_waits_for_an_outcome_is_held() -> None:
    state = fold_bodies(*_LOST, outcome_asked(_PAY), suspended("apr_1"))
    assert (state.phase, broken_invariants(state)) == (Phase.HELD, [])


# --- answers ---------------------------------------------------------------------------------------------------------

_ASKED = (*_LOST, outcome_asked(_PAY))


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_an_outcome_that_is_told_leaves_no_question_open(outcome: Outcome) -> None:
    state = fold_bodies(*_ASKED, told(_PAY, outcome))
    assert (state.pending_approvals, broken_invariants(state)) == ((), [])


@pytest.mark.parametrize(
    "outcome_event", [returned(_PAY), tool_failed(_PAY)], ids=["it took effect", "it had no effect"]
)
def test_the_rest_of_the_turn_goes_out_behind_it(outcome_event: AnyEvent) -> None:
    planned = plan_after(*_ASKED, told(_PAY, Outcome.SUCCEEDED), outcome_event, spec=_ASKS)
    assert planned.command == DispatchTool(call_id=_LOOK.call_id, dispatch=1)


def test_a_retry_is_dispatched_at_once_and_is_no_first_dispatch() -> None:
    planned = plan_after(*_ASKED, told(_PAY, Outcome.RETRY), spec=_ASKS)
    assert planned.command == DispatchTool(call_id=_PAY.call_id, dispatch=2)


def test_a_retry_needs_no_other_grant() -> None:
    spec = build_spec(agent=build_agent(on_indeterminate=Indeterminate.ASK), approved_by_people=("pay",))
    gated = (*acting_log(_PAY), asked_about(_PAY), turn_cleared(_PAY), granted(_PAY), dispatched(_PAY), resumed())
    log = (*gated, outcome_asked(_PAY, "apr_2"), told(_PAY, Outcome.RETRY, "apr_2"))
    assert plan_after(*log, spec=spec).command == DispatchTool(call_id=_PAY.call_id, dispatch=2)


def test_a_retry_is_used_up_by_its_dispatch() -> None:
    log = (*_ASKED, told(_PAY, Outcome.RETRY), dispatched(_PAY, dispatch=2), resumed(fence=3, recoveries=2))
    assert plan_after(*log, spec=_ASKS).command == RequestOutcome(call_id=_PAY.call_id)


def test_a_retry_survives_a_restart_before_it_is_dispatched() -> None:
    log = (*_ASKED, told(_PAY, Outcome.RETRY), resumed(fence=3, recoveries=2))
    assert plan_after(*log, spec=_ASKS).command == DispatchTool(call_id=_PAY.call_id, dispatch=2)


def test_a_retry_that_no_budget_holds_ends_the_run_and_the_call_stays_unknown() -> None:
    spec = build_spec(agent=build_agent(on_indeterminate=Indeterminate.ASK), limits=BudgetLimits(max_tool_calls=1))
    planned = plan_after(*_ASKED, told(_PAY, Outcome.RETRY), spec=spec)
    assert cap_of(planned) == ("budget_exhausted", "max_tool_calls")
    assert [event.call_id for event in planned.events if isinstance(event, ToolIndeterminate)] == [_PAY.call_id]


def test_a_retry_that_a_cancel_overtakes_leaves_the_call_unknown() -> None:
    planned = plan_after(*_ASKED, told(_PAY, Outcome.RETRY), spec=_ASKS, cancel=CANCEL)
    assert cap_of(planned) == ("cancelled", None)
    assert [event.call_id for event in planned.events if isinstance(event, ToolIndeterminate)] == [_PAY.call_id]


def test_where_nobody_says_the_call_stays_unknown_and_the_run_fails() -> None:
    planned = plan_after(*_ASKED, denied(_PAY), outcome_lost(_PAY), spec=_ASKS)
    assert cap_of(planned) == ("tool_indeterminate", None)


def test_a_cancel_while_he_is_asked_leaves_the_call_unknown() -> None:
    planned = plan_after(*_ASKED, CancellationRequested(), spec=_ASKS)
    unknown = [event for event in planned.events if isinstance(event, ToolIndeterminate)]
    assert ([event.call_id for event in unknown], cap_of(planned)) == ([_PAY.call_id], ("cancelled", None))


def test_a_question_about_an_outcome_is_withdrawn_where_something_else_ends_the_run() -> None:
    planned = plan_after(*_ASKED, spec=_ASKS, cancel=CANCEL)
    withdrawn = [event.approval_id for event in planned.events if isinstance(event, ApprovalDenied)]
    still_open = [progress.approval_id for progress in planned.state.pending_approvals]
    assert withdrawn + still_open == ["apr_1"]


def test_what_a_person_says_changes_no_count_of_calls() -> None:
    before, after = fold_bodies(*_ASKED), fold_bodies(*_ASKED, told(_PAY, Outcome.SUCCEEDED), returned(_PAY))
    assert (after.tool_calls, after.repeats, list(after.landed)) == (
        before.tool_calls,
        before.repeats,
        list(before.landed),
    )


def test_only_of_an_open_call_an_outcome_can_be_told() -> None:
    state = fold_bodies(*acting_log(_PAY, _LOOK), dispatched(_PAY), returned(_PAY))
    with pytest.raises(IllegalEvent, match="not open"):
        fold(state, told(_PAY, Outcome.SUCCEEDED), at=0)


# --- other arguments -------------------------------------------------------------------------------------------------

_GATED = build_spec(approved_by_people=("pay", "set"))
_WAITS = (*acting_log(_SET, _PAY), asked_about(_SET, "apr_1"), asked_about(_PAY, "apr_2"), turn_cleared(_SET, _PAY))
_ONE = (*acting_log(_PAY), asked_about(_PAY), turn_cleared(_PAY))


def test_the_turn_is_cleared_once_more_with_what_a_person_put() -> None:
    assert plan_after(*_ONE, edited(_PAY, amount=1), spec=_GATED).command == ClearTurn()


def test_the_call_has_the_new_arguments_and_its_grant() -> None:
    progress = fold_bodies(*_ONE, edited(_PAY, amount=1)).calls[0]
    assert (progress.call.arguments, progress.approved) == ({"amount": 1}, True)


def test_the_transcript_shows_what_will_go_out() -> None:
    state = fold_bodies(*_ONE, edited(_PAY, amount=1))
    assert state.turns[-1] == said_by_model("", _PAY.model_copy(update={"arguments": {"amount": 1}}))


def test_the_turn_is_cleared_when_the_last_question_is_answered_and_not_before() -> None:
    log = (*_WAITS, edited(_SET, "apr_1", page=1))
    assert plan_after(*log, spec=_GATED).command == AskApproval(call_id=_PAY.call_id)
    assert plan_after(*log, granted(_PAY, "apr_2"), spec=_GATED).command == ClearTurn()


def test_cleared_again_the_turn_goes_out() -> None:
    going = _PAY.model_copy(update={"arguments": {"amount": 1}})
    log = (*_ONE, edited(_PAY, amount=1), turn_cleared(going))
    assert plan_after(*log, spec=_GATED).command == DispatchTool(call_id=_PAY.call_id, dispatch=1)


def test_a_new_question_about_what_a_hook_made_of_them_voids_the_grant() -> None:
    going = _PAY.model_copy(update={"arguments": {"amount": 2}})
    log = (*_ONE, edited(_PAY, amount=9), asked_about(going, "apr_2"), turn_cleared(going))
    assert plan_after(*log, spec=_GATED).command == AskApproval(call_id=_PAY.call_id)


def test_after_a_restart_the_edited_turn_is_still_to_be_cleared() -> None:
    assert plan_after(*_ONE, edited(_PAY, amount=1), resumed(), spec=_GATED).command == ClearTurn()


def test_arguments_that_do_not_fit_end_the_run() -> None:
    def takes_pages(name: str, arguments: dict[str, object]) -> list[str]:
        return ["/amount: is too much"] if arguments.get("amount") == 99 else []

    spec = build_spec(approved_by_people=("pay",), check_arguments=takes_pages)
    assert cap_of(plan_after(*_ONE, edited(_PAY, amount=99), spec=spec)) == ("schema_violation", None)


def test_arguments_that_make_it_a_call_too_often_end_the_run() -> None:
    earlier = build_call("pay", arguments={"amount": 1})
    call = build_call("pay", iteration=2, arguments={"amount": 3})
    spec = build_spec(agent=build_agent(loop=LoopConfig(max_repeated_calls=1)), approved_by_people=("pay",))
    turn = (*acting_log(earlier)[:3], *settled_turn(1, earlier), *acting_log(call)[3:])
    log = (*turn, asked_about(call), turn_cleared(call), edited(call, amount=1))
    assert cap_of(plan_after(*log, spec=spec))[0] == "repeated_call"


@pytest.mark.parametrize("went_out_before", [returned(_SET), tool_failed(_SET)])
def test_arguments_for_a_call_of_a_turn_of_which_something_went_out_are_cleared_too(went_out_before: AnyEvent) -> None:
    """A run that goes on from another one asks anew about the calls that are left."""
    spec = build_spec(approved_by_people=("pay",), gates_dispatch=True)
    log = (*acting_log(_SET, _PAY), turn_cleared(_SET, _PAY), dispatched(_SET), went_out_before, resumed())
    asked = (*log, asked_about(_PAY), edited(_PAY, amount=1))
    assert not isinstance(plan_after(*asked, spec=spec).command, DispatchTool)


def test_an_edit_of_one_call_leaves_the_outcome_of_another_where_it_was() -> None:
    log = (*_WAITS, denied(_SET, "apr_1"), tool_failed(_SET), edited(_PAY, "apr_2", amount=1))
    state = fold_bodies(*log)
    assert [message.role.value for message in list(state.turns)[-2:]] == ["assistant", "tool"]
    assert broken_invariants(state) == []


def test_a_call_question_is_no_outcome_question() -> None:
    planned = plan_after(*acting_log(_PAY), asked_about(_PAY), turn_cleared(_PAY), granted(_PAY), spec=_GATED)
    assert not isinstance(planned.command, RequestApproval | RequestOutcome | CallModel | Terminate)


def test_a_lost_call_that_may_be_repeated_and_was_edited_is_asked_about_with_what_went_out() -> None:
    going = _SET.model_copy(update={"arguments": {"page": 1}})
    first = (*acting_log(_SET), asked_about(_SET), turn_cleared(_SET), edited(_SET, page=1), turn_cleared(going))
    planned = plan_after(*first, dispatched(going), resumed(), spec=_GATED)
    assert planned.command == RequestApproval(call_id=_SET.call_id)
    assert planned.state.calls[0].call.arguments == {"page": 1}


def test_a_lost_call_is_no_error_of_the_tool_where_a_person_was_asked() -> None:
    planned = plan_after(*_LOST, outcome_asked(_PAY), CancellationRequested(), spec=_ASKS)
    assert [event for event in planned.events if isinstance(event, ToolFailed)] == []
