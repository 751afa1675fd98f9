"""A second chance for an answer, or for a tool's arguments, that miss their schema."""

from pydantic import BaseModel, ConfigDict, Field


class RepairConfig(BaseModel):
    """How often in a run the model is told what is wrong and asked again. Answers and arguments share the count.

    Every repair is one more iteration, and is paid for like any other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: int = Field(default=1, ge=1, le=10)
