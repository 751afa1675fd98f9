"""One table of what ends a run: ``error.code`` to terminal state. It is part of the contract, row by row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.events import RunState


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Why a run ends. ``code`` None: it completed. ``cap`` names the bound that was hit, where one was."""

    code: str | None
    detail: str = ""
    cap: str | None = None


COMPLETED: Final = Cause(code=None)

STATE_BY_CODE: Final[Mapping[str | None, RunState]] = {
    None: RunState.COMPLETED,
    "cancelled": RunState.CANCELLED,
    "deadline_exceeded": RunState.CANCELLED,
    "max_iterations_exceeded": RunState.MAX_ITERATIONS_EXCEEDED,
    "max_llm_calls_exceeded": RunState.LOOP_LIMIT_EXCEEDED,
    "fan_out_exceeded": RunState.LOOP_LIMIT_EXCEEDED,
    "repeated_call": RunState.LOOP_LIMIT_EXCEEDED,
    "delegation_depth_exceeded": RunState.LOOP_LIMIT_EXCEEDED,
    "budget_exhausted": RunState.BUDGET_EXHAUSTED,
    "provider_error": RunState.FAILED,
    "context_overflow": RunState.FAILED,
    "output_truncated": RunState.FAILED,
    "empty_model_output": RunState.FAILED,
    "schema_violation": RunState.FAILED,
    "guardrail_refusal": RunState.FAILED,
    "hook_refusal": RunState.FAILED,
    "hook_failed": RunState.FAILED,
    "callback_failed": RunState.FAILED,
    "tool_not_allowed": RunState.FAILED,
    "tool_failed": RunState.FAILED,
    "tool_indeterminate": RunState.FAILED,
    "approval_denied": RunState.FAILED,
    "approval_mismatch": RunState.FAILED,
    "worker_lost": RunState.FAILED,
    "configuration_error": RunState.FAILED,
    "not_granted": RunState.FAILED,
    "ledger_unavailable": RunState.FAILED,
    "internal_error": RunState.FAILED,
}


def state_of(code: str | None) -> RunState:
    """The terminal state for a code. A code that a provider brought along is a failure."""
    return STATE_BY_CODE.get(code, RunState.FAILED)
