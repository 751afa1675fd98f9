"""Deadlines are instants: a duration would start again at every hop."""

import math
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """The moment by which a run must be over, in epoch seconds."""

    at: float

    def __post_init__(self) -> None:
        if math.isnan(self.at):
            raise ValueError("a deadline is an instant, not nan")

    @classmethod
    def in_seconds(cls, seconds: float, *, now: float) -> "Deadline":
        """The instant ``seconds`` after ``now``. Raises ValueError for a time that is no time at all."""
        if not seconds > 0:
            raise ValueError(f"a deadline lies in the future, not {seconds} seconds from now")
        return cls(at=now + seconds)

    def narrowed_to(self, other: "Deadline | None") -> "Deadline":
        """The earlier of two: an inherited ceiling can be tightened and never extended."""
        return self if other is None or self.at <= other.at else other

    def remaining(self, now: float) -> float:
        """Seconds left; zero when it has passed."""
        return max(0.0, self.at - now)

    def has_passed(self, now: float) -> bool:
        return now >= self.at


class DeadlineConfig(BaseModel):
    """Ceilings in seconds on what one run waits for. Nothing is bounded by default; zero is refused.

    ``grace_seconds`` bounds the kit's own waiting for work that it has told to stop.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_seconds: float | None = Field(default=None, gt=0, le=10**9, allow_inf_nan=False)
    model_call_seconds: float | None = Field(default=None, gt=0, le=10**9, allow_inf_nan=False)
    tool_call_seconds: float | None = Field(default=None, gt=0, le=10**9, allow_inf_nan=False)
    hook_seconds: float | None = Field(default=None, gt=0, le=10**9, allow_inf_nan=False)
    grace_seconds: float = Field(default=5.0, gt=0, le=3600, allow_inf_nan=False)
