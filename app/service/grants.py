"""What a tenant was granted of what the deployment has, and its other rules as they bear on a new run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from app.policy import Price
from app.ports.catalogue import Catalogue
from app.ports.model import ModelInfo
from app.ports.tenancy import TenantRules
from app.ports.tools import Tool


@dataclass(frozen=True, kw_only=True, slots=True)
class GrantedCatalogue:
    """The deployment's catalogue as one tenant sees it. Satisfies ``Catalogue``: what was not granted is not there.

    A route is there where all its models were granted: which of them a run gets is known only when it starts.
    """

    whole: Catalogue
    rules: TenantRules

    def grants_tool(self, name: str) -> bool:
        """Whether the tenant may use a tool of that name, if this deployment has it."""
        return self.rules.tools is None or name in self.rules.tools

    def _grants_model(self, name: str) -> bool:
        return self.rules.models is None or name in self.rules.models

    def tools(self) -> Sequence[Tool]:
        return [tool for tool in self.whole.tools() if self.grants_tool(tool.name)]

    def check_arguments(self, tool: str, arguments: dict[str, Any]) -> Sequence[str]:
        if not self.grants_tool(tool):
            return [f"there is no tool {tool!r}"]
        return self.whole.check_arguments(tool, arguments)

    def hook_names(self) -> Collection[str]:
        return self.whole.hook_names()

    def guardrail_names(self) -> Collection[str]:
        return self.whole.guardrail_names()

    def callback_names(self) -> Collection[str]:
        return self.whole.callback_names()

    def models(self) -> Sequence[ModelInfo]:
        return [model for model in self.whole.models() if self._grants_model(model.name)]

    def default_model(self) -> str | None:
        """None also where the deployment's default was not granted."""
        name = self.whole.default_model()
        return name if name is not None and self._grants_model(name) else None

    def price(self, model: str) -> Price | None:
        return self.whole.price(model) if self._grants_model(model) else None

    def route(self, task_class: str) -> Sequence[str]:
        models = self.whole.route(task_class)
        return models if all(map(self._grants_model, models)) else ()
