"""The same run, event by event: at the reader's pace, and ended when the reader goes.

    python examples/streaming.py

The model plays a script, so there is no network and the same thing happens every time. It prints::

    The stream tells what the finished run holds: 206 events
    After one event the reader is busy. The loop goes ahead by 15 of 50 calls, and waits.
    The reader goes on: all 50 calls, terminated
    The reader leaves after 4 calls, and no further call goes out.
    Resumed from its log: completed, 50 calls in all, none of them twice
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from app import Agent, AgentRunner, BudgetLimits, CheckpointStore, Effect, RunEvent, RunState, ToolRegistry, tool
from app.testing import ScriptedCall, ScriptedProvider, ScriptedStep

CALLS = 50
COUNTED: list[int] = []


@tool(effect=Effect.READ)
async def count(number: int) -> int:
    """Counts."""
    COUNTED.append(number)
    return number


AGENT = Agent(name="counter", instructions="Count.", tools=("count",), max_iterations=CALLS + 1)
SCRIPT = [
    *(ScriptedStep(calls=(ScriptedCall(name="count", arguments={"number": n}),)) for n in range(CALLS)),
    ScriptedStep(text="Done."),
]


async def be_busy() -> None:
    """The reader does something else, and everything else in the process gets its turn."""
    for _ in range(5000):
        await asyncio.sleep(0)


async def main() -> None:
    registry = ToolRegistry()
    registry.register(count)
    checkpoints = CheckpointStore()
    runner = AgentRunner(
        provider=ScriptedProvider({"model": SCRIPT}),
        tools=registry,
        budget=BudgetLimits.unbounded(),
        checkpoints=checkpoints,
    )

    def stream(run_id: str) -> AsyncGenerator[RunEvent, None]:
        COUNTED.clear()
        return runner.stream(AGENT, "Count to fifty.", tenant="acme", run_id=run_id)

    # There is one loop. What it streams is what it stores.
    told = [event async for event in stream("run_told")]
    assert tuple(told) == checkpoints.events("run_told")
    print(f"The stream tells what the finished run holds: {len(told)} events")

    # A slow reader slows the run down: 64 events may wait for it, and then the loop waits.
    async with aclosing(stream("run_slow")) as events:
        await anext(events)
        await be_busy()
        assert 0 < len(COUNTED) < CALLS
        print(f"After one event the reader is busy. The loop goes ahead by {len(COUNTED)} of {CALLS} calls, and waits.")
        rest = [event.kind async for event in events]
    assert len(COUNTED) == CALLS
    print(f"The reader goes on: all {len(COUNTED)} calls, {rest[-1]}")

    # Closing the stream stops the run where it stands. ``aclosing`` closes it in time, whatever happens.
    async with aclosing(stream("run_left")) as events:
        async for event in events:
            if event.kind == "tool_result" and event.body.iteration == 4:
                break
    called = len(COUNTED)
    await be_busy()
    assert called == len(COUNTED)
    print(f"The reader leaves after {called} calls, and no further call goes out.")

    # Its log is kept, so it can go on: with the same numbers, and without asking for what it already knows.
    run = await runner.resume("run_left")
    assert run.state is RunState.COMPLETED
    assert list(range(CALLS)) == COUNTED
    print(f"Resumed from its log: {run.state}, {run.tool_calls} calls in all, none of them twice")


if __name__ == "__main__":
    asyncio.run(main())
