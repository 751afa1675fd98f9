"""A run's events as ADK's: one table says what each kind becomes.

Every stored event is told once. Those that ADK knows nothing of are bookkeeping: without content, and never a final
response. Field names and the rule of ``is_final_response`` are those of ADK's Python SDK ("Events" in its guide).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from app.agents.definition import USER_AUTHOR
from app.conversation import Content, FunctionCall, FunctionResponse, Part, StopReason
from app.conversation.answers import parse_json
from app.events import (
    AnyEvent,
    ModelResponded,
    RunEvent,
    SummarySkipped,
    Terminated,
    ToolFailed,
    ToolIndeterminate,
    ToolRefused,
    ToolResult,
)
from app.execution.run_record import StoredEvent
from app.prompt.untrusted import unwrap_untrusted


class EventActions(BaseModel):
    """What an event changed or asked for beside its content."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_delta: dict[str, Any] = Field(default_factory=dict)
    artifact_delta: dict[str, int] = Field(default_factory=dict)
    transfer_to_agent: str | None = None
    escalate: bool | None = None
    skip_summarization: bool | None = None


class Event(BaseModel):
    """One thing that happened in an invocation.

    ``invocation_id`` is the run's id, ``author`` an agent's name or ``user``, ``timestamp`` epoch seconds.
    ``run_event`` is the event as the log holds it, with usage, numbers and details; None for a ``partial`` one, which
    is text on its way and stored nowhere. The event that is not partial has the whole text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    id: str
    invocation_id: str
    author: str
    timestamp: float
    content: Content | None = None
    partial: bool = False
    actions: EventActions = EventActions()
    error_code: str | None = None
    error_message: str | None = None
    run_event: StoredEvent | None = None

    @property
    def is_bookkeeping(self) -> bool:
        """Whether it is of interest only to those who trace or count: it says nothing, reports no failure, and is not
        the end of a turn whose results are the answer."""
        return self.content is None and self.error_code is None and not self.actions.skip_summarization

    def get_function_calls(self) -> list[FunctionCall]:
        """The calls that the model asks for."""
        return [] if self.content is None else list(self.content.function_calls)

    def get_function_responses(self) -> list[FunctionResponse]:
        """The results that the model will read."""
        return [] if self.content is None else list(self.content.function_responses)

    def is_final_response(self) -> bool:
        """Whether it is what the user is shown: it asks for nothing, answers no call and is whole; or the invocation
        ends with a tool's result. An error is one too, so content is no condition: look before you render."""
        if self.is_bookkeeping:
            return False
        if self.actions.skip_summarization:
            return True
        return not (self.partial or self.get_function_calls() or self.get_function_responses())


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """The error fields of an event."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What events of one kind become. ``actions`` names those that they may carry. What is not named stays empty."""

    content: Callable[[Any], Content | None] | None = None
    actions: tuple[str, ...] = ()
    error: Callable[[Any], Problem | None] | None = None
    author: str | None = None


def _said(body: ModelResponded) -> Content | None:
    """text and calls of the model; none of an answer that was refused, is empty, or was cut"""
    if body.stop_reason is StopReason.LENGTH:
        return None
    parts = [Part(text=body.text)] if body.text else []
    parts.extend(
        Part(function_call=FunctionCall(id=call.call_id, name=call.name, args=call.arguments or {}))
        for call in body.tool_calls
    )
    return Content(role="model", parts=tuple(parts)) if parts else None


def _answered(body: ToolResult) -> Content:
    """a function response: an object as it is, anything else as `{"result": …}`, without the fence that the model
    sees"""
    return _response_to(body, _read_result(unwrap_untrusted(body.content)))


def _went_wrong(body: ToolFailed | ToolRefused | ToolIndeterminate) -> Content:
    """a function response `{"error": …}`: what the model is told, or `detail` where the run ends by it"""
    said = body.detail if body.content is None else unwrap_untrusted(body.content)
    return _response_to(body, {"error": said})


def _response_to(body: ToolResult | ToolFailed | ToolRefused | ToolIndeterminate, response: dict[str, Any]) -> Content:
    answer = FunctionResponse(id=body.call_id, name=body.name, response=response)
    return Content(role="user", parts=(Part(function_response=answer),))


def _read_result(text: str) -> dict[str, Any]:
    """As ADK's tools answer: a dictionary."""
    try:
        value = parse_json(text)
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"result": value}


def _passed_on(body: SummarySkipped) -> Content | None:
    """the results of the turn that are the answer, as text of the agent"""
    return Content.of_text(body.answer, role="model") if body.answer else None


def _failed(body: ToolFailed | ToolRefused) -> Problem:
    """`code` and `detail` of the call"""
    return Problem(code=body.code, message=body.detail)


def _unknown(body: ToolIndeterminate) -> Problem:
    """`tool_indeterminate` and `detail`"""
    return Problem(code=body.kind, message=body.detail)


def _ended(body: Terminated) -> Problem | None:
    """`code` and `detail` where the run did not complete"""
    return None if body.code is None else Problem(code=body.code, message=body.detail)


def _lasting(state: Mapping[str, Any]) -> dict[str, Any]:
    """What outlives the run: ADK shows nothing of the rest."""
    return {key: value for key, value in state.items() if not key.startswith("temp:")}


_BOOKKEEPING: Final = Shape()
_OF_A_CALL: Final = ("state_delta", "artifact_delta", "transfer_to_agent", "escalate")

EVENT_MAP: Final[Mapping[str, Shape]] = {
    "run_queued": Shape(author=USER_AUTHOR),
    "run_started": _BOOKKEEPING,
    "run_resumed": _BOOKKEEPING,
    "run_suspended": _BOOKKEEPING,
    "prompt_assembled": _BOOKKEEPING,
    "history_trimmed": _BOOKKEEPING,
    "model_routed": _BOOKKEEPING,
    "model_fell_back": _BOOKKEEPING,
    "model_call": _BOOKKEEPING,
    "model_response": Shape(content=_said, actions=("state_delta", "artifact_delta")),
    "attempt_failed": _BOOKKEEPING,
    "output_unwrapped": _BOOKKEEPING,
    "output_validated": _BOOKKEEPING,
    "schema_violation": _BOOKKEEPING,
    "repair_requested": _BOOKKEEPING,
    "turn_cleared": _BOOKKEEPING,
    "tool_call": _BOOKKEEPING,
    "tool_result": Shape(content=_answered, actions=_OF_A_CALL),
    "tool_error": Shape(content=_went_wrong, actions=_OF_A_CALL, error=_failed),
    "tool_refused": Shape(content=_went_wrong, error=_failed),
    "tool_indeterminate": Shape(content=_went_wrong, error=_unknown),
    "tool_result_truncated": _BOOKKEEPING,
    "summary_skipped": Shape(content=_passed_on, actions=("skip_summarization",)),
    "fan_out_refused": _BOOKKEEPING,
    "repeat_detected": _BOOKKEEPING,
    "depth_exceeded": _BOOKKEEPING,
    "budget_refused": _BOOKKEEPING,
    "hook_rewrite": _BOOKKEEPING,
    "hook_refusal": _BOOKKEEPING,
    "guardrail_refusal": _BOOKKEEPING,
    "guardrail_redaction": _BOOKKEEPING,
    "callback_override": _BOOKKEEPING,
    "approval_required": _BOOKKEEPING,
    "approval_granted": _BOOKKEEPING,
    "approval_denied": _BOOKKEEPING,
    "agent_transfer": Shape(actions=("transfer_to_agent", "escalate")),
    "state_delta": Shape(actions=("state_delta",)),
    "artifact_delta": Shape(actions=("artifact_delta",)),
    "cancellation_requested": _BOOKKEEPING,
    "deadline_exceeded": _BOOKKEEPING,
    "worker_lost": _BOOKKEEPING,
    "work_orphaned": _BOOKKEEPING,
    "compensation_required": _BOOKKEEPING,
    "warning": _BOOKKEEPING,
    "terminated": Shape(error=_ended),
}

# What may stand between what a call, of a tool or of a model, has changed and its outcome: all of it is of that call.
_BESIDE_AN_OUTCOME: Final = frozenset(
    {"state_delta", "artifact_delta", "callback_override", "hook_rewrite", "guardrail_redaction"}
    | {"tool_result_truncated", "attempt_failed", "work_orphaned", "model_call"}
)


class Teller:
    """Tells one run's events in their order. What a call changed is stored as events of its own in front of its
    outcome; the outcome's event shows the changes again, as ADK's does."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._author = ""
        self._last_id = run_id
        self._partials = 0
        self._state: dict[str, Any] = {}
        self._artifacts: dict[str, int] = {}

    def tell(self, stored: RunEvent) -> Event:
        """The stored event as ADK would have it."""
        body, shape = stored.body, EVENT_MAP[stored.kind]
        self._author = body.author or self._author
        self._last_id, self._partials = f"{stored.run_id}/{stored.seq}", 0
        problem = None if shape.error is None else shape.error(body)
        return Event(
            id=self._last_id,
            invocation_id=stored.run_id,
            author=shape.author or self._author,
            timestamp=stored.at,
            content=None if shape.content is None else shape.content(body),
            actions=self._actions(body, shape),
            error_code=None if problem is None else problem.code,
            error_message=None if problem is None else problem.message,
            run_event=stored,
        )

    def tell_partial(self, text: str, *, at: float) -> Event:
        """Text that the model has just written; ``at`` in epoch seconds."""
        self._partials += 1
        return Event(
            id=f"{self._last_id}/{self._partials}",
            invocation_id=self._run_id,
            author=self._author,
            timestamp=at,
            content=Content.of_text(text, role="model"),
            partial=True,
        )

    def _actions(self, body: AnyEvent, shape: Shape) -> EventActions:
        told = body.actions.model_dump(exclude_none=True)
        if "state_delta" in told:
            told["state_delta"] = _lasting(told["state_delta"])
        self._state |= told.get("state_delta", {})
        self._artifacts |= told.get("artifact_delta", {})
        if shape.content in (_answered, _went_wrong, _said):
            told |= {"state_delta": self._state, "artifact_delta": self._artifacts}
        elif shape.content is _passed_on:
            told["skip_summarization"] = True
        if body.kind not in _BESIDE_AN_OUTCOME:
            self._state, self._artifacts = {}, {}
        return EventActions(**{name: value for name, value in told.items() if name in shape.actions})
