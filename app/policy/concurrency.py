"""How many tool calls of a turn are out at the same time."""

from pydantic import BaseModel, ConfigDict, Field


class ConcurrencyConfig(BaseModel):
    """One at a time unless more are allowed here, and then only calls next to each other whose tools say that they are
    safe beside others. Calls that are out together can't be stopped one by the outcome of the other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_concurrent_tools: int = Field(default=1, ge=1, le=64)
