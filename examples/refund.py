"""A payment desk that looks a case up, reads the policy, and refunds only with an approval token.

    python examples/refund.py

The model and the payment API are stand-ins, so there is no network and nobody waits. It prints::

    Without a token. desk: Case C-7 was not refunded: it needs an approval token.
    The payment API was called 0 times, the model 4 times
    Overridden: refund_desk at before_tool
    With a token. desk: Case C-7 is refunded.
    The payment API was called 1 time, the model 4 times
    The API hangs. desk: I don't know whether case C-9 was refunded. Please have it checked.
    Marked: tool_indeterminate of refund
    Too low a cap. failed: max_llm_calls_exceeded, and the payment API was not called

The same file is a plugin of the service: it adds the tools, the callbacks and the model::

    RUNWRIGHT_PLUGINS=examples/refund.py make run

The body of ``PUT /agents/desk`` is then::

    {"model": "refund:desk", "instructions": "Handle refunds. Explain what you may not do.",
     "tools": ["look_up_case", "read_policy", "refund"], "callbacks": ["refund_desk"],
     "max_llm_calls": 8, "on_indeterminate": "surface"}

The token goes into the state of a session, where callbacks see it and the model does not. It is the SHA-256 HMAC of
the case's id, in hex, under ``EXAMPLE_REFUND_SECRET`` (of the service; "a secret of the approvers" without one)::

    TOKEN=$(printf C-7 | openssl dgst -sha256 -hmac "a secret of the approvers" -r | cut -d " " -f 1)

The bodies of ``POST /sessions`` and, with the id that it answers, of ``POST /runs`` are::

    {"agent": "desk", "user": "ada", "state": {"approval_token": "<TOKEN>"}}
    {"agent": "desk", "input": "Refund case C-7.", "session_id": "<id>"}

Four bounds for four ways to fail. ``max_llm_calls`` limits steps of reasoning, and nothing else. The tool's own timeout
limits a payment API that hangs. The callback stands before the side effect: no cap on model calls would make an
unauthorized refund any less of one. And a refund whose outcome nobody knows is told as unknown, and never made twice.
"""

import asyncio
import hashlib
import hmac
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from app import (
    Agent,
    CallbackSet,
    Effect,
    Event,
    Indeterminate,
    InMemorySessions,
    RunConfig,
    Runner,
    ScriptedCall,
    ScriptedProvider,
    ScriptedStep,
    Tool,
    ToolContext,
    ToolRegistry,
    tool,
)
from app.events import CallbackOverride
from app.ports.model import ModelRequest
from app.testing import FakeClock
from app.wiring.plugins import PluginRegistry

# Who approves a refund signs it with this. The model never sees it, and neither does the run's log.
_SECRET = os.environ.get("EXAMPLE_REFUND_SECRET", "a secret of the approvers").encode()

CaseId = Annotated[str, Field(pattern=r"^C-[0-9]+$")]


def sign(case_id: str) -> str:
    """The token with which a person approves the refund of one case."""
    return hmac.new(_SECRET, case_id.encode(), hashlib.sha256).hexdigest()


# --- tools -----------------------------------------------------------------------------------------------------------


@tool(effect=Effect.READ, timeout_seconds=5)
async def look_up_case(case_id: CaseId) -> dict[str, Any]:
    """What a case is about."""
    return {"case_id": case_id, "amount": "40.00"}


@tool(effect=Effect.READ, timeout_seconds=5)
async def read_policy() -> str:
    """What may be refunded."""
    return "Up to 50.00 is refunded. Every refund needs an approval token."


# ONCE: nobody knows what a second call would do. After its time is up nobody knows what the first one did, either.
@tool(effect=Effect.ONCE, timeout_seconds=2)
async def refund(case_id: CaseId, context: ToolContext) -> str:
    """Pays the money of a case back."""
    # A real one is handed the key: with it a payment API knows a call that it has seen before.
    _append("EXAMPLE_PAYMENTS", f"{context.invocation_id} {context.idempotency_key} {case_id}")
    if case_id == "C-9":
        HANGS.set()
        await asyncio.Event().wait()  # an API that never answers
    return f"case {case_id} is refunded"


# --- callbacks -------------------------------------------------------------------------------------------------------


def check_token(tool: Tool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str] | None:
    """Before any side effect: is it the refund, and is there a token for this case? None lets the call go out. A value
    is the result that the model reads instead, so that it can explain the denial."""
    if tool.name != "refund":
        return None
    token = tool_context.state.get("approval_token")
    if isinstance(token, str) and hmac.compare_digest(token.encode(), sign(args["case_id"]).encode()):
        return None
    return {"refused": "approval_token_missing", "explain": "A refund needs an approval token for its case."}


def record_outcome(tool: Tool, args: dict[str, Any], tool_context: ToolContext, tool_response: Any) -> None:
    """After each call: what came of it, with the invocation that it belongs to."""
    is_refused = isinstance(tool_response, dict) and "refused" in tool_response
    _append("EXAMPLE_OUTCOMES", f"{tool_context.invocation_id} {tool.name} {'refused' if is_refused else 'done'}")


REFUND_DESK = CallbackSet(name="refund_desk", before_tool_callback=check_token, after_tool_callback=record_outcome)


# --- the model, and the plugin ---------------------------------------------------------------------------------------


def play_desk(request: ModelRequest) -> ScriptedStep:
    """Looks the case up, reads the policy, asks for the refund, and says what came of it."""
    asked = next(message.content for message in reversed(request.messages) if message.role == "user")
    case_id = asked.split()[-1].strip(".")
    match request.iteration:
        case 1:
            return ScriptedStep(calls=(ScriptedCall(name="look_up_case", arguments={"case_id": case_id}),))
        case 2:
            return ScriptedStep(calls=(ScriptedCall(name="read_policy", arguments={}),))
        case 3:
            return ScriptedStep(calls=(ScriptedCall(name="refund", arguments={"case_id": case_id}),))
        case _:
            return ScriptedStep(text=_explain(case_id, request.messages[-1].content))


def _explain(case_id: str, result: str) -> str:
    if "approval_token_missing" in result:
        return f"Case {case_id} was not refunded: it needs an approval token."
    if "is refunded" in result:
        return f"Case {case_id} is refunded."
    return f"I don't know whether case {case_id} was refunded. Please have it checked."


def register(registry: PluginRegistry) -> None:
    """What the service calls at start."""
    for each in (look_up_case, read_policy, refund):
        registry.add_tool(each)
    registry.add_callbacks(REFUND_DESK)
    registry.add_model_provider(ScriptedProvider({"desk": play_desk}, name="refund"))


# --- the example -----------------------------------------------------------------------------------------------------

PAYMENTS: list[str] = []
HANGS = asyncio.Event()


def _append(variable: str, line: str) -> None:
    """In a file where the environment names one: so a second payment would be seen from outside the process."""
    if variable == "EXAMPLE_PAYMENTS":
        PAYMENTS.append(line)
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


DESK = Agent(
    name="desk",
    instructions="Handle refunds. Explain what you may not do.",
    tools=("look_up_case", "read_policy", "refund"),
    callbacks=("refund_desk",),
    on_indeterminate=Indeterminate.SURFACE,
)


async def ask(runner: Runner, message: str, *, state: dict[str, Any], max_llm_calls: int = 8) -> list[Event]:
    """One invocation in a session of its own. All its events are for those who trace."""
    session = await runner.sessions.create_session(user_id="ada", app_name="desk", state=state)
    config = RunConfig(max_llm_calls=max_llm_calls)
    return [
        event
        async for event in runner.run_async(
            user_id="ada", session_id=session.id, new_message=message, run_config=config
        )
    ]


def shown(events: Sequence[Event]) -> str:
    """What the application displays: content that is final. An event is no message."""
    return " ".join(event.content.text for event in events if event.is_final_response() and event.content)


def count(events: Sequence[Event], kind: str) -> int:
    return sum(event.run_event is not None and event.run_event.kind == kind for event in events)


def times(number: int) -> str:
    return f"{number} time" if number == 1 else f"{number} times"


async def tell_the_clock(clock: FakeClock) -> None:
    """Lets the payment API hang for longer than the tool waits."""
    await HANGS.wait()
    await clock.wait_for_sleepers()
    clock.advance(3)


async def main() -> None:
    registry = ToolRegistry()
    for each in (look_up_case, read_policy, refund):
        registry.register(each)
    clock = FakeClock(auto_advance=False)
    runner = Runner(
        agent=DESK,
        sessions=InMemorySessions(),
        provider=ScriptedProvider({"desk": play_desk}, name="refund"),
        tools=registry,
        callbacks=[REFUND_DESK],
        clock=clock,
    )
    events = await ask(runner, "Refund case C-7.", state={})
    print(f"Without a token. desk: {shown(events)}")
    print(f"The payment API was called {times(len(PAYMENTS))}, the model {times(count(events, 'model_call'))}")
    overrides = [event.run_event.body for event in events if event.run_event]
    [told] = [body for body in overrides if isinstance(body, CallbackOverride)]
    print(f"Overridden: {told.callback} at {told.point}")

    events = await ask(runner, "Refund case C-7.", state={"approval_token": sign("C-7")})
    print(f"With a token. desk: {shown(events)}")
    print(f"The payment API was called {times(len(PAYMENTS))}, the model {times(count(events, 'model_call'))}")

    PAYMENTS.clear()
    events, _ = await asyncio.gather(
        ask(runner, "Refund case C-9.", state={"approval_token": sign("C-9")}), tell_the_clock(clock)
    )
    print(f"The API hangs. desk: {shown(events)}")
    assert count(events, "tool_indeterminate") == 1
    print("Marked: tool_indeterminate of refund")

    # A cap that the valid path does not fit into refuses a valid request: size it from events, not from visible turns.
    PAYMENTS.clear()
    events = await ask(runner, "Refund case C-7.", state={"approval_token": sign("C-7")}, max_llm_calls=2)
    [error] = [event for event in events if event.error_code]
    print(f"Too low a cap. failed: {error.error_code}, and the payment API was not called")
    assert not PAYMENTS


if __name__ == "__main__":
    asyncio.run(main())
