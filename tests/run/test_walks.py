"""Promises that hold on every random legal walk. Each walk checks the invariants after every fold."""

from typing import get_args

from hypothesis import HealthCheck, given, settings

from app.conversation import settle_dangling_calls
from app.events import AttemptFailed, ModelResponded, RunResumed, ToolCalled, decode_event, encode_event
from app.run import CallStatus, Command, IllegalEvent, Phase, State, fold, fold_all, state_of
from app.run.steps.bounds import spent
from app.run.transitions import TABLE, label_of
from tests.builders import store_bodies
from tests.run.samples import SAMPLES
from tests.run.walk_answers import made_too_often
from tests.run.walk_checks import (
    answers_to_no_question,
    asked_again_about_a_sub_agent,
    asked_of_another_model,
    asked_with_anothers_prompt,
    charged_tool_calls,
    dropped_on_the_way,
    fell_back_after_an_effect,
    fell_back_out_of_order,
    groups_that_may_not_be,
    handed_over_otherwise,
    judged_after_something_went_out,
    labels_of,
    questions_without_an_end,
    sent_otherwise_than_cleared,
    sent_while_a_question_was_open,
    sent_without_a_grant,
)
from tests.run.walks import Walk, walk_from, walks

# What a plan may end with: everything but what is only recorded.
_COMMANDS = {command.__name__ for command in get_args(Command)} - {"Record"}
_ROWS = {label for moves in TABLE.values() for label in moves}

# A walk is thousands of draws: neither its making nor its length is a defect.
_often = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_often
@given(walk=walks())
def test_every_walk_ends_with_terminated_last_and_exactly_once(walk: Walk) -> None:
    assert [body.kind for _, body in walk.log].index("terminated") == len(walk.log) - 1


@_often
@given(walk=walks())
def test_the_end_is_the_state_of_its_code(walk: Walk) -> None:
    end = walk.state.end
    assert end is not None
    assert end.state == state_of(end.code)


@_often
@given(walk=walks())
def test_a_once_tool_is_never_called_twice_for_one_call_unless_a_person_wants_that(walk: Walk) -> None:
    assert made_too_often(walk) == {}


@_often
@given(walk=walks())
def test_what_was_called_was_stored_before(walk: Walk) -> None:
    assert walk.called.total() <= walk.kinds()["tool_call"]


@_often
@given(walk=walks())
def test_a_call_that_went_out_has_its_outcome_whatever_ended_the_run(walk: Walk) -> None:
    assert CallStatus.DISPATCHED not in {progress.status for progress in walk.state.calls}


@_often
@given(walk=walks())
def test_folding_the_log_from_scratch_gives_the_state_that_was_folded_along_the_way(walk: Walk) -> None:
    assert fold_all(State(), store_bodies(walk.log)) == walk.state


@_often
@given(walk=walks())
def test_a_log_that_was_stored_and_read_folds_to_the_same_state(walk: Walk) -> None:
    read = [(at, decode_event(body.kind, encode_event(body))) for at, body in walk.log]
    assert fold_all(State(), store_bodies(read)) == walk.state


@_often
@given(walk=walks())
def test_every_call_and_every_attempt_is_charged(walk: Walk) -> None:
    assert (walk.state.model_calls, walk.state.tool_calls) == (walk.kinds()["model_call"], charged_tool_calls(walk))


@_often
@given(walk=walks())
def test_no_cap_is_passed(walk: Walk) -> None:
    limits, agent, state = walk.spec.limits, walk.spec.agent, walk.state
    tool_calls, model_calls = state.tool_calls + walk.below.tool_calls, state.model_calls + walk.below.model_calls
    assert tool_calls <= (limits.max_tool_calls or tool_calls)
    assert model_calls <= min(limits.max_model_calls or model_calls, walk.spec.max_llm_calls)
    assert state.iteration <= agent.max_iterations


@_often
@given(walk=walks())
def test_equal_requests_never_pass_their_cap_unless_they_may(walk: Walk) -> None:
    agents = [spec.agent for spec in (walk.spec, *walk.spec.team.values())]
    exempt = tuple(f"{name} " for agent in agents for name in agent.idempotent_tools)
    counts = [count for request, count in walk.state.repeats.items() if not request.startswith(exempt)]
    assert max(counts, default=0) <= max(agent.loop.max_repeated_calls for agent in agents)


@_often
@given(walk=walks())
def test_a_run_completes_only_with_an_answer(walk: Walk) -> None:
    end, check = walk.state.end, walk.spec.check_output
    assert end is not None
    assert end.code is not None or walk.state.answer
    assert end.code is not None or check is None or not check(walk.state.answer or "")


@_often
@given(walk=walks())
def test_what_may_need_undoing_is_named_once_for_each_call_where_the_run_did_not_complete(walk: Walk) -> None:
    assert walk.state.end is not None
    expected = 0 if walk.state.end.code is None else len(walk.state.landed)
    assert walk.kinds()["compensation_required"] == expected


@_often
@given(walk=walks())
def test_a_transcript_with_every_call_settled_is_valid_as_it_stands(walk: Walk) -> None:
    settled = settle_dangling_calls(walk.state.turns)
    assert settled[: len(walk.state.turns)] == walk.state.turns


@_often
@given(walk=walks())
def test_nothing_can_be_added_to_an_ended_log(walk: Walk) -> None:
    assert walk.state.phase is Phase.ENDED
    assert {_refused(walk.state, label) for label in SAMPLES} == {True}


# --- people ----------------------------------------------------------------------------------------------------------


@_often
@given(walk=walks())
def test_no_call_goes_out_while_a_question_of_its_turn_is_open(walk: Walk) -> None:
    assert sent_while_a_question_was_open(walk) == []


@_often
@given(walk=walks())
def test_one_grant_is_good_for_one_dispatch(walk: Walk) -> None:
    assert sent_without_a_grant(walk) == []


@_often
@given(walk=walks())
def test_every_question_has_an_end_and_every_answer_a_question(walk: Walk) -> None:
    assert (questions_without_an_end(walk), answers_to_no_question(walk)) == (set(), [])


# --- turns -----------------------------------------------------------------------------------------------------------


@_often
@given(walk=walks())
def test_the_calls_of_a_turn_are_all_cleared_before_any_goes_out(walk: Walk) -> None:
    assert (sent_otherwise_than_cleared(walk), judged_after_something_went_out(walk)) == ([], [])


@_often
@given(walk=walks())
def test_only_neighbours_that_may_be_are_out_together_and_never_too_many(walk: Walk) -> None:
    assert groups_that_may_not_be(walk) == []


@_often
@given(walk=walks())
def test_the_model_is_never_told_more_often_than_it_may_be(walk: Walk) -> None:
    repairs = [spec.agent.repair for spec in (walk.spec, *walk.spec.team.values())]
    most = max(0 if repair is None else repair.max_attempts for repair in repairs)
    assert walk.kinds()["repair_requested"] <= most


# --- models and budgets ----------------------------------------------------------------------------------------------


@_often
@given(walk=walks())
def test_no_model_stands_in_after_a_call_that_can_not_be_repeated(walk: Walk) -> None:
    assert fell_back_after_an_effect(walk) == []


@_often
@given(walk=walks())
def test_the_model_that_is_asked_is_the_routes(walk: Walk) -> None:
    assert (fell_back_out_of_order(walk), asked_of_another_model(walk)) == ([], [])


@_often
@given(walk=walks())
def test_no_ceiling_of_a_caller_is_passed_by_all_who_spend_of_it(walk: Walk) -> None:
    limits, total = walk.callers_limits or walk.spec.limits, walk.elsewhere + walk.below + spent(walk.state)
    assert total.tool_calls <= (limits.max_tool_calls or total.tool_calls)
    assert total.model_calls <= (limits.max_model_calls or total.model_calls)
    assert total.iterations <= (limits.max_iterations or total.iterations)
    assert total.model_calls <= ((walk.callers_max_llm_calls if walk.depth else None) or total.model_calls)


# --- teams and callbacks ---------------------------------------------------------------------------------------------


@_often
@given(walk=walks())
def test_a_run_is_handed_over_once_its_turn_is_through_and_to_whom_the_last_call_names(walk: Walk) -> None:
    assert handed_over_otherwise(walk) == []


@_often
@given(walk=walks())
def test_whoever_had_a_say_keeps_it_when_the_run_is_handed_on(walk: Walk) -> None:
    assert dropped_on_the_way(walk) == []


@_often
@given(walk=walks())
def test_an_agent_is_asked_with_a_prompt_of_its_own(walk: Walk) -> None:
    assert asked_with_anothers_prompt(walk) == []


@_often
@given(walk=walks())
def test_an_iteration_is_a_model_call_or_what_stood_in_for_one(walk: Walk) -> None:
    stood_in = [label_of(body) for _, body in walk.log].count("callback_override:instead")
    assert walk.state.iteration <= walk.state.model_calls + stood_in


@_often
@given(walk=walks())
def test_what_a_callback_says_costs_nothing(walk: Walk) -> None:
    heard = [body for _, body in walk.log if isinstance(body, ModelResponded) and body.callback is None]
    lost = [body for _, body in walk.log if isinstance(body, AttemptFailed | RunResumed)]
    charged = [body.usage.output_tokens for body in (*heard, *lost) if body.usage is not None]
    assert walk.state.usage.output_tokens == sum(charged)


@_often
@given(walk=walks())
def test_nobody_is_asked_about_a_sub_agent_that_is_at_work(walk: Walk) -> None:
    assert asked_again_about_a_sub_agent(walk) == []


@_often
@given(walk=walks())
def test_one_call_of_a_sub_agent_is_one_run(walk: Walk) -> None:
    sent = [body for _, body in walk.log if isinstance(body, ToolCalled) and body.child_run_id is not None]
    assert len({body.child_run_id for body in sent}) == len({body.call_id for body in sent})


# --- the walks themselves --------------------------------------------------------------------------------------------


def test_walks_meet_every_command_and_every_row_of_the_table() -> None:
    met = [walk_from(seed) for seed in range(1_500)]
    assert set().union(*(walk.commands for walk in met)) == _COMMANDS
    assert set().union(*(labels_of(walk) for walk in met)) == _ROWS


def _refused(state: State, label: str) -> bool:
    try:
        fold(state, SAMPLES[label], at=state.last_at)
    except IllegalEvent:
        return True
    return False
