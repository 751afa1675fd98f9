"""What this deployment has by name: the names that an agent's definition may use."""

from collections.abc import Collection, Sequence
from typing import Protocol

from app.ports.model import ModelInfo
from app.ports.tools import Tool


class Catalogue(Protocol):
    """Asked anew for each request, so a model that is loaded later is seen at once. Never blocks."""

    def tools(self) -> Sequence[Tool]:
        """Every tool, sorted by name."""
        ...

    def hook_names(self) -> Collection[str]: ...

    def guardrail_names(self) -> Collection[str]: ...

    def models(self) -> Sequence[ModelInfo]:
        """Every model, sorted by name; here ``name`` is the whole ``provider:model``."""
        ...

    def default_model(self) -> str | None:
        """``provider:model`` for agents that name none; None where the deployment has no default."""
        ...
