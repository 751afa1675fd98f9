"""Which model a run asks: the router's first choice, and the next of the route after one that failed for good."""

from typing import Any

import pytest

from app.events import AnyEvent, ModelRouted
from app.policy import BudgetLimits, Effect
from app.run import AssemblePrompt, CallModel, Terminate
from app.run.steps.routing import stand_in_for
from tests.builders import (
    CANCEL,
    acting_log,
    build_agent,
    build_call,
    build_spec,
    dispatched,
    fell_back,
    fold_bodies,
    model_called,
    model_failed,
    plan_after,
    queued,
    ready_log,
    responded,
    resumed,
    returned,
    routed,
    started,
    trimmed,
)
from tests.run.samples import cap_of

_ROUTE = ("a:large", "b:large", "c:small")
_SPEC = build_spec(agent=build_agent(task_class="travel"), route=_ROUTE)
_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)

_ROUTED: tuple[AnyEvent, ...] = (queued(), started(), routed("a:large"))
_FAILED = (*ready_log(), routed("a:large"), model_called(), model_failed(delay_seconds=0))


def test_the_first_choice_of_the_route_is_told_before_the_prompt_is_assembled() -> None:
    planned = plan_after(queued(), started(), spec=_SPEC)
    assert planned.events == (ModelRouted(task_class="travel", model="a:large", author="planner"),)
    assert planned.command == AssemblePrompt()


def test_a_run_is_routed_once() -> None:
    assert plan_after(*_ROUTED, spec=_SPEC).events == ()


def test_a_run_stays_with_its_model_after_a_restart() -> None:
    planned = plan_after(*_ROUTED, resumed(), spec=_SPEC)
    assert (planned.events, planned.state.routed_to) == ((), "a:large")


def test_without_a_route_nothing_is_routed() -> None:
    assert plan_after(queued(), started()).events == ()


@pytest.mark.parametrize(
    ("stop", "end"),
    [
        ({"cancel": CANCEL}, "cancelled"),
        ({"spec": build_spec(max_llm_calls=0, route=_ROUTE)}, "max_llm_calls_exceeded"),
        ({"spec": build_spec(limits=BudgetLimits(max_seconds=1), route=_ROUTE)}, "budget_exhausted"),
    ],
    ids=["cancel", "cap", "budget"],
)
def test_a_run_that_may_not_begin_is_not_routed(stop: dict[str, Any], end: str) -> None:
    planned = plan_after(queued(), started(), **{"spec": _SPEC, "now": 5, **stop})
    assert cap_of(planned)[0] == end
    assert planned.state.routed_to is None


@pytest.mark.parametrize(
    ("model", "next_one"), [("a:large", "b:large"), ("b:large", "c:small"), ("c:small", None), ("z:gone", None)]
)
def test_the_next_model_of_the_route_stands_in(model: str, next_one: str | None) -> None:
    assert stand_in_for(_SPEC, fold_bodies(*ready_log(), routed(model))) == next_one


@pytest.mark.parametrize("route", [("a:large", "a:large"), ("a:large", "b:large", "a:large")])
def test_a_model_that_failed_does_not_stand_in_for_itself_later_on(route: tuple[str, ...]) -> None:
    spec = build_spec(route=route)
    assert stand_in_for(spec, fold_bodies(*ready_log(), routed(route[-2]))) is None


def test_nothing_stands_in_without_a_route() -> None:
    assert stand_in_for(build_spec(), fold_bodies(*ready_log())) is None


def test_a_model_that_stands_in_is_the_one_that_is_asked_from_then_on() -> None:
    state = fold_bodies(*_FAILED, fell_back("a:large", "b:large"))
    assert (state.routed_to, stand_in_for(_SPEC, state)) == ("b:large", "c:small")


def test_the_next_model_has_attempts_of_its_own() -> None:
    assert fold_bodies(*_FAILED).failures == 1
    assert fold_bodies(*_FAILED, fell_back("a:large", "b:large")).failures == 0


def test_falling_back_is_no_new_iteration() -> None:
    spec = build_spec(agent=build_agent(max_iterations=1), route=_ROUTE)
    planned = plan_after(*_FAILED, fell_back("a:large", "b:large"), spec=spec)
    assert planned.command == CallModel(iteration=1, attempt=2, max_output_tokens=None)


def test_every_model_that_is_asked_is_charged() -> None:
    spec = build_spec(limits=BudgetLimits(max_model_calls=1), route=_ROUTE)
    planned = plan_after(*_FAILED, fell_back("a:large", "b:large"), spec=spec)
    assert cap_of(planned) == ("budget_exhausted", "max_model_calls")


@pytest.mark.parametrize(("call", "stands_in"), [(_LOOK, "b:large"), (_SET, "b:large"), (_PAY, None)])
def test_nothing_stands_in_once_a_call_went_out_that_can_not_be_repeated(call: Any, stands_in: str | None) -> None:
    state = fold_bodies(routed("a:large"), state=fold_bodies(*ready_log()))
    moved = fold_bodies(model_called(), responded("", call), dispatched(call), returned(call), state=state)
    assert stand_in_for(_SPEC, moved) == stands_in


def test_a_call_that_never_went_out_keeps_no_model_from_standing_in() -> None:
    state = fold_bodies(*ready_log(), routed("a:large"), model_called(), responded("", _PAY))
    assert stand_in_for(_SPEC, state) == "b:large"


def test_a_call_of_a_tool_that_the_agent_declares_idempotent_keeps_no_model_from_standing_in() -> None:
    # It is stored as what it counts as.
    went_out = dispatched(_PAY).model_copy(update={"effect": Effect.IDEMPOTENT})
    state = fold_bodies(*ready_log(), routed("a:large"), model_called(), responded("", _PAY), went_out)
    assert stand_in_for(_SPEC, state) == "b:large"


def test_at_the_end_of_the_route_the_error_is_the_runs() -> None:
    log = (*_FAILED, fell_back("a:large", "b:large"), model_called(attempt=2), model_failed(attempt=2))
    assert cap_of(plan_after(*log, spec=_SPEC)) == ("provider_error", None)


def test_an_attempt_that_failed_does_not_end_a_run_by_itself() -> None:
    assert not isinstance(plan_after(*_FAILED, spec=_SPEC).command, Terminate)


# --- a history that is trimmed ---------------------------------------------------------------------------------------


def test_the_turns_that_were_dropped_add_up() -> None:
    assert fold_bodies(*ready_log(), trimmed(2), trimmed(3)).turns_dropped == 5


def test_the_turns_that_were_dropped_stay_dropped_after_a_restart() -> None:
    assert fold_bodies(*ready_log(), trimmed(2), model_called(), resumed()).turns_dropped == 2


def test_a_conversation_that_grew_by_its_calls_is_trimmed_before_the_next_model_call() -> None:
    state = fold_bodies(*acting_log(_LOOK), dispatched(_LOOK), returned(_LOOK), trimmed(2), model_called(iteration=2))
    assert (state.turns_dropped, state.iteration) == (2, 2)
