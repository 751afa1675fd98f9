"""The tools, the model and the policy of a process in a crashing world. Each use of them is an operation of it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from app.ports.hooks import HookDecision, HookPoint, HookSubject
from app.ports.model import ModelRequest, ModelResponse, TextDelta
from app.ports.tools import Tool, ToolFunction
from app.providers import ScriptedProvider
from tests.execution.crash_setting import Scene, Setting, problems_of
from tests.execution.fakes import make_tool

Point = Callable[[], Awaitable[object]]


class CrashTools:
    """The three tools."""

    def __init__(self, setting: Setting, functions: Mapping[str, ToolFunction]) -> None:
        safe = setting.scene.parallel_safe
        self._tools = {
            name: make_tool(name, functions[name], effect=effect, parallel_safe=name in safe)
            for name, effect in setting.declared.items()
        }

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def all(self) -> Sequence[Tool]:
        return tuple(self._tools[name] for name in sorted(self._tools))

    def check_arguments(self, name: str, arguments: dict[str, Any]) -> Sequence[str]:
        return problems_of(arguments)


class CrashModel(ScriptedProvider):
    """Plays the scene's scripts. ``requests`` hears what it is asked."""

    def __init__(self, scene: Scene, point: Point, requests: list[ModelRequest]) -> None:
        super().__init__(scene.scripts)
        self._point = point
        self._heard = requests

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        await self._point()
        self._heard.append(request)
        async with aclosing(super().stream(request)) as items:
            async for item in items:
                await self._point()
                yield item


class CrashPolicy:
    """Is asked everywhere, rewrites what a tool is called with, and wants somebody to be asked about some."""

    name = "policy"
    points = frozenset(HookPoint)

    def __init__(self, scene: Scene, point: Point) -> None:
        self._scene = scene
        self._point = point

    async def decide(self, subject: HookSubject) -> HookDecision:
        await self._point()
        if subject.point is not HookPoint.BEFORE_TOOL_DISPATCH:
            return HookDecision.proceed()
        if subject.tool == "pay":
            return HookDecision.rewrite('{"amount": 1}')
        if subject.tool in self._scene.gated_by_hook:
            return HookDecision.require_approval("it is watched")
        return HookDecision.proceed()
