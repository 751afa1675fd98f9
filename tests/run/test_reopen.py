"""A run that goes on from one that failed: where it stands, and what somebody has to say first."""

import pytest

from app.conversation import OUTCOME_UNKNOWN, ToolCall
from app.events import (
    StateDelta,
    ToolFailed,
    ToolResult,
)
from app.events.body import Actions
from app.run import (
    CallModel,
    CallStatus,
    Phase,
)
from app.run.reopen import fold_chain, unresolved
from tests.builders import (
    acting_log,
    assembled,
    build_call,
    dispatched,
    model_called,
    outcome_lost,
    queued,
    ready_log,
    responded,
    resumed,
    returned,
    started,
    terminated,
    told_by_tool,
)
from tests.run.reopenings import GOES_ON, INDETERMINATE, LOOK, LOST, PAID, PAY, SET, ids, log, next_step, reopened
from tests.run.samples import delegated, handed_over

# --- who has to be asked ---------------------------------------------------------------------------------------------


def test_of_a_call_that_ended_the_run_somebody_has_to_say_what_became() -> None:
    assert ids(unresolved([INDETERMINATE])) == [PAY.call_id]


def test_of_a_call_that_was_still_out_when_the_run_was_given_up_too() -> None:
    given_up = log(*PAID, resumed(), outcome_lost(PAY, content=OUTCOME_UNKNOWN), *LOST)
    assert ids(unresolved([given_up])) == [PAY.call_id]


@pytest.mark.parametrize("call", [LOOK, SET], ids=["read", "idempotent"])
def test_of_a_call_that_may_be_repeated_nobody_has_to_say_anything(call: ToolCall) -> None:
    lost = ToolFailed(
        call_id=call.call_id,
        name=call.name,
        code="tool_failed",
        content="lost",
        retry_safe=True,
        detail="the process that dispatched the call was lost before it recorded an outcome",
    )
    assert unresolved([log(*acting_log(call), dispatched(call), resumed(), lost, *LOST)]) == ()


def test_of_a_sub_agent_that_was_at_work_somebody_has_to_say_what_became() -> None:
    given_up = log(*acting_log(SET), delegated(SET), resumed(), *LOST)
    assert ids(unresolved([given_up])) == [SET.call_id]


def test_of_a_call_with_an_outcome_nobody_has_to_say_anything() -> None:
    given_up = log(*PAID, returned(PAY), model_called(iteration=2), resumed(), *LOST)
    assert unresolved([given_up]) == ()


def test_of_a_call_that_never_went_out_nobody_has_to_say_anything() -> None:
    assert unresolved([log(*acting_log(PAY), resumed(), *LOST)]) == ()


def test_of_several_they_come_in_the_models_order() -> None:
    second = build_call("pay", number=1)
    both = log(*acting_log(second, PAY), dispatched(PAY), dispatched(second), resumed(), *LOST)
    assert ids(unresolved([both])) == [second.call_id, PAY.call_id]


def test_of_calls_of_earlier_turns_nobody_has_to_say_anything() -> None:
    """The model was told that their outcome is unknown, and went on from there."""
    surfaced = log(
        *PAID,
        resumed(),
        outcome_lost(PAY, content=OUTCOME_UNKNOWN),
        model_called(iteration=2),
        responded("", build_call("look", iteration=2), iteration=2),
        resumed(fence=3, recoveries=4),
        *LOST,
    )
    assert unresolved([surfaced]) == ()


def test_of_a_call_that_the_model_was_told_about_nobody_has_to_say_anything_while_it_thinks() -> None:
    surfaced = log(
        *PAID,
        resumed(),
        outcome_lost(PAY, content=OUTCOME_UNKNOWN),
        model_called(iteration=2),
        resumed(fence=3, recoveries=4),
        *LOST,
    )
    assert unresolved([surfaced]) == ()


def test_of_no_log_there_is_nothing_to_say() -> None:
    assert unresolved([]) == ()


def test_what_was_resolved_in_a_run_is_not_asked_about_in_the_next() -> None:
    second = log(queued(), GOES_ON, returned(PAY), model_called(iteration=2), resumed(recoveries=4), *LOST)
    assert unresolved([INDETERMINATE, second]) == ()


def test_what_was_lost_again_is_asked_about_again() -> None:
    second = log(
        queued(),
        GOES_ON,
        dispatched(PAY, dispatch=2),
        resumed(),
        outcome_lost(PAY),
        terminated("tool_indeterminate"),
    )
    assert ids(unresolved([INDETERMINATE, second])) == [PAY.call_id]


# --- where it stands -------------------------------------------------------------------------------------------------


def test_without_a_run_before_it_a_log_folds_as_it_is() -> None:
    assert fold_chain((), log(*acting_log(PAY))) == fold_chain([], log(*acting_log(PAY)))
    assert fold_chain((), log(*acting_log(PAY))).phase is Phase.ACTING


def test_an_accepted_run_is_queued_and_knows_what_was_said() -> None:
    state, said = reopened(INDETERMINATE), fold_chain((), log(*PAID))
    assert (state.phase, list(state.turns)) == (Phase.QUEUED, list(said.turns))


def test_a_call_that_was_out_is_out_still_under_no_claim() -> None:
    [progress] = reopened(INDETERMINATE).calls
    assert (progress.status, progress.dispatches, progress.fence) == (CallStatus.DISPATCHED, 1, 0)


def test_its_counts_begin_anew_and_its_iterations_and_repetitions_go_on() -> None:
    state = reopened(INDETERMINATE)
    assert (state.seq, state.model_calls, state.tool_calls, state.usage.input_tokens, state.fence) == (1, 0, 0, 0, 0)
    assert (state.iteration, sum(state.repeats.values()), list(state.landed)) == (1, 1, [(PAY.call_id, "pay")])


def test_a_claim_puts_it_into_the_middle_of_its_turn() -> None:
    state = reopened(INDETERMINATE, own=(queued(), GOES_ON))
    assert (state.phase, ids(state.open_calls)) == (Phase.ACTING, [PAY.call_id])


def test_where_no_call_is_open_the_model_is_next() -> None:
    given_up = log(*ready_log(), model_called(), resumed(recoveries=4), *LOST)
    planned = next_step(given_up, own=(queued(), started()))
    assert planned.command == CallModel(iteration=1, attempt=1, max_output_tokens=None)


def test_where_every_call_has_its_outcome_the_next_turn_is_next() -> None:
    given_up = log(*PAID, returned(PAY), resumed(recoveries=4), *LOST)
    planned = next_step(given_up)
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_where_a_later_model_call_was_lost_it_is_made_again() -> None:
    given_up = log(*PAID, returned(PAY), model_called(iteration=2), resumed(recoveries=4), *LOST)
    planned = next_step(given_up)
    assert planned.command == CallModel(iteration=2, attempt=1, max_output_tokens=None)


def test_where_the_prompt_was_never_put_together_the_run_begins_with_it() -> None:
    given_up = log(queued(), started(), resumed(recoveries=4), *LOST)
    assert not reopened(given_up, own=(queued(), started())).is_entered


def test_the_prompt_is_put_together_once() -> None:
    state = reopened(INDETERMINATE)
    assert (state.is_entered, state.fingerprint, state.prompt_version) == (True, "f" * 16, "d" * 16)


def test_it_is_under_the_agent_that_had_the_run() -> None:
    call = build_call("pay", iteration=2)
    moved = log(
        *ready_log(),
        model_called(),
        responded("", LOOK),
        dispatched(LOOK),
        returned(LOOK),
        handed_over(),
        assembled(),
        model_called(iteration=2),
        responded("", call, iteration=2),
        dispatched(call),
        resumed(),
        outcome_lost(call),
        terminated("tool_indeterminate"),
    )
    assert reopened(moved).stack == ("planner", "booker")


def test_what_tools_keep_is_kept() -> None:
    changed = StateDelta(actions=Actions(state_delta={"seat": "aisle"}))
    given_up = log(*acting_log(LOOK), dispatched(LOOK), changed, returned(LOOK), resumed(recoveries=4), *LOST)
    assert reopened(given_up).shared == {"seat": "aisle"}


def test_a_run_that_has_read_an_instruction_stays_flagged() -> None:
    flagged = ToolResult(call_id=LOOK.call_id, name="look", content="x", signals=("instruction",))
    given_up = log(*acting_log(LOOK), dispatched(LOOK), flagged, resumed(recoveries=4), *LOST)
    assert reopened(given_up).is_flagged


def test_what_was_settled_before_the_end_stays_settled() -> None:
    both = log(*acting_log(LOOK, PAY), dispatched(LOOK), returned(LOOK), dispatched(PAY), resumed(), *LOST)
    state = reopened(both)
    assert ids(state.open_calls) == [PAY.call_id]
    assert state.turns[-1] == told_by_tool(LOOK, "done")


def test_what_came_back_after_the_end_was_settled_counts() -> None:
    """Two calls were out together; the first one's loss settled the end before the second one's result was told."""
    second = build_call("set", number=4)
    both = log(
        *acting_log(PAY, second),
        dispatched(PAY),
        dispatched(second),
        outcome_lost(PAY),
        returned(second),
        terminated("tool_indeterminate"),
    )
    state = reopened(both)
    assert ids(state.open_calls) == [PAY.call_id]


def test_three_runs_are_one_history() -> None:
    second = log(
        queued(),
        GOES_ON,
        returned(PAY),
        model_called(iteration=2),
        responded("", build_call("pay", iteration=2), iteration=2),
        dispatched(build_call("pay", iteration=2)),
        resumed(),
        outcome_lost(build_call("pay", iteration=2)),
        terminated("tool_indeterminate"),
    )
    state = reopened(INDETERMINATE, second)
    assert (state.iteration, ids(state.open_calls)) == (2, ["call_2_1"])
    assert [call_id for call_id, _ in state.landed] == [PAY.call_id, "call_2_1"]
