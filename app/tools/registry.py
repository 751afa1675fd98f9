"""Tools by name, each checked when it is registered, so that no run finds a broken one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from jsonschema import Draft202012Validator

from app.agents import ToolDeclaration
from app.errors import ConfigurationError
from app.execution.threads import ToolThreads
from app.ports.tools import Tool, ToolContext
from app.tools.functions import FunctionTool
from app.tools.results import encode_result
from app.tools.schema import compile_schema, find_problems

# The loop's own tool, and the words of ``tool_choice``, which would be ambiguous.
RESERVED_NAMES: Final = frozenset({"transfer_to_agent", "auto", "none"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    tool: Tool
    validator: Draft202012Validator
    function: FunctionTool | None


class ToolRegistry:
    """Satisfies ``ports.tools.Tools``. What ``find`` returns answers with text, whatever its author returned.

    ``threads`` is the pool in which its synchronous functions run; two registries may share one.
    """

    def __init__(self, threads: ToolThreads | None = None) -> None:
        self._threads = ToolThreads() if threads is None else threads
        self._entries: dict[str, _Entry] = {}

    def register(self, tool: Tool | FunctionTool) -> Tool:
        """Adds a tool and returns it as the loop will call it.

        Raises ConfigurationError for a name that is taken or reserved, or a schema that ``compile_schema`` refuses.
        """
        declaration: object = getattr(tool, "declaration", None)
        if not isinstance(declaration, ToolDeclaration):
            raise ConfigurationError(f"{tool!r} is no tool; app.tools.tool makes one of a function")
        name = declaration.name
        if name in RESERVED_NAMES:
            raise ConfigurationError(f"tool {name!r}: this name is reserved")
        if name in self._entries:
            raise ConfigurationError(f"tool {name!r} is registered already")
        validator = compile_schema(declaration.parameters, name=name)
        if isinstance(tool, FunctionTool):
            entry = _Entry(tool=tool.bind(self._threads), validator=validator, function=tool)
        else:
            entry = _Entry(tool=_with_text_results(tool), validator=validator, function=None)
        self._entries[name] = entry
        return entry.tool

    def find(self, name: str) -> Tool | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.tool

    def all(self) -> Sequence[Tool]:
        return tuple(self._entries[name].tool for name in sorted(self._entries))

    def check_arguments(self, name: str, arguments: Mapping[str, Any]) -> Sequence[str]:
        entry = self._entries.get(name)
        if entry is None:
            return (f"there is no tool {name!r}",)
        problems = find_problems(entry.validator, arguments)
        if problems or entry.function is None:
            return problems
        return entry.function.find_problems(arguments)

    @property
    def busy_threads(self) -> int:
        """How many threads run a synchronous tool now, those that nobody waits for any more included."""
        return self._threads.busy


def _with_text_results(tool: Tool) -> Tool:
    inner = tool.call

    async def call(arguments: dict[str, Any], context: ToolContext) -> str:
        return encode_result(await inner(arguments, context))

    return replace(tool, call=call)
