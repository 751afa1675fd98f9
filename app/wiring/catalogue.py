"""What this process has by name, for those who check an agent's definition."""

from collections.abc import Collection, Sequence

from app.hooks import HookRegistry
from app.ports.model import ModelInfo
from app.ports.tools import Tool
from app.providers.router import ModelRouter
from app.tools import ToolRegistry


class LiveCatalogue:
    """Satisfies ``Catalogue``."""

    def __init__(self, tools: ToolRegistry, hooks: HookRegistry, router: ModelRouter) -> None:
        self._tools = tools
        self._hooks = hooks
        self._router = router

    def tools(self) -> Sequence[Tool]:
        return self._tools.all()

    def hook_names(self) -> Collection[str]:
        return self._hooks.hook_names()

    def guardrail_names(self) -> Collection[str]:
        return self._hooks.guardrail_names()

    def models(self) -> Sequence[ModelInfo]:
        return sorted(self._router.models(), key=lambda info: info.name)

    def default_model(self) -> str | None:
        return self._router.default_model
