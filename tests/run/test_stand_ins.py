"""A callback speaks for an agent, its model, or a tool: what is charged, what counts, and what a crash loses."""

from typing import Any

import pytest

from app.conversation import Usage
from app.events import CallbackOverride, HookRefusal
from app.policy import LoopConfig, RepairConfig
from app.run import AssemblePrompt, CallModel, DispatchTool, IllegalEvent, Phase, Terminate, fold
from app.run.causes import COMPLETED
from tests.builders import (
    acting_log,
    assembled,
    build_agent,
    build_call,
    build_spec,
    dispatch_failed,
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
)
from tests.run.samples import LOGS, cause_of, spoken, stood_in
from tests.run.walk_specs import RIGHT, WRONG, is_right

_LOOK, _AGAIN = build_call("look", number=1), build_call("look", number=1, iteration=2)
_SKIPPED_LOG = (queued(), started(), stood_in("before_agent"))
_GIVEN = CallbackOverride(callback="cache", point="before_tool", after="1")


# --- instead of a model ----------------------------------------------------------------------------------------------


def test_what_a_callback_says_instead_of_the_model_is_the_answer() -> None:
    planned = plan_after(*ready_log(), stood_in(), spoken(RIGHT))
    assert (planned.state.answer, planned.command) == (RIGHT, Terminate(cause=COMPLETED))


def test_it_is_an_iteration_and_no_model_call() -> None:
    state = fold_bodies(*ready_log(), stood_in(), spoken(RIGHT))
    assert (state.iteration, state.attempts, state.model_calls, state.usage) == (1, 0, 0, Usage())


def test_its_calls_go_out_like_a_models() -> None:
    planned = plan_after(*ready_log(), stood_in(), spoken("", _LOOK))
    assert planned.command == DispatchTool(call_id=_LOOK.call_id, dispatch=1)


def test_the_model_is_asked_next_in_an_iteration_of_its_own() -> None:
    log = (*ready_log(), stood_in(), spoken("", _LOOK), dispatched(_LOOK), returned(_LOOK))
    assert plan_after(*log).command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_a_callback_that_says_nothing_ends_the_run_as_a_model_would() -> None:
    planned = plan_after(*ready_log(), stood_in(), spoken(""))
    assert cause_of(planned).code == "empty_model_output"


def test_what_is_wrong_with_what_a_callback_said_is_told_to_the_model() -> None:
    spec = build_spec(agent=build_agent(repair=RepairConfig(max_attempts=1)), check_output=is_right)
    planned = plan_after(*ready_log(), stood_in(), spoken(WRONG), spec=spec)
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_iterations_are_bounded_also_where_no_model_is_called() -> None:
    log = (*ready_log(), stood_in(), spoken("", _LOOK), dispatched(_LOOK), returned(_LOOK))
    planned = plan_after(*log, spec=build_spec(agent=build_agent(max_iterations=1)))
    assert cause_of(planned).code == "max_iterations_exceeded"


def test_a_retry_that_a_callback_answers_is_no_failed_attempt_any_more() -> None:
    log = (*ready_log(), model_called(), model_failed(delay_seconds=0.0), stood_in(), spoken("", _LOOK))
    state = fold_bodies(*log)
    assert (state.iteration, state.attempts, state.failures, state.model_calls) == (1, 0, 0, 1)


def test_a_callback_can_stand_in_after_a_turn_too() -> None:
    state = fold_bodies(*ready_log(), *settled_turn(1, _LOOK), stood_in(iteration=2), spoken(RIGHT, iteration=2))
    assert (state.phase, state.iteration, state.calls) == (Phase.ANSWERED, 2, ())


def test_no_callback_stands_in_while_a_call_is_open() -> None:
    with pytest.raises(IllegalEvent, match="a stand-in before every call has its outcome"):
        fold(fold_bodies(*acting_log(_LOOK)), stood_in(iteration=2), at=0.0)


def test_where_the_process_dies_before_the_callbacks_words_are_stored_it_is_asked_again() -> None:
    planned = plan_after(*ready_log(), stood_in(), resumed())
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_a_callback_that_fails_ends_the_run_by_its_code() -> None:
    failed = HookRefusal(hook="cache", point="before_model", code="callback_failed", detail="KeyError")
    planned = plan_after(*ready_log(), failed)
    assert (cause_of(planned).code, cause_of(planned).detail) == ("callback_failed", "cache: KeyError")


# --- instead of an agent ---------------------------------------------------------------------------------------------


def test_an_agent_that_was_passed_over_never_began() -> None:
    state = fold_bodies(*_SKIPPED_LOG, spoken(RIGHT))
    assert (state.is_passed_over, state.is_entered, state.fingerprint) == (True, False, None)


def test_what_the_callback_said_is_the_runs_answer() -> None:
    planned = plan_after(*_SKIPPED_LOG, spoken(RIGHT))
    assert (planned.state.answer, planned.command) == (RIGHT, Terminate(cause=COMPLETED))


def test_an_agent_whose_model_was_stood_in_for_was_not_passed_over() -> None:
    assert not fold_bodies(*ready_log(), stood_in(), spoken(RIGHT)).is_passed_over


def test_an_agent_that_begins_after_all_was_not_passed_over() -> None:
    assert not fold_bodies(*_SKIPPED_LOG, resumed(), assembled()).is_passed_over


def test_an_agent_that_was_passed_over_with_the_wrong_answer_is_begun() -> None:
    spec = build_spec(agent=build_agent(repair=RepairConfig(max_attempts=1)), check_output=is_right)
    assert plan_after(*_SKIPPED_LOG, spoken(WRONG), spec=spec).command == AssemblePrompt()


# --- beside the answer -----------------------------------------------------------------------------------------------


def test_what_is_said_after_the_answer_leaves_the_answer_as_it_is() -> None:
    before = fold_bodies(*LOGS[Phase.ANSWERED])
    state = fold(before, spoken("Anything else?"), at=0.0)
    assert (state.phase, state.answer, state.usage) == (Phase.ANSWERED, "Four nights.", before.usage)


def test_what_is_said_after_the_answer_is_part_of_the_conversation() -> None:
    state = fold_bodies(*LOGS[Phase.ANSWERED], spoken("Anything else?"))
    assert [message.content for message in state.turns] == ["Four nights.", "Anything else?"]


# --- instead of a tool -----------------------------------------------------------------------------------------------


def test_a_result_that_a_callback_gave_was_never_dispatched_nor_charged() -> None:
    planned = plan_after(*acting_log(_LOOK), _GIVEN, returned(_LOOK))
    assert (planned.state.tool_calls, planned.state.calls[0].dispatches) == (0, 0)
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_a_request_that_a_callback_answered_counts_as_made() -> None:
    spec = build_spec(agent=build_agent(loop=LoopConfig(max_repeated_calls=1)))
    log = (*acting_log(_LOOK), _GIVEN, returned(_LOOK), model_called(iteration=2), responded("", _AGAIN, iteration=2))
    assert plan_after(*log, spec=spec).events[0].kind == "repeat_detected"


@pytest.mark.parametrize(
    "outcomes",
    [
        (dispatched(_LOOK), returned(_LOOK)),
        (_GIVEN, returned(_LOOK)),
        (dispatched(_LOOK), dispatch_failed(_LOOK, delay_seconds=0.0), _GIVEN, returned(_LOOK)),
    ],
)
def test_a_request_is_counted_once_whoever_answers_it(outcomes: tuple[Any, ...]) -> None:
    assert sum(fold_bodies(*acting_log(_LOOK), *outcomes).repeats.values()) == 1
