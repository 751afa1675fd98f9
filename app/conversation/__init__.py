"""Messages between a person, a model and its tools, and the pairing of calls with their results."""

from app.conversation.content import Content, FunctionCall, FunctionResponse, Part, content_of
from app.conversation.messages import (
    Message,
    Role,
    StopReason,
    ToolCall,
    Usage,
    UsageSource,
)
from app.conversation.pairing import NOT_MADE, OUTCOME_UNKNOWN, settle_dangling_calls
from app.conversation.text import clean_json, replace_surrogates

__all__ = [
    "NOT_MADE",
    "OUTCOME_UNKNOWN",
    "Content",
    "FunctionCall",
    "FunctionResponse",
    "Message",
    "Part",
    "Role",
    "StopReason",
    "ToolCall",
    "Usage",
    "UsageSource",
    "clean_json",
    "content_of",
    "replace_surrogates",
    "settle_dangling_calls",
]
