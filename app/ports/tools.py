"""What a tool is to the loop."""

import math
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.agents import ToolDeclaration
from app.conversation import Content
from app.errors import ConfigurationError
from app.ids import CallId, RunId, SessionId, TenantId
from app.policy import Deadline, Effect
from app.ports.artifacts import ArtifactDesk, NoArtifacts
from app.ports.cancellation import CancellationToken
from app.ports.context import RunContext
from app.ports.sessions import Artifact


@dataclass(kw_only=True, slots=True)
class ToolActions:
    """What a tool asks of the runtime around it (``EventActions`` in ADK).

    ``transfer_to_agent`` hands the run to an agent of the team once the turn's calls are through. ``escalate`` hands it
    back to the agent above. ``skip_summarization``: the result is the answer, and no model is asked about it.
    """

    transfer_to_agent: str | None = None
    escalate: bool = False
    skip_summarization: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """What a tool may know of the call. ``idempotency_key`` is the same for every dispatch of one call, also after a
    crash: hand it to whatever the tool writes to. ``dispatch`` counts from 1.

    ``state`` is shared by the run's tools and callbacks: what a tool sets there is stored with its result (JSON only),
    and later calls see it. ``actions`` is read when the call has ended well. ``run`` is to be handed on as ``parent``
    to a run that the tool starts. ADK's names (``agent_name``, ``function_call_id``, …) work too."""

    tenant_id: TenantId
    run_id: RunId
    call_id: CallId
    agent: str
    user: str | None
    idempotency_key: str
    dispatch: int
    cancellation: CancellationToken
    deadline: Deadline | None
    state: MutableMapping[str, Any]
    run: RunContext
    artifacts: ArtifactDesk = field(default_factory=NoArtifacts)
    session_id: SessionId | None = None
    user_content: Content = field(default_factory=Content)
    actions: ToolActions = field(default_factory=ToolActions)

    @property
    def invocation_id(self) -> RunId:
        """The run's id, as ADK calls it."""
        return self.run_id

    @property
    def agent_name(self) -> str:
        """The agent that asked for the call."""
        return self.agent

    @property
    def user_id(self) -> str | None:
        """For whom the run is; a claim of whoever submitted it."""
        return self.user

    @property
    def function_call_id(self) -> CallId:
        """The call's id, minted by the loop."""
        return self.call_id

    async def save_artifact(self, name: str, data: bytes | str, content_type: str | None = None) -> int:
        """Stores a version of an artifact of the session and returns its number. See ``ArtifactDesk.save``."""
        return await self.artifacts.save(name, data, content_type)

    async def load_artifact(self, name: str, version: int | None = None) -> Artifact | None:
        """That version, or the newest one; None where there is none."""
        return await self.artifacts.load(name, version)

    async def list_artifacts(self) -> Sequence[str]:
        """Every artifact's name, sorted."""
        return await self.artifacts.names()


ToolFunction = Callable[[dict[str, Any], ToolContext], Awaitable[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool as the operator granted it. ``effect`` decides what follows a crash; without one it is taken for ``once``,
    and an agent's ``idempotent_tools`` may say otherwise.

    ``call`` takes arguments that have passed the schema. It returns the text that the model reads, and raises for a
    failure. ``timeout_seconds``: after it the loop stops waiting (None: the run's own deadline only).
    ``parallel_safe``: calls of it may be out together with calls of others that are. ``needs_approval``: no call of it
    goes out before a person allowed it, whatever an agent says. ``showable`` names the arguments whose values may be
    shown to whoever is asked. Raises ConfigurationError for a timeout that is none.
    """

    declaration: ToolDeclaration
    call: ToolFunction
    effect: Effect | None = None
    timeout_seconds: float | None = None
    parallel_safe: bool = False
    needs_approval: bool = False
    showable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seconds = self.timeout_seconds
        if seconds is not None and not 0 < seconds < math.inf:
            raise ConfigurationError(f"tool {self.name!r}: a timeout of {seconds} seconds is no time to wait for")

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def recovers_as(self) -> Effect:
        """The effect that the loop goes by: the safe one where nothing was declared."""
        return Effect.ONCE if self.effect is None else self.effect


class Tools(Protocol):
    """The tools that this process has, by name."""

    def find(self, name: str) -> Tool | None: ...

    def all(self) -> Sequence[Tool]:
        """Every tool, sorted by name."""
        ...

    def check_arguments(self, name: str, arguments: dict[str, Any]) -> Sequence[str]:
        """What is wrong with arguments by the tool's schema, a line each; empty where they fit."""
        ...
