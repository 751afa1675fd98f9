"""The messages that a model reads and writes."""

from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.conversation.text import is_storable
from app.ids import CallId


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class StopReason(StrEnum):
    """Why a generation ended. ``length``: the output is cut, and is never presented as a whole answer."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"


class UsageSource(StrEnum):
    """``provider``: counted by whoever evaluated the tokens. ``heuristic``: our estimate."""

    PROVIDER = "provider"
    HEURISTIC = "heuristic"


# What every reader of JSON holds exactly; a provider that counts more is mistaken.
MOST_TOKENS: Final = 2**53 - 1


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Value):
    """A model's request to call a tool.

    ``arguments`` is the parsed object, or None where the model did not write a JSON object that a log can hold (see
    ``is_storable``); ``raw_arguments`` is then the text as it wrote it. ``call_id`` is minted by the loop;
    ``provider_call_id`` is what the model called it.
    """

    call_id: CallId
    name: str
    arguments: dict[str, Any] | None = None
    raw_arguments: str | None = None
    provider_call_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _arguments_are_storable(cls, fields: Any) -> Any:
        """What a tool gets is what the log says: arguments that would be written as something else are raw."""
        if not isinstance(fields, dict) or is_storable(fields.get("arguments")):
            return fields
        raw = fields.get("raw_arguments")
        return {**fields, "arguments": None, "raw_arguments": _show(fields["arguments"]) if raw is None else raw}


def _show(value: Any) -> str:
    """What a model wrote that is no JSON object; its type where Python refuses to write it."""
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a number of too many digits, or an object of somebody's own
        return f"a {type(value).__name__} that can't be shown"


class Message(_Value):
    """One message. ``tool_calls`` belong to an assistant's message, ``call_id`` and ``name`` to a tool's result."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: CallId | None = None
    name: str | None = None


class Usage(_Value):
    """Tokens of one model call. ``cached_tokens`` is the part of ``input_tokens`` that was not evaluated again."""

    input_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    cached_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    output_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)
    source: UsageSource = UsageSource.PROVIDER

    def __add__(self, other: "Usage") -> "Usage":
        """Adds counts; the sum is the provider's only where both are."""
        exact = self.source is UsageSource.PROVIDER and other.source is UsageSource.PROVIDER
        return Usage(
            input_tokens=min(self.input_tokens + other.input_tokens, MOST_TOKENS),
            cached_tokens=min(self.cached_tokens + other.cached_tokens, MOST_TOKENS),
            output_tokens=min(self.output_tokens + other.output_tokens, MOST_TOKENS),
            source=UsageSource.PROVIDER if exact else UsageSource.HEURISTIC,
        )
