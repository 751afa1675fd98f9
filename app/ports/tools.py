"""What a tool is to the loop."""

import math
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.agents import ToolDeclaration
from app.errors import ConfigurationError
from app.ids import CallId, RunId, TenantId
from app.policy import Deadline, Effect
from app.ports.cancellation import CancellationToken
from app.ports.context import RunContext


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """What a tool may know of the call. ``idempotency_key`` is the same for every dispatch of one call, also after a
    crash: hand it to whatever the tool writes to. ``dispatch`` counts from 1.

    ``state`` is shared by the run's tools: what a tool sets there is stored with its result (JSON only), and later
    calls see it. ``run`` is to be handed on as ``parent`` to a run that the tool starts."""

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


ToolFunction = Callable[[dict[str, Any], ToolContext], Awaitable[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool as the operator granted it. ``effect`` decides what follows a crash; without one it is taken for ``once``,
    and an agent's ``idempotent_tools`` may say otherwise.

    ``call`` takes arguments that have passed the schema. It returns the text that the model reads, and raises for a
    failure. ``timeout_seconds``: after it the loop stops waiting (None: the run's own deadline only).
    ``parallel_safe``: calls of it may be out together with calls of others that are. ``needs_approval``: no call of it
    goes out before a person allowed it, whatever an agent says. Raises ConfigurationError for a timeout that is none.
    """

    declaration: ToolDeclaration
    call: ToolFunction
    effect: Effect | None = None
    timeout_seconds: float | None = None
    parallel_safe: bool = False
    needs_approval: bool = False

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
