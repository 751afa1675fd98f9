"""What is next for a run, rule by rule: which bound stops it, what goes out, what is waited for."""

from typing import Any

import pytest

from app.conversation import Usage
from app.events import (
    AnyEvent,
    BudgetRefused,
    CancellationRequested,
    DeadlineExceeded,
    GuardrailRefusal,
    HookRefusal,
    WorkerLost,
)
from app.policy import BudgetLimits, Scope
from app.run import (
    AssemblePrompt,
    CallModel,
    Cause,
    DispatchTool,
    Phase,
    Plan,
    Record,
    RunSpec,
    Situation,
    Terminate,
    WaitUntil,
    decide,
    plan,
)
from tests.builders import (
    CANCEL,
    acting_log,
    assembled,
    build_agent,
    build_call,
    build_spec,
    dispatched,
    fold_bodies,
    model_called,
    model_failed,
    plan_after,
    queued,
    ready_log,
    responded,
    resumed,
    returned,
    settled_turn,
    started,
    terminated,
)
from tests.run.samples import LOGS, cap_of, cause_of

_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)
_ANSWERED = (*ready_log(), model_called(), responded("Four nights."))


# --- the way through a run -------------------------------------------------------------------------------------------


def test_a_run_begins_with_its_prompt() -> None:
    assert plan_after(queued(), started()).command == AssemblePrompt()


def test_with_its_prompt_there_the_model_is_called() -> None:
    assert plan_after(*ready_log()).command == CallModel(iteration=1, attempt=1, max_output_tokens=None)


def test_the_first_of_the_models_calls_goes_out() -> None:
    assert plan_after(*acting_log(_SET, _LOOK)).command == DispatchTool(call_id=_SET.call_id, dispatch=1)


def test_calls_go_out_one_at_a_time_in_the_models_order() -> None:
    planned = plan_after(*acting_log(_SET, _LOOK), dispatched(_SET), returned(_SET))
    assert planned.command == DispatchTool(call_id=_LOOK.call_id, dispatch=1)


def test_when_every_call_is_settled_the_model_is_called_for_the_next_iteration() -> None:
    planned = plan_after(*ready_log(), *settled_turn(1, _LOOK))
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_an_answer_completes_the_run() -> None:
    assert cause_of(plan_after(*_ANSWERED)) == Cause(code=None)


def test_an_answer_that_stands_is_not_taken_back_by_a_late_cancel_or_deadline() -> None:
    planned = plan_after(*_ANSWERED, spec=build_spec(deadline_at=5), now=9, cancel=CANCEL)
    assert cause_of(planned) == Cause(code=None)


def test_a_run_that_stops_ends_by_its_cause() -> None:
    planned = plan_after(*ready_log(), CancellationRequested(reason="changed my mind"))
    assert cause_of(planned) == Cause(code="cancelled", detail="changed my mind")


def test_a_run_without_a_cause_to_stop_is_a_defect_that_still_ends_it() -> None:
    state = fold_bodies(*LOGS[Phase.STOPPING])
    broken = type(state)(phase=Phase.STOPPING, fence=1)
    assert decide(build_spec(), broken, Situation(now=0)) == Terminate(cause=Cause(code="internal_error"))


@pytest.mark.parametrize("phase", [Phase.NEW, Phase.QUEUED, Phase.THINKING, Phase.HELD, Phase.REFUSED, Phase.ENDED])
def test_there_is_nothing_to_decide_where_no_claim_waits_for_a_decision(phase: Phase) -> None:
    with pytest.raises(AssertionError, match=f"a run that is {phase}"):
        decide(build_spec(), fold_bodies(*LOGS[phase]), Situation(now=0))


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (HookRefusal(hook="redactor", point="after_model_response"), "hook_refusal"),
        (GuardrailRefusal(guardrail="injection", subject="output"), "guardrail_refusal"),
        (DeadlineExceeded(what="hook"), "deadline_exceeded"),
    ],
    ids=["hook", "guardrail", "hook past its time"],
)
def test_a_response_that_was_refused_ends_the_run_by_its_refusal(refusal: AnyEvent, code: str) -> None:
    planned = plan_after(*ready_log(), model_called(), responded(None), refusal)
    assert cause_of(planned).code == code


def test_an_empty_answer_is_the_end_at_the_first() -> None:
    assert cause_of(plan_after(*ready_log(), model_called(), responded(""))).code == "empty_model_output"


# --- cancel, deadline, recoveries ------------------------------------------------------------------------------------


def test_a_cancel_is_recorded_with_who_asked_and_why() -> None:
    planned = plan_after(*ready_log(), cancel=CANCEL)
    assert planned.events == (
        CancellationRequested(reason="changed my mind", requested_by="ada", iteration=0, author="planner"),
    )
    assert cap_of(planned) == ("cancelled", None)


@pytest.mark.parametrize(("now", "late"), [(9.999, False), (10, True), (11, True)])
def test_a_deadline_ends_the_run_when_its_instant_has_come(now: float, late: bool) -> None:
    planned = plan_after(*ready_log(), spec=build_spec(deadline_at=10), now=now)
    assert isinstance(planned.command, Terminate) is late


def test_an_elapsed_deadline_is_a_cancellation_that_names_the_instant() -> None:
    planned = plan_after(*ready_log(), spec=build_spec(deadline_at=10), now=11)
    assert [(event.kind, getattr(event, "deadline_at", None)) for event in planned.events] == [
        ("deadline_exceeded", 10)
    ]
    assert cap_of(planned) == ("deadline_exceeded", None)


@pytest.mark.parametrize("stop", [{"cancel": CANCEL}, {"now": 99.0}], ids=["cancel", "deadline"])
def test_between_two_calls_of_a_turn_the_run_can_be_stopped(stop: dict[str, object]) -> None:
    log = (*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK))
    planned = plan_after(*log, spec=build_spec(deadline_at=50), **stop)  # type: ignore[arg-type]
    assert isinstance(planned.command, Terminate)


@pytest.mark.parametrize(("recoveries", "lost"), [(3, False), (4, True)])
def test_after_max_recoveries_the_worker_is_given_up(recoveries: int, lost: bool) -> None:
    planned = plan_after(*ready_log(), resumed(fence=9, recoveries=recoveries))
    assert isinstance(planned.command, Terminate) is lost


def test_a_worker_that_is_given_up_is_told_by_its_count() -> None:
    planned = plan_after(*ready_log(), resumed(fence=9, recoveries=4))
    assert planned.events == (WorkerLost(recoveries=4, author="planner"),)
    assert cap_of(planned) == ("worker_lost", None)


def test_an_answer_that_stands_outlives_any_number_of_recoveries() -> None:
    assert cause_of(plan_after(*_ANSWERED, resumed(fence=9, recoveries=9))) == Cause(code=None)


# --- the order of the bounds -----------------------------------------------------------------------------------------

# Two iterations, 20 input and 10 output tokens, two model calls, two tool calls, all at second 0.
_TWO_TURNS = (*ready_log(), *settled_turn(1, _LOOK), *settled_turn(2, build_call("look", iteration=2)))
_CAPS = [
    "max_input_tokens",
    "max_output_tokens",
    "max_model_calls",
    "max_iterations",
    "max_seconds",
]
_ENDS = [
    ("cancelled", None),
    ("deadline_exceeded", None),
    ("max_iterations_exceeded", "max_iterations"),
    ("max_llm_calls_exceeded", "max_llm_calls"),
    *(("budget_exhausted", cap) for cap in _CAPS),
]


def plan_with_bounds_from(first: int) -> Plan:
    """What ends a run for which every bound binds but those before the ``first`` one in the order of asking."""
    binds = [index >= first for index in range(len(_ENDS))]
    limits: dict[str, Any] = {cap: 2 for cap, bound in zip(_CAPS, binds[4:], strict=True) if bound}
    return plan_after(
        *_TWO_TURNS,
        spec=build_spec(
            agent=build_agent(max_iterations=2 if binds[2] else 99),
            max_llm_calls=2 if binds[3] else 99,
            deadline_at=5 if binds[1] else None,
            limits=BudgetLimits(**limits),
        ),
        now=10,
        cancel=CANCEL if binds[0] else None,
    )


@pytest.mark.parametrize("first", range(len(_ENDS)), ids=[cap or code for code, cap in _ENDS])
def test_of_bounds_that_bind_together_the_first_in_the_documented_order_names_the_end(first: int) -> None:
    assert cap_of(plan_with_bounds_from(first)) == _ENDS[first]


def test_a_run_that_no_bound_stops_goes_on() -> None:
    assert isinstance(plan_with_bounds_from(len(_ENDS)).command, CallModel)


def test_a_lost_worker_comes_after_the_deadline_and_before_the_caps() -> None:
    spec = build_spec(agent=build_agent(max_iterations=2), deadline_at=50)
    log = (*_TWO_TURNS, resumed(fence=9, recoveries=4))
    assert cap_of(plan_after(*log, spec=spec, now=60)) == ("deadline_exceeded", None)
    assert cap_of(plan_after(*log, spec=spec, now=40)) == ("worker_lost", None)


@pytest.mark.parametrize(
    ("spec", "end"),
    [
        (build_spec(agent=build_agent(max_iterations=1)), ("max_iterations_exceeded", "max_iterations")),
        (build_spec(max_llm_calls=1), ("max_llm_calls_exceeded", "max_llm_calls")),
        (build_spec(limits=BudgetLimits(max_model_calls=1)), ("budget_exhausted", "max_model_calls")),
        (build_spec(limits=BudgetLimits(max_iterations=1)), ("budget_exhausted", "max_iterations")),
        (build_spec(limits=BudgetLimits(max_input_tokens=10)), ("budget_exhausted", "max_input_tokens")),
        (build_spec(limits=BudgetLimits(max_output_tokens=5)), ("budget_exhausted", "max_output_tokens")),
    ],
)
def test_a_bound_that_is_reached_stops_the_next_model_call(spec: RunSpec, end: tuple[str, str]) -> None:
    assert cap_of(plan_after(*ready_log(), *settled_turn(1, _LOOK), spec=spec)) == end


@pytest.mark.parametrize(
    "spec",
    [
        build_spec(agent=build_agent(max_iterations=2)),
        build_spec(max_llm_calls=2),
        build_spec(limits=BudgetLimits(max_model_calls=2)),
        build_spec(limits=BudgetLimits(max_iterations=2)),
        build_spec(limits=BudgetLimits(max_input_tokens=11)),
        build_spec(limits=BudgetLimits(max_output_tokens=6)),
        build_spec(limits=BudgetLimits(max_seconds=1)),
        build_spec(limits=BudgetLimits(max_tool_calls=1)),
    ],
)
def test_a_bound_with_room_for_one_more_lets_it_pass(spec: RunSpec) -> None:
    assert isinstance(plan_after(*ready_log(), *settled_turn(1, _LOOK), spec=spec).command, CallModel)


def test_a_refused_reservation_says_what_was_used_and_who_set_the_ceiling() -> None:
    spec = build_spec(limits=BudgetLimits(max_model_calls=1), sources={"max_model_calls": Scope.TENANT})
    planned = plan_after(*ready_log(), *settled_turn(1, _LOOK), spec=spec)
    assert planned.events == (
        BudgetRefused(
            dimension="max_model_calls", limit=1, used=1, requested=1, source="tenant", iteration=1, author="planner"
        ),
    )


@pytest.mark.parametrize(
    ("spent", "left"), [(Usage(output_tokens=0), 20), (Usage(output_tokens=5), 15), (Usage(output_tokens=19), 1)]
)
def test_a_model_call_may_write_what_the_budget_leaves(spent: Usage, left: int) -> None:
    planned = plan_after(
        *ready_log(),
        model_called(),
        responded("", _LOOK, usage=spent),
        dispatched(_LOOK),
        returned(_LOOK),
        spec=build_spec(limits=BudgetLimits(max_output_tokens=20)),
    )
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=left)


@pytest.mark.parametrize(("now", "stopped"), [(4.9, False), (5, True), (6, True)])
def test_seconds_under_a_claim_end_a_run_before_its_next_model_call(now: float, stopped: bool) -> None:
    planned = plan_after(*ready_log(), spec=build_spec(limits=BudgetLimits(max_seconds=5)), now=now)
    assert isinstance(planned.command, Terminate) is stopped


def test_seconds_under_a_claim_end_a_run_between_two_tool_calls() -> None:
    log = (*acting_log(_LOOK, _PAY), dispatched(_LOOK), returned(_LOOK))
    planned = plan_after(*log, spec=build_spec(limits=BudgetLimits(max_seconds=5)), now=6)
    assert cap_of(planned) == ("budget_exhausted", "max_seconds")


def test_the_first_dimension_in_field_order_is_named_also_where_seconds_are_bound() -> None:
    spec = build_spec(limits=BudgetLimits(max_seconds=100, max_iterations=1))
    planned = plan_after(*ready_log(), *settled_turn(1, _LOOK), spec=spec)
    assert cap_of(planned) == ("budget_exhausted", "max_iterations")


# --- plan ------------------------------------------------------------------------------------------------------------


def test_a_plan_takes_outcomes_and_shares_their_append() -> None:
    planned = plan_after(*ready_log(), cancel=CANCEL)
    assert [event.kind for event in planned.events] == ["cancellation_requested"]
    assert planned.state.phase is Phase.STOPPING


@pytest.mark.parametrize(("now", "again_at"), [(20, 22), (10, 12), (5, 12)], ids=["later", "now", "a clock behind"])
def test_outcomes_are_planned_with_at_the_time_of_the_plan_and_never_before_the_logs(
    now: float, again_at: float
) -> None:
    thinking = fold_bodies(*ready_log(), model_called(), at=10)
    planned = plan(build_spec(), thinking, (model_failed(delay_seconds=2),), Situation(now=now))
    assert planned.command == WaitUntil(at=again_at)


def test_a_plan_never_ends_with_something_to_record() -> None:
    assert not isinstance(plan_after(*ready_log(), cancel=CANCEL).command, Record)


def test_a_run_that_ended_by_an_error_nobody_foresaw_is_over() -> None:
    assert fold_bodies(queued(), started(), assembled(), terminated("internal_error")).is_over
