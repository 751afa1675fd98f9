"""How a tool is told to a model."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

TOOL_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$"


class ToolDeclaration(BaseModel):
    """Name, what it is for, and a JSON Schema (draft 2020-12) of its arguments, which are always an object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=TOOL_NAME_PATTERN)
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
