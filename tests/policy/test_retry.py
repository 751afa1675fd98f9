"""Nothing is retried by default; the backoff is full jitter; a retry never outlives the run."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.policy import Deadline, RetryConfig, RetryPlan

_PATIENT = RetryConfig(max_attempts=100)


class Widest:
    """Draws the upper end of every window."""

    def uniform(self, a: float, b: float, /) -> float:
        return b


def plan_retry(
    *,
    config: RetryConfig = _PATIENT,
    attempt: int = 1,
    retryable: bool = True,
    retry_after_seconds: float | None = None,
    deadline_at: float | None = None,
    now: float = 0.0,
    seed: int | None = None,
) -> RetryPlan:
    return RetryPlan.after_failure(
        config=config,
        attempt=attempt,
        retryable=retryable,
        retry_after_seconds=retry_after_seconds,
        deadline=None if deadline_at is None else Deadline(at=deadline_at),
        now=now,
        random=Widest() if seed is None else Random(seed),
    )


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("max_attempts", 1),
        ("base_seconds", 0.5),
        ("multiplier", 2),
        ("max_backoff_seconds", 30),
        ("max_retry_after_seconds", 60),
    ],
)
def test_the_documented_default(field: str, default: float) -> None:
    assert getattr(RetryConfig(), field) == default


@pytest.mark.parametrize("field", list(RetryConfig.model_fields))
def test_zero_is_refused_everywhere(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        RetryConfig.model_validate({field: 0})


def test_by_default_the_first_failure_is_the_last() -> None:
    refused = plan_retry(config=RetryConfig())
    assert (refused.delay_seconds, refused.reason) == (None, "attempt 1 of 1 was the last")


@pytest.mark.parametrize(("attempt", "tried_again"), [(1, True), (2, True), (3, False), (4, False)])
def test_max_attempts_counts_the_first_one(attempt: int, tried_again: bool) -> None:
    planned = plan_retry(config=RetryConfig(max_attempts=3), attempt=attempt)
    assert (planned.delay_seconds is not None) is tried_again


def test_an_answer_is_not_tried_again_and_the_reason_is_told() -> None:
    refused = plan_retry(retryable=False)
    assert (refused.delay_seconds, refused.reason) == (None, "not retryable")


@pytest.mark.parametrize(
    ("attempt", "window"), [(1, 0.5), (2, 1), (3, 2), (4, 4), (5, 8), (6, 16), (7, 30), (8, 30), (99, 30)]
)
def test_the_window_grows_by_the_multiplier_up_to_its_cap(attempt: int, window: float) -> None:
    assert plan_retry(attempt=attempt).delay_seconds == window


def test_a_multiplier_that_would_overflow_is_capped() -> None:
    steep = RetryConfig(max_attempts=100, base_seconds=3_600, multiplier=100, max_backoff_seconds=86_400)
    assert plan_retry(config=steep, attempt=99).delay_seconds == 86_400


@pytest.mark.parametrize(
    ("attempt", "delay"),
    [
        (1, 0.161916),
        (2, 0.323833),
        (3, 0.647665),
        (4, 1.295331),
        (5, 2.590662),
    ],
)
def test_a_seeded_source_gives_the_exact_schedule(attempt: int, delay: float) -> None:
    # 0.3238327648331623 is what Random(7) draws first.
    assert plan_retry(attempt=attempt, seed=7).delay_seconds == pytest.approx(delay, abs=1e-6)


@given(attempt=st.integers(min_value=1, max_value=99), seed=st.integers())
def test_a_delay_lies_in_its_window(attempt: int, seed: int) -> None:
    delay = plan_retry(attempt=attempt, seed=seed).delay_seconds
    assert delay is not None
    assert 0 <= delay < min(0.5 * 2 ** (attempt - 1), 30)


@pytest.mark.parametrize("seconds", [0.0, 0.001, 7, 59.9, 60])
def test_a_time_that_the_provider_names_is_believed(seconds: float) -> None:
    assert plan_retry(retry_after_seconds=seconds).delay_seconds == seconds


@pytest.mark.parametrize("seconds", [60.001, 3_600, float("inf"), float("nan")])
def test_a_time_past_the_ceiling_ends_the_run_instead_of_being_clamped(seconds: float) -> None:
    refused = plan_retry(retry_after_seconds=seconds)
    assert refused.delay_seconds is None
    assert "more than the 60 s that are believed" in refused.reason


def test_a_time_that_has_passed_is_now() -> None:
    assert plan_retry(retry_after_seconds=-5).delay_seconds == 0


@pytest.mark.parametrize(("deadline_at", "tried_again"), [(10.4, False), (10.5, False), (10.501, True)])
def test_a_backoff_that_would_reach_the_deadline_is_not_taken(deadline_at: float, tried_again: bool) -> None:
    planned = plan_retry(now=10, deadline_at=deadline_at)
    assert (planned.delay_seconds is not None) is tried_again


def test_a_backoff_past_the_deadline_says_so() -> None:
    assert plan_retry(now=10, deadline_at=10).reason == "the backoff would land past the deadline"


def test_a_time_that_the_provider_names_past_the_deadline_is_not_taken_either() -> None:
    assert plan_retry(retry_after_seconds=5, now=10, deadline_at=12).delay_seconds is None


def test_a_retry_that_is_taken_says_so() -> None:
    assert plan_retry().reason == "retry"
