"""A call that went out under a claim that is gone has no outcome: what follows goes by its effect.

"If it can't be known whether it ran, that is what is recorded", also where something else ends the run.
"""

from dataclasses import replace
from typing import Any

import pytest

from app.conversation import OUTCOME_UNKNOWN, ToolCall
from app.events import AnyEvent, CancellationRequested, DeadlineExceeded, ToolFailed, ToolIndeterminate
from app.policy import BudgetLimits, Indeterminate
from app.run import CallModel, CallStatus, DispatchTool, Plan, Terminate
from tests.builders import (
    CANCEL,
    acting_log,
    asked_about,
    build_agent,
    build_call,
    build_spec,
    dispatched,
    plan_after,
    resumed,
    returned,
    told_by_tool,
    tool_failed,
)

_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)
_SURFACES = build_spec(agent=build_agent(on_indeterminate=Indeterminate.SURFACE))


def orphan_log(call: ToolCall, *others: ToolCall, recoveries: int = 1) -> tuple[AnyEvent, ...]:
    """A run whose worker was lost while the first of these calls was out."""
    return (*acting_log(call, *others), dispatched(call), resumed(fence=2, recoveries=recoveries))


def cap_of(planned: Plan) -> tuple[str | None, str | None]:
    assert isinstance(planned.command, Terminate)
    return planned.command.cause.code, planned.command.cause.cap


@pytest.mark.parametrize("call", [_LOOK, _SET], ids=["read", "idempotent"])
def test_a_call_without_an_effect_to_double_is_dispatched_again(call: ToolCall) -> None:
    planned = plan_after(*orphan_log(call))
    assert (planned.events, planned.command) == ((), DispatchTool(call_id=call.call_id, dispatch=2))


def test_a_call_that_the_agent_declares_idempotent_is_dispatched_again() -> None:
    spec = build_spec(agent=build_agent(idempotent_tools=("pay",)))
    assert plan_after(*orphan_log(_PAY), spec=spec).command == DispatchTool(call_id=_PAY.call_id, dispatch=2)


def test_a_once_call_is_recorded_as_indeterminate_and_ends_the_run() -> None:
    planned = plan_after(*orphan_log(_PAY, _LOOK))
    (event,) = planned.events
    assert isinstance(event, ToolIndeterminate)
    assert (event.call_id, event.name, event.content) == (_PAY.call_id, "pay", None)
    assert cap_of(planned) == ("tool_indeterminate", None)


def test_a_once_call_whose_agent_surfaces_it_is_told_to_the_model_and_the_turn_goes_on() -> None:
    planned = plan_after(*orphan_log(_PAY, _LOOK), spec=_SURFACES)
    assert [event.kind for event in planned.events] == ["tool_indeterminate"]
    assert planned.state.turns[-1] == told_by_tool(_PAY, OUTCOME_UNKNOWN)
    assert planned.command == DispatchTool(call_id=_LOOK.call_id, dispatch=1)


def test_a_surfaced_call_at_the_end_of_its_turn_leads_to_the_next_model_call() -> None:
    assert isinstance(plan_after(*orphan_log(_PAY), spec=_SURFACES).command, CallModel)


def test_a_call_whose_tool_is_gone_from_the_deployment_is_not_dispatched_again() -> None:
    without_tools = replace(build_spec(), effects={})
    assert cap_of(plan_after(*orphan_log(_LOOK), spec=without_tools)) == ("tool_indeterminate", None)


def test_a_call_with_an_outcome_is_no_orphan() -> None:
    log = (*acting_log(_PAY, _LOOK), dispatched(_PAY), returned(_PAY), resumed())
    planned = plan_after(*log)
    assert (planned.events, planned.command) == ((), DispatchTool(call_id=_LOOK.call_id, dispatch=1))


def test_a_call_that_was_cleared_and_did_not_go_out_goes_out() -> None:
    assert plan_after(*acting_log(_PAY), resumed()).command == DispatchTool(call_id=_PAY.call_id, dispatch=1)


def test_a_turn_of_which_something_went_out_is_not_judged_again() -> None:
    spec = build_spec(limits=BudgetLimits(max_parallel_tool_calls=1))
    log = (*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK), resumed())
    assert plan_after(*log, spec=spec).command == DispatchTool(call_id=_PAY.call_id, dispatch=1)


def test_a_call_that_was_lost_twice_is_dispatched_a_third_time() -> None:
    log = (*orphan_log(_SET), dispatched(_SET, dispatch=2), resumed(fence=3, recoveries=2))
    assert plan_after(*log).command == DispatchTool(call_id=_SET.call_id, dispatch=3)


def test_a_dispatch_after_a_crash_reserves_against_the_budget() -> None:
    planned = plan_after(*orphan_log(_SET), spec=build_spec(limits=BudgetLimits(max_tool_calls=1)))
    assert cap_of(planned) == ("budget_exhausted", "max_tool_calls")


_ENDS: list[Any] = [
    pytest.param({"cancel": CANCEL}, 1, ("cancelled", None), id="cancel"),
    pytest.param({"now": 99.0, "spec": build_spec(deadline_at=50)}, 1, ("deadline_exceeded", None), id="deadline"),
    pytest.param({}, 4, ("worker_lost", None), id="worker lost"),
    pytest.param(
        {"now": 99.0, "spec": build_spec(limits=BudgetLimits(max_seconds=50))},
        1,
        ("budget_exhausted", "max_seconds"),
        id="seconds",
    ),
]


@pytest.mark.parametrize(("ended_by", "recoveries", "end"), _ENDS)
def test_where_something_else_ends_the_run_a_lost_once_call_is_still_recorded_as_indeterminate(
    ended_by: dict[str, Any], recoveries: int, end: tuple[str, str | None]
) -> None:
    planned = plan_after(*orphan_log(_PAY, _LOOK, recoveries=recoveries), **ended_by)
    first, *_ = planned.events
    assert isinstance(first, ToolIndeterminate)
    assert (first.call_id, first.content) == (_PAY.call_id, OUTCOME_UNKNOWN)
    assert cap_of(planned) == end


@pytest.mark.parametrize(("ended_by", "recoveries", "end"), _ENDS)
def test_where_something_else_ends_the_run_a_lost_call_that_may_be_repeated_is_an_error_that_says_so(
    ended_by: dict[str, Any], recoveries: int, end: tuple[str, str | None]
) -> None:
    planned = plan_after(*orphan_log(_SET, _LOOK, recoveries=recoveries), **ended_by)
    first, *_ = planned.events
    assert isinstance(first, ToolFailed)
    assert (first.call_id, first.retry_safe, first.fatal) == (_SET.call_id, True, False)
    assert cap_of(planned) == end


@pytest.mark.parametrize(
    "ending", [CancellationRequested(), DeadlineExceeded(what="run")], ids=["cancelled", "past its deadline"]
)
def test_a_lost_call_is_told_of_also_where_the_end_comes_while_another_call_is_out(ending: AnyEvent) -> None:
    log = (*acting_log(_SET, _PAY), dispatched(_SET), dispatched(_PAY), resumed(), dispatched(_SET, dispatch=2))
    planned = plan_after(*log, tool_failed(_SET), ending)
    (event,) = planned.events
    assert isinstance(event, ToolIndeterminate)
    assert (event.call_id, event.content) == (_PAY.call_id, OUTCOME_UNKNOWN)


def test_a_lost_call_is_told_of_also_where_the_end_comes_while_a_person_is_asked() -> None:
    log = (*acting_log(_SET, _PAY), dispatched(_SET), dispatched(_PAY), resumed(), asked_about(_SET))
    planned = plan_after(*log, CancellationRequested())
    assert [progress.status for progress in planned.state.calls] == [CallStatus.SETTLED, CallStatus.SETTLED]


def test_a_call_that_never_went_out_needs_no_outcome_at_the_end() -> None:
    planned = plan_after(*acting_log(_PAY), resumed(), cancel=CANCEL)
    assert [event.kind for event in planned.events] == ["cancellation_requested"]
