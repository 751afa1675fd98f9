"""The states in which a run is seen from outside."""

from enum import StrEnum
from typing import Final


class RunState(StrEnum):
    """Three states that pass and six that are final. A run never leaves a final one."""

    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    BUDGET_EXHAUSTED = "budget_exhausted"
    MAX_ITERATIONS_EXCEEDED = "max_iterations_exceeded"
    LOOP_LIMIT_EXCEEDED = "loop_limit_exceeded"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self not in _PASSING


_PASSING: Final = frozenset({RunState.QUEUED, RunState.RUNNING, RunState.SUSPENDED})
