"""What comes next for a run that goes on from one that failed."""

import pytest

from app.events import CancellationRequested, RunQueued, ToolFailed
from app.policy import Indeterminate, Outcome
from app.run import (
    AskApproval,
    CallModel,
    DispatchTool,
    Phase,
    Record,
    RequestApproval,
    RequestOutcome,
    Terminate,
)
from tests.builders import (
    acting_log,
    asked_about,
    build_agent,
    build_spec,
    denied,
    dispatched,
    granted,
    outcome_lost,
    queued,
    resumed,
    suspended,
    terminated,
    tool_failed,
    turn_cleared,
)
from tests.run.reopenings import (
    GOES_ON,
    INDETERMINATE,
    LOST,
    PAID,
    PAY,
    SET,
    log,
    next_step,
    reopened,
    resolved,
)


def test_what_succeeded_is_recorded_as_a_result() -> None:
    planned = next_step(INDETERMINATE, spec=resolved(Outcome.SUCCEEDED))
    assert [event.kind for event in planned.events] == ["tool_result"]
    assert isinstance(planned.command, CallModel)


def test_what_failed_is_recorded_as_an_error_that_is_told() -> None:
    planned = next_step(INDETERMINATE, spec=resolved(Outcome.FAILED))
    [event] = planned.events
    assert isinstance(event, ToolFailed)
    assert (event.call_id, event.fatal) == (PAY.call_id, False)


def test_what_shall_be_made_again_is_dispatched() -> None:
    planned = next_step(INDETERMINATE, spec=resolved(Outcome.RETRY))
    assert (planned.events, planned.command) == ((), DispatchTool(call_id=PAY.call_id, dispatch=2))


def test_where_people_have_to_allow_it_they_are_asked_first() -> None:
    spec = resolved(Outcome.RETRY, approved_by_people=("pay",))
    gated = (*acting_log(PAY), asked_about(PAY), turn_cleared(PAY), granted(PAY), dispatched(PAY))
    before = log(*gated, resumed(), outcome_lost(PAY), terminated("tool_indeterminate"))
    assert next_step(before, spec=spec).command == RequestApproval(call_id=PAY.call_id)


@pytest.mark.parametrize("agents_wish", [Indeterminate.FAIL, Indeterminate.SURFACE, Indeterminate.ASK])
def test_a_resolution_counts_before_the_agents_wish(agents_wish: Indeterminate) -> None:
    spec = resolved(Outcome.SUCCEEDED, agent=build_agent(on_indeterminate=agents_wish))
    assert [event.kind for event in next_step(INDETERMINATE, spec=spec).events] == ["tool_result"]


def test_without_a_resolution_the_agents_wish_counts() -> None:
    planned = next_step(INDETERMINATE, spec=build_spec(agent=build_agent(on_indeterminate=Indeterminate.ASK)))
    assert planned.command == RequestOutcome(call_id=PAY.call_id)


def test_a_resolution_is_good_for_the_dispatch_that_was_lost() -> None:
    own = (queued(), GOES_ON, dispatched(PAY, dispatch=2), resumed())
    planned = next_step(INDETERMINATE, own=own, spec=resolved(Outcome.RETRY))
    assert [event.kind for event in planned.events] == ["tool_indeterminate"]
    assert isinstance(planned.command, Terminate)


def test_a_call_that_may_be_repeated_is_dispatched_again() -> None:
    given_up = log(*acting_log(SET), dispatched(SET), resumed(recoveries=4), *LOST)
    assert next_step(given_up).command == DispatchTool(call_id=SET.call_id, dispatch=2)


def test_a_call_that_never_went_out_goes_out() -> None:
    assert next_step(log(*acting_log(PAY), resumed(recoveries=4), *LOST)).command == DispatchTool(
        call_id=PAY.call_id, dispatch=1
    )


def test_a_question_that_was_open_is_put_anew() -> None:
    spec = build_spec(approved_by_people=("pay",))
    asking = log(*acting_log(PAY), asked_about(PAY), turn_cleared(PAY), resumed(recoveries=4), *LOST)
    command = next_step(asking, spec=spec).command
    assert not isinstance(command, AskApproval | DispatchTool | Record)


def test_a_grant_of_the_earlier_run_is_no_grant() -> None:
    spec = build_spec(approved_by_people=("pay",))
    allowed = log(*acting_log(PAY), asked_about(PAY), turn_cleared(PAY), granted(PAY), resumed(), *LOST)
    assert not isinstance(next_step(allowed, spec=spec).command, DispatchTool)


def test_a_denial_of_the_earlier_run_stays_one() -> None:
    refusal = tool_failed(PAY).model_copy(update={"code": "approval_denied"})
    spec = build_spec(approved_by_people=("pay",))
    said = (*acting_log(PAY), asked_about(PAY), turn_cleared(PAY), denied(PAY), refusal, resumed(recoveries=4))
    assert isinstance(next_step(log(*said, *LOST), spec=spec).command, CallModel)


def test_a_run_that_was_suspended_and_lost_goes_on_in_its_turn() -> None:
    held = log(*acting_log(PAY), asked_about(PAY), turn_cleared(PAY), suspended("apr_1"), resumed(recoveries=4), *LOST)
    state = reopened(held, own=(queued(), GOES_ON))
    assert (state.phase, state.pending_approvals, state.waiting_for) == (Phase.ACTING, (), ())


def test_the_end_of_the_earlier_run_is_not_the_end_of_this_one() -> None:
    state = reopened(INDETERMINATE, own=(queued(), GOES_ON))
    assert (state.cause, state.end, state.answer) == (None, None, None)


def test_a_wish_that_came_too_late_for_the_earlier_run_does_not_end_this_one() -> None:
    ended = log(*PAID, resumed(), outcome_lost(PAY), CancellationRequested(), terminated("tool_indeterminate"))
    assert reopened(ended, own=(queued(), GOES_ON)).phase is Phase.ACTING


def test_the_first_event_of_the_log_is_the_runs_own() -> None:
    state = reopened(INDETERMINATE, own=(RunQueued(agent="planner", resumes="run_1", depth=1, path=("a", "planner")),))
    assert (state.depth, state.path, state.seq) == (1, ("a", "planner"), 1)
