"""Calls that a person has to allow: asked on the spot, or while the run waits.

    python examples/approvals.py

The model and the clock are stand-ins: there is no network, and nobody sleeps. It prints::

    Asked on the spot: completed, sent [200]
    Denied: completed, sent []
    The model reads: The call was not approved. <untrusted-data source="approval"> not today </untrusted-data>
    Put off: suspended, sent []
    Waiting: wire_funds for ada, no arguments, only their digest
    Granted a day later: completed, sent [200]
    The same decision again is refused: a grant is good for one call.
    Decided too late: completed, sent [], approval_denied because it was expired
"""

import asyncio
from collections.abc import Callable

from app import (
    Agent,
    AgentRunner,
    ApprovalDecision,
    ApprovalGate,
    ApprovalRecord,
    ConfigurationError,
    DeferringGate,
    RunState,
    SuspensionStore,
    ToolRegistry,
    tool,
)
from app.events import ApprovalDenied
from app.policy import arguments_digest
from app.testing import FakeClock, ScriptedCall, ScriptedProvider, ScriptedStep

ARGUMENTS = {"amount": 200}
SCRIPT = [
    ScriptedStep(calls=(ScriptedCall(name="wire_funds", arguments=ARGUMENTS),)),
    ScriptedStep(text="I told you what became of it."),
]

# Every call of the tool needs a person. A tool can say so itself (``needs_approval``), and a hook for a single call.
AGENT = Agent(
    name="clerk",
    instructions="Move money.",
    tools=("wire_funds",),
    approval_required_tools=("wire_funds",),
    approval_ttl_seconds=7 * 86_400,
)


class Desk:
    """A gate that answers at once. A real one would ask somebody, and the run would wait for it in this process."""

    def __init__(self, answer: Callable[[ApprovalRecord], ApprovalDecision]) -> None:
        self._answer = answer

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision:
        return self._answer(record)


class Office:
    """A runner, its clock, and the money that really went out."""

    def __init__(self, gate: ApprovalGate) -> None:
        self.sent: list[int] = []
        self.clock = FakeClock(auto_advance=False)
        self.suspensions = SuspensionStore()
        self.provider = ScriptedProvider({"model": SCRIPT})
        registry = ToolRegistry()
        registry.register(tool(self.wire_funds))
        self.runner = AgentRunner(
            provider=self.provider, tools=registry, approvals=gate, suspensions=self.suspensions, clock=self.clock
        )

    async def wire_funds(self, amount: int) -> str:
        """Sends money."""
        self.sent.append(amount)
        return "sent"


def grant(record: ApprovalRecord) -> ApprovalDecision:
    return ApprovalDecision.grant(record, decided_by="grace")


def deny(record: ApprovalRecord) -> ApprovalDecision:
    return ApprovalDecision.deny(record, decided_by="grace", reason="not today")


async def show_a_desk() -> None:
    office = Office(Desk(grant))
    run = await office.runner.run(AGENT, "Send 200.", tenant="acme", user="ada")
    assert office.sent == [200]
    print(f"Asked on the spot: {run.state}, sent {office.sent}")

    # A denial refuses the call and not the run. The model is told, and the reason is data to it.
    office = Office(Desk(deny))
    run = await office.runner.run(AGENT, "Send 200.", tenant="acme", user="ada")
    assert (run.state, office.sent) == (RunState.COMPLETED, [])
    print(f"Denied: {run.state}, sent {office.sent}")
    print("The model reads:", " ".join(office.provider.requests[-1].messages[-1].content.split("\n")))


async def show_a_queue() -> None:
    # Where a person takes longer than a process should wait, the gate puts the question off and the run comes back.
    office = Office(DeferringGate())
    run = await office.runner.run(AGENT, "Send 200.", tenant="acme", user="ada")
    assert (run.state, office.sent) == (RunState.SUSPENDED, [])
    print(f"Put off: {run.state}, sent {office.sent}")

    # The queue outlives the run and is read by others, so it holds a digest: enough to know the call again.
    [record] = office.suspensions.pending()
    assert record.approval_id == run.waiting_for[0]
    assert record.arguments_digest == arguments_digest("wire_funds", ARGUMENTS)
    print(f"Waiting: {record.tool} for {record.user}, no arguments, only their digest")

    office.clock.advance(86_400)
    run = await office.runner.resume_with_decision(grant(record))
    assert office.sent == [200]
    print(f"Granted a day later: {run.state}, sent {office.sent}")
    try:
        await office.runner.resume_with_decision(grant(record))
    except ConfigurationError:
        print("The same decision again is refused: a grant is good for one call.")
    assert office.sent == [200]

    # A grant is permission at a moment. After its time it is none.
    office = Office(DeferringGate())
    await office.runner.run(AGENT, "Send 200.", tenant="acme", user="ada")
    [record] = office.suspensions.pending()
    office.clock.advance(7 * 86_400)
    run = await office.runner.resume_with_decision(grant(record))
    [denied] = [event.body for event in run.events if isinstance(event.body, ApprovalDenied)]
    print(f"Decided too late: {run.state}, sent {office.sent}, {denied.kind} because it was {denied.cause}")


async def main() -> None:
    await show_a_desk()
    await show_a_queue()


if __name__ == "__main__":
    asyncio.run(main())
