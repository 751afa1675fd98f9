"""An agent: instructions, the tools it may call, and the policy that its author gives it."""

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from app.agents.tools import TOOL_NAME_PATTERN
from app.policy import BudgetLimits, DeadlineConfig, Indeterminate, LoopConfig, RetryConfig

AGENT_NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"

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


class Agent(BaseModel):
    """An agent's definition, the same in the library and over HTTP.

    ``tools`` is an allowlist: a call outside it ends the run. ``idempotent_tools`` is the author's word that a call
    may be repeated; it must be on the allowlist. ``model`` is ``provider:model``; without it the deployment's default
    is used. ``budget``, ``max_llm_calls`` and ``max_iterations`` narrow what deployment and tenant allow, and never
    widen it; ``deadlines`` and ``retry`` replace the runner's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=AGENT_NAME_PATTERN)
    instructions: str = Field(min_length=1, max_length=500_000)
    description: str = Field(default="", max_length=10_000)
    model: ModelName | None = None
    tools: tuple[Name, ...] = Field(default=(), max_length=256)
    idempotent_tools: tuple[Name, ...] = Field(default=(), max_length=256)
    tool_choice: str = Field(default=ToolChoice.AUTO.value, pattern=TOOL_NAME_PATTERN)
    budget: BudgetLimits = Field(default_factory=BudgetLimits)
    max_llm_calls: int = Field(default=500, ge=1, le=500)
    max_iterations: int = Field(default=8, ge=1, le=10_000)
    max_tool_result_chars: int = Field(default=8_000, ge=1, le=10_000_000)
    deadlines: DeadlineConfig | None = None
    retry: RetryConfig | None = None
    loop: LoopConfig = Field(default_factory=LoopConfig)
    on_tool_error: ToolFailurePolicy = ToolFailurePolicy.SURFACE_TO_MODEL
    on_indeterminate: Indeterminate = Indeterminate.FAIL
    guardrails: tuple[Name, ...] = Field(default=(), max_length=64)
    hooks: tuple[Name, ...] = Field(default=(), max_length=64)
    metadata: dict[str, str] = Field(default_factory=dict, max_length=64)

    @model_validator(mode="after")
    def _declarations_agree(self) -> Self:
        if not self.instructions.strip():
            raise ValueError("instructions must say something")
        for field in ("tools", "idempotent_tools", "guardrails", "hooks"):
            names = getattr(self, field)
            if len(set(names)) != len(names):
                raise ValueError(f"{field} names something twice")
        if stray := set(self.idempotent_tools) - set(self.tools):
            raise ValueError(f"idempotent_tools names tools that are not in tools: {', '.join(sorted(stray))}")
        if self.tool_choice not in {choice.value for choice in ToolChoice} and self.tool_choice not in self.tools:
            raise ValueError(f"tool_choice {self.tool_choice!r} is neither auto, none, nor one of tools")
        return self

    def digest(self) -> str:
        """SHA-256 over the canonical JSON of the definition; equal definitions are one version. 64 hex digits."""
        canonical: Any = self.model_dump(mode="json")
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
