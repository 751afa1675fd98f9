"""Promises about the answers of people, and about runs that go on from failed ones, on every random legal walk."""

from hypothesis import HealthCheck, given, settings

from app.conversation import settle_dangling_calls
from app.events import ApprovalGranted, RunResumed, RunStarted, ToolCalled
from app.policy import Outcome
from app.run import CallStatus, Phase, state_of
from app.run.reopen import fold_chain, unresolved
from app.run.transitions import TABLE
from tests.builders import store_bodies
from tests.run.walk_answers import (
    asked_about_no_loss,
    edited_after_it_went_out,
    left_without_outcome,
    made_too_often,
    rows_of,
    sent_otherwise_than_edited,
    settled_otherwise,
    unanswered_but_known,
)
from tests.run.walk_checks import (
    answers_to_no_question,
    labels_of,
    questions_without_an_end,
    sent_while_a_question_was_open,
    sent_without_a_grant,
)
from tests.run.walk_resumed import resumed_from, resumed_walks
from tests.run.walks import Walk, walk_from, walks

_often = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_sometimes = settings(_often, max_examples=40)


# --- answers ---------------------------------------------------------------------------------------------------------


@_often
@given(walk=walks())
def test_nobody_is_asked_about_an_outcome_but_of_a_call_that_is_out(walk: Walk) -> None:
    assert asked_about_no_loss(walk) == []


@_often
@given(walk=walks())
def test_what_a_person_said_of_a_call_is_what_the_log_tells_of_it(walk: Walk) -> None:
    assert (settled_otherwise(walk), unanswered_but_known(walk)) == ([], [])


@_often
@given(walk=walks())
def test_what_a_person_put_goes_out_once_it_was_cleared(walk: Walk) -> None:
    assert sent_otherwise_than_edited(walk) == []


@_often
@given(walk=walks())
def test_a_call_never_goes_out_with_other_arguments_than_before(walk: Walk) -> None:
    assert edited_after_it_went_out(walk) == []


# --- runs that go on from others -------------------------------------------------------------------------------------


@_sometimes
@given(walk=resumed_walks())
def test_every_run_that_goes_on_from_another_ends_once_and_in_the_state_of_its_code(walk: Walk) -> None:
    assert [body.kind for _, body in walk.log].index("terminated") == len(walk.log) - 1
    assert walk.state.end is not None
    assert walk.state.end.state == state_of(walk.state.end.code)


@_sometimes
@given(walk=resumed_walks())
def test_folding_both_logs_from_scratch_gives_the_state_that_was_folded_along_the_way(walk: Walk) -> None:
    assert fold_chain(walk.before, store_bodies(walk.log)) == walk.state


@_sometimes
@given(walk=resumed_walks())
def test_it_counts_its_own_calls_only(walk: Walk) -> None:
    kinds = walk.kinds()
    assert walk.state.model_calls == kinds["model_call"]
    assert walk.state.tool_calls <= kinds["tool_call"]
    assert walk.state.seq == len(walk.log)


@_sometimes
@given(walk=resumed_walks())
def test_nothing_that_went_out_before_goes_out_again_unless_somebody_wants_it(walk: Walk) -> None:
    assert made_too_often(walk) == {}


@_sometimes
@given(walk=resumed_walks())
def test_what_an_earlier_run_left_open_has_its_outcome_in_the_end(walk: Walk) -> None:
    assert CallStatus.DISPATCHED not in {progress.status for progress in walk.state.calls}
    assert left_without_outcome(walk) == set()


@_sometimes
@given(walk=resumed_walks())
def test_people_are_asked_anew_whatever_they_said_before(walk: Walk) -> None:
    assert (sent_without_a_grant(walk), sent_while_a_question_was_open(walk)) == ([], [])
    assert (questions_without_an_end(walk), answers_to_no_question(walk)) == (set(), [])


@_sometimes
@given(walk=resumed_walks())
def test_what_they_put_is_cleared_there_too(walk: Walk) -> None:
    assert (sent_otherwise_than_edited(walk), settled_otherwise(walk)) == ([], [])


@_sometimes
@given(walk=resumed_walks())
def test_it_begins_in_the_middle_where_a_turn_was_open(walk: Walk) -> None:
    second = walk.log[1][1]
    assert isinstance(second, RunStarted | RunResumed)
    assert isinstance(second, RunResumed) or not walk.spec.resolutions


@_sometimes
@given(walk=resumed_walks())
def test_its_transcript_is_valid_with_what_was_said_before(walk: Walk) -> None:
    settled = settle_dangling_calls(walk.state.turns)
    assert settled[: len(walk.state.turns)] == walk.state.turns


@_sometimes
@given(walk=resumed_walks())
def test_the_ids_of_its_calls_were_never_given_before(walk: Walk) -> None:
    before = {e.body.call_id for log in walk.before for e in log if isinstance(e.body, ToolCalled)}
    own = {body.call_id for _, body in walk.log if isinstance(body, ToolCalled) and body.dispatch == 1}
    assert not before & own


# --- the walks themselves --------------------------------------------------------------------------------------------


def test_walks_meet_every_answer() -> None:
    met = [walk_from(seed) for seed in range(600)]
    answers = [body for walk in met for _, body in walk.log if isinstance(body, ApprovalGranted)]
    assert {body.outcome for body in answers} == {None, *Outcome}
    assert any(body.arguments is not None for body in answers)


def test_walks_that_go_on_from_others_meet_their_own_row_and_both_ways_to_begin() -> None:
    met = [resumed_from(seed) for seed in range(0, 600, 15)]
    rows = set().union(*(rows_of(walk) for walk in met))
    assert rows >= {(Phase.QUEUED, "run_resumed"), (Phase.QUEUED, "run_started")}
    assert {label for _, label in rows} <= {label for moves in TABLE.values() for label in moves}
    assert set().union(*(labels_of(walk) for walk in met)) >= {"terminated:completed", "terminated:failed"}
    assert {outcome for walk in met for outcome in walk.spec.resolutions.values()} == set(Outcome)


def test_runs_that_go_on_may_be_gone_on_from() -> None:
    met = [resumed_from(seed) for seed in range(0, 600, 15)]
    assert any(walk.may_be_resumed and unresolved(walk.logs) for walk in met)
