"""One table of cause, state and code: it is part of the contract, row by row."""

import pytest

from app import errors
from app.errors import RunError
from app.events import RunState
from app.run import state_of
from app.run.causes import STATE_BY_CODE

_ROWS = [
    (None, "completed"),
    ("provider_error", "failed"),
    ("context_overflow", "failed"),
    ("output_truncated", "failed"),
    ("empty_model_output", "failed"),
    ("schema_violation", "failed"),
    ("guardrail_refusal", "failed"),
    ("hook_refusal", "failed"),
    ("hook_failed", "failed"),
    ("callback_failed", "failed"),
    ("tool_not_allowed", "failed"),
    ("tool_failed", "failed"),
    ("tool_indeterminate", "failed"),
    ("approval_denied", "failed"),
    ("approval_mismatch", "failed"),
    ("worker_lost", "failed"),
    ("configuration_error", "failed"),
    ("not_granted", "failed"),
    ("ledger_unavailable", "failed"),
    ("internal_error", "failed"),
    ("budget_exhausted", "budget_exhausted"),
    ("max_iterations_exceeded", "max_iterations_exceeded"),
    ("max_llm_calls_exceeded", "loop_limit_exceeded"),
    ("fan_out_exceeded", "loop_limit_exceeded"),
    ("repeated_call", "loop_limit_exceeded"),
    ("delegation_depth_exceeded", "loop_limit_exceeded"),
    ("cancelled", "cancelled"),
    ("deadline_exceeded", "cancelled"),
]
_ERROR_ROWS = [
    (errors.CancelledError, "cancelled"),
    (errors.DeadlineExceededError, "cancelled"),
    (errors.BudgetExceededError, "budget_exhausted"),
    (errors.MaxIterationsError, "max_iterations_exceeded"),
    (errors.MaxLlmCallsError, "loop_limit_exceeded"),
    (errors.RecursionLimitError, "loop_limit_exceeded"),
    (errors.FanOutLimitError, "loop_limit_exceeded"),
    (errors.RepeatedCallError, "loop_limit_exceeded"),
    (errors.ProviderError, "failed"),
    (errors.ContextOverflowError, "failed"),
    (errors.OutputTruncatedError, "failed"),
    (errors.EmptyModelOutputError, "failed"),
    (errors.SchemaViolationError, "failed"),
    (errors.GuardrailRefusalError, "failed"),
    (errors.HookRefusalError, "failed"),
    (errors.ToolNotAllowedError, "failed"),
    (errors.ToolExecutionError, "failed"),
]


@pytest.mark.parametrize(("code", "state"), _ROWS)
def test_a_code_ends_in_its_state(code: str | None, state: str) -> None:
    assert state_of(code) == RunState(state)


def test_the_table_has_no_other_row() -> None:
    assert set(STATE_BY_CODE) == {code for code, _ in _ROWS}


@pytest.mark.parametrize(("kind", "state"), _ERROR_ROWS)
def test_an_error_ends_a_run_in_its_state(kind: type[RunError], state: str) -> None:
    assert STATE_BY_CODE[kind.code] == RunState(state)


@pytest.mark.parametrize("state", list(RunState))
def test_every_final_state_has_a_cause_and_no_passing_one_has(state: RunState) -> None:
    assert (state in STATE_BY_CODE.values()) == state.is_terminal


def test_a_code_that_a_provider_brought_along_is_a_failure() -> None:
    assert state_of("insufficient_quota") is RunState.FAILED
