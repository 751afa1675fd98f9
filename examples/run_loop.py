"""One run, from a question to an answer, with a tool call in between.

    python examples/run_loop.py

The model plays a script, so there is no network and the same thing happens every time. It prints::

    The model may call: find_trains
    It asks for find_trains with {'to': 'Kyoto'}.
    It reads:
    <untrusted-data source="tool_result">
    {"trains":4}
    </untrusted-data>
    The run is completed: Four trains go to Kyoto today.
    It took 2 model calls and 1 tool call.
     1 run_queued
     2 run_started
     3 prompt_assembled
     4 model_call
     5 model_response
     6 tool_call
     7 tool_result
     8 model_call
     9 model_response
    10 terminated
"""

import asyncio

from app import Agent, AgentRunner, Effect, RunState, ToolRegistry, tool
from app.testing import ScriptedCall, ScriptedProvider, ScriptedStep


# A typed function is a tool. The model is told its name, its docstring and its parameters. READ says that it changes
# nothing, so nobody minds when it is called once more.
@tool(effect=Effect.READ)
async def find_trains(to: str) -> dict[str, int]:
    """Says how many trains go to a city today."""
    return {"trains": 4}


@tool
async def buy_ticket(to: str) -> str:
    """Buys a ticket."""
    raise AssertionError("no agent here may call this")


# The agent is told about the tools on its list and about no others.
AGENT = Agent(name="planner", instructions="Answer questions about trains.", tools=("find_trains",))

# A real model would decide for itself. This one asks for the tool first, and answers when it has the result.
SCRIPT = [
    ScriptedStep(calls=(ScriptedCall(name="find_trains", arguments={"to": "Kyoto"}),)),
    ScriptedStep(text="Four trains go to Kyoto today."),
]


async def main() -> None:
    provider = ScriptedProvider({"model": SCRIPT})
    registry = ToolRegistry()
    registry.register(find_trains)
    registry.register(buy_ticket)
    runner = AgentRunner(provider=provider, tools=registry)

    run = await runner.run(AGENT, "How do I get to Kyoto?", tenant="acme", user="ada")

    # What the model was sent, the first time and the second.
    first, second = provider.requests
    print("The model may call:", ", ".join(declaration.name for declaration in first.tools))
    assert [declaration.name for declaration in first.tools] == ["find_trains"]

    asked, result = second.messages[-2:]
    print(f"It asks for {asked.tool_calls[0].name} with {asked.tool_calls[0].arguments}.")
    # Nobody vouches for what a tool returns, so it is handed over as data, inside a fence that it can't close.
    print(f"It reads:\n{result.content}")

    # The run always comes back, in exactly one state, and with everything that happened.
    assert run.state is RunState.COMPLETED
    assert run.state.is_terminal
    print(f"The run is {run.state}: {run.output}")
    print(f"It took {run.model_calls} model calls and {run.tool_calls} tool call.")
    for event in run.events:
        print(f"{event.seq:2} {event.kind}")
    assert run.events[-1].kind == "terminated"


if __name__ == "__main__":
    asyncio.run(main())
