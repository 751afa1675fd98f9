"""Logs and metrics, derived from what was stored: nothing else in the service counts or logs the steps of a run."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from app.conversation import Usage
from app.events import (
    RunEvent,
)
from app.ids import RunId, TenantId
from app.observability.logs import StepLog, describe_exception, get_logger
from app.observability.metrics import Metrics
from app.policy import write_amount

# What a step's line shows of its event: names that the operator or we gave, codes, numbers. Texts, arguments, results,
# reasons and a model's own words (also the name of a tool that there is not) have no place here.
LOGGED_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "run_queued": ("agent_version", "depth", "parent_run_id"),
    "run_started": ("worker_id", "fence"),
    "run_suspended": ("approval_ids",),
    "run_resumed": ("reason", "recoveries", "worker_id", "fence"),
    "worker_lost": ("recoveries",),
    "cancellation_requested": (),
    "deadline_exceeded": ("what",),
    "work_orphaned": ("what", "name"),
    "compensation_required": ("call_id", "name"),
    "terminated": ("state", "code", "cap", "model_calls", "tool_calls", "cost"),
    "warning": ("code",),
    "prompt_assembled": ("prefix_tokens", "prompt_tokens"),
    "history_trimmed": ("turns_dropped", "tokens_dropped"),
    "model_routed": ("task_class", "model"),
    "model_fell_back": ("from_model", "to_model"),
    "model_call": ("attempt", "model", "estimated_input_tokens", "max_output_tokens", "estimated_cost"),
    "model_response": (
        "attempt",
        "stop_reason",
        "queue_seconds",
        "first_token_seconds",
        "generation_seconds",
        "cost",
        "callback",
    ),
    "attempt_failed": ("subject", "attempt", "code", "call_id", "status", "delay_seconds", "cost"),
    "output_validated": (),
    "output_unwrapped": (),
    "schema_violation": ("subject", "call_id", "fatal"),
    "repair_requested": ("attempt",),
    "turn_cleared": (),
    "tool_call": ("call_id", "name", "effect", "dispatch", "child_run_id"),
    "tool_result": ("call_id", "name", "signals"),
    "tool_result_truncated": ("call_id", "name", "original_chars", "kept_chars"),
    "tool_error": ("call_id", "name", "code", "retry_safe"),
    "tool_refused": ("call_id", "code"),
    "tool_indeterminate": ("call_id", "name"),
    "summary_skipped": (),
    "fan_out_refused": ("cap", "requested", "limit"),
    "repeat_detected": ("count", "limit"),
    "depth_exceeded": ("depth", "limit"),
    "budget_refused": ("dimension", "limit", "used", "requested", "source"),
    "hook_rewrite": ("hook", "point"),
    "hook_refusal": ("hook", "point", "code"),
    "guardrail_refusal": ("guardrail", "subject", "signals"),
    "guardrail_redaction": ("guardrail", "subject"),
    "callback_override": ("callback", "point"),
    "approval_required": ("call_id", "approval_id", "ask"),
    "approval_granted": ("call_id", "approval_id", "outcome"),
    "approval_denied": ("call_id", "approval_id", "cause"),
    "agent_transfer": ("from_agent", "to_agent"),
    "state_delta": (),
    "artifact_delta": (),
}

# Runs whose last step is remembered, for the time that a step took. Those that were handed back are forgotten by this.
_MAX_REMEMBERED: Final = 10_000


class ObservingSink:
    """Satisfies ``ports.sink.EventSink``: one log line and the figures for each event. Never raises."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._log = get_logger("runwright.run")
        self._steps = StepLog("runwright.run")
        self._last_step_at: OrderedDict[RunId, float] = OrderedDict()

    def stored(self, tenant_id: TenantId, events: Sequence[RunEvent]) -> None:
        lines: list[Mapping[str, Any]] = []
        for event in events:
            try:
                self._count(event)
                lines.append(self._describe(tenant_id, event))
            except Exception as error:  # noqa: BLE001 - what is seen of a run must not end it
                self._log.error("sink_failed", exception=describe_exception(error, shown_texts=()))
        self._steps.info("run_step", lines)

    def lease_lost(self, tenant_id: TenantId, run_id: RunId) -> None:
        self._last_step_at.pop(run_id, None)
        self._metrics.lease_lost()
        self._log.warning("lease_lost", run_id=run_id, tenant_id=tenant_id)

    def crashed(self, tenant_id: TenantId, run_id: RunId, error: Exception) -> None:
        self._metrics.drive_crashed()
        described = describe_exception(error, shown_texts=())
        self._log.error("drive_crashed", run_id=run_id, tenant_id=tenant_id, exception=described)

    def plugin_failed(self, tenant_id: TenantId, run_id: RunId, what: str, error: Exception) -> None:
        described = describe_exception(error, shown_texts=())
        self._log.error("plugin_failed", run_id=run_id, tenant_id=tenant_id, what=what, exception=described)

    def store_away(self, doing: str) -> None:
        self._log.warning("database_unavailable", doing=doing)

    def recovered(self, count: int) -> None:
        self._metrics.runs_recovered(count)
        if count:
            self._log.warning("runs_recovered", count=count)

    def _describe(self, tenant_id: TenantId, event: RunEvent) -> dict[str, Any]:
        body = event.body
        line: dict[str, Any] = {
            "run_id": event.run_id,
            "tenant_id": tenant_id,
            "kind": event.kind,
            "seq": event.seq,
            "iteration": body.iteration,
            "agent": body.author,
        }
        step_seconds = self._step_seconds(event)
        if step_seconds is not None:
            line["step_seconds"] = step_seconds
        for field in LOGGED_FIELDS.get(event.kind, ()):
            value = getattr(body, field)
            if value is not None:
                line[field] = write_amount(value) if isinstance(value, Decimal) else value
        usage = getattr(body, "usage", None)
        if isinstance(usage, Usage):
            line.update(
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=usage.output_tokens,
                source=usage.source,
            )
        return line

    def _step_seconds(self, event: RunEvent) -> float | None:
        """Seconds since the step before, None where another process may have written it."""
        before = self._last_step_at.pop(event.run_id, None)
        begins = event.kind in {"run_started", "run_resumed"}
        if event.kind not in {"terminated", "run_suspended"} and (begins or before is not None):
            self._last_step_at[event.run_id] = event.at
            if len(self._last_step_at) > _MAX_REMEMBERED:
                self._last_step_at.popitem(last=False)
        return None if before is None or begins else round(event.at - before, 6)

    def _count(self, event: RunEvent) -> None:
        metrics, body = self._metrics, event.body
        # By the kind, which costs a fraction of asking for each class in turn.
        match body.kind:
            case "run_started":
                metrics.run_started(queue_wait_seconds=_seconds_since_accepted(event))
            case "run_resumed" if body.reason == "resumed":
                metrics.run_started(queue_wait_seconds=_seconds_since_accepted(event))
            case "terminated":
                metrics.run_ended(body.state, body.code, duration_seconds=_seconds_since_accepted(event))
            case "model_response" if body.callback is not None:
                pass  # No model was asked; the override itself is counted.
            case "callback_override":
                metrics.callback_overrode(body.point)
            case "agent_transfer":
                metrics.agent_transferred()
            case "model_response":
                metrics.model_answered(
                    wait_seconds=body.queue_seconds,
                    first_token_seconds=body.queue_seconds + body.first_token_seconds,
                    generation_seconds=body.generation_seconds,
                    output_tokens=body.usage.output_tokens,
                )
                metrics.tokens_used(body.usage)
                metrics.cost_arose(body.cost)
            case "attempt_failed" if body.subject == "model":
                metrics.model_failed()
                metrics.tokens_used(body.usage or Usage())
                metrics.cost_arose(body.cost)
            case "budget_refused":
                metrics.budget_refused(body.dimension)
            case "model_fell_back":
                metrics.model_fell_back()
            case "repair_requested":
                metrics.repair_requested()
            case "approval_required":
                metrics.approval_required()
            case "approval_granted":
                metrics.approval_settled("granted")
            case "approval_denied":
                metrics.approval_settled(body.cause)
            case "tool_result":
                metrics.tool_ended("succeeded")
            case "tool_error":
                metrics.tool_ended("failed")
            case "tool_refused":
                metrics.tool_ended("refused")
            case "tool_indeterminate":
                metrics.tool_ended("indeterminate")
            case _:
                pass  # A step that is only logged.


def _seconds_since_accepted(event: RunEvent) -> float | None:
    """From the making of the run's id, a UUIDv7 with its millisecond in front (RFC 9562), to the event.

    Another process may have accepted the run, so nothing else here knows when. None for an id of another kind.
    """
    digits = event.run_id.rpartition("_")[2].translate(_TO_BASE32)
    try:
        number = int(digits, 32)
    except ValueError:
        return None
    if len(digits) != 26 or (number >> 76) & 0xF != 7:
        return None
    return max(0.0, event.at - (number >> 80) / 1000)


# From Crockford's digits, in which ids are written, to those that Python reads.
_TO_BASE32: Final = str.maketrans("0123456789abcdefghjkmnpqrstvwxyz", "0123456789abcdefghijklmnopqrstuv")
