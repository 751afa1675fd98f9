"""The code that docs/ shows runs as it stands there."""

import re
from pathlib import Path
from typing import Any, Final

from app import (
    Agent,
    AgentRunner,
    Event,
    InMemorySessions,
    Runner,
    ScriptedCall,
    ScriptedProvider,
    ScriptedStep,
    ToolContext,
    ToolRegistry,
    tool,
)
from app.agents import draw_team
from app.hooks import HookRegistry
from app.wiring.plugins import PluginRegistry

DOCS: Final = Path(__file__).parents[2] / "docs"


def block_with(page: str, words: str) -> str:
    """The one block of Python on a page that says this."""
    [found] = [
        block
        for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
        if words in block
    ]
    return str(found)


def as_function(block: str, *parameters: str) -> Any:
    """A coroutine function that does what the block says, and returns its variables."""
    body = "\n".join(f"    {line}" for line in block.splitlines())
    scope: dict[str, Any] = {}
    exec(f"async def run({', '.join(parameters)}):\n{body}\n    return locals()", scope)
    return scope["run"]


def play(*steps: ScriptedStep) -> ScriptedProvider:
    return ScriptedProvider({"model": list(steps)})


async def test_the_first_conversation_renders_its_answer_and_traces_the_rest() -> None:
    traced: list[Event] = []
    rendered: list[Any] = []

    run = as_function(block_with("runtime.md", "aclosing("), "trace", "render")
    await run(traced.append, rendered.append)

    assert [content.text for content in rendered] == ["I may not refund case 7."]
    assert len(traced) > len(rendered)


async def test_the_team_has_an_agent_to_hand_over_to_and_one_to_call() -> None:
    run = as_function(
        block_with("runtime.md", "from app import SubAgent"), "Agent", "Runner", "sessions", "provider", "registry"
    )
    made = await run(Agent, Runner, InMemorySessions(), play(), ToolRegistry())

    desk = draw_team(made["desk"])["desk"]
    assert list(desk.targets) == ["billing"]
    assert list(desk.delegates) == ["fraud_check"]


async def test_an_artifact_is_saved_loaded_and_listed() -> None:
    run = as_function(block_with("runtime.md", "save_artifact("), "context", "data")

    @tool
    async def keep(context: ToolContext) -> dict[str, Any]:
        """Keeps a report."""
        made = await run(context, b"a,b")
        return {"version": made["version"], "text": made["artifact"].data.decode(), "names": list(made["names"])}

    registry, sessions = ToolRegistry(), InMemorySessions()
    registry.register(keep)
    session = await sessions.create_session(user_id="ada")
    agent = Agent(name="clerk", instructions="Keep it.", tools=("keep",))
    steps = ScriptedStep(calls=(ScriptedCall(name="keep", arguments={}),)), ScriptedStep(text="Kept.")
    runner = Runner(agent, sessions, provider=play(*steps), tools=registry)
    events = [event async for event in runner.run_async(user_id="ada", session_id=session.id, new_message="Keep it.")]

    [response] = [response for event in events for response in event.get_function_responses()]
    assert response.response == {"version": 1, "text": "a,b", "names": ["report.csv"]}


async def test_the_plugin_refuses_a_refund_without_a_token() -> None:
    scope: dict[str, Any] = {}
    exec(block_with("plugins.md", "add_callbacks("), scope)
    hooks = HookRegistry()
    scope["register"](PluginRegistry(tools=ToolRegistry(), hooks=hooks))
    paid: list[str] = []

    @tool
    async def refund(case: str) -> str:
        """Pays."""
        paid.append(case)
        return "paid"

    registry = ToolRegistry()
    registry.register(refund)
    agent = Agent(name="desk", instructions="Refund.", tools=("refund",), callbacks=("token_check",))
    steps = ScriptedStep(calls=(ScriptedCall(name="refund", arguments={"case": "7"}),)), ScriptedStep(text="No.")
    callbacks = [found for found in [hooks.callbacks("token_check")] if found is not None]
    runner = AgentRunner(provider=play(*steps), tools=registry, callbacks=callbacks)
    run = await runner.run(agent, "Refund 7.", tenant="acme")

    assert run.output == "No."
    assert paid == []
