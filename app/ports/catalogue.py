"""What this deployment has by name: the names that an agent's definition may use."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from app.policy import Price
from app.ports.model import ModelInfo
from app.ports.tools import Tool


class Catalogue(Protocol):
    """Asked anew for each request, so a model that is loaded later is seen at once. Never blocks."""

    def tools(self) -> Sequence[Tool]:
        """Every tool, sorted by name."""
        ...

    def check_arguments(self, tool: str, arguments: dict[str, Any]) -> Sequence[str]:
        """What is wrong with arguments by the tool's schema, a line each: a pointer, a colon, and what is wanted there.
        Empty where they fit. Unlike the rest it takes time, where the arguments are large."""
        ...

    def hook_names(self) -> Collection[str]: ...

    def guardrail_names(self) -> Collection[str]: ...

    def callback_names(self) -> Collection[str]:
        """The sets of callbacks that agents may name."""
        ...

    def models(self) -> Sequence[ModelInfo]:
        """Every model, sorted by name; here ``name`` is the whole ``provider:model``."""
        ...

    def default_model(self) -> str | None:
        """``provider:model`` for agents that name none; None where the deployment has no default."""
        ...

    def price(self, model: str) -> Price | None:
        """What the model of that full name costs; None where nobody said."""
        ...

    def route(self, task_class: str) -> Sequence[str]:
        """The full names of the models for a class of work, the first choice first; none where it is not known."""
        ...
