"""What an agent is, which agents work together, and how a tool is declared to a model."""

from app.agents.definition import (
    CALLBACK_FIELDS,
    TRANSFER_TOOL,
    USER_AUTHOR,
    Agent,
    AgentVersion,
    SubAgent,
    SubAgentMode,
    ToolChoice,
    ToolFailurePolicy,
)
from app.agents.team import Member, draw_team, inline_team
from app.agents.tools import ToolDeclaration

__all__ = [
    "CALLBACK_FIELDS",
    "TRANSFER_TOOL",
    "USER_AUTHOR",
    "Agent",
    "AgentVersion",
    "Member",
    "SubAgent",
    "SubAgentMode",
    "ToolChoice",
    "ToolDeclaration",
    "ToolFailurePolicy",
    "draw_team",
    "inline_team",
]
