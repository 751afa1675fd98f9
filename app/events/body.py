"""What every event carries."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Actions(BaseModel):
    """What an event asks of the runtime around the loop (``EventActions`` in Google's ADK)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state_delta: dict[str, Any] | None = None
    artifact_delta: dict[str, int] | None = None
    transfer_to_agent: str | None = None
    escalate: bool | None = None
    skip_summarization: bool | None = None


class EventBody(BaseModel):
    """The part of an event that its writer knows. ``seq`` and ``at`` are the store's.

    ``v`` is the version of the kind's payload: a change that an old reader can't bear raises it, and the old class
    stays readable. ``iteration`` counts model turns from 1; 0 is before the first. ``author`` is the agent's name.
    ``final`` marks what a reader shows as the answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    v: Literal[1] = 1
    iteration: int = Field(default=0, ge=0)
    author: str = ""
    actions: Actions = Actions()
    final: bool = False
    detail: str = ""
