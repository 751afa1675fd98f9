"""Policy in one place: hooks that rewrite, refuse, or ask for a person.

    python examples/hooks.py

The model plays a script, so there is no network and the same thing happens every time. It prints::

    The caller writes: Write to ada@example.com about four nights.
    The model reads:   Write to [redacted:email] about four nights.
    The log holds two digests and no address: 1368925eb4ffaea5 → caafbaec402bb7b4
    The chain is shut once a runner has it.
    Another model: failed by hook_refusal, and it was not called
    Large sums: the desk is asked, because: large_sums: more than 1000
    The transfer goes out: completed
"""

import asyncio
import hashlib
import json

from app import (
    Agent,
    AgentRunner,
    ApprovalDecision,
    ApprovalRecord,
    ConfigurationError,
    HookChain,
    HookDecision,
    HookPoint,
    HookSubject,
    ModelAllowList,
    Redactor,
    RunState,
    ToolRegistry,
    tool,
)
from app.events import HookRewrite
from app.testing import ScriptedCall, ScriptedProvider, ScriptedStep

AGENT = Agent(name="clerk", instructions="Help.")
INPUT = "Write to ada@example.com about four nights."


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def show_a_rewrite() -> None:
    provider = ScriptedProvider({"model": [ScriptedStep(text="Done.")]})
    chain = HookChain([Redactor(), ModelAllowList()])
    runner = AgentRunner(provider=provider, hooks=chain)
    run = await runner.run(AGENT, INPUT, tenant="acme")
    read = provider.requests[0].messages[-1].content
    print(f"The caller writes: {INPUT}\nThe model reads:   {read}")
    assert run.state is RunState.COMPLETED

    # Whoever replays the run takes the digests again and knows that it was the same text. The text itself is gone.
    [rewrite] = [event.body for event in run.events if isinstance(event.body, HookRewrite)]
    assert (rewrite.before, rewrite.after) == (digest(INPUT), digest(read))
    assert "ada@example.com" not in run.model_dump_json()
    print(f"The log holds two digests and no address: {rewrite.before} → {rewrite.after}")

    # Otherwise a hook could put a permissive one behind itself.
    try:
        chain.add(LargeSums())
    except ConfigurationError:
        print("The chain is shut once a runner has it.")
    else:
        raise AssertionError("the chain took another hook")


async def show_a_refusal() -> None:
    provider = ScriptedProvider({"large": [ScriptedStep(text="Done.")]})
    runner = AgentRunner(provider=provider, hooks=HookChain([ModelAllowList(["scripted:small"])]))
    run = await runner.run(AGENT, INPUT, tenant="acme")
    assert (run.state, run.error_code, len(provider.requests)) == (RunState.FAILED, "hook_refusal", 0)
    print(f"Another model: {run.state} by {run.error_code}, and it was not called")


class LargeSums:
    """A hook of our own. It is given facts and answers with a decision: there is nothing in it to change."""

    name = "large_sums"
    points = frozenset({HookPoint.BEFORE_TOOL_DISPATCH})

    async def decide(self, subject: HookSubject) -> HookDecision:
        if json.loads(subject.content)["amount"] > 1000:
            return HookDecision.require_approval("more than 1000")
        return HookDecision.proceed()


class Desk:
    """Somebody who may allow a call. This one allows everything."""

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision:
        print(f"Large sums: the desk is asked, because: {record.reason}")
        return ApprovalDecision.grant(record, decided_by="grace")


@tool
async def wire_funds(amount: int) -> str:
    """Sends money."""
    return "sent"


async def show_an_approval() -> None:
    call = ScriptedCall(name="wire_funds", arguments={"amount": 5000})
    provider = ScriptedProvider({"model": [ScriptedStep(calls=(call,)), ScriptedStep(text="It is on its way.")]})
    registry = ToolRegistry()
    registry.register(wire_funds)
    runner = AgentRunner(provider=provider, tools=registry, hooks=HookChain([LargeSums()]), approvals=Desk())
    payer = AGENT.model_copy(update={"tools": ("wire_funds",)})
    run = await runner.run(payer, "Send 5000.", tenant="acme")
    kinds = [event.kind for event in run.events]
    assert kinds.index("approval_granted") < kinds.index("tool_call")
    print(f"The transfer goes out: {run.state}")


async def main() -> None:
    await show_a_rewrite()
    await show_a_refusal()
    await show_an_approval()


if __name__ == "__main__":
    asyncio.run(main())
