"""The protocol of a model provider, and its records."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from app.agents import ToolDeclaration
from app.conversation import Message, StopReason, ToolCall, Usage
from app.ids import RunId, TenantId

# Said wherever equal answers to equal requests are asked of a model that can't promise them.
DETERMINISTIC_UNAVAILABLE: Final = "deterministic_unavailable"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelRequest:
    """One model call. ``iteration`` and, within it, ``attempt`` count from 1. ``prefix_length`` is how many leading
    messages the fingerprint covers.

    ``model`` is the name after ``provider:``. ``tool_choice`` is ``auto``, ``none`` or a tool's name.
    ``max_output_tokens`` is a ceiling at which generation stops with ``StopReason.LENGTH``; None leaves it to the
    provider. ``output_schema`` is a JSON Schema that the answer has to satisfy, where the provider can enforce it.
    ``deterministic``: the same request is to give the same tokens, whatever runs beside it; a provider that can't
    promise that refuses it (``deterministic_unavailable``). ``weight``: its tenant's part of the machine beside others.
    """

    tenant_id: TenantId
    run_id: RunId
    attempt: int
    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: str = "auto"
    output_schema: dict[str, Any] | None = None
    fingerprint: str = ""
    prefix_length: int = 0
    max_output_tokens: int | None = None
    iteration: int = 1
    deterministic: bool = False
    weight: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """Text that the model has just written."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds: waiting for the engine, evaluating the prompt up to the first token, and generating after it."""

    queue_seconds: float = 0.0
    first_token_seconds: float = 0.0
    generation_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelResponse:
    """A whole answer. ``call_id`` of its calls is the provider's own; the loop mints its own beside it."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    stop_reason: StopReason = StopReason.STOP
    timing: Timing = field(default_factory=Timing)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInfo:
    """What a model can hold and do. None where this process does not know, as of a model that it has not loaded.

    ``supports_deterministic``: it takes requests that are ``deterministic``; ``deterministic_tokens`` is the window of
    those, None where it is the same.
    """

    name: str
    context_tokens: int | None
    supports_tools: bool | None
    enforces_schema: bool = False
    supports_deterministic: bool = False
    deterministic_tokens: int | None = None
    notes: Sequence[str] = ()


class Tokenizer(Protocol):
    """Counts tokens of a text. ``approximate_tokens`` is the default; a provider brings its model's own."""

    def count(self, text: str) -> int: ...


class ModelProvider(Protocol):
    """Drives one family of models. Every method may be called from the event loop and never blocks it.

    ``stream`` yields ``TextDelta`` and last exactly one ``ModelResponse``. Closing the iterator or cancelling the task
    stops the generation: within two tokens where the model runs in this process. Raises ``ProviderError``;
    ``ContextOverflowError`` before anything is evaluated.
    """

    name: str

    def models(self) -> Sequence[ModelInfo]:
        """The models that this provider can drive now."""
        ...

    def tokenizer(self, model: str) -> Tokenizer | None:
        """The model's own tokenizer, or None where it is not at hand."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]: ...

    async def complete(self, request: ModelRequest) -> ModelResponse: ...

    def readiness(self) -> str | None:
        """None when requests can be served; else a stable code that says why not."""
        ...

    async def close(self) -> None:
        """Stops what is running and frees the model. Idempotent."""
        ...


class Models(Protocol):
    """The models of a deployment by their full name, ``provider:model``."""

    def resolve(self, model: str | None) -> tuple[ModelProvider, str]:
        """The provider and its own name for the model; None takes the default. Raises ConfigurationError."""
        ...
