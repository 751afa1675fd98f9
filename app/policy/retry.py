"""Retries: off by default, full jitter, never past the deadline."""

from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from app.policy.deadlines import Deadline


class RetryConfig(BaseModel):
    """How often a failed attempt is tried again, and how long to wait before it, in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: int = Field(default=1, ge=1, le=100)
    base_seconds: float = Field(default=0.5, gt=0, le=3600, allow_inf_nan=False)
    multiplier: float = Field(default=2.0, ge=1, le=100, allow_inf_nan=False)
    max_backoff_seconds: float = Field(default=30.0, gt=0, le=86_400, allow_inf_nan=False)
    max_retry_after_seconds: float = Field(default=60.0, gt=0, le=86_400, allow_inf_nan=False)


class Uniform(Protocol):
    """The one thing that a retry needs of ``random.Random``."""

    def uniform(self, a: float, b: float, /) -> float: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPlan:
    """What follows a failed attempt: a delay in seconds, or None and the reason why there is none."""

    delay_seconds: float | None
    reason: str

    @classmethod
    def after_failure(  # noqa: PLR0913 - the facts that decide it
        cls,
        *,
        config: RetryConfig,
        attempt: int,
        retryable: bool,
        retry_after_seconds: float | None,
        deadline: Deadline | None,
        now: float,
        random: Uniform,
    ) -> "RetryPlan":
        """``attempt`` counts from 1: the number of the attempt that failed."""
        if not retryable:
            return cls(delay_seconds=None, reason="not retryable")
        if attempt >= config.max_attempts:
            return cls(delay_seconds=None, reason=f"attempt {attempt} of {config.max_attempts} was the last")
        if retry_after_seconds is not None:
            # Asked this way round, a time that is no number is not believed either.
            if not retry_after_seconds <= config.max_retry_after_seconds:
                return cls(
                    delay_seconds=None,
                    reason=f"the provider asks for {retry_after_seconds:g} s, "
                    f"more than the {config.max_retry_after_seconds:g} s that are believed",
                )
            delay = max(0.0, retry_after_seconds)
        else:
            # An exponent that overflows a float is past every cap.
            exponent = min(attempt - 1, 64)
            window = min(config.base_seconds * config.multiplier**exponent, config.max_backoff_seconds)
            delay = random.uniform(0, window)
        if deadline is not None and now + delay >= deadline.at:
            return cls(delay_seconds=None, reason="the backoff would land past the deadline")
        return cls(delay_seconds=delay, reason="retry")
