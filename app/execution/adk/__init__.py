"""Conversations in the library, with the names and the manners of ADK's Python SDK: ``Runner``, ``Event``,
``RunConfig``."""

from app.execution.adk.config import RunConfig
from app.execution.adk.events import EVENT_MAP, Event, EventActions
from app.execution.adk.runner import Runner

__all__ = ["EVENT_MAP", "Event", "EventActions", "RunConfig", "Runner"]
