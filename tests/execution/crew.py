"""Several agents of one runner. Each plays a script of its own, whoever's run it is asked in."""

from collections.abc import Mapping, Sequence
from typing import Any

from app import (
    AgentRunner,
    ApprovalDecision,
    CancellationToken,
    CheckpointStore,
    Run,
    RunEvent,
    RunState,
    SuspensionStore,
    ToolRegistry,
)
from app.agents import Agent, SubAgent
from app.execution.keeping import KeptRun
from app.execution.submission import Budget
from app.ids import RunId
from app.ports.model import ModelRequest
from app.ports.tools import Tool, ToolContext
from app.providers import ScriptedCall, ScriptedProvider, ScriptedStep
from app.testing import FakeClock, SequentialIds
from tests.execution.fakes import call, calls, make_tool


def member(name: str, **fields: Any) -> Agent:
    """An agent whose requests are told from others' by its instructions."""
    return Agent(**{"name": name, "instructions": f"You are {name}.", **fields})


def called(agent: Agent, **fields: Any) -> SubAgent:
    """The agent as a tool of its caller."""
    return SubAgent(agent=agent, mode="tool", **fields)  # type: ignore[arg-type]


def hand_over(name: str) -> ScriptedStep:
    return call("transfer_to_agent", agent_name=name)


def speaker(request: ModelRequest) -> str:
    """Whose instructions the model reads."""
    return request.messages[0].content.removeprefix("You are ").partition(".")[0]


class Pointer:
    """A tool that asks the runtime for something besides giving its result."""

    def __init__(self, answer: str = "noted", **actions: Any) -> None:
        self.answer = answer
        self.calls: list[dict[str, Any]] = []
        self._actions = actions

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.calls.append(arguments)
        for name, value in self._actions.items():
            setattr(context.actions, name, value)
        return self.answer


class Crew:
    """A runner with a script for each agent. An agent's steps are played in the order in which it is asked; asked again
    about the same place (after a crash), it says the same again."""

    def __init__(
        self,
        scripts: Mapping[str, Sequence[ScriptedStep]],
        tools: Mapping[str, Any] | None = None,
        *,
        models: Sequence[str] = ("model",),
        clock: FakeClock | None = None,
        checkpoints: CheckpointStore | None = None,
        **runner_fields: Any,
    ) -> None:
        self._scripts = scripts
        self._places: dict[str, list[tuple[RunId, int]]] = {}
        self.provider = ScriptedProvider(dict.fromkeys(models, self._play))
        self.clock = FakeClock(auto_advance=False) if clock is None else clock
        self.checkpoints = CheckpointStore() if checkpoints is None else checkpoints
        self.suspensions = SuspensionStore()
        registry = ToolRegistry()
        for name, made in (tools or {}).items():
            registry.register(made if isinstance(made, Tool) else make_tool(name, made))
        self.runner = AgentRunner(
            provider=self.provider,
            tools=registry,
            clock=self.clock,
            ids=SequentialIds(),
            checkpoints=self.checkpoints,
            suspensions=self.suspensions,
            **runner_fields,
        )

    async def run(
        self,
        root: Agent,
        input: str = "Hi",
        *,
        cancellation: CancellationToken | None = None,
        budget: Budget = None,
        **fields: Any,
    ) -> Run[Any]:
        run: Run[Any] = await self.runner.run(
            root, input, tenant="acme", user="ada", cancellation=cancellation, budget=budget, **fields
        )
        return run

    def asked(self, name: str) -> list[ModelRequest]:
        """What the agent's model was asked."""
        return [request for request in self.provider.requests if speaker(request) == name]

    @property
    def speakers(self) -> list[str]:
        """Who was asked, in order."""
        return [speaker(request) for request in self.provider.requests]

    def log(self, run_id: str, *, root: str) -> tuple[RunEvent, ...]:
        """The log of a run below ``root``."""
        return self.kept(root).store.events(RunId(run_id))

    def record(self, run_id: str, *, root: str) -> Any:
        return self.kept(root).store.record(RunId(run_id))

    def kept(self, root: str) -> KeptRun:
        """The run as the process holds it."""
        kept = self.checkpoints.find(root)
        assert kept is not None
        return kept

    def _play(self, request: ModelRequest) -> ScriptedStep:
        name = speaker(request)
        places = self._places.setdefault(name, [])
        place = (request.run_id, request.iteration)
        if place not in places:
            places.append(place)
        return self._scripts[name][places.index(place)]


def kinds(run: Run[Any]) -> list[str]:
    return [event.kind for event in run.events]


def every(run: Run[Any], kind: type[Any]) -> list[Any]:
    return [event.body for event in run.events if isinstance(event.body, kind)]


def one(run: Run[Any], kind: type[Any]) -> Any:
    """The only event of its kind."""
    [body] = every(run, kind)
    return body


def authors(run: Run[Any], kind: type[Any]) -> list[str]:
    return [body.author for body in every(run, kind)]


def child_ids(run: Run[Any]) -> list[str]:
    """The runs below this one, in the order in which they were first called."""
    found = (getattr(event.body, "child_run_id", None) for event in run.events)
    return list(dict.fromkeys(run_id for run_id in found if run_id is not None))


def chief(*called_agents: Agent, **fields: Any) -> Agent:
    return member("chief", sub_agents=tuple(called(agent) for agent in called_agents), **fields)


def payer(**fields: Any) -> Agent:
    """An agent that asks people before it pays."""
    return member("payer", tools=("pay",), approval_required_tools=("pay",), **fields)


def to_pay(*inputs: str) -> ScriptedStep:
    """Calls of the payer, in one turn."""
    return calls(*[ScriptedCall(name="payer", arguments={"input": text}) for text in inputs])


def granted(run: Run[Any], *, place: int = 0) -> ApprovalDecision:
    return ApprovalDecision(approval_id=run.waiting_for[place], approved=True, decided_by="grace")


def states_below(crew: Crew, run: Run[Any]) -> list[RunState]:
    return [crew.record(child_id, root=run.run_id).state for child_id in child_ids(run)]


def kinds_below(crew: Crew, run: Run[Any], place: int = 0) -> list[str]:
    return [event.kind for event in crew.log(child_ids(run)[place], root=run.run_id)]
