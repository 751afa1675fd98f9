"""What people answer beyond yes and no: other arguments, and outcomes; and tools whose process dies while they are
out."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from app import ApprovalDecision, ApprovalRecord, HookDecision, HookPoint, Run
from app.agents import Agent
from app.ids import RunId
from app.policy import ApprovalKind, Indeterminate, Outcome
from app.ports.approvals import Deferred
from app.ports.hooks import HookSubject
from app.ports.tools import ToolContext
from app.providers import ScriptedStep
from app.testing import SequentialIds
from tests.execution.desk import Desk, Office, Says, Stores, grant, in_turn, pays
from tests.execution.fakes import HookSays, Stall, say
from tests.execution.stage import cut_off
from tests.execution.support import clerk

RUN_ID = RunId(SequentialIds().new("run"))


def edits(**arguments: Any) -> Says:
    """Allows a call with these arguments in place of its own."""

    def answer(record: ApprovalRecord) -> ApprovalDecision:
        return ApprovalDecision.grant(record, decided_by="grace", arguments=arguments)

    return answer


def tells(outcome: Outcome, *, decided_by: str = "grace", reason: str = "") -> Says:
    """Says what became of a call."""

    def answer(record: ApprovalRecord) -> ApprovalDecision:
        return ApprovalDecision.tell(record, outcome, decided_by=decided_by, reason=reason)

    return answer


def defers(record: ApprovalRecord) -> Deferred:
    return Deferred()


def by_kind(*, outcome: Says, call: Says = grant) -> Says:
    """One answer to questions whether a call may go out, another to those about an outcome."""

    def answer(record: ApprovalRecord) -> ApprovalDecision | Deferred:
        return outcome(record) if record.kind is ApprovalKind.OUTCOME else call(record)

    return answer


def at_most(limit: int) -> HookSays:
    """A policy that lowers every payment to its limit."""

    def says(subject: HookSubject) -> HookDecision:
        amount = json.loads(subject.content)["amount"]
        return HookDecision.proceed() if amount <= limit else HookDecision.rewrite(json.dumps({"amount": limit}))

    return HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=says)


class Lossy(Stall):
    """A tool that takes effect and does not come back, the first ``times`` times; later it answers. It remembers what
    it was called with."""

    def __init__(self, *, times: int = 1, answer: str = "receipt") -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []
        self.contexts: list[ToolContext] = []
        self._left = times
        self._answer = answer

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.calls.append(arguments)
        self.contexts.append(context)
        if self._left:
            self._left -= 1
            self.go_on.clear()
            await self.wait()
        return self._answer

    @property
    def keys(self) -> list[str]:
        return [context.idempotency_key for context in self.contexts]

    @property
    def dispatches(self) -> list[int]:
        return [context.dispatch for context in self.contexts]

    def lose_again(self) -> None:
        """The next call does not come back either."""
        self._left += 1
        self.reached.clear()


def asker(**fields: Any) -> Agent:
    """May pay unasked; of a payment that was lost a person is asked."""
    return clerk(**{"tools": ("look", "pay"), "on_indeterminate": Indeterminate.ASK, **fields})


async def lose(office: Office, tool: Lossy, agent: Agent | None = None, **fields: Any) -> None:
    """A run whose process goes down while the tool is out."""
    running = asyncio.create_task(office.run(agent or asker(), run_id=RUN_ID, **fields))
    await cut_off(running, tool)


async def lose_once_more(going_on: Callable[[], Any], tool: Lossy) -> None:
    """The process that goes on with it goes down in the same way."""
    tool.lose_again()
    await cut_off(asyncio.create_task(going_on()), tool)


async def ending(office: Office, tool: Lossy, agent: Agent | None = None, **fields: Any) -> Run[Any]:
    """The same run, when another process has gone on with it."""
    await lose(office, tool, agent, **fields)
    run: Run[Any] = await office.runner.resume(RUN_ID)
    return run


def office_of(tool: Lossy, *says: Says, script: tuple[ScriptedStep, ...] = (), **fields: Any) -> Office:
    """A process whose payment is lost, and a desk that answers in turn."""
    return Stores().office(*(script or (pays(3), say("Well."))), gate=Desk(in_turn(*says)), pay=tool, **fields)
