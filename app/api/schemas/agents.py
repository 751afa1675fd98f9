"""Agents, tools and models on the wire."""

from typing import Any, Final

from pydantic import Field, create_model

from app.agents import Agent, AgentVersion
from app.api.schemas.common import Instant, View, Wire, instant
from app.policy import Effect
from app.ports.model import ModelInfo
from app.ports.tools import Tool

_FIELDS: Final[dict[str, Any]] = {name: (field.annotation, field) for name, field in Agent.model_fields.items()}

# Made from Agent's own fields, so that there is one list of them. For the description only: bodies are validated by
# Agent itself.
AgentDefinition = create_model(
    "AgentDefinition",
    __base__=Wire,
    __doc__="An agent as its author writes it. The name is in the path.",
    **{name: field for name, field in _FIELDS.items() if name != "name"},
)
AgentView = create_model(
    "AgentView",
    __base__=View,
    __doc__="A definition as it was stored.",
    **_FIELDS,
    version=(int, Field(ge=1)),
    digest=(str, Field(description="SHA-256 of the definition; equal definitions are one version")),
    created_at=(Instant, ...),
    retired=(bool, Field(description="Takes no new runs; PUT of its definition revives it")),
)


class AgentPage(View):
    items: list[AgentView]
    next_cursor: str | None


class ToolView(View):
    name: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema, draft 2020-12")
    effect: Effect
    timeout_seconds: float | None


class ToolPage(View):
    items: list[ToolView]
    next_cursor: None = None


class ModelView(View):
    name: str = Field(description="`provider:model`")
    is_default: bool
    context_tokens: int | None = Field(description="null where this process has not loaded the model")
    supports_tools: bool | None = Field(description="null where this process has not loaded the model")
    enforces_schema: bool
    notes: list[str]


class ModelPage(View):
    items: list[ModelView]
    next_cursor: None = None


def view_agent(stored: AgentVersion) -> dict[str, Any]:
    return {
        **stored.agent.model_dump(mode="json"),
        "version": stored.version,
        "digest": stored.digest,
        "created_at": instant(stored.created_at),
        "retired": stored.retired,
    }


def view_tool(tool: Tool) -> ToolView:
    return ToolView(
        name=tool.name,
        description=tool.declaration.description,
        parameters=tool.declaration.parameters,
        effect=tool.effect,
        timeout_seconds=tool.timeout_seconds,
    )


def view_model(model: ModelInfo, *, default: str | None) -> ModelView:
    return ModelView(
        name=model.name,
        is_default=model.name == default,
        context_tokens=model.context_tokens,
        supports_tools=model.supports_tools,
        enforces_schema=model.enforces_schema,
        notes=list(model.notes),
    )
