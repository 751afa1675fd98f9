"""Agents, tools and models on the wire."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag, create_model

from app.agents import CALLBACK_FIELDS, Agent, AgentVersion, SubAgentMode
from app.agents.definition import AGENT_REFERENCE_PATTERN, Name, named_once
from app.api.schemas import story
from app.api.schemas.common import Instant, Money, View, Wire, instant, money, told_by
from app.policy import BudgetLimits, Effect, Price
from app.policy.prices import write_amount
from app.ports.model import ModelInfo
from app.ports.tools import Tool

AgentReference = Annotated[str, StringConstraints(pattern=AGENT_REFERENCE_PATTERN)]
Grant = Annotated[
    # The bound is on the list: on null it could not be applied.
    Annotated[tuple[Name, ...], AfterValidator(named_once), Field(max_length=256)] | None,
    Field(
        description="What its caller's author grants it, of its own tools; null: those that its caller may call too",
    ),
]


class SubAgentEntry(Wire):
    """An agent below another one. It is named, and stored by itself."""

    agent: AgentReference = Field(description="`name` (its newest version when a run is submitted) or `name@version`")
    mode: SubAgentMode = Field(
        default=SubAgentMode.TRANSFER,
        description="`transfer`: the run can go on under it. `tool`: it is called, and works in a run of its own",
    )
    tools: Grant = None


class SubAgentView(View):
    agent: AgentReference
    mode: SubAgentMode
    tools: Grant


def _kind_of_entry(value: Any) -> str | None:
    if isinstance(value, str):
        return "name"
    return "entry" if isinstance(value, dict | SubAgentEntry) else None


_Entry = Annotated[
    Annotated[AgentReference, Tag("name")] | Annotated[SubAgentEntry, Tag("entry")],
    Discriminator(
        _kind_of_entry,
        custom_error_type="sub_agent_type",
        custom_error_message="must be an agent's name, or an object that names one",
    ),
]
_MOST_SUB_AGENTS: Final = 64
DEFINITION_EXAMPLE: Final[dict[str, Any]] = {
    "description": "Plans trips, and books what somebody has allowed it to",
    "instructions": "You plan trips. Look for places to stay, book one, and answer in one sentence.",
    "tools": ["find_stays", story.TOOL],
    "approval_required_tools": [story.TOOL],
    "budget": {"max_output_tokens": 500},
}

# Only Python has them: functions, and a type. They never go over the wire.
_PYTHONS: Final = frozenset({"output_type", *CALLBACK_FIELDS})
# Made from Agent's own fields, so that there is one list of them.
_FIELDS: Final[dict[str, Any]] = {
    **{name: (field.annotation, field) for name, field in Agent.model_fields.items() if name not in _PYTHONS},
    # The library takes 0 and less, which lifts the bound.
    "max_llm_calls": (int, Field(default=500, ge=1, le=500)),
}

AgentDefinition = create_model(
    "AgentDefinition",
    __base__=Wire,
    __doc__="An agent as its author writes it. The name is in the path.",
    **{
        **{name: field for name, field in _FIELDS.items() if name != "name"},
        "sub_agents": (tuple[_Entry, ...], Field(default=(), max_length=_MOST_SUB_AGENTS)),
    },
)
_STORED_EXAMPLE: Final = {
    **Agent(
        name=story.AGENT,
        description=DEFINITION_EXAMPLE["description"],
        instructions=DEFINITION_EXAMPLE["instructions"],
        tools=tuple(DEFINITION_EXAMPLE["tools"]),
        approval_required_tools=tuple(DEFINITION_EXAMPLE["approval_required_tools"]),
        budget=BudgetLimits(**DEFINITION_EXAMPLE["budget"]),
    ).model_dump(mode="json"),
    "version": 1,
    "digest": story.DIGEST,
    "created_at": story.DAY_BEFORE,
    "retired": False,
}


class _Stored(View):
    model_config = told_by(_STORED_EXAMPLE)


AgentView = create_model(
    "AgentView",
    __base__=_Stored,
    __doc__="A definition as it was stored.",
    **{**_FIELDS, "sub_agents": (tuple[SubAgentView, ...], ...)},
    version=(int, Field(ge=1)),
    digest=(str, Field(description="SHA-256 of the definition; equal definitions are one version")),
    created_at=(Instant, ...),
    retired=(bool, Field(description="Takes no new runs; PUT of its definition revives it")),
)


class AgentPage(View):
    items: list[AgentView]
    next_cursor: str | None


class ToolView(View):
    model_config = told_by(
        {
            "name": story.TOOL,
            "description": "Books a place to stay.",
            "parameters": story.TOOL_TAKES,
            "effect": "once",
            "timeout_seconds": 30,
            "parallel_safe": False,
            "needs_approval": True,
        }
    )

    name: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema, draft 2020-12")
    effect: Effect
    timeout_seconds: float | None
    parallel_safe: bool = Field(description="Calls of it may be out together with calls of others that are")
    needs_approval: bool = Field(description="No call of it goes out before a person allowed it")


class ToolPage(View):
    items: list[ToolView]
    next_cursor: None = None


class ModelPrice(View):
    """What a million tokens cost, in the deployment's currency."""

    input: Money
    output: Money
    cached: Money | None = Field(description="Of input that was evaluated before; null: as any other input")


class ModelView(View):
    model_config = told_by(
        {
            "name": story.MODEL,
            "is_default": True,
            "context_tokens": 8_192,
            "supports_tools": True,
            "enforces_schema": True,
            "supports_deterministic": True,
            "deterministic_tokens": 2_048,
            "notes": [],
            "price": {"input": "0.5", "output": "1.5", "cached": "0.05"},
        }
    )

    name: str = Field(description="`provider:model`")
    is_default: bool
    context_tokens: int | None = Field(description="null where this process has not loaded the model")
    supports_tools: bool | None = Field(description="null where this process has not loaded the model")
    enforces_schema: bool
    supports_deterministic: bool = Field(description="Takes calls of agents and runs that are `deterministic`")
    deterministic_tokens: int | None = Field(description="The window of those calls; null: the same")
    notes: list[str]
    price: ModelPrice | None = Field(description="null: the cost of its runs is not known")


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
        effect=tool.recovers_as,
        timeout_seconds=tool.timeout_seconds,
        parallel_safe=tool.parallel_safe,
        needs_approval=tool.needs_approval,
    )


def view_model(model: ModelInfo, *, default: str | None, price: Price | None) -> ModelView:
    return ModelView(
        name=model.name,
        is_default=model.name == default,
        context_tokens=model.context_tokens,
        supports_tools=model.supports_tools,
        enforces_schema=model.enforces_schema,
        supports_deterministic=model.supports_deterministic,
        deterministic_tokens=model.deterministic_tokens,
        notes=list(model.notes),
        price=None if price is None else _view_price(price),
    )


def _view_price(price: Price) -> ModelPrice:
    return ModelPrice(input=write_amount(price.input), output=write_amount(price.output), cached=money(price.cached))
