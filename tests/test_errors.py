"""What may be tried again is a property of the error: faults are retryable, answers are not."""

import pytest

from app import errors
from app.errors import (
    AdkError,
    CancelledError,
    ContextOverflowError,
    DeadlineExceededError,
    FanOutLimitError,
    InvalidRequest,
    LoopLimitError,
    MaxIterationsError,
    MaxLlmCallsError,
    OutputTruncatedError,
    ProviderError,
    RecursionLimitError,
    RepeatedCallError,
    RequestError,
    TooManyRequests,
    error_of,
)
from app.run.causes import STATE_BY_CODE

_ALL: list[type[AdkError]] = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AdkError)
]
_REQUEST_ERRORS = [kind for kind in _ALL if issubclass(kind, RequestError) and kind is not RequestError]


def test_nothing_is_retryable_unless_it_says_so() -> None:
    assert AdkError.retryable is False


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_a_transient_status_of_a_provider_is_a_fault(status: int) -> None:
    assert ProviderError("busy", status=status).retryable


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
def test_any_other_status_of_a_provider_is_an_answer(status: int) -> None:
    assert not ProviderError("no", status=status).retryable


def test_a_provider_error_without_a_status_never_got_there_and_is_retryable() -> None:
    assert ProviderError("connection refused").retryable


def test_a_provider_error_keeps_what_the_retry_needs() -> None:
    error = ProviderError("slow down", status=429, retry_after_seconds=7.5, code="quota")
    assert (error.status, error.retry_after_seconds, error.code, str(error)) == (429, 7.5, "quota", "slow down")


@pytest.mark.parametrize(
    "error",
    [
        errors.BudgetExceededError(),
        errors.GuardrailRefusalError(),
        errors.HookRefusalError(),
        errors.SchemaViolationError(),
        errors.EmptyModelOutputError(),
        errors.ToolNotAllowedError(),
        errors.ConfigurationError(),
        errors.CancelledError(),
        errors.DeadlineExceededError(),
        errors.LeaseLost(),
        ContextOverflowError(prompt_tokens=9, window_tokens=8),
        OutputTruncatedError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_answer_is_not_retryable(error: AdkError) -> None:
    assert not error.retryable


@pytest.mark.parametrize(
    "kind", [MaxIterationsError, MaxLlmCallsError, RecursionLimitError, FanOutLimitError, RepeatedCallError]
)
def test_every_cap_is_a_loop_limit_and_none_is_retryable(kind: type[LoopLimitError]) -> None:
    assert issubclass(kind, LoopLimitError)
    assert not kind().retryable


def test_an_elapsed_deadline_is_a_cancellation() -> None:
    assert issubclass(DeadlineExceededError, CancelledError)


def test_a_prompt_that_does_not_fit_names_both_numbers() -> None:
    error = ContextOverflowError(prompt_tokens=4_100, window_tokens=4_096)
    assert "4100" in str(error)
    assert "4096" in str(error)


def test_an_error_without_a_message_says_its_name() -> None:
    assert str(errors.LeaseLost()) == "LeaseLost"


def test_a_code_of_its_own_belongs_to_one_error_only() -> None:
    special = InvalidRequest("taken", code="name_taken")
    assert (special.code, InvalidRequest("other").code) == ("name_taken", "invalid_request")


def test_a_refused_request_carries_its_problems_and_when_to_come_back() -> None:
    problem = errors.FieldProblem(pointer="/input", detail="is blank")
    error = TooManyRequests("later", problems=[problem], retry_after_seconds=3)
    assert (error.problems, error.retry_after_seconds, error.retryable) == ((problem,), 3, True)


@pytest.mark.parametrize("kind", _REQUEST_ERRORS)
def test_a_refused_request_has_a_client_errors_status(kind: type[RequestError]) -> None:
    assert 400 <= kind.status < 500


def test_every_class_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in _ALL if "code" in vars(kind)]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", _ALL)
def test_every_class_is_drawn_in_the_tree(kind: type[AdkError]) -> None:
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("delegation_depth_exceeded", RecursionLimitError),
        ("fan_out_exceeded", FanOutLimitError),
        ("repeated_call", RepeatedCallError),
        ("max_iterations_exceeded", MaxIterationsError),
        ("max_llm_calls_exceeded", MaxLlmCallsError),
    ],
)
def test_which_cap_ended_a_run_is_in_the_type_of_its_error(code: str, kind: type[LoopLimitError]) -> None:
    error = error_of(code, "too much")
    assert (type(error), error.code, str(error), error.retryable) == (kind, code, "too much", False)


@pytest.mark.parametrize("code", [code for code in STATE_BY_CODE if code is not None])
def test_every_end_has_an_error_that_keeps_its_code(code: str) -> None:
    assert error_of(code, "why").code == code


def test_a_code_that_a_provider_brought_along_is_an_error_of_the_provider() -> None:
    error = error_of("quota_used_up", "none left")
    assert (type(error), error.code, error.retryable) == (ProviderError, "quota_used_up", False)
