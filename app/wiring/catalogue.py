"""What this process has by name, for those who check an agent's definition."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.hooks import HookRegistry
from app.policy import Price
from app.ports.model import ModelInfo
from app.ports.tools import Tool
from app.providers import ModelRouter, TaskRouter
from app.tools import ToolRegistry


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveCatalogue:
    """Satisfies ``Catalogue``."""

    registered_tools: ToolRegistry
    registered_hooks: HookRegistry
    router: ModelRouter
    routes: TaskRouter
    prices: Mapping[str, Price]

    def tools(self) -> Sequence[Tool]:
        return self.registered_tools.all()

    def check_arguments(self, tool: str, arguments: dict[str, Any]) -> Sequence[str]:
        return self.registered_tools.check_arguments(tool, arguments)

    def hook_names(self) -> Collection[str]:
        return self.registered_hooks.hook_names()

    def guardrail_names(self) -> Collection[str]:
        return self.registered_hooks.guardrail_names()

    def callback_names(self) -> Collection[str]:
        return self.registered_hooks.callback_names()

    def models(self) -> Sequence[ModelInfo]:
        return sorted(self.router.models(), key=lambda info: info.name)

    def default_model(self) -> str | None:
        return self.router.default_model

    def names(self) -> frozenset[str]:
        """All of them, each with its kind: what runs may need (``NewRun.needs``)."""
        return frozenset(
            (
                *(f"model:{model.name}" for model in self.models()),
                *(f"tool:{tool.name}" for tool in self.tools()),
                *(f"hook:{name}" for name in self.hook_names()),
                *(f"guardrail:{name}" for name in self.guardrail_names()),
                *(f"callbacks:{name}" for name in self.callback_names()),
            )
        )

    def price(self, model: str) -> Price | None:
        return self.prices.get(model)

    def route(self, task_class: str) -> Sequence[str]:
        return self.routes.route(task_class) if task_class in self.routes.task_classes() else ()
