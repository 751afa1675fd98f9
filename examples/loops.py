"""Caps on the shape of a run: how wide, how many, how often the same, how deep.

    python examples/loops.py

The model plays a script, so there is no network and the same thing happens every time. It prints::

    Width: loop_limit_exceeded by max_parallel_tool_calls, 0 calls went out
    Total, a turn that fits in part: loop_limit_exceeded by max_tool_calls, 2 calls went out
    Total, a single call: budget_exhausted by max_tool_calls, 3 calls went out
    Repeats: loop_limit_exceeded by max_repeated_calls, 2 calls went out
    Paging: completed, 4 calls went out
    Depth: loop_limit_exceeded by max_delegation_depth, depth 2 of 1: alpha→beta→alpha
    Peers of the whole tree: gamma completed, gamma budget_exhausted, beta completed
"""

import asyncio
from typing import Any

from app import Agent, AgentRunner, BudgetLimits, LoopConfig, Run, ToolContext, ToolRegistry, tool
from app.testing import ScriptedCall, ScriptedProvider, ScriptedStep

# --- one agent -------------------------------------------------------------------------------------------------------


@tool
async def search(text: str, page: int = 1) -> str:
    """Searches."""
    return f"page {page} of {text}"


def turn(*pages: int) -> ScriptedStep:
    """One answer of the model, which asks for these pages at once."""
    return ScriptedStep(
        calls=tuple(ScriptedCall(name="search", arguments={"text": "fox", "page": page}) for page in pages)
    )


async def run_searcher(*script: ScriptedStep, loop: LoopConfig | None = None, **caps: Any) -> Run[Any]:
    registry = ToolRegistry()
    registry.register(search)
    agent = Agent(
        name="searcher",
        instructions="Search.",
        tools=("search",),
        budget=BudgetLimits(**caps),
        loop=loop or LoopConfig(),
    )
    provider = ScriptedProvider({"model": [*script, ScriptedStep(text="Here it is.")]})
    return await AgentRunner(provider=provider, tools=registry).run(agent, "Find the fox.", tenant="acme")


async def show_one_agent() -> None:
    # The whole turn is judged before any of it goes out. Half a plan is a set of side effects that nobody chose.
    run = await run_searcher(turn(1, 2, 3), max_parallel_tool_calls=2)
    assert run.error_code == "fan_out_exceeded"
    print(f"Width: {run.state} by {run.cap}, {run.tool_calls} calls went out")
    run = await run_searcher(turn(1, 2), turn(3, 4), max_tool_calls=3)
    assert run.error_code == "fan_out_exceeded"
    print(f"Total, a turn that fits in part: {run.state} by {run.cap}, {run.tool_calls} calls went out")

    # One call too many is no question of shape: it is spent.
    run = await run_searcher(turn(1), turn(2), turn(3), turn(4), max_tool_calls=3)
    assert run.error_code == "budget_exhausted"
    print(f"Total, a single call: {run.state} by {run.cap}, {run.tool_calls} calls went out")

    # The same question again and again is a run that goes round. Another page is another question.
    run = await run_searcher(turn(1), turn(1), turn(1), loop=LoopConfig(max_repeated_calls=2))
    assert run.error_code == "repeated_call"
    print(f"Repeats: {run.state} by {run.cap}, {run.tool_calls} calls went out")
    run = await run_searcher(turn(1), turn(2), turn(3), turn(4), loop=LoopConfig(max_repeated_calls=1))
    print(f"Paging: {run.state}, {run.tool_calls} calls went out")


# --- agents that ask agents ------------------------------------------------------------------------------------------


async def run_tree(asks: dict[str, list[str]], **caps: Any) -> list[Run[Any]]:
    """Alpha's run, under these caps. ``asks`` says whom each agent asks. Returns the runs below it, as they ended."""
    below: list[Run[Any]] = []

    def agent(name: str) -> Agent:
        return Agent(name=name, instructions="Ask.", model=f"scripted:{name}", tools=("ask",))

    @tool
    async def ask(name: str, context: ToolContext) -> str:
        """Asks another agent."""
        # Its run's context carries depth, path and budgets on. Without it a new tree would begin at depth 0.
        run = await runner.run(agent(name), "Go on.", tenant=context.tenant_id, parent=context.run)
        below.append(run)
        return f"{name} is {run.state}"

    def script(names: list[str]) -> list[ScriptedStep]:
        calls = [ScriptedCall(name="ask", arguments={"name": name}) for name in names]
        return [*(ScriptedStep(calls=(call,)) for call in calls), ScriptedStep(text="Done.")]

    registry = ToolRegistry()
    registry.register(ask)
    provider = ScriptedProvider({name: script(names) for name, names in asks.items()})
    runner = AgentRunner(provider=provider, tools=registry)
    await runner.run(agent("alpha"), "Go.", tenant="acme", budget=BudgetLimits(**caps))
    return below


async def show_a_tree() -> None:
    # A circle stops at the cap, before the prompt is put together, and the path shows who called whom.
    circle = await run_tree({"alpha": ["beta"], "beta": ["alpha"]}, max_delegation_depth=1)
    stopped = circle[0]
    assert (stopped.path, stopped.model_calls) == (("alpha", "beta", "alpha"), 0)
    print(f"Depth: {stopped.state} by {stopped.cap}, {stopped.error_detail}")

    # Peers are counted for the whole tree. Alpha asks one and beta asks two: each by itself is below the cap.
    runs = await run_tree({"alpha": ["beta"], "beta": ["gamma", "gamma"], "gamma": []}, max_peer_invocations=2)
    assert runs[1].cap == "max_peer_invocations"
    print("Peers of the whole tree:", ", ".join(f"{run.path[-1]} {run.state}" for run in runs))


async def main() -> None:
    await show_one_agent()
    await show_a_tree()


if __name__ == "__main__":
    asyncio.run(main())
