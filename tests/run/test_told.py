"""What an end says to whoever asks why: the text of each cause, to the letter."""

import pytest

from app.conversation import StopReason, Usage
from app.events import (
    AnyEvent,
    AttemptFailed,
    BudgetRefused,
    CancellationRequested,
    DeadlineExceeded,
    DepthExceeded,
    FanOutRefused,
    GuardrailRefusal,
    HookRefusal,
    RepeatDetected,
    SchemaViolation,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    WorkerLost,
)
from app.run import Cause, Phase
from tests.builders import build_call, dispatched, fold_bodies, model_called, ready_log, responded
from tests.run.samples import CALL, LOGS

_READY, _THINKING, _ACTING = LOGS[Phase.READY], LOGS[Phase.THINKING], LOGS[Phase.ACTING]
_OUT = (*_ACTING, dispatched(CALL))


def cause_after(*bodies: AnyEvent) -> Cause | None:
    return fold_bodies(*bodies).cause


# --- what somebody or something outside the run said -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "told"),
    [("changed my mind", "changed my mind"), (None, "cancelled on request"), ("", "cancelled on request")],
)
def test_a_cancel_is_told_by_its_reason_or_as_a_request(reason: str | None, told: str) -> None:
    cause = cause_after(*_READY, CancellationRequested(reason=reason))
    assert cause == Cause(code="cancelled", detail=told)


@pytest.mark.parametrize(
    ("what", "detail", "told"),
    [
        ("run", "", "the run ran past its deadline"),
        ("hook", "", "the hook ran past its deadline"),
        ("hook", "redactor: no answer within 5 s", "redactor: no answer within 5 s"),
    ],
)
def test_a_deadline_is_told_by_its_detail_or_by_what_it_cut_off(what: str, detail: str, told: str) -> None:
    cause = cause_after(*_READY, DeadlineExceeded(what=what, detail=detail))
    assert cause == Cause(code="deadline_exceeded", detail=told)


def test_a_guardrail_is_told_by_its_name_and_what_it_saw() -> None:
    cause = cause_after(*_READY, GuardrailRefusal(guardrail="injection", subject="input", detail="an instruction"))
    assert cause == Cause(code="guardrail_refusal", detail="injection: an instruction")


def test_a_hook_is_told_by_its_name_and_what_it_said() -> None:
    refusal = HookRefusal(hook="redactor", point="before_model_call", code="hook_failed", detail="it raised")
    assert cause_after(*_READY, refusal) == Cause(code="hook_failed", detail="redactor: it raised")


def test_a_lost_worker_is_told_by_how_often_the_run_was_recovered() -> None:
    cause = cause_after(*_READY, WorkerLost(recoveries=4))
    assert cause == Cause(code="worker_lost", detail="the run was recovered 4 times")


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_a_budget_is_told_by_its_figures() -> None:
    refusal = BudgetRefused(dimension="max_cost", limit=1.5, used=1.25, requested=0.5)
    told = "max_cost: 1.25 used, 0.5 asked for, 1.5 allowed"
    assert cause_after(*_READY, refusal) == Cause(code="budget_exhausted", detail=told, cap="max_cost")


def test_a_turn_that_is_too_wide_is_told_by_its_width() -> None:
    cause = cause_after(*_ACTING, FanOutRefused(cap="max_tool_calls", requested=9, limit=8))
    told = "the turn asks for 9 calls, 8 are allowed"
    assert cause == Cause(code="fan_out_exceeded", detail=told, cap="max_tool_calls")


def test_a_repeated_call_is_told_by_its_name_and_count() -> None:
    cause = cause_after(*_ACTING, RepeatDetected(name="look", count=4, limit=3))
    told = "look was called 4 times with the same arguments, 3 are allowed"
    assert cause == Cause(code="repeated_call", detail=told, cap="max_repeated_calls")


def test_a_delegation_that_is_too_deep_is_told_by_its_path() -> None:
    cause = cause_after(*_READY, DepthExceeded(depth=5, limit=4, path=("alpha", "beta")))
    told = "depth 5 of 4: alpha→beta"
    assert cause == Cause(code="delegation_depth_exceeded", detail=told, cap="max_delegation_depth")


# --- calls -----------------------------------------------------------------------------------------------------------


def test_arguments_that_are_not_right_are_told_problem_by_problem() -> None:
    violation = SchemaViolation(subject="tool", call_id=CALL.call_id, name="look", problems=("one", "two"))
    assert cause_after(*_ACTING, violation) == Cause(code="schema_violation", detail="one; two")


def test_a_refused_call_is_told_by_its_tool_and_why() -> None:
    refusal = ToolRefused(call_id=CALL.call_id, name="look", code="tool_not_allowed", detail="not on the list")
    assert cause_after(*_ACTING, refusal) == Cause(code="tool_not_allowed", detail="look: not on the list")


def test_a_failed_call_is_told_by_its_tool_and_why() -> None:
    failure = ToolFailed(
        call_id=CALL.call_id, name="look", code="tool_failed", content="it failed", fatal=True, detail="no such city"
    )
    assert cause_after(*_OUT, failure) == Cause(code="tool_failed", detail="look: no such city")


def test_a_call_with_an_unknown_outcome_is_told_by_its_tool_and_why() -> None:
    lost = ToolIndeterminate(call_id=CALL.call_id, name="look", detail="the process was lost")
    assert cause_after(*_OUT, lost) == Cause(code="tool_indeterminate", detail="look: the process was lost")


# --- the model -------------------------------------------------------------------------------------------------------


def test_a_model_that_failed_is_told_in_the_providers_words() -> None:
    failure = AttemptFailed(subject="model", attempt=1, code="context_overflow", detail="9,000 tokens are too many")
    assert cause_after(*_THINKING, failure) == Cause(code="context_overflow", detail="9,000 tokens are too many")


def test_an_answer_of_nothing_is_told_as_such() -> None:
    cause = cause_after(*_THINKING, responded(""))
    assert cause == Cause(code="empty_model_output", detail="the model answered with nothing")


def test_a_cut_answer_is_told_as_such() -> None:
    cause = cause_after(*_THINKING, responded("Four ni", stop_reason=StopReason.LENGTH))
    told = "the answer reached the model's own limit and is cut"
    assert cause == Cause(code="output_truncated", detail=told)


def test_calls_that_were_cut_are_told_as_a_cut_answer() -> None:
    said = responded("", build_call("look")).model_copy(update={"stop_reason": StopReason.LENGTH})
    cause = cause_after(*_THINKING, said)
    assert cause is not None
    assert cause.code == "output_truncated"


def test_an_answer_that_used_up_the_budget_is_told_by_what_was_left() -> None:
    cause = cause_after(
        *ready_log(),
        model_called(max_output_tokens=20),
        responded("Four ni", stop_reason=StopReason.LENGTH, usage=Usage(output_tokens=20)),
    )
    told = "the answer reached the 20 output tokens that were left"
    assert cause == Cause(code="budget_exhausted", detail=told, cap="max_output_tokens")
