"""State is the fold of the log: what each event changes besides the phase."""

import pytest

from app.conversation import OUTCOME_UNKNOWN, ToolCall, Usage, UsageSource
from app.events import Actions, AnyEvent, ClearedCall, StateDelta, ToolResult, TurnCleared
from app.run import CallStatus, IllegalEvent, Phase, State, fold, fold_all
from tests.builders import (
    acting_log,
    build_call,
    build_raw_call,
    dispatch_failed,
    dispatched,
    estimated,
    fold_bodies,
    model_called,
    model_failed,
    outcome_lost,
    ready_log,
    responded,
    resumed,
    returned,
    said_by_model,
    settled_turn,
    started,
    store_bodies,
    told_by_tool,
    tool_failed,
)
from tests.run.samples import LOGS, SAMPLES

_LOOK, _SET, _PAY = build_call("look", number=1), build_call("set", number=2), build_call("pay", number=3)


def cleared(*calls: ClearedCall) -> TurnCleared:
    return TurnCleared(calls=calls)


def statuses(state: State) -> list[CallStatus]:
    return [progress.status for progress in state.calls]


# --- model calls -----------------------------------------------------------------------------------------------------


def test_a_model_call_is_counted_and_remembers_what_it_may_cost() -> None:
    state = fold_bodies(*ready_log(), model_called(estimate=50, max_output_tokens=9))
    assert (state.iteration, state.attempts, state.model_calls) == (1, 1, 1)
    assert (state.in_flight_input_tokens, state.output_ceiling, state.model) == (50, 9, "scripted:any")


def test_the_usage_of_a_response_is_charged_and_replaces_the_estimate() -> None:
    state = fold_bodies(*ready_log(), model_called(estimate=50), responded("Hi.", usage=Usage(input_tokens=40)))
    assert (state.usage, state.in_flight_input_tokens) == (Usage(input_tokens=40), 0)


def test_a_refused_response_was_still_paid_for() -> None:
    state = fold_bodies(*ready_log(), model_called(), responded(None, usage=Usage(input_tokens=40, output_tokens=7)))
    assert state.usage == Usage(input_tokens=40, output_tokens=7)


def test_a_refused_response_is_in_no_transcript_and_is_no_answer() -> None:
    state = fold_bodies(*ready_log(), model_called(), responded(None))
    assert (tuple(state.turns), state.answer, state.calls) == ((), None, ())


def test_an_answer_stands_in_the_transcript() -> None:
    state = fold_bodies(*ready_log(), model_called(), responded("Four nights."))
    assert (state.answer, tuple(state.turns)) == ("Four nights.", (said_by_model("Four nights."),))


def test_content_beside_calls_is_one_message_and_no_answer() -> None:
    state = fold_bodies(*ready_log(), model_called(), responded("Let me look.", _LOOK))
    assert (state.answer, tuple(state.turns)) == (None, (said_by_model("Let me look.", _LOOK),))


def test_a_failed_attempt_charges_what_it_is_estimated_to_have_used() -> None:
    state = fold_bodies(*ready_log(), model_called(), model_failed(delay_seconds=1, usage=estimated(11)))
    assert state.usage == estimated(11)


def test_a_failed_attempt_that_used_nothing_is_free() -> None:
    state = fold_bodies(*ready_log(), model_called(), model_failed(delay_seconds=1))
    assert state.usage.input_tokens == 0


def test_a_failed_attempt_waits_from_the_time_at_which_it_was_stored() -> None:
    thinking = fold_bodies(*ready_log(), model_called(), at=10)
    assert fold(thinking, model_failed(delay_seconds=1.5), at=20).backoff_until == 21.5


def test_failures_are_counted_within_an_iteration() -> None:
    state = fold_bodies(
        *ready_log(), model_called(), model_failed(delay_seconds=1), model_called(attempt=2), model_failed(attempt=2)
    )
    assert (state.failures, state.attempts, state.model_calls, state.iteration) == (2, 2, 2, 1)


def test_the_next_iteration_begins_without_failures() -> None:
    state = fold_bodies(
        *ready_log(),
        model_called(),
        model_failed(delay_seconds=1),
        model_called(attempt=2),
        responded("", _LOOK),
        dispatched(_LOOK),
        returned(_LOOK),
        model_called(iteration=2),
    )
    assert (state.failures, state.attempts, state.backoff_until) == (0, 1, None)


def test_a_model_call_before_every_call_has_its_outcome_is_illegal() -> None:
    state = fold_bodies(*acting_log(_LOOK, _SET), dispatched(_LOOK), returned(_LOOK))
    with pytest.raises(IllegalEvent, match="before every call has its outcome"):
        fold(state, model_called(iteration=2), at=0)


# --- claims ----------------------------------------------------------------------------------------------------------


def test_a_later_claim_charges_an_estimate_of_the_model_call_in_flight() -> None:
    state = fold_bodies(*ready_log(), model_called(estimate=50), resumed(fence=2, recoveries=1))
    assert (state.usage, state.in_flight_input_tokens) == (estimated(50), 0)
    assert (state.fence, state.recoveries, state.phase) == (2, 1, Phase.READY)


@pytest.mark.parametrize("phase", [Phase.READY, Phase.ACTING, Phase.ANSWERED, Phase.STOPPING])
def test_a_later_claim_charges_nothing_where_no_model_call_was_out(phase: Phase) -> None:
    before = fold_bodies(*LOGS[phase])
    assert fold_bodies(resumed(), state=before).usage == before.usage


def test_an_abandoned_call_makes_the_sum_an_estimate() -> None:
    state = fold_bodies(*ready_log(), model_called(), resumed(), model_called(attempt=2), responded("Hi."))
    assert state.usage.source is UsageSource.HEURISTIC


def test_a_crash_in_the_backoff_leaves_the_rest_of_it() -> None:
    thinking = fold_bodies(*ready_log(), model_called(), at=10)
    waiting = fold(thinking, model_failed(delay_seconds=5), at=10)
    assert fold(waiting, resumed(), at=12).backoff_until == 15


def test_only_time_under_a_claim_is_counted() -> None:
    state = fold_all(
        State(),
        store_bodies(
            [
                (0, ready_log()[0]),
                (100, started()),
                (101, ready_log()[2]),
                (103, model_called()),
                (500, resumed()),
                (507, model_called(attempt=2)),
            ]
        ),
    )
    assert state.active_seconds == 1 + 2 + 7


def test_a_clock_that_steps_back_takes_no_time_away() -> None:
    state = fold_bodies(*ready_log(), at=100)
    assert fold(state, model_called(), at=90).active_seconds == 0


# --- calls -----------------------------------------------------------------------------------------------------------


def test_calls_wait_in_the_models_order() -> None:
    state = fold_bodies(*acting_log(_SET, _LOOK))
    assert [progress.call for progress in state.open_calls] == [_SET, _LOOK]
    assert statuses(state) == [CallStatus.WAITING, CallStatus.WAITING]


def test_a_dispatched_call_knows_under_which_claim_it_went_out() -> None:
    state = fold_bodies(*acting_log(_LOOK), resumed(fence=7), dispatched(_LOOK))
    progress = state.calls[0]
    assert (progress.status, progress.fence, progress.dispatches) == (CallStatus.DISPATCHED, 7, 1)


@pytest.mark.parametrize(
    "outcome", [returned(_LOOK, "x"), tool_failed(_LOOK), outcome_lost(_LOOK, content="x")], ids=lambda body: body.kind
)
def test_an_outcome_settles_its_call_only(outcome: AnyEvent) -> None:
    state = fold_bodies(*acting_log(_LOOK, _SET), dispatched(_LOOK), outcome)
    assert statuses(state) == [CallStatus.SETTLED, CallStatus.WAITING]
    assert [progress.call for progress in state.open_calls] == [_SET]


def test_a_result_stands_in_the_transcript_as_the_model_reads_it() -> None:
    state = fold_bodies(*acting_log(_LOOK), dispatched(_LOOK), returned(_LOOK, "4 trains"))
    assert state.turns == (said_by_model("", _LOOK), told_by_tool(_LOOK, "4 trains"))


def test_a_call_that_ended_the_run_is_unknown_to_whoever_reads_on() -> None:
    state = fold_bodies(*acting_log(_PAY), dispatched(_PAY), outcome_lost(_PAY))
    assert state.turns[-1] == told_by_tool(_PAY, OUTCOME_UNKNOWN)


@pytest.mark.parametrize(
    "body",
    [
        returned(_PAY),
        tool_failed(_PAY),
        outcome_lost(_PAY, content="x"),
        dispatched(_PAY),
        dispatch_failed(_PAY, delay_seconds=1),
        SAMPLES["tool_refused:told"].model_copy(update={"call_id": _PAY.call_id}),
    ],
    ids=lambda body: body.kind,
)
def test_what_is_told_of_a_call_that_is_not_in_the_turn_is_illegal(body: AnyEvent) -> None:
    state = fold_bodies(*acting_log(_LOOK))
    with pytest.raises(IllegalEvent, match="not open"):
        fold(state, body, at=0)


def test_a_call_has_one_outcome() -> None:
    state = fold_bodies(*acting_log(_LOOK, _SET), dispatched(_LOOK), returned(_LOOK))
    with pytest.raises(IllegalEvent, match="call_1_1, which is not open"):
        fold(state, returned(_LOOK), at=0)


def test_a_dispatch_that_is_to_be_made_again_waits_for_its_backoff() -> None:
    state = fold_bodies(*acting_log(_SET), dispatched(_SET), dispatch_failed(_SET, delay_seconds=2), at=10)
    assert (statuses(state), state.backoff_until) == ([CallStatus.WAITING], 12)


def test_a_dispatch_that_failed_for_good_leaves_its_call_to_the_outcome() -> None:
    state = fold_bodies(*acting_log(_SET), dispatched(_SET), dispatch_failed(_SET))
    assert (statuses(state), state.backoff_until) == ([CallStatus.DISPATCHED], None)


def test_a_dispatch_ends_the_backoff() -> None:
    state = fold_bodies(
        *acting_log(_SET), dispatched(_SET), dispatch_failed(_SET, delay_seconds=2), dispatched(_SET, dispatch=2)
    )
    assert (state.backoff_until, state.calls[0].dispatches) == (None, 2)


def test_every_dispatch_is_charged() -> None:
    # "Every attempt also reserves against the budget": a retry is a second write to someone's database.
    state = fold_bodies(
        *acting_log(_SET), dispatched(_SET), dispatch_failed(_SET, delay_seconds=0), dispatched(_SET, dispatch=2)
    )
    assert state.tool_calls == 2


def test_a_retry_is_no_repetition() -> None:
    state = fold_bodies(
        *acting_log(_SET), dispatched(_SET), dispatch_failed(_SET, delay_seconds=0), dispatched(_SET, dispatch=2)
    )
    assert list(state.repeats.values()) == [1]


def test_equal_requests_are_counted_together_over_turns() -> None:
    first = build_call("look", arguments={"a": 1, "b": 2})
    second = build_call("look", iteration=2, arguments={"b": 2, "a": 1})
    state = fold_bodies(*ready_log(), *settled_turn(1, first), *settled_turn(2, second))
    assert list(state.repeats.values()) == [2]


def test_a_call_that_never_went_out_is_not_counted() -> None:
    state = fold_bodies(*acting_log(_LOOK), SAMPLES["tool_refused:told"])
    assert (state.tool_calls, dict(state.repeats)) == (0, {})


def test_only_calls_that_can_not_be_repeated_may_need_compensation() -> None:
    state = fold_bodies(
        *acting_log(_LOOK, _SET, _PAY),
        dispatched(_LOOK),
        returned(_LOOK),
        dispatched(_SET),
        returned(_SET),
        dispatched(_PAY),
        returned(_PAY),
    )
    assert state.landed == ((_PAY.call_id, "pay"),)


# --- clearance -------------------------------------------------------------------------------------------------------


def test_cleared_arguments_are_those_that_go_out_and_that_the_transcript_shows() -> None:
    rewritten = ClearedCall(call_id=_LOOK.call_id, name="look", arguments={"city": "Kyoto"})
    state = fold_bodies(*acting_log(_LOOK, _SET), cleared(rewritten))
    expected = build_call("look", arguments={"city": "Kyoto"})
    assert state.turn_cleared
    assert [progress.call for progress in state.calls] == [expected, _SET]
    assert state.turns == (said_by_model("", expected, _SET),)


def test_cleared_arguments_replace_what_was_no_json() -> None:
    raw = build_raw_call("look", "{")
    state = fold_bodies(*acting_log(raw), cleared(ClearedCall(call_id=raw.call_id, name="look", arguments={})))
    assert state.calls[0].call == build_call("look")


def test_a_clearance_is_for_one_turn() -> None:
    state = fold_bodies(*acting_log(_LOOK), cleared(), dispatched(_LOOK), returned(_LOOK), model_called(iteration=2))
    assert not state.turn_cleared


def test_a_request_is_counted_as_the_model_made_it_and_not_as_a_hook_rewrote_it() -> None:
    asked = build_call("look", arguments={"city": "Kyoto"})
    rewritten = build_call("look", arguments={"city": "[redacted]"})
    state = fold_bodies(
        *acting_log(asked),
        cleared(ClearedCall(call_id=asked.call_id, name="look", arguments={"city": "[redacted]"})),
        dispatched(rewritten),
    )
    assert list(state.repeats) == ['look {"city":"Kyoto"}']


# --- what tools leave behind -----------------------------------------------------------------------------------------


def changed(**values: object) -> StateDelta:
    return StateDelta(actions=Actions(state_delta=values))


def test_what_a_tool_keeps_is_there_for_the_next_one() -> None:
    assert fold_bodies(*acting_log(_LOOK), changed(city="Kyoto")).shared == {"city": "Kyoto"}


def test_a_change_leaves_everything_else_as_it_was() -> None:
    state = fold_bodies(*acting_log(_LOOK), changed(city="Kyoto", nights=4), changed(nights=5))
    assert state.shared == {"city": "Kyoto", "nights": 5}


def test_a_key_that_a_tool_took_away_is_none() -> None:
    assert fold_bodies(*acting_log(_LOOK), changed(city="Kyoto"), changed(city=None)).shared == {"city": None}


def test_a_change_of_nothing_changes_nothing() -> None:
    assert fold_bodies(*acting_log(_LOOK), changed(city="Kyoto"), StateDelta()).shared == {"city": "Kyoto"}


def test_what_tools_keep_outlives_a_restart() -> None:
    assert fold_bodies(*acting_log(_LOOK), changed(city="Kyoto"), resumed()).shared == {"city": "Kyoto"}


def flagged(call: ToolCall) -> ToolResult:
    return ToolResult(call_id=call.call_id, name=call.name, content="x", signals=("instruction_override",))


def test_a_run_that_read_something_like_an_instruction_is_flagged() -> None:
    assert fold_bodies(*acting_log(_LOOK), dispatched(_LOOK), flagged(_LOOK)).is_flagged


def test_a_run_that_read_nothing_of_the_kind_is_not() -> None:
    assert not fold_bodies(*acting_log(_LOOK), dispatched(_LOOK), returned(_LOOK)).is_flagged


def test_a_run_stays_flagged_whatever_it_reads_afterwards() -> None:
    log = (*acting_log(_LOOK, _SET), dispatched(_LOOK), flagged(_LOOK), dispatched(_SET), returned(_SET))
    assert fold_bodies(*log, resumed(), model_called(iteration=2)).is_flagged
