"""Tools by name: refused early, found, and their arguments checked."""

from collections.abc import Callable
from typing import Any

import pytest

from app.agents import ToolDeclaration
from app.errors import ConfigurationError
from app.policy import Effect
from app.ports.tools import Tool, ToolContext, Tools
from app.tools import RESERVED_NAMES, ToolRegistry, ToolThreads, tool
from tests.tools.support import make_context


async def _echo(arguments: dict[str, Any], context: ToolContext) -> str:
    return f"{arguments['text']} for {context.user}"


def make_tool(name: str = "echo", **parameters: Any) -> Tool:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"], **parameters}
    return Tool(declaration=ToolDeclaration(name=name, parameters=schema), call=_echo, effect=Effect.READ)


def test_a_registered_tool_is_found_with_all_that_was_declared() -> None:
    registry = ToolRegistry()
    registry.register(make_tool())
    tools: Tools = registry
    found = tools.find("echo")
    assert found is not None
    assert (found.name, found.effect, found.timeout_seconds) == ("echo", Effect.READ, None)
    assert tools.find("other") is None


async def test_a_tools_text_loses_what_no_database_could_hold() -> None:
    found = ToolRegistry().register(make_tool())
    assert await found.call({"text": "\ud83d"}, make_context()) == "\ufffd for ada"


@pytest.mark.parametrize("order", [("b", "a", "c"), ("c", "b", "a"), ("a", "b", "c")])
def test_all_tools_come_sorted_whatever_the_order_of_registering(order: tuple[str, ...]) -> None:
    registry = ToolRegistry()
    list(map(registry.register, map(make_tool, order)))
    assert [found.name for found in registry.all()] == ["a", "b", "c"]


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_reserved_name_is_refused(name: str) -> None:
    registry = ToolRegistry()
    with pytest.raises(ConfigurationError, match=f"tool '{name}': this name is reserved"):
        registry.register(make_tool(name))
    assert registry.all() == ()


def test_the_transfer_of_the_loop_and_the_words_of_tool_choice_are_reserved() -> None:
    assert frozenset({"transfer_to_agent", "auto", "none"}) == RESERVED_NAMES


def test_a_bare_function_is_refused_with_the_way_out() -> None:
    function: Any = print
    with pytest.raises(ConfigurationError, match=r"is no tool; app\.tools\.tool makes one"):
        ToolRegistry().register(function)


def test_a_second_tool_of_the_same_name_is_refused_and_the_first_stays() -> None:
    registry = ToolRegistry()
    first = registry.register(make_tool())

    @tool(name="echo")
    def other() -> None: ...

    with pytest.raises(ConfigurationError, match="tool 'echo' is registered already"):
        registry.register(other)
    assert registry.find("echo") is first


def test_a_schema_that_is_not_usable_is_refused_and_names_the_tool() -> None:
    registry = ToolRegistry()
    with pytest.raises(ConfigurationError, match="tool 'echo': the schema of its arguments"):
        registry.register(make_tool(properties=3))
    assert registry.all() == ()


def test_arguments_are_checked_against_the_schema_of_their_tool() -> None:
    registry = ToolRegistry()
    registry.register(make_tool())
    assert registry.check_arguments("echo", {"text": "x"}) == ()
    assert registry.check_arguments("echo", {"text": 3}) == ("/text: must be of type string",)


def test_arguments_of_a_tool_that_there_is_not_fit_nothing() -> None:
    assert ToolRegistry().check_arguments("echo", {}) == ("there is no tool 'echo'",)


async def test_two_registries_can_share_their_threads() -> None:
    threads = ToolThreads()
    counts: list[int] = []

    def count(registry: ToolRegistry) -> Callable[[], None]:
        return lambda: counts.append(registry.busy_threads)

    first, second = ToolRegistry(threads), ToolRegistry(threads)
    await first.register(tool(count(second), name="count")).call({}, make_context())
    assert (counts, first.busy_threads) == ([1], 0)
