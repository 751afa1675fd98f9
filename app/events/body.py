"""What every event carries."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, field_validator

from app.policy import write_amount

# Written as text: JSON's numbers are binary fractions to most readers, and money is exact.
Cost = Annotated[Decimal, PlainSerializer(write_amount, return_type=str)]


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

    ``v`` is the version of the kind's payload. A new field raises it and is listed in ``ADDED_IN``, with the version
    that brought it: an event of an older version is written again without it, byte for byte. ``iteration`` counts model
    turns from 1; 0 is before the first. ``author`` is the agent's name. ``final`` marks what a reader is shown:
    an answer, or why there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ADDED_IN: ClassVar[Mapping[str, int]] = {}

    v: int = 1
    iteration: int = Field(default=0, ge=0)
    author: str = ""
    actions: Actions = Actions()
    final: bool = False
    detail: str = ""

    @field_validator("v")
    @classmethod
    def _version_is_known(cls, version: int) -> int:
        if not 1 <= version <= cls.latest_version():
            raise ValueError(f"version {version} of this kind is not known here")
        return version

    @classmethod
    def latest_version(cls) -> int:
        """The version that this release writes."""
        return max(cls.ADDED_IN.values(), default=1)
