"""Every move that a run can make, as data. An event that is not listed for a phase is an error that changes nothing.

An event whose payload decides where it leads is listed by variant, ``kind:variant``. The diagram in docs/run-loop.md
is drawn from this table.
"""

from collections.abc import Mapping
from typing import Final

from app.conversation import StopReason
from app.events import (
    AnyEvent,
    ModelResponded,
)
from app.run.state import Phase


class IllegalEvent(Exception):
    """An event that the phase does not list: a defect of this program. Nothing was changed."""

    def __init__(self, phase: Phase, label: str) -> None:
        super().__init__(f"{label} is no move of a run that is {phase}")
        self.phase = phase
        self.label = label


# Told about, but moving nothing.
_NOTES: Final = (
    "warning",
    "hook_rewrite",
    "guardrail_redaction",
    "callback_override:after",
    "state_delta",
    "artifact_delta",
    "work_orphaned",
    "compensation_required",
)

# Where a callback's value is used instead of a model's.
_STANDS_IN: Final = frozenset({"before_agent", "before_model"})

# What ends a run from any phase in which it is alive.
_ENDINGS: Final[Mapping[str, Phase]] = {
    "cancellation_requested": Phase.STOPPING,
    "deadline_exceeded": Phase.STOPPING,
    "budget_refused": Phase.STOPPING,
    "hook_refusal": Phase.STOPPING,
    "worker_lost": Phase.STOPPING,
    "terminated:failed": Phase.ENDED,
}


def _alive(phase: Phase, moves: Mapping[str, Phase]) -> Mapping[str, Phase]:
    return {**dict.fromkeys(_NOTES, phase), **_ENDINGS, "run_resumed": phase, **moves}


TABLE: Final[Mapping[Phase, Mapping[str, Phase]]] = {
    Phase.NEW: {"run_queued": Phase.QUEUED},
    # A run that goes on from an earlier one begins in the middle of a turn, with what that one left open.
    Phase.QUEUED: {"run_started": Phase.READY, "run_resumed": Phase.ACTING},
    Phase.READY: _alive(
        Phase.READY,
        {
            "prompt_assembled": Phase.READY,
            "history_trimmed": Phase.READY,
            "model_routed": Phase.READY,
            "model_fell_back": Phase.READY,
            "guardrail_refusal": Phase.STOPPING,
            "depth_exceeded": Phase.STOPPING,
            "model_call": Phase.THINKING,
            "callback_override:instead": Phase.STANDING_IN,
        },
    ),
    # Where a process dies between the two, the callback is asked again.
    Phase.STANDING_IN: _alive(
        Phase.STANDING_IN,
        {
            "run_resumed": Phase.READY,
            "model_response:calls": Phase.ACTING,
            "model_response:answer": Phase.ANSWERED,
            "model_response:refused": Phase.REFUSED,
            "model_response:empty": Phase.STOPPING,
        },
    ),
    Phase.THINKING: _alive(
        Phase.THINKING,
        {
            "run_resumed": Phase.READY,
            "attempt_failed:retry": Phase.READY,
            "attempt_failed:final": Phase.STOPPING,
            "model_response:calls": Phase.ACTING,
            "model_response:answer": Phase.ANSWERED,
            "model_response:refused": Phase.REFUSED,
            "model_response:cut": Phase.STOPPING,
            "model_response:empty": Phase.STOPPING,
        },
    ),
    Phase.REFUSED: _alive(Phase.REFUSED, {"guardrail_refusal": Phase.STOPPING}),
    Phase.ACTING: _alive(
        Phase.ACTING,
        {
            "fan_out_refused": Phase.STOPPING,
            "repeat_detected": Phase.STOPPING,
            "schema_violation:fatal": Phase.STOPPING,
            "turn_cleared": Phase.ACTING,
            "schema_violation:told": Phase.ACTING,
            "repair_requested": Phase.ACTING,
            "approval_required": Phase.ACTING,
            "approval_granted": Phase.ACTING,
            "approval_denied": Phase.ACTING,
            "run_suspended": Phase.HELD,
            "tool_refused:fatal": Phase.STOPPING,
            "tool_refused:told": Phase.ACTING,
            "tool_call": Phase.ACTING,
            "tool_result": Phase.ACTING,
            "tool_result_truncated": Phase.ACTING,
            "tool_error:fatal": Phase.STOPPING,
            "tool_error:told": Phase.ACTING,
            "tool_indeterminate:fatal": Phase.STOPPING,
            "tool_indeterminate:told": Phase.ACTING,
            "attempt_failed:retry": Phase.ACTING,
            "attempt_failed:final": Phase.ACTING,
            "history_trimmed": Phase.ACTING,
            "guardrail_refusal": Phase.STOPPING,
            "agent_transfer": Phase.READY,
            "summary_skipped": Phase.ANSWERED,
            "model_call": Phase.THINKING,
            "callback_override:instead": Phase.STANDING_IN,
        },
    ),
    # Nothing of the run moves until a claim takes it up again, with answers or without.
    Phase.HELD: {"run_resumed": Phase.ACTING},
    Phase.ANSWERED: _alive(
        Phase.ANSWERED,
        {
            "output_unwrapped": Phase.ANSWERED,
            "output_validated": Phase.ANSWERED,
            "schema_violation:told": Phase.ANSWERED,
            "repair_requested": Phase.READY,
            "schema_violation:fatal": Phase.STOPPING,
            # What an agent's callbacks say after its answer: the answer stays.
            "model_response:answer": Phase.ANSWERED,
            "guardrail_refusal": Phase.STOPPING,
            "terminated:completed": Phase.ENDED,
        },
    ),
    Phase.STOPPING: {
        **dict.fromkeys(_NOTES, Phase.STOPPING),
        "run_resumed": Phase.STOPPING,
        "attempt_failed:final": Phase.STOPPING,
        "cancellation_requested": Phase.STOPPING,
        "deadline_exceeded": Phase.STOPPING,
        "budget_refused": Phase.STOPPING,
        "hook_refusal": Phase.STOPPING,
        # What came of calls that were out together with the one that settled the end.
        "tool_result": Phase.STOPPING,
        "tool_result_truncated": Phase.STOPPING,
        "tool_error:fatal": Phase.STOPPING,
        "tool_error:told": Phase.STOPPING,
        "tool_indeterminate:fatal": Phase.STOPPING,
        "tool_indeterminate:told": Phase.STOPPING,
        "attempt_failed:retry": Phase.STOPPING,
        # Nobody waits any more for the answers that are still open.
        "approval_denied": Phase.STOPPING,
        "terminated:failed": Phase.ENDED,
    },
    Phase.ENDED: {},
}


def label_of(body: AnyEvent) -> str:
    """The row that an event is looked up under."""
    match body.kind:
        case "attempt_failed":
            return "attempt_failed:final" if body.delay_seconds is None else "attempt_failed:retry"
        case "model_response":
            return f"model_response:{_response_variant(body)}"
        case "tool_refused" | "tool_indeterminate":
            return f"{body.kind}:{'fatal' if body.content is None else 'told'}"
        case "tool_error" | "schema_violation":
            return f"{body.kind}:{'fatal' if body.fatal else 'told'}"
        case "callback_override":
            return "callback_override:instead" if body.point in _STANDS_IN else "callback_override:after"
        case "terminated":
            return "terminated:completed" if body.code is None else "terminated:failed"
        case _:
            return body.kind


def _response_variant(body: ModelResponded) -> str:
    if body.text is None:
        return "refused"
    if body.stop_reason is StopReason.LENGTH:
        return "cut"
    if body.tool_calls:
        return "calls"
    return "answer" if body.text else "empty"


def next_phase(phase: Phase, body: AnyEvent) -> Phase:
    """Where an event leads. Raises IllegalEvent."""
    label = label_of(body)
    try:
        return TABLE[phase][label]
    except KeyError:
        raise IllegalEvent(phase, label) from None
