"""What the loop itself costs, with a model and a tool that answer at once and a log in memory.

    .venv/bin/python benchmarks/loop.py

All figures are CPU time, medians of five rounds: of a short run; of a turn (a model call and the one tool call that it
asks for) in runs of growing length; and of folding an event in logs of growing length. Folding has to stay level. A
turn may only grow by what its prompt does, which holds all that was said.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from app import Agent, AgentRunner, Effect, RunEvent, RunState, ToolRegistry, tool
from app.conversation import StopReason, ToolCall, Usage
from app.events import encode_event
from app.events.kinds import AnyEvent, ModelCall, ModelResponded, RunQueued, RunStarted, ToolCalled, ToolResult
from app.ids import CallId, RunId
from app.policy import UnlimitedBudget
from app.ports.model import ModelInfo, ModelRequest, ModelResponse, TextDelta, Tokenizer
from app.run import State, fold_all

ROUNDS = 5
RUNS = 200
TURNS = (10, 100, 1_000)
EVENTS = (100, 1_000, 10_000, 100_000)
EVENTS_A_TURN = 4


@tool(effect=Effect.READ)
async def look(n: int) -> str:
    """Looks something up."""
    return str(n)


class InstantModel:
    """Asks for one call in each turn but the last. It looks at no message: what is timed is the loop."""

    name = "instant"

    def __init__(self, turns: int) -> None:
        self._turns = turns

    def models(self) -> Sequence[ModelInfo]:
        return (ModelInfo(name="model", context_tokens=None, supports_tools=True),)

    def tokenizer(self, model: str) -> Tokenizer | None:
        return None

    async def complete(self, request: ModelRequest) -> ModelResponse:
        if request.iteration == self._turns:
            return ModelResponse(content="done")
        call = ToolCall(call_id=CallId("call"), name="look", arguments={"n": request.iteration})
        return ModelResponse(content="", tool_calls=(call,), stop_reason=StopReason.TOOL_CALLS)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelResponse, None]:
        yield await self.complete(request)

    def readiness(self) -> str | None:
        return None

    async def close(self) -> None: ...


def time_runs(turns: int, runs: int) -> float:
    """Milliseconds per run."""
    return asyncio.run(_time_runs(turns, runs))


async def _time_runs(turns: int, runs: int) -> float:
    tools = ToolRegistry()
    tools.register(look)
    runner = AgentRunner(provider=InstantModel(turns), tools=tools, budget=UnlimitedBudget("a benchmark"))
    agent = Agent(name="bench", instructions="Work.", tools=("look",), max_iterations=turns, max_llm_calls=0)
    started = time.process_time()
    for _ in range(runs):
        run = await runner.run(agent, "go", tenant="bench")
        assert run.state is RunState.COMPLETED, run.error_detail
    return (time.process_time() - started) / runs * 1000


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


def median_of_rounds(measure: Callable[[], float]) -> float:
    measure()  # What is made once and kept is not what is timed.
    return statistics.median(measure() for _ in range(ROUNDS))


def main() -> None:
    short = median_of_rounds(partial(time_runs, 2, RUNS))
    print(f"run of two model calls and one tool call: {short:.2f} ms")
    print("\n| turns of the run | ms per turn | steps per second |\n| --- | --- | --- |")
    for turns in TURNS:
        run_ms = median_of_rounds(partial(time_runs, turns, max(1, 100 // turns)))
        # Each turn is a model call and a tool call; the last one has no tool call.
        print(f"| {turns:,} | {run_ms / turns:.2f} | {(2 * turns - 1) / run_ms * 1000:,.0f} |")
    print("\n| events in the log | µs per event to fold |\n| --- | --- |")
    for events in EVENTS:
        log = long_log(events // EVENTS_A_TURN)
        print(f"| {events:,} | {median_of_rounds(partial(time_fold, log)):.1f} |")


if __name__ == "__main__":
    main()
