"""What an agent is, and how a tool is declared to a model."""

from app.agents.definition import Agent, AgentVersion, ToolChoice, ToolFailurePolicy
from app.agents.tools import ToolDeclaration

__all__ = ["Agent", "AgentVersion", "ToolChoice", "ToolDeclaration", "ToolFailurePolicy"]
