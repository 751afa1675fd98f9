"""Which event settles how a run ends, and what it says about why."""

from dataclasses import replace

import pytest

from app.conversation import StopReason, Usage
from app.events import BudgetRefused, CancellationRequested, DeadlineExceeded, HookRefusal, Warned
from app.run import Cause, Phase, State, fold, fold_all
from tests.builders import fold_bodies, model_called, ready_log, responded, store_bodies, terminated
from tests.run.samples import LOGS, sample


def test_the_first_reason_to_stop_names_the_end() -> None:
    state = fold_bodies(
        *ready_log(),
        CancellationRequested(reason="changed my mind"),
        BudgetRefused(dimension="max_tool_calls", limit=1, used=1),
        HookRefusal(hook="redactor", point="on_terminal"),
    )
    assert state.cause == Cause(code="cancelled", detail="changed my mind")


def test_the_end_is_kept_as_it_was_stored() -> None:
    end = terminated("provider_error")
    state = fold_bodies(*ready_log(), end)
    assert (state.end, state.is_over) == (end, True)


def test_a_run_that_goes_on_is_not_over() -> None:
    assert not fold_bodies(*ready_log()).is_over


@pytest.mark.parametrize(
    ("phase", "label", "code", "cap"),
    [
        (Phase.READY, "cancellation_requested", "cancelled", None),
        (Phase.READY, "deadline_exceeded", "deadline_exceeded", None),
        (Phase.READY, "budget_refused", "budget_exhausted", "max_tool_calls"),
        (Phase.READY, "hook_refusal", "hook_refusal", None),
        (Phase.READY, "worker_lost", "worker_lost", None),
        (Phase.READY, "guardrail_refusal", "guardrail_refusal", None),
        (Phase.REFUSED, "guardrail_refusal", "guardrail_refusal", None),
        (Phase.READY, "depth_exceeded", "delegation_depth_exceeded", "max_delegation_depth"),
        (Phase.THINKING, "attempt_failed:final", "provider_error", None),
        (Phase.THINKING, "model_response:empty", "empty_model_output", None),
        (Phase.THINKING, "model_response:cut", "output_truncated", None),
        (Phase.ACTING, "fan_out_refused", "fan_out_exceeded", "max_tool_calls"),
        (Phase.ACTING, "repeat_detected", "repeated_call", "max_repeated_calls"),
        (Phase.ACTING, "schema_violation:fatal", "schema_violation", None),
        (Phase.ANSWERED, "schema_violation:fatal", "schema_violation", None),
        (Phase.ACTING, "tool_refused:fatal", "tool_not_allowed", None),
        (Phase.ACTING, "tool_error:fatal", "tool_failed", None),
        (Phase.ACTING, "tool_indeterminate:fatal", "tool_indeterminate", None),
    ],
)
def test_an_event_that_settles_the_end_gives_its_code_and_names_the_cap(
    phase: Phase, label: str, code: str, cap: str | None
) -> None:
    cause = fold_bodies(*LOGS[phase], sample(phase, label)).cause
    assert cause is not None
    assert (cause.code, cause.cap) == (code, cap)


@pytest.mark.parametrize(
    ("phase", "label", "told"),
    [
        (Phase.READY, "depth_exceeded", "depth 5 of 4: alpha→beta→alpha"),
        (Phase.ACTING, "fan_out_refused", "asks for 9 calls, 8 are allowed"),
        (Phase.ACTING, "repeat_detected", "look was called 4 times"),
        (Phase.READY, "budget_refused", "max_tool_calls: 8 used, 1 asked for, 8 allowed"),
        (Phase.ACTING, "schema_violation:fatal", "look: /city: is missing"),
        (Phase.READY, "deadline_exceeded", "the run ran past its deadline"),
    ],
)
def test_an_end_says_which_bound_was_hit(phase: Phase, label: str, told: str) -> None:
    cause = fold_bodies(*LOGS[phase], sample(phase, label)).cause
    assert cause is not None
    assert told in cause.detail


def test_a_hook_past_its_time_is_an_elapsed_deadline() -> None:
    state = fold_bodies(*ready_log(), DeadlineExceeded(what="hook", detail="redactor: no answer within 5 s"))
    assert state.cause == Cause(code="deadline_exceeded", detail="redactor: no answer within 5 s")


def test_a_hook_that_raised_is_told_apart_from_one_that_refused() -> None:
    state = fold_bodies(*ready_log(), HookRefusal(hook="h", point="before_model_call", code="hook_failed"))
    assert state.cause is not None
    assert state.cause.code == "hook_failed"


@pytest.mark.parametrize(
    ("ceiling", "used", "code", "cap"),
    [
        (20, 20, "budget_exhausted", "max_output_tokens"),
        (20, 21, "budget_exhausted", "max_output_tokens"),
        (20, 19, "output_truncated", None),
        (None, 5_000, "output_truncated", None),
    ],
)
def test_a_cut_answer_is_the_budgets_end_where_its_ceiling_was_reached(
    ceiling: int | None, used: int, code: str, cap: str | None
) -> None:
    cause = fold_bodies(
        *ready_log(),
        model_called(max_output_tokens=ceiling),
        responded("Four ni", stop_reason=StopReason.LENGTH, usage=Usage(output_tokens=used)),
    ).cause
    assert cause is not None
    assert (cause.code, cause.cap) == (code, cap)


def test_a_stop_without_a_reason_is_a_defect_that_is_not_passed_over() -> None:
    broken = replace(fold_bodies(*LOGS[Phase.STOPPING]), cause=None)
    with pytest.raises(AssertionError, match="warning ends no run"):
        fold(broken, Warned(code="hook_failed"), at=0)


def test_an_empty_answer_that_was_cut_is_cut() -> None:
    cause = fold_bodies(*ready_log(), model_called(), responded("", stop_reason=StopReason.LENGTH)).cause
    assert cause is not None
    assert cause.code == "output_truncated"


def test_folding_in_one_go_is_folding_one_by_one() -> None:
    events = store_bodies([(float(n), body) for n, body in enumerate(LOGS[Phase.ENDED])])
    halfway = fold_all(State(), events[:3])
    assert fold_all(halfway, events[3:]) == fold_all(State(), events)
