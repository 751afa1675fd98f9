"""What a tool is to the loop."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.agents import ToolDeclaration
from app.ids import CallId, RunId, TenantId
from app.policy import Deadline, Effect
from app.ports.cancellation import CancellationToken


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """What a tool may know of the call. ``idempotency_key`` is the same for every dispatch of one call, also after a
    crash: hand it to whatever the tool writes to. ``dispatch`` counts from 1."""

    tenant_id: TenantId
    run_id: RunId
    call_id: CallId
    agent: str
    user: str | None
    idempotency_key: str
    dispatch: int
    cancellation: CancellationToken
    deadline: Deadline | None


ToolFunction = Callable[[dict[str, Any], ToolContext], Awaitable[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool as the operator granted it. ``effect`` decides what follows a crash; ``once`` is the safe default.

    ``call`` takes arguments that have passed the schema. It returns the text that the model reads, and raises for a
    failure. ``timeout_seconds``: after it the loop stops waiting (None: the run's own deadline only).
    """

    declaration: ToolDeclaration
    call: ToolFunction
    effect: Effect = Effect.ONCE
    timeout_seconds: float | None = None

    @property
    def name(self) -> str:
        return self.declaration.name


class Tools(Protocol):
    """The tools that this process has, by name."""

    def find(self, name: str) -> Tool | None: ...

    def all(self) -> Sequence[Tool]:
        """Every tool, sorted by name."""
        ...

    def check_arguments(self, name: str, arguments: dict[str, Any]) -> Sequence[str]:
        """What is wrong with arguments by the tool's schema, a line each; empty where they fit."""
        ...
