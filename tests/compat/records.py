"""What a runtime did in a scenario, in the form in which two of them are compared. JSON, so that it can cross over."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Seen(_Value):
    """One event, without what is a matter of the runtime (ids, times, usage)."""

    author: str
    final: bool
    partial: bool = False
    text: str | None = None
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    responses: Sequence[tuple[str, Any]] = ()
    state_delta: Mapping[str, Any] = {}
    transfer_to_agent: str | None = None
    escalate: bool = False
    skip_summarization: bool = False
    error_code: str | None = None


class Turn(_Value):
    """What one message led to. ``error`` is the class of what ``run_async`` raised."""

    events: Sequence[Seen]
    error: str | None = None


class Record(_Value):
    """A scenario as it went, and the session's state after it as it is read back. ``asked`` is what callbacks noted."""

    turns: Sequence[Turn]
    model_calls: int
    state: Mapping[str, Any]
    asked: Sequence[str] = ()
