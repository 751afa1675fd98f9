"""A conversation, event by event: what is shown, what is traced, what is stopped, and which bound to choose.

    python examples/runtime.py

The model and the clock are stand-ins: there is no network, and nobody waits. It prints::

    Ada asks. clerk: I can't refund case 7 without an approval.
    It asked for look_up_case, read_policy, refund. Refunded: nothing
    On record: check_refund at before_tool put its own word in the place of a call
    Ada asks again, with an approval. clerk: Case 7 is refunded.
    Refunded: 7. Outcomes kept: look_up_case, read_policy, refund, look_up_case, read_policy, refund
    One message took 4 model calls, 4 steps, 3 tool calls
    A cap of 2 model calls refuses a valid request: max_llm_calls_exceeded
    A reader leaves before the refund goes out. Refunded: 7
    The session is free: I can't refund case 9 without an approval.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from app import (
    Agent,
    Effect,
    Event,
    InMemorySessions,
    RunConfig,
    Runner,
    Tool,
    ToolContext,
    ToolRegistry,
    tool,
)
from app.events import CallbackOverride
from app.ports.model import ModelRequest
from app.testing import FakeClock, ScriptedCall, ScriptedProvider, ScriptedStep

REFUNDED: list[str] = []
OUTCOMES: list[tuple[str, str]] = []


@tool(effect=Effect.READ)
async def look_up_case(case: str) -> dict[str, Any]:
    """What a case is about."""
    return {"case": case, "amount": 40}


@tool(effect=Effect.READ)
async def read_policy() -> str:
    """What may be refunded."""
    return "Up to 50 is refunded. Every refund needs an approval."


@tool(effect=Effect.ONCE)
async def refund(case: str, context: ToolContext) -> str:
    """Pays the money back."""
    REFUNDED.append(case)
    return f"case {case} is refunded"


def check_refund(tool: Tool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str] | None:
    """Before any side effect: both the tool and the approval. The agent reads the denial, and can explain it."""
    if tool.name == "refund" and tool_context.state.get("approved") != args["case"]:
        return {"denied": "a refund needs an approval"}
    return None


def keep_outcome(tool: Tool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any) -> None:
    """After each call: what came of it, by invocation."""
    OUTCOMES.append((tool_context.invocation_id, tool.name))


def play_clerk(request: ModelRequest) -> ScriptedStep:
    """The model: looks, reads, asks for the refund, and says what came of it."""
    case = next(m.content for m in reversed(request.messages) if m.role == "user").split()[-1].strip(".")
    steps = [
        ScriptedStep(calls=(ScriptedCall(name="look_up_case", arguments={"case": case}),)),
        ScriptedStep(calls=(ScriptedCall(name="read_policy", arguments={}),)),
        ScriptedStep(calls=(ScriptedCall(name="refund", arguments={"case": case}),)),
    ]
    if request.iteration <= len(steps):
        return steps[request.iteration - 1]
    is_denied = "denied" in request.messages[-1].content
    return ScriptedStep(
        text=f"I can't refund case {case} without an approval." if is_denied else f"Case {case} is refunded."
    )


CLERK = Agent(
    name="clerk",
    instructions="You handle refunds. Look up the case, read the policy, then refund. Explain what you may not do.",
    tools=("look_up_case", "read_policy", "refund"),
    before_tool_callback=check_refund,
    after_tool_callback=keep_outcome,
)


def measure(events: list[Event]) -> str:
    """What one invocation used, from its own events: bounds are chosen from such numbers, not from visible turns."""
    log = [event.run_event for event in events if event.run_event]
    calls, tools = (sum(event.kind == kind for event in log) for kind in ("model_call", "tool_call"))
    steps = max(event.body.iteration for event in log)
    return f"{calls} model calls, {steps} steps, {tools} tool calls"


def asked_for(events: list[Event]) -> str:
    return ", ".join(call.name for event in events for call in event.get_function_calls())


def shown(events: list[Event]) -> str:
    """What the application displays: an event is no message, and most are for those who trace."""
    return " ".join(
        f"{event.author}: {event.content.text}" for event in events if event.is_final_response() and event.content
    )


async def collect(events: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(events):
        return [event async for event in events]


async def main() -> None:
    REFUNDED.clear()
    OUTCOMES.clear()
    registry, sessions = ToolRegistry(), InMemorySessions()
    for function in (look_up_case, read_policy, refund):
        registry.register(function)
    provider = ScriptedProvider({"model": play_clerk})
    clock = FakeClock(auto_advance=False)
    runner = Runner(agent=CLERK, sessions=sessions, provider=provider, tools=registry, clock=clock)
    await sessions.create_session(user_id="ada", session_id="plain", app_name="clerk")
    await sessions.create_session(user_id="ada", session_id="approved", app_name="clerk", state={"approved": "7"})

    def say(text: str, session_id: str, **bounds: Any) -> AsyncGenerator[Event, None]:
        # Steps of the model, elapsed time and side effects are different risks: each has a bound of its own.
        config = RunConfig(**{"max_llm_calls": 8, "timeout_seconds": 60.0, **bounds})
        return runner.run_async(user_id="ada", session_id=session_id, new_message=text, run_config=config)

    events = await collect(say("Refund case 7.", "plain"))
    print(f"Ada asks. {shown(events)}")
    print(f"It asked for {asked_for(events)}. Refunded: {', '.join(REFUNDED) or 'nothing'}")
    [override] = [e.run_event.body for e in events if e.run_event and isinstance(e.run_event.body, CallbackOverride)]
    print(f"On record: {override.callback} at {override.point} put its own word in the place of a call")

    events = await collect(say("Refund case 7.", "approved"))
    print(f"Ada asks again, with an approval. {shown(events)}")
    print(f"Refunded: {', '.join(REFUNDED)}. Outcomes kept: {', '.join(name for _, name in OUTCOMES)}")
    assert {invocation for invocation, _ in OUTCOMES[3:]} == {events[0].invocation_id}
    print(f"One message took {measure(events)}")

    events = await collect(say("Refund case 7.", "plain", max_llm_calls=2))
    print(f"A cap of 2 model calls refuses a valid request: {events[-1].error_code}")

    async with aclosing(say("Refund case 7.", "approved")) as reading:
        async for event in reading:
            # The loop stands still while we hold this: the refund was stored, and has not gone out.
            if event.run_event and event.run_event.kind == "tool_call" and event.run_event.name == "refund":
                break
    print(f"A reader leaves before the refund goes out. Refunded: {', '.join(REFUNDED)}")
    events = await collect(say("Refund case 9.", "approved", on_session_busy="reject"))
    print(f"The session is free: {shown(events).removeprefix('clerk: ')}")


if __name__ == "__main__":
    asyncio.run(main())
