"""A runner with one tool that a person has to allow, and gates that answer as a test wants it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from app import (
    AgentRunner,
    ApprovalDecision,
    ApprovalRecord,
    CheckpointStore,
    ConfigurationError,
    DeferringGate,
    HookChain,
    Run,
    RunContext,
    SuspensionStore,
    ToolRegistry,
)
from app.agents import Agent
from app.ports.approvals import ApprovalGate, Deferred
from app.ports.hooks import Hook
from app.ports.tools import ToolFunction
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from tests.execution.fakes import Recorder, Stall, calls, make_tool, say
from tests.execution.support import clerk

B = TypeVar("B")
Says = Callable[[ApprovalRecord], ApprovalDecision | Deferred]

SECRET = "DE89370400440532013000"
GATED = ("pay",)


def grant(record: ApprovalRecord) -> ApprovalDecision:
    return ApprovalDecision.grant(record, decided_by="grace")


def deny(record: ApprovalRecord) -> ApprovalDecision:
    return ApprovalDecision.deny(record, decided_by="grace", reason="too much")


def in_turn(*says: Says) -> Says:
    """Answers the first record by the first function, the second by the second."""
    left = iter(says)

    def answer(record: ApprovalRecord) -> ApprovalDecision | Deferred:
        return next(left)(record)

    return answer


def pays(*amounts: int) -> ScriptedStep:
    """One turn that asks for so many payments."""
    return calls(*[ScriptedCall(name="pay", arguments={"amount": amount}) for amount in amounts])


class Desk:
    """A gate that answers at once, and remembers what it was asked."""

    def __init__(self, says: Says = grant) -> None:
        self.asked: list[ApprovalRecord] = []
        self._says = says

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision | Deferred:
        self.asked.append(record)
        return self._says(record)


class SlowDesk:
    """A gate that thinks until the test lets it go on, and grants then."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.asked: list[ApprovalRecord] = []
        self.stall = Stall(stubborn=stubborn)

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision:
        self.asked.append(record)
        await self.stall.wait()
        return grant(record)


class Office:
    """A process whose model plays a script. Its agent may ``look``, and may ``pay`` where a person allows it."""

    def __init__(
        self,
        *script: ScriptedStep,
        gate: ApprovalGate | None = None,
        hooks: Sequence[Hook] = (),
        clock: FakeClock | None = None,
        look: ToolFunction | None = None,
        pay: ToolFunction | None = None,
        pay_fields: Mapping[str, Any] | None = None,
        **runner_fields: Any,
    ) -> None:
        self.clock = FakeClock(auto_advance=False) if clock is None else clock
        self.provider = ScriptedProvider({"model": script})
        self.look, self.pay = Recorder("four trains"), Recorder("receipt")
        registry = ToolRegistry()
        registry.register(make_tool("look", look or self.look))
        registry.register(make_tool("pay", pay or self.pay, **(pay_fields or {})))
        self.runner = AgentRunner(
            provider=self.provider,
            tools=registry,
            hooks=HookChain(hooks),
            approvals=gate,
            clock=self.clock,
            ids=SequentialIds(),
            **runner_fields,
        )

    @property
    def paid(self) -> list[Any]:
        """The amounts that really went out."""
        return [arguments["amount"] for arguments in self.pay.calls]

    async def run(self, agent: Agent | None = None, **run_fields: Any) -> Run[Any]:
        run: Run[Any] = await self.runner.run(agent or payer(), "Pay.", tenant="acme", user="ada", **run_fields)
        return run


class Stores:
    """What outlives a process: the runs that were suspended or cut off."""

    def __init__(self) -> None:
        self.checkpoints = CheckpointStore()
        self.suspensions = SuspensionStore()

    def office(self, *script: ScriptedStep, gate: ApprovalGate | None = None, **fields: Any) -> Office:
        """One process more over the same stores."""
        return Office(
            *script,
            gate=DeferringGate() if gate is None else gate,
            checkpoints=self.checkpoints,
            suspensions=self.suspensions,
            **fields,
        )


def payer(**fields: Any) -> Agent:
    return clerk(**{"tools": ("look", "pay"), "approval_required_tools": GATED, **fields})


def paying(*amounts: int, gate: ApprovalGate | None = None, **fields: Any) -> Office:
    """A model that asks for payments in one turn, and says something when it has read their outcomes."""
    return Office(pays(*(amounts or (3,))), say("Well."), gate=gate, **fields)


def kinds(run: Run[Any]) -> list[str]:
    return [event.kind for event in run.events]


def every(run: Run[Any], kind: type[B]) -> list[B]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


def one(run: Run[Any], kind: type[B]) -> B:
    """The only event of its kind."""
    [body] = every(run, kind)
    return body


def log_text(run: Run[Any], *, about: str = "") -> str:
    """The stored text of the events whose kind begins so."""
    return "\n".join(event.payload for event in run.events if event.kind.startswith(about))


def read_by_model(office: Office, *, turn: int) -> list[str]:
    """What the tools' messages of that model call say."""
    return [message.content for message in office.provider.requests[turn - 1].messages if message.role == "tool"]


def run_of(error: ConfigurationError) -> Run[Any]:
    """The run that an error in the middle of it brings along."""
    assert isinstance(error.run, Run)
    return error.run


def granting(run: Run[Any], *, place: int = 0) -> ApprovalDecision:
    """The word of a person for an approval that the run waits for."""
    return ApprovalDecision(approval_id=run.waiting_for[place], approved=True, decided_by="grace")


def denying(run: Run[Any], *, place: int = 0) -> ApprovalDecision:
    return ApprovalDecision(approval_id=run.waiting_for[place], approved=False, decided_by="grace", reason="too much")


class Delegation:
    """A tool that starts another agent's run under its own, and remembers how that came back."""

    def __init__(self, office: Office, agent: Agent) -> None:
        self.runs: list[Run[Any]] = []
        self._office = office
        self._agent = agent

    async def __call__(self, arguments: dict[str, Any], context: Any) -> str:
        parent: RunContext = context.run
        self.runs.append(await self._office.run(self._agent, parent=parent))
        return "delegated"
