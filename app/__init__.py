"""runwright: runs AI agents over a local model; every run ends in exactly one recorded state.

These are the names for those who use it as a library. The service is ``runwright serve``.
"""

from app.agents import Agent, ToolDeclaration, ToolFailurePolicy
from app.conversation import Message, Role, ToolCall, Usage
from app.errors import AdkError, ConfigurationError, LoopLimitError, ProviderError, ToolExecutionError
from app.events import RunEvent, RunState
from app.execution.runner import AgentRunner, Run
from app.hooks import HookRegistry, InjectionGuard
from app.policy import BudgetLimits, Deadline, DeadlineConfig, Effect, Indeterminate, LoopConfig, RetryConfig
from app.ports.cancellation import CancellationToken
from app.ports.hooks import GuardrailDecision, HookDecision, HookPoint, HookSubject
from app.ports.model import ModelInfo, ModelRequest, ModelResponse, TextDelta
from app.ports.tools import Tool, ToolContext
from app.prompt import PROMPT_LAYERS, PromptLayer, approximate_tokens, assemble_prompt, wrap_untrusted
from app.tools import ToolRegistry, tool

__all__ = [
    "PROMPT_LAYERS",
    "AdkError",
    "Agent",
    "AgentRunner",
    "BudgetLimits",
    "CancellationToken",
    "ConfigurationError",
    "Deadline",
    "DeadlineConfig",
    "Effect",
    "GuardrailDecision",
    "HookDecision",
    "HookPoint",
    "HookRegistry",
    "HookSubject",
    "Indeterminate",
    "InjectionGuard",
    "LoopConfig",
    "LoopLimitError",
    "Message",
    "ModelInfo",
    "ModelRequest",
    "ModelResponse",
    "PromptLayer",
    "ProviderError",
    "RetryConfig",
    "Role",
    "Run",
    "RunEvent",
    "RunState",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDeclaration",
    "ToolExecutionError",
    "ToolFailurePolicy",
    "ToolRegistry",
    "Usage",
    "approximate_tokens",
    "assemble_prompt",
    "tool",
    "wrap_untrusted",
]
