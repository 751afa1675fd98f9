"""Promises that hold on every random legal walk. Each walk checks the invariants after every fold."""

from hypothesis import HealthCheck, given, settings

from app.conversation import settle_dangling_calls
from app.events import decode_event, encode_event
from app.policy import Effect
from app.run import CallStatus, IllegalEvent, Phase, State, fold, fold_all, state_of
from tests.builders import store_bodies
from tests.run.samples import SAMPLES
from tests.run.walks import Walk, walks

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
def test_a_once_tool_is_never_called_twice_for_one_call(walk: Walk) -> None:
    assert set(walk.calls_of(Effect.ONCE).values()) <= {1}


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
    kinds = walk.kinds()
    assert (walk.state.model_calls, walk.state.tool_calls) == (kinds["model_call"], kinds["tool_call"])


@_often
@given(walk=walks())
def test_no_cap_is_passed(walk: Walk) -> None:
    limits, agent, state = walk.spec.limits, walk.spec.agent, walk.state
    assert state.tool_calls <= (limits.max_tool_calls or state.tool_calls)
    assert state.model_calls <= min(limits.max_model_calls or state.model_calls, walk.spec.max_llm_calls)
    assert state.iteration <= agent.max_iterations


@_often
@given(walk=walks())
def test_equal_requests_never_pass_their_cap_unless_they_may(walk: Walk) -> None:
    exempt = tuple(f"{name} " for name in walk.spec.agent.idempotent_tools)
    counts = [count for request, count in walk.state.repeats.items() if not request.startswith(exempt)]
    assert max(counts, default=0) <= walk.spec.agent.loop.max_repeated_calls


@_often
@given(walk=walks())
def test_a_run_completes_only_with_an_answer(walk: Walk) -> None:
    assert walk.state.end is not None
    assert walk.state.end.code is not None or walk.state.answer == "Four nights."


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


def _refused(state: State, label: str) -> bool:
    try:
        fold(state, SAMPLES[label], at=state.last_at)
    except IllegalEvent:
        return True
    return False
