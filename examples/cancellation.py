"""Two ways to stop a run early, and what is said of a tool call that was cut off.

    python examples/cancellation.py

The model and the clock are stand-ins: there is no network, and nobody sleeps. It prints::

    A token: cancelled (cancelled: the user closed the window)
    A deadline: cancelled (deadline_exceeded: the run ran past its deadline)
    A deadline is an instant: of two, the earlier one holds.
    charge_card was cut off: tool_indeterminate. Nobody knows whether the card was charged.
    A person has to look: compensation_required for charge_card
    look_up_fare was cut off: tool_error, retry_safe=True. It may be called again.
"""

import asyncio
from typing import Any

from app import (
    Agent,
    AgentRunner,
    CancellationToken,
    Deadline,
    DeadlineConfig,
    Effect,
    Run,
    RunState,
    ToolRegistry,
    tool,
)
from app.events import CompensationRequired, ToolFailed, ToolIndeterminate
from app.testing import FakeClock, ScriptedCall, ScriptedProvider, ScriptedStep

# Time stands still until the example moves it.
CLOCK = FakeClock(auto_advance=False)

AGENT = Agent(name="planner", instructions="Plan trips.")


@tool(effect=Effect.ONCE)
async def charge_card(amount: int) -> str:
    """Charges the card."""
    await CLOCK.sleep(3600)
    return "charged"


@tool
async def look_up_fare(city: str) -> str:
    """Asks what a ticket costs."""
    await CLOCK.sleep(3600)
    return "40"


def thinker() -> ScriptedProvider:
    """A model that thinks for an hour."""
    step = ScriptedStep(text="Here is the plan.", delay_seconds=3600)
    return ScriptedProvider({"model": [step]}, sleep=CLOCK.sleep)


async def stop_by_token() -> None:
    """Somebody trips the token while the model is still thinking."""
    runner = AgentRunner(provider=thinker(), clock=CLOCK)
    token = CancellationToken()
    running = asyncio.create_task(runner.run(AGENT, "Plan.", tenant="acme", cancellation=token))
    await CLOCK.wait_for_sleepers(1)  # the model
    token.cancel("the user closed the window")
    run = await running
    assert (run.state, run.error_code) == (RunState.CANCELLED, "cancelled")
    print(f"A token: {run.state} ({run.error_code}: {run.error_detail})")


async def stop_by_deadline() -> None:
    """The model needs longer than the caller has."""
    runner = AgentRunner(provider=thinker(), clock=CLOCK)
    deadline = Deadline.in_seconds(60, now=CLOCK.now())
    running = asyncio.create_task(runner.run(AGENT, "Plan.", tenant="acme", deadline=deadline))
    await CLOCK.wait_for_sleepers(2)  # the model, and the loop that watches the deadline
    CLOCK.advance(60)
    run = await running
    assert (run.state, run.error_code) == (RunState.CANCELLED, "deadline_exceeded")
    print(f"A deadline: {run.state} ({run.error_code}: {run.error_detail})")

    # Handed on to other agents it stays the same moment, where "60 seconds" would start again for each of them.
    later = Deadline(at=deadline.at + 30)
    assert later.narrowed_to(deadline) == deadline.narrowed_to(later) == deadline
    print("A deadline is an instant: of two, the earlier one holds.")


async def cut_off_a_call(agent: Agent, call: ScriptedCall) -> Run[Any]:
    """The tool takes longer than tool_call_seconds. By then the call has gone out."""
    registry = ToolRegistry()
    registry.register(charge_card)
    registry.register(look_up_fare)
    provider = ScriptedProvider({"model": [ScriptedStep(calls=(call,))]})
    deadlines = DeadlineConfig(tool_call_seconds=30)
    runner = AgentRunner(provider=provider, tools=registry, clock=CLOCK, deadlines=deadlines)
    running = asyncio.create_task(runner.run(agent, "Go on.", tenant="acme"))
    await CLOCK.wait_for_sleepers(2)  # the tool, and the loop that watches its time
    CLOCK.advance(30)
    run = await running
    assert (run.state, run.error_code) == (RunState.CANCELLED, "deadline_exceeded")
    return run


async def main() -> None:
    await stop_by_token()
    await stop_by_deadline()

    payer = AGENT.model_copy(update={"tools": ("charge_card",)})
    run = await cut_off_a_call(payer, ScriptedCall(name="charge_card", arguments={"amount": 40}))
    [unknown] = [event.body for event in run.events if isinstance(event.body, ToolIndeterminate)]
    print(f"{unknown.name} was cut off: {unknown.kind}. Nobody knows whether the card was charged.")
    [undo] = [event.body for event in run.events if isinstance(event.body, CompensationRequired)]
    print(f"A person has to look: {undo.kind} for {undo.name}")

    # The author of this agent says that a second call does no harm, and the record says so too.
    asker = AGENT.model_copy(update={"tools": ("look_up_fare",), "idempotent_tools": ("look_up_fare",)})
    run = await cut_off_a_call(asker, ScriptedCall(name="look_up_fare", arguments={"city": "Kyoto"}))
    [failed] = [event.body for event in run.events if isinstance(event.body, ToolFailed)]
    assert failed.retry_safe
    print(f"{failed.name} was cut off: {failed.kind}, retry_safe={failed.retry_safe}. It may be called again.")


if __name__ == "__main__":
    asyncio.run(main())
