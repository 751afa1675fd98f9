"""Prompt, model and answer."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from app.conversation import StopReason, ToolCall, Usage
from app.events.body import Cost, EventBody
from app.ids import CallId


class LayerSize(BaseModel):
    """How many messages and tokens one layer of a prompt has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer: str
    messages: int
    tokens: int


class PromptAssembled(EventBody):
    """The prompt of the agent that the run is under is put together, before it begins."""

    kind: Literal["prompt_assembled"] = "prompt_assembled"
    fingerprint: str
    version: str
    prefix_tokens: int
    prompt_tokens: int
    layers: tuple[LayerSize, ...] = ()


class HistoryTrimmed(EventBody):
    """Whole oldest turns of the history were left out, to fit the window."""

    kind: Literal["history_trimmed"] = "history_trimmed"
    turns_dropped: int
    tokens_dropped: int


class ModelRouted(EventBody):
    """A router chose the model."""

    kind: Literal["model_routed"] = "model_routed"
    task_class: str | None = None
    model: str


class ModelFellBack(EventBody):
    """Another model was asked, after one that failed."""

    kind: Literal["model_fell_back"] = "model_fell_back"
    from_model: str
    to_model: str


class ModelCall(EventBody):
    """Stored before the model is called. ``estimated_input_tokens`` and, where the model has a price,
    ``estimated_cost`` are charged if nobody learns what it used."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"estimated_cost": 2}

    kind: Literal["model_call"] = "model_call"
    v: int = 2
    attempt: int
    model: str
    estimated_input_tokens: int
    max_output_tokens: int | None = None
    estimated_cost: Cost | None = None


class ModelResponded(EventBody):
    """What the model said, after redaction. ``text`` is None where it was refused; usage is charged all the same.
    ``cost`` is None where the model has no price. ``callback`` wrote it instead, or beside the answer: no model was
    called for it."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"cost": 2, "callback": 3}

    kind: Literal["model_response"] = "model_response"
    v: int = 3
    attempt: int
    text: str | None
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: StopReason
    usage: Usage
    queue_seconds: float = 0.0
    first_token_seconds: float = 0.0
    generation_seconds: float = 0.0
    cost: Cost | None = None
    callback: str | None = None


class AttemptFailed(EventBody):
    """A model call or a dispatch that failed. ``delay_seconds`` until the next one, or None and ``reason`` why not.
    ``cost`` is of the estimated ``usage``."""

    ADDED_IN: ClassVar[Mapping[str, int]] = {"cost": 2}

    kind: Literal["attempt_failed"] = "attempt_failed"
    v: int = 2
    subject: Literal["model", "tool"]
    attempt: int
    code: str
    call_id: CallId | None = None
    name: str | None = None
    status: int | None = None
    delay_seconds: float | None = None
    reason: str = ""
    usage: Usage | None = None
    cost: Cost | None = None


class OutputValidated(EventBody):
    """The answer satisfies the schema that was declared."""

    kind: Literal["output_validated"] = "output_validated"


class OutputUnwrapped(EventBody):
    """The answer was taken out of the fence that the model had put around it."""

    kind: Literal["output_unwrapped"] = "output_unwrapped"


class SchemaViolation(EventBody):
    """``fatal`` False: the problem goes back to the model as data."""

    kind: Literal["schema_violation"] = "schema_violation"
    subject: Literal["output", "tool"]
    call_id: CallId | None = None
    name: str | None = None
    problems: tuple[str, ...] = ()
    fatal: bool = True


class RepairRequested(EventBody):
    """The model was told what was wrong, and is asked again. ``detail`` is what it reads; of tools' arguments it reads
    that as the refused calls' results."""

    kind: Literal["repair_requested"] = "repair_requested"
    attempt: int
