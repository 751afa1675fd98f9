"""What the loop itself costs, with a provider and a tool that answer at once and a log in memory.

    .venv/bin/python benchmarks/loop.py

Prints milliseconds per run (two model calls, one tool call), and microseconds per event of folding logs of growing
length: they have to stay level, or long runs would be quadratic.
"""

import asyncio
import statistics
import time

from app import Agent, AgentRunner, Effect, RunEvent, RunState, ToolRegistry, tool
from app.conversation import StopReason, ToolCall, Usage
from app.events import encode_event
from app.events.kinds import AnyEvent, ModelCall, ModelResponded, RunQueued, RunStarted, ToolCalled, ToolResult
from app.ids import CallId, RunId
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.run import State, fold_all

ROUNDS = 5
RUNS = 200


@tool(effect=Effect.READ)
async def look(n: int) -> str:
    """Looks something up."""
    return str(n)


async def time_runs() -> float:
    """Milliseconds per run."""
    tools = ToolRegistry()
    tools.register(look)
    script = [ScriptedStep(calls=(ScriptedCall(name="look", arguments={"n": 1}),)), ScriptedStep(text="done")]
    runner = AgentRunner(provider=ScriptedProvider({"instant": script}), tools=tools)
    agent = Agent(name="bench", instructions="Work.", tools=("look",))
    started = time.process_time()
    for _ in range(RUNS):
        run = await runner.run(agent, "go", tenant="bench")
        assert run.state is RunState.COMPLETED, run.error_detail
    return (time.process_time() - started) / RUNS * 1000


def long_log(turns: int) -> list[RunEvent]:
    """A log of four events a turn: call, response with one call, dispatch, result."""
    bodies: list[AnyEvent] = [RunQueued(agent="bench"), RunStarted(worker_id="w", fence=1)]
    for turn in range(1, turns + 1):
        call = ToolCall(call_id=CallId(f"call_{turn}_1"), name="look", arguments={"n": turn})
        bodies += [
            ModelCall(attempt=1, model="m", estimated_input_tokens=1, iteration=turn),
            ModelResponded(
                attempt=1, text="", tool_calls=(call,), stop_reason=StopReason.TOOL_CALLS, usage=Usage(), iteration=turn
            ),
            ToolCalled(call_id=call.call_id, name="look", arguments={"n": turn}, effect=Effect.READ, iteration=turn),
            ToolResult(call_id=call.call_id, name="look", content="1", iteration=turn),
        ]
    return [
        RunEvent(run_id=RunId("run"), seq=seq, at=float(seq), body=body, payload=encode_event(body))
        for seq, body in enumerate(bodies, start=1)
    ]


def time_fold(log: list[RunEvent]) -> float:
    """Microseconds per event."""
    started = time.process_time()
    fold_all(State(), log)
    return (time.process_time() - started) / len(log) * 1e6


def main() -> None:
    runs = [asyncio.run(time_runs()) for _ in range(ROUNDS)]
    print(f"run of two model calls and one tool call: {statistics.median(runs):.2f} ms (median of {ROUNDS} rounds)")
    print("| events in the log | µs per event to fold |\n| --- | --- |")
    for turns in (25, 250, 2_500):
        log = long_log(turns)
        print(f"| {len(log):,} | {statistics.median(time_fold(log) for _ in range(ROUNDS)):.1f} |")


if __name__ == "__main__":
    main()
