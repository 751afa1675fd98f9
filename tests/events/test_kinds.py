"""The union is frozen: what a run tells, and what the service adds."""

import pytest
from pydantic import ValidationError

from app.events import EVENT_CLASSES, EVENT_KINDS, EventBody, OutputValidated, RunEvent
from app.ids import RunId

_SPECIFIED = {
    "prompt_assembled",
    "model_call",
    "model_response",
    "tool_call",
    "tool_result",
    "tool_result_truncated",
    "tool_error",
    "tool_refused",
    "tool_indeterminate",
    "attempt_failed",
    "fan_out_refused",
    "repeat_detected",
    "depth_exceeded",
    "hook_rewrite",
    "hook_refusal",
    "approval_required",
    "approval_granted",
    "approval_denied",
    "guardrail_refusal",
    "output_validated",
    "schema_violation",
    "cancellation_requested",
    "deadline_exceeded",
    "work_orphaned",
    "terminated",
}
_OWN = {
    "run_queued",
    "run_started",
    "run_suspended",
    "run_resumed",
    "turn_cleared",
    "budget_refused",
    "guardrail_redaction",
    "output_unwrapped",
    "repair_requested",
    "model_routed",
    "model_fell_back",
    "agent_transfer",
    "state_delta",
    "artifact_delta",
    "callback_override",
    "history_trimmed",
    "compensation_required",
    "worker_lost",
    "warning",
    "summary_skipped",
}


def test_the_kinds_are_the_specifications() -> None:
    assert EVENT_KINDS == _SPECIFIED | _OWN


@pytest.mark.parametrize("cls", EVENT_CLASSES)
def test_an_event_can_not_be_changed(cls: type[EventBody]) -> None:
    assert (cls.model_config["frozen"], cls.model_config["extra"]) == (True, "forbid")


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
def test_a_version_of_a_later_release_is_refused(cls: type[EventBody]) -> None:
    with pytest.raises(ValidationError, match=f"version {cls.latest_version() + 1} of this kind is not known here"):
        cls.model_validate({"v": cls.latest_version() + 1})


def test_versions_count_from_one() -> None:
    with pytest.raises(ValidationError, match="version 0 of this kind is not known here"):
        OutputValidated(v=0)


def test_a_stored_event_tells_the_kind_of_its_body() -> None:
    assert (
        RunEvent(run_id=RunId("run_1"), seq=1, at=0.0, body=OutputValidated(), payload="{}").kind == "output_validated"
    )
