"""Callbacks: an author's functions at the borders of an agent, a model call and a tool call.

Called by keyword, with the parameter names of ADK's Python SDK (its reference, "Types of callbacks"). ``None`` goes on;
docs/runtime.md tells what another value does at each point.
"""

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, cast, runtime_checkable

from app.agents.definition import find_callback_problem
from app.conversation import Content
from app.errors import ConfigurationError
from app.ids import RunId
from app.ports.artifacts import ArtifactDesk
from app.ports.sessions import Artifact

# Synchronous or asynchronous; its value is checked when it comes.
Callback = Callable[..., Any]
Given = Callback | Sequence[Callback] | None


class CallbackPoint(StrEnum):
    """Where a callback is asked. The values are what ``callback_override`` carries."""

    BEFORE_AGENT = "before_agent"
    AFTER_AGENT = "after_agent"
    BEFORE_MODEL = "before_model"
    AFTER_MODEL = "after_model"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"

    @property
    def field(self) -> str:
        """The name of the field on ``Agent`` and ``CallbackSet``."""
        return f"{self.value}_callback"


@dataclass(frozen=True, kw_only=True, slots=True)
class CallbackContext:
    """What a callback may know of the invocation. ``user_content`` is what the invocation was started with.

    ``state`` is shared by the run's tools and callbacks: what is set there is stored (JSON only), and what comes later
    sees it.
    """

    invocation_id: RunId
    agent_name: str
    user_id: str | None
    session_id: str | None
    state: MutableMapping[str, Any]
    user_content: Content
    artifacts: ArtifactDesk

    async def save_artifact(self, name: str, data: bytes | str, content_type: str | None = None) -> int:
        """Stores a version of an artifact of the session and returns its number. See ``ArtifactDesk.save``."""
        return await self.artifacts.save(name, data, content_type)

    async def load_artifact(self, name: str, version: int | None = None) -> Artifact | None:
        """That version, or the newest one; None where there is none."""
        return await self.artifacts.load(name, version)

    async def list_artifacts(self) -> Sequence[str]:
        """Every artifact's name, sorted."""
        return await self.artifacts.names()


@dataclass(frozen=True, kw_only=True, slots=True)
class LlmRequest:
    """What is about to be asked. It can't be changed: a rewrite of what the model reads is a hook's
    (``before_model_call``), which policy can hold to account."""

    model: str
    contents: tuple[Content, ...]
    system_instruction: str
    tools: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LlmResponse:
    """What the model said: text and calls. As a callback's value it stands in for that."""

    content: Content | None = None

    @property
    def text(self) -> str:
        """All text parts, one after the other."""
        return "" if self.content is None else self.content.text


@dataclass(frozen=True, kw_only=True, slots=True)
class CallbackSet:
    """Callbacks under one name, as an operator registers them for agents that name them. Raises ConfigurationError for
    what is no function, or takes other parameters."""

    name: str
    before_agent_callback: Given = None
    after_agent_callback: Given = None
    before_model_callback: Given = None
    after_model_callback: Given = None
    before_tool_callback: Given = None
    after_tool_callback: Given = None

    def __post_init__(self) -> None:
        for point in CallbackPoint:
            for function in self.at(point):
                if (problem := find_callback_problem(point.field, function)) is not None:
                    raise ConfigurationError(f"callbacks {self.name!r}: {problem}")

    def at(self, point: CallbackPoint) -> tuple[Callback, ...]:
        """The functions at a point, in their order."""
        given: Given = getattr(self, point.field)
        if given is None:
            return ()
        return tuple(given) if isinstance(given, list | tuple) else (cast("Callback", given),)


@runtime_checkable
class Callbacks(Protocol):
    """The sets of callbacks that this process has, by name."""

    def callbacks(self, name: str) -> CallbackSet | None: ...
