"""An agent: instructions, the tools it may call, and the policy that its author gives it."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, ForwardRef, Self, Union, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from app.agents.schemas import compiled_output_schema
from app.agents.tools import TOOL_NAME_PATTERN
from app.errors import ConfigurationError
from app.policy import (
    ApprovalDenial,
    BudgetLimits,
    ConcurrencyConfig,
    DeadlineConfig,
    HistoryPolicy,
    Indeterminate,
    LoopConfig,
    RepairConfig,
    RetryConfig,
)

AGENT_NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"
AGENT_REFERENCE_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}(@[1-9][0-9]{0,8})?$"

# The loop's own tool: how one agent hands the run to another.
TRANSFER_TOOL: Final = "transfer_to_agent"
# Who wrote a message that no agent did (as in Google's ADK).
USER_AUTHOR: Final = "user"

# What each callback is given, by keyword: the names of ADK's Python SDK ("Types of callbacks").
CALLBACK_PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "before_agent_callback": ("callback_context",),
    "after_agent_callback": ("callback_context",),
    "before_model_callback": ("callback_context", "llm_request"),
    "after_model_callback": ("callback_context", "llm_response"),
    "before_tool_callback": ("tool", "args", "tool_context"),
    "after_tool_callback": ("tool", "args", "tool_context", "tool_response"),
}
CALLBACK_FIELDS: Final = tuple(CALLBACK_PARAMETERS)


def find_callback_problem(field: str, function: object) -> str | None:
    """Why something can't be a callback of that field; None where it can, as far as it can be seen before it is
    asked."""
    if not callable(function):
        return f"a callback is a function, or a list of them, not {function!r}"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Written in C, say: nobody can tell.
        return None
    try:
        signature.bind(**dict.fromkeys(CALLBACK_PARAMETERS[field]))
    except TypeError as error:
        return f"{field} is given {', '.join(CALLBACK_PARAMETERS[field])} by keyword: {error}"
    return None


Name = Annotated[str, StringConstraints(pattern=TOOL_NAME_PATTERN)]
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}:[^\s\x00]{1,256}$")]


class ToolFailurePolicy(StrEnum):
    """Whether a tool that failed is shown to the model, or ends the run."""

    SURFACE_TO_MODEL = "surface_to_model"
    FAIL_RUN = "fail_run"


class ToolChoice(StrEnum):
    """What a request tells the model about calling tools. A tool's name forces that tool for the first call."""

    AUTO = "auto"
    NONE = "none"


def named_once(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names. Raises ValueError where one of them comes twice."""
    if names is not None and len(set(names)) != len(names):
        raise ValueError("names something twice")
    return names


class SubAgentMode(StrEnum):
    """TRANSFER: the run can go on under it. TOOL: it is called, and works in a run of its own."""

    TRANSFER = "transfer"
    TOOL = "tool"


class SubAgent(BaseModel):
    """An agent below another one. ``agent`` is the agent itself, or over HTTP its name, with or without a version.

    ``tools`` is what the caller's author grants it, of its own tools. Without it an agent that was written in place
    keeps its tools; one that is only named, and can be changed by others, gets those that its caller may call too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: Union["Agent", Annotated[str, StringConstraints(pattern=AGENT_REFERENCE_PATTERN)]]
    mode: SubAgentMode = SubAgentMode.TRANSFER
    tools: tuple[Name, ...] | None = Field(default=None, max_length=256)

    @field_validator("tools")
    @classmethod
    def _tools_are_named_once(cls, tools: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return named_once(tools)

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.agent.partition("@")[0] if isinstance(self.agent, str) else self.agent.name


class Agent(BaseModel):
    """An agent's definition, the same in the library and over HTTP.

    ``tools`` is an allowlist: a call outside it ends the run. ``idempotent_tools`` is the author's word that a call may
    be repeated; it must be on the allowlist. ``model`` is ``provider:model``; without it the deployment's default is
    used; ``task_class`` leaves the choice to a router. ``deterministic``: its model calls, and those of the agents
    below it, give the same answer to the same prompt, whatever runs beside them; a model that can't promise that is
    refused before anything starts (``deterministic_unavailable``). ``budget``, ``max_llm_calls`` and
    ``max_iterations`` narrow what deployment and tenant allow, and never widen it; ``deadlines`` and ``retry`` replace
    the runner's.

    ``output_schema`` (JSON Schema) is the form of the answer; ``output_type`` says the same by a type that pydantic can
    validate, and only in Python: it is never stored. ``repair`` allows the model to be told what was wrong.
    ``approval_required_tools`` go out only after a person allowed the call; ``approval_ttl_seconds`` is how long the
    question stands.

    ``sub_agents`` may take the run over, or be called as tools (``SubAgent``). The six callbacks are functions, one or
    a list each, and only in Python; ``callbacks`` names sets of them that the operator registered, which are asked
    first (docs/runtime.md says when, and what their values do).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=AGENT_NAME_PATTERN)
    instructions: str = Field(min_length=1, max_length=500_000)
    description: str = Field(default="", max_length=10_000)
    model: ModelName | None = None
    task_class: Name | None = None
    tools: tuple[Name, ...] = Field(default=(), max_length=256)
    idempotent_tools: tuple[Name, ...] = Field(default=(), max_length=256)
    approval_required_tools: tuple[Name, ...] = Field(default=(), max_length=256)
    tool_choice: str = Field(default=ToolChoice.AUTO.value, pattern=TOOL_NAME_PATTERN)
    deterministic: bool = False
    output_schema: dict[str, Any] | None = None
    output_type: Any = Field(default=None, exclude=True)
    budget: BudgetLimits = Field(default_factory=BudgetLimits)
    max_llm_calls: int = Field(default=500, le=500)
    max_iterations: int = Field(default=8, ge=1, le=10_000)
    max_tool_result_chars: int = Field(default=8_000, ge=1, le=10_000_000)
    deadlines: DeadlineConfig | None = None
    retry: RetryConfig | None = None
    loop: LoopConfig = Field(default_factory=LoopConfig)
    repair: RepairConfig | None = None
    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)
    history: HistoryPolicy = HistoryPolicy.FIT
    on_tool_error: ToolFailurePolicy = ToolFailurePolicy.SURFACE_TO_MODEL
    on_indeterminate: Indeterminate = Indeterminate.FAIL
    approval_denial: ApprovalDenial = ApprovalDenial.REFUSE_CALL
    approval_ttl_seconds: float | None = Field(default=None, gt=0, le=10**9, allow_inf_nan=False)
    guardrails: tuple[Name, ...] = Field(default=(), max_length=64)
    hooks: tuple[Name, ...] = Field(default=(), max_length=64)
    callbacks: tuple[Name, ...] = Field(default=(), max_length=64)
    before_agent_callback: Any = Field(default=(), exclude=True)
    after_agent_callback: Any = Field(default=(), exclude=True)
    before_model_callback: Any = Field(default=(), exclude=True)
    after_model_callback: Any = Field(default=(), exclude=True)
    before_tool_callback: Any = Field(default=(), exclude=True)
    after_tool_callback: Any = Field(default=(), exclude=True)
    sub_agents: tuple[Union[SubAgent, "Agent", str], ...] = Field(default=(), max_length=64)
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False
    metadata: dict[str, str] = Field(default_factory=dict, max_length=64)

    @property
    def below(self) -> tuple[SubAgent, ...]:
        """``sub_agents`` as entries, which is what they are once an agent was made."""
        return cast("tuple[SubAgent, ...]", self.sub_agents)

    @field_validator("sub_agents", mode="before")
    @classmethod
    def _sub_agents_are_entries(cls, given: Any) -> Any:
        if not isinstance(given, list | tuple):
            return given
        return tuple(
            SubAgent.model_validate({"agent": entry} if isinstance(entry, str | Agent) else entry) for entry in given
        )

    @field_validator(*CALLBACK_FIELDS, mode="before")
    @classmethod
    def _callbacks_are_functions(cls, given: Any, info: ValidationInfo) -> Any:
        """A tuple of functions, whatever was given."""
        functions = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
        for function in functions:
            if (problem := find_callback_problem(info.field_name or "", function)) is not None:
                raise ValueError(problem)
        return functions

    @model_validator(mode="before")
    @classmethod
    def _schema_is_of_the_type(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or fields.get("output_type") is None:
            return fields
        if isinstance(fields["output_type"], str | ForwardRef):
            # pydantic would evaluate it, and it may come from anywhere.
            raise ValueError("output_type is a type, not the text of one")
        if fields.get("output_schema") is not None:
            raise ValueError("output_type and output_schema both say what form the answer has")
        try:
            schema = TypeAdapter(fields["output_type"]).json_schema()
        except PydanticUserError as error:
            raise ValueError(f"output_type is no type that can be validated: {error.message}") from None
        return {**fields, "output_schema": schema}

    @model_validator(mode="after")
    def _schema_is_sound(self) -> Self:
        if self.output_schema is not None and self.output_type is None:
            try:
                compiled_output_schema(self.output_schema)
            except ConfigurationError as error:
                raise ValueError(str(error)) from None
        if self.task_class is not None and self.model is not None:
            raise ValueError("model and task_class both say which model it is")
        return self

    @model_validator(mode="after")
    def _declarations_agree(self) -> Self:
        if not self.instructions.strip():
            raise ValueError("instructions must say something")
        if self.name == USER_AUTHOR:
            raise ValueError(f"{USER_AUTHOR!r} is who wrote what no agent did, and can't be an agent's name")
        if TRANSFER_TOOL in self.tools:
            raise ValueError(f"{TRANSFER_TOOL} is the loop's own tool: sub_agents bring it along")
        for field in ("tools", "idempotent_tools", "approval_required_tools", "guardrails", "hooks", "callbacks"):
            names = getattr(self, field)
            if len(set(names)) != len(names):
                raise ValueError(f"{field} names something twice")
        for field in ("idempotent_tools", "approval_required_tools"):
            if stray := set(getattr(self, field)) - set(self.tools):
                raise ValueError(f"{field} names tools that are not in tools: {', '.join(sorted(stray))}")
        if self.tool_choice not in {choice.value for choice in ToolChoice} and self.tool_choice not in self.tools:
            raise ValueError(f"tool_choice {self.tool_choice!r} is neither auto, none, nor one of tools")
        return self

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of the definition; equal definitions are one version. 64 hex digits."""
        # Without defaults: a field that a later release brings must not make every stored definition another one.
        canonical: Any = self.model_dump(mode="json", exclude_defaults=True)
        text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


class AgentVersion(BaseModel):
    """A definition as it was stored: immutable, numbered from 1 for each name of a tenant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: Agent
    version: int = Field(ge=1)
    digest: str
    created_at: float
    retired: bool = False
