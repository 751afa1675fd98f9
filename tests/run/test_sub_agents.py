"""A sub-agent that is called works in a run of its own, which is gone back to and never begun again; and a result that
is the answer."""

from dataclasses import replace
from typing import Any

import pytest

from app.events import AnyEvent, SchemaViolation, SummarySkipped
from app.policy import BudgetLimits, ConcurrencyConfig, RepairConfig, Spend
from app.run import (
    AskApproval,
    CallModel,
    DispatchTool,
    DispatchTools,
    IllegalEvent,
    Phase,
    RunSpec,
    Terminate,
    fold,
)
from app.run.causes import COMPLETED
from app.run.steps.bounds import Shared, shape_exceeded
from tests.builders import (
    CANCEL,
    acting_log,
    asked_about,
    build_agent,
    build_call,
    build_shared,
    build_spec,
    dispatched,
    fold_bodies,
    granted,
    plan_after,
    ready_log,
    resumed,
    returned,
    settled_turn,
    suspended,
    tool_failed,
    turn_cleared,
)
from tests.run.samples import answers, cap_of, cause_of, delegated
from tests.run.walk_specs import DELEGATE, RIGHT, TEAM_EFFECTS, WRONG, is_right

_ASK, _ASK_TOO = build_call(DELEGATE, number=1), build_call(DELEGATE, number=2)
_LOOK, _SET = build_call("look", number=1), build_call("set", number=2)
_OUT_LOG = (*acting_log(_ASK), delegated(_ASK))


def caller(**fields: Any) -> RunSpec:
    """An agent that may call another one."""
    agent = build_agent(tools=("look", "set", "pay", DELEGATE), concurrency=ConcurrencyConfig(max_concurrent_tools=2))
    return replace(build_spec(agent=agent, parallel_safe=[DELEGATE], **fields), effects=TEAM_EFFECTS)


# --- a run of its own ------------------------------------------------------------------------------------------------


def test_the_run_of_a_sub_agent_is_remembered_with_the_call() -> None:
    assert fold_bodies(*_OUT_LOG).calls[0].child_run_id == f"run_of_{_ASK.call_id}"


def test_sub_agents_may_work_side_by_side() -> None:
    planned = plan_after(*acting_log(_ASK, _ASK_TOO), spec=caller())
    assert isinstance(planned.command, DispatchTools)


def test_a_sub_agent_whose_caller_was_lost_is_gone_back_to() -> None:
    planned = plan_after(*_OUT_LOG, resumed(), spec=caller())
    assert planned.command == DispatchTool(call_id=_ASK.call_id, dispatch=2)


def test_going_back_is_not_charged_again() -> None:
    state = fold_bodies(*_OUT_LOG, resumed(), delegated(_ASK, dispatch=2))
    assert (state.tool_calls, state.calls[0].dispatches) == (1, 2)


def test_a_tool_that_is_called_again_is_charged_again() -> None:
    state = fold_bodies(*acting_log(_LOOK), dispatched(_LOOK), resumed(), dispatched(_LOOK, dispatch=2))
    assert state.tool_calls == 2


def test_going_back_needs_no_room_in_the_budget() -> None:
    planned = plan_after(*_OUT_LOG, resumed(), spec=caller(limits=BudgetLimits(max_tool_calls=1)))
    assert planned.command == DispatchTool(call_id=_ASK.call_id, dispatch=2)


def test_going_back_is_no_new_request() -> None:
    state = fold_bodies(*_OUT_LOG, resumed(), delegated(_ASK, dispatch=2))
    assert sum(state.repeats.values()) == 1


def test_a_sub_agent_that_waits_for_a_person_is_gone_back_to_when_the_run_is() -> None:
    log = (*_OUT_LOG, suspended("apr_of_the_child"), resumed(recoveries=0))
    assert plan_after(*log, spec=caller()).command == DispatchTool(call_id=_ASK.call_id, dispatch=2)


def test_a_run_waits_for_the_questions_of_its_sub_agent_until_it_is_taken_up() -> None:
    held = fold_bodies(*_OUT_LOG, suspended("apr_of_the_child"))
    assert (held.waiting_for, fold(held, resumed(), at=0.0).waiting_for) == (("apr_of_the_child",), ())


def test_a_sub_agent_that_a_person_allowed_is_gone_back_to_without_asking_again() -> None:
    allowed = (asked_about(_ASK), turn_cleared(_ASK), granted(_ASK), delegated(_ASK))
    planned = plan_after(*acting_log(_ASK), *allowed, resumed(), spec=caller(approved_by_people=[DELEGATE]))
    assert planned.command == DispatchTool(call_id=_ASK.call_id, dispatch=2)


def test_a_person_is_asked_before_a_sub_agent_begins() -> None:
    log = (*acting_log(_ASK), asked_about(_ASK), turn_cleared(_ASK))
    planned = plan_after(*log, spec=caller(approved_by_people=[DELEGATE]))
    assert planned.command == AskApproval(call_id=_ASK.call_id)


def test_a_run_that_is_cancelled_while_a_sub_agent_is_out_says_that_nobody_brings_its_outcome() -> None:
    planned = plan_after(*_OUT_LOG, resumed(), spec=caller(), cancel=CANCEL)
    assert [body.kind for body in planned.events] == ["tool_error", "cancellation_requested"]


# --- max_llm_calls, over the tree ------------------------------------------------------------------------------------


def callers_cap(cap: int | None, *, elsewhere: int = 0) -> tuple[Shared, ...]:
    own = build_shared()
    return (own, replace(build_shared(elsewhere=Spend(model_calls=elsewhere)), max_llm_calls=cap))


def test_model_calls_of_sub_agents_count_against_the_callers_cap() -> None:
    below = build_shared(elsewhere=Spend(model_calls=4))
    planned = plan_after(*ready_log(), *settled_turn(1, _LOOK), spec=build_spec(max_llm_calls=5), shared=[below])
    assert cap_of(planned) == ("max_llm_calls_exceeded", "max_llm_calls")
    assert cause_of(planned).detail == "5 model calls were made, max_llm_calls allows 5"


def test_a_sub_agents_model_calls_count_against_those_above_it() -> None:
    planned = plan_after(*ready_log(), *settled_turn(1, _LOOK), shared=callers_cap(5, elsewhere=4))
    assert cap_of(planned) == ("max_llm_calls_exceeded", "max_llm_calls")
    assert cause_of(planned).detail == "5 model calls were made, max_llm_calls allows 5"


@pytest.mark.parametrize("shared", [callers_cap(6, elsewhere=4), callers_cap(None, elsewhere=999)])
def test_below_the_caps_the_model_is_called(shared: tuple[Shared, ...]) -> None:
    planned = plan_after(*ready_log(), *settled_turn(1, _LOOK), shared=shared)
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_the_runs_own_cap_is_asked_before_its_callers() -> None:
    planned = plan_after(*ready_log(), *settled_turn(1, _LOOK), spec=build_spec(max_llm_calls=1), shared=callers_cap(1))
    assert cause_of(planned).detail == "1 model calls were made, max_llm_calls allows 1"


def test_a_run_without_callers_has_its_own_cap_alone() -> None:
    assert shape_exceeded(build_spec(max_llm_calls=1), fold_bodies(*ready_log())) is None


# --- a result that is the answer -------------------------------------------------------------------------------------


def answered_by(*outcomes: AnyEvent) -> tuple[AnyEvent, ...]:
    return (*acting_log(_LOOK, _SET), *outcomes)


def test_a_result_that_is_the_answer_ends_the_run_without_asking_the_model() -> None:
    planned = plan_after(*acting_log(_LOOK), dispatched(_LOOK), answers(_LOOK, RIGHT))
    assert [type(body) for body in planned.events] == [SummarySkipped]
    assert (planned.state.answer, planned.command) == (RIGHT, Terminate(cause=COMPLETED))


def test_the_answer_that_a_tool_gave_is_what_a_reader_is_shown() -> None:
    [skipped] = plan_after(*acting_log(_LOOK), dispatched(_LOOK), answers(_LOOK, RIGHT)).events
    assert (skipped.final, skipped.author, skipped.iteration) == (True, "planner", 1)


def test_the_other_calls_of_the_turn_are_made_first() -> None:
    assert plan_after(*answered_by(answers(_LOOK, RIGHT))).command == DispatchTool(call_id=_SET.call_id, dispatch=1)


@pytest.mark.parametrize(
    "outcomes",
    [(answers(_LOOK, "one"), answers(_SET, "two")), (answers(_SET, "two"), answers(_LOOK, "one"))],
)
def test_several_results_are_the_answer_in_the_models_order(outcomes: tuple[AnyEvent, ...]) -> None:
    assert plan_after(*answered_by(*outcomes)).state.answer == "one\ntwo"


def test_the_result_of_another_call_of_the_turn_is_not_part_of_the_answer() -> None:
    assert plan_after(*answered_by(returned(_LOOK), answers(_SET, RIGHT))).state.answer == RIGHT


def test_a_failed_call_of_the_turn_does_not_bring_the_model_back() -> None:
    assert plan_after(*answered_by(tool_failed(_LOOK), answers(_SET, RIGHT))).command == Terminate(cause=COMPLETED)


def test_an_answer_that_a_tool_gave_has_to_have_the_declared_form() -> None:
    planned = plan_after(*answered_by(returned(_LOOK), answers(_SET, WRONG)), spec=build_spec(check_output=is_right))
    assert [type(body) for body in planned.events] == [SummarySkipped, SchemaViolation]
    assert cause_of(planned).code == "schema_violation"


def test_an_answer_that_a_tool_gave_and_that_goes_back_to_the_model_is_not_given_twice() -> None:
    spec = build_spec(agent=build_agent(repair=RepairConfig(max_attempts=1)), check_output=is_right)
    planned = plan_after(*answered_by(returned(_LOOK), answers(_SET, WRONG)), spec=spec)
    assert (planned.state.answer, planned.state.skipped) == (None, ())
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_no_summary_is_skipped_while_a_call_is_open() -> None:
    with pytest.raises(IllegalEvent, match="summary_skipped before every call has its outcome"):
        fold(fold_bodies(*acting_log(_LOOK)), SummarySkipped(answer="It is done."), at=0.0)


def test_a_worker_that_is_lost_after_the_result_skips_the_summary_all_the_same() -> None:
    planned = plan_after(*acting_log(_LOOK), dispatched(_LOOK), answers(_LOOK, RIGHT), resumed())
    assert (planned.state.phase, planned.state.answer) == (Phase.ANSWERED, RIGHT)
