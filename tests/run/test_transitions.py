"""Every move that a run can make, and that everything else is an error that changes nothing."""

from itertools import product

import pytest

from app.events import EVENT_KINDS
from app.run import IllegalEvent, Phase, fold
from app.run.transitions import TABLE, label_of, next_phase
from tests.builders import fold_bodies, responded, terminated
from tests.run.samples import LOGS, SAMPLES, log_before, sample, stood_in

_ALIVE = [Phase.READY, Phase.THINKING, Phase.STANDING_IN, Phase.REFUSED, Phase.ACTING, Phase.ANSWERED]
_LEGAL = [(phase, label) for phase in Phase for label in TABLE[phase]]
_ILLEGAL = [(phase, label) for phase, label in product(Phase, SAMPLES) if label not in TABLE[phase]]
_NOTES = [
    "warning",
    "hook_rewrite",
    "guardrail_redaction",
    "callback_override:after",
    "state_delta",
    "artifact_delta",
    "work_orphaned",
    "compensation_required",
]


def test_every_kind_has_a_sample() -> None:
    assert {label.partition(":")[0] for label in SAMPLES} == EVENT_KINDS


def test_every_row_has_a_sample() -> None:
    assert {label for _, label in _LEGAL} <= set(SAMPLES)


def test_every_phase_has_its_moves() -> None:
    assert set(TABLE) == set(Phase)


def test_every_kind_has_a_row() -> None:
    assert {label.partition(":")[0] for _, label in _LEGAL} == EVENT_KINDS


@pytest.mark.parametrize("phase", list(Phase))
def test_the_sample_logs_stand_in_their_phase(phase: Phase) -> None:
    assert fold_bodies(*LOGS[phase]).phase is phase


@pytest.mark.parametrize(("phase", "label"), _LEGAL)
def test_a_listed_event_leads_where_the_table_says(phase: Phase, label: str) -> None:
    moved = fold(fold_bodies(*log_before(phase, label)), sample(phase, label), at=1.0)
    assert moved.phase is TABLE[phase][label]


@pytest.mark.parametrize(("phase", "label"), _LEGAL)
def test_a_listed_event_is_counted(phase: Phase, label: str) -> None:
    state = fold_bodies(*log_before(phase, label))
    moved = fold(state, sample(phase, label), at=1.0)
    assert (moved.seq, moved.last_at) == (state.seq + 1, 1.0)


@pytest.mark.parametrize(("phase", "label"), _ILLEGAL)
def test_an_event_that_is_not_listed_is_an_error_that_changes_nothing(phase: Phase, label: str) -> None:
    state = fold_bodies(*LOGS[phase])
    with pytest.raises(IllegalEvent) as caught:
        fold(state, SAMPLES[label], at=1.0)
    assert (caught.value.phase, caught.value.label) == (phase, label)
    assert state == fold_bodies(*LOGS[phase])


@pytest.mark.parametrize("label", list(SAMPLES))
def test_nothing_follows_the_end(label: str) -> None:
    with pytest.raises(IllegalEvent, match="no move of a run that is ended"):
        next_phase(Phase.ENDED, SAMPLES[label])


@pytest.mark.parametrize("label", list(SAMPLES))
def test_the_first_event_is_run_queued_and_no_other(label: str) -> None:
    assert (label in TABLE[Phase.NEW]) == (label == "run_queued")


@pytest.mark.parametrize("label", list(SAMPLES))
def test_only_a_claim_starts_a_queued_run_or_goes_on_in_the_turn_of_an_earlier_one(label: str) -> None:
    assert (label in TABLE[Phase.QUEUED]) == (label in {"run_started", "run_resumed"})


@pytest.mark.parametrize("label", list(SAMPLES))
def test_only_a_claim_moves_a_run_that_is_held(label: str) -> None:
    assert (label in TABLE[Phase.HELD]) == (label == "run_resumed")


@pytest.mark.parametrize("phase", list(Phase))
def test_a_run_is_held_only_while_acting(phase: Phase) -> None:
    assert ("run_suspended" in TABLE[phase]) == (phase is Phase.ACTING)


@pytest.mark.parametrize("phase", list(Phase))
def test_people_are_asked_only_while_acting(phase: Phase) -> None:
    assert ("approval_required" in TABLE[phase], "approval_granted" in TABLE[phase]) == (phase is Phase.ACTING,) * 2


@pytest.mark.parametrize("phase", [*_ALIVE, Phase.STOPPING])
@pytest.mark.parametrize("label", _NOTES)
def test_a_note_moves_nothing(phase: Phase, label: str) -> None:
    assert next_phase(phase, SAMPLES[label]) is phase


@pytest.mark.parametrize("phase", _ALIVE)
@pytest.mark.parametrize("label", ["cancellation_requested", "deadline_exceeded", "budget_refused", "hook_refusal"])
def test_a_run_that_is_alive_can_be_stopped_from_anywhere(phase: Phase, label: str) -> None:
    assert next_phase(phase, SAMPLES[label]) is Phase.STOPPING


@pytest.mark.parametrize("phase", list(Phase))
def test_a_run_completes_only_from_an_answer(phase: Phase) -> None:
    assert ("terminated:completed" in TABLE[phase]) == (phase is Phase.ANSWERED)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_tool_is_called_only_while_acting(phase: Phase) -> None:
    assert ("tool_call" in TABLE[phase]) == (phase is Phase.ACTING)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_model_is_called_only_by_a_run_that_waits_for_it(phase: Phase) -> None:
    assert ("model_call" in TABLE[phase]) == (phase in (Phase.READY, Phase.ACTING))


@pytest.mark.parametrize("phase", list(Phase))
def test_a_callback_stands_in_where_a_model_would_be_called(phase: Phase) -> None:
    assert ("callback_override:instead" in TABLE[phase]) == ("model_call" in TABLE[phase])


@pytest.mark.parametrize(
    ("point", "label"),
    [
        ("before_agent", "callback_override:instead"),
        ("before_model", "callback_override:instead"),
        ("after_agent", "callback_override:after"),
        ("after_model", "callback_override:after"),
        ("before_tool", "callback_override:after"),
        ("after_tool", "callback_override:after"),
    ],
)
def test_a_callback_stands_in_for_an_agent_or_a_model_and_nothing_else(point: str, label: str) -> None:
    assert label_of(stood_in(point)) == label


@pytest.mark.parametrize("phase", list(Phase))
def test_a_run_is_handed_over_and_a_summary_skipped_only_while_acting(phase: Phase) -> None:
    moves = (TABLE[phase].get("agent_transfer"), TABLE[phase].get("summary_skipped"))
    assert moves == ((Phase.READY, Phase.ANSWERED) if phase is Phase.ACTING else (None, None))


@pytest.mark.parametrize("phase", list(Phase))
def test_only_the_end_leads_to_the_ended_phase(phase: Phase) -> None:
    ends = {label for label, to in TABLE[phase].items() if to is Phase.ENDED}
    assert ends <= {"terminated:completed", "terminated:failed"}


@pytest.mark.parametrize(
    ("phase", "to"),
    [
        (Phase.READY, Phase.READY),
        (Phase.THINKING, Phase.READY),
        (Phase.STANDING_IN, Phase.READY),
        (Phase.ACTING, Phase.ACTING),
        (Phase.HELD, Phase.ACTING),
        (Phase.ANSWERED, Phase.ANSWERED),
        (Phase.STOPPING, Phase.STOPPING),
    ],
)
def test_a_later_claim_abandons_only_a_model_call_or_what_stands_in_for_one(phase: Phase, to: Phase) -> None:
    assert next_phase(phase, SAMPLES["run_resumed"]) is to


@pytest.mark.parametrize(
    ("label", "to"),
    [
        ("model_response:calls", Phase.ACTING),
        ("model_response:answer", Phase.ANSWERED),
        ("model_response:refused", Phase.REFUSED),
        ("model_response:cut", Phase.STOPPING),
        ("model_response:empty", Phase.STOPPING),
    ],
)
def test_what_the_model_said_decides_where_it_leads(label: str, to: Phase) -> None:
    assert next_phase(Phase.THINKING, SAMPLES[label]) is to


@pytest.mark.parametrize(
    ("text", "label"), [(" ", "model_response:answer"), ("\n", "model_response:answer"), ("", "model_response:empty")]
)
def test_white_space_counts_as_content(text: str, label: str) -> None:
    assert label_of(responded(text)) == label


@pytest.mark.parametrize(
    "label",
    [
        "tool_result",
        "tool_result_truncated",
        "tool_error:fatal",
        "tool_error:told",
        "tool_indeterminate:fatal",
        "tool_indeterminate:told",
        "attempt_failed:retry",
        "attempt_failed:final",
        "cancellation_requested",
        "deadline_exceeded",
        "budget_refused",
        "hook_refusal",
    ],
)
def test_what_came_of_calls_that_were_out_together_is_told_after_one_of_them_has_settled_the_end(label: str) -> None:
    assert TABLE[Phase.STOPPING].get(label) is Phase.STOPPING


@pytest.mark.parametrize("phase", [Phase.READY, Phase.ACTING])
def test_a_history_is_trimmed_before_any_model_call_also_a_later_one(phase: Phase) -> None:
    # The next model call of a run comes while it is still acting: its last turn's calls are settled.
    assert TABLE[phase].get("history_trimmed") is phase


@pytest.mark.parametrize("code", ["cancelled", "provider_error", "budget_exhausted"])
def test_an_end_with_a_code_is_no_completion(code: str) -> None:
    assert label_of(terminated(code)) == "terminated:failed"
