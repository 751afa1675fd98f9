"""Whatever the team and whatever its models ask for: every run ends once, under one of its members, within its bounds,
and no tool goes out that was not granted."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app import ConcurrencyConfig
from app.agents import Agent, SubAgent, draw_team
from app.events import AgentTransfer, RunEvent, ToolCalled
from app.ports.model import ModelRequest
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedStep
from tests.execution.crew import Crew, member

TOOLS = ("look", "pay", "jump", "rise", "finish", "break_")
CAP = 12


@st.composite
def teams(draw: st.DrawFn) -> Agent:
    """A root and up to six agents anywhere below it."""
    names = [f"a{number}" for number in range(draw(st.integers(1, 7)))]
    below: dict[str, list[str]] = {name: [] for name in names}
    for place, name in enumerate(names[1:], start=1):
        below[names[draw(st.integers(0, place - 1))]].append(name)

    def build(name: str) -> Agent:
        entries = tuple(
            SubAgent(
                agent=build(low),
                mode=draw(st.sampled_from(["transfer", "tool"])),  # type: ignore[arg-type]
                tools=draw(st.none() | granted),
            )
            for low in below[name]
        )
        return member(
            name,
            tools=draw(granted),
            sub_agents=entries,
            disallow_transfer_to_parent=draw(st.booleans()),
            disallow_transfer_to_peers=draw(st.booleans()),
            concurrency=ConcurrencyConfig(max_concurrent_tools=draw(st.integers(1, 3))),
        )

    granted = st.lists(st.sampled_from(TOOLS), unique=True).map(tuple)
    return build(names[0]).model_copy(update={"max_llm_calls": CAP})


class Erratic:
    """Models that ask for anything, mostly for what they were offered. The same for the same place of the same run."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, request: ModelRequest) -> ScriptedStep:
        chance = random.Random(f"{self._seed}/{request.run_id}/{request.iteration}")
        width = chance.choice([0, 1, 1, 1, 1, 2, 2, 3]) if request.tools else 0
        made = tuple(self._call(request, chance) for _ in range(width))
        return ScriptedStep(text=chance.choice(["", "Well."]) if made else "Well.", calls=made)

    def _call(self, request: ModelRequest, chance: random.Random) -> ScriptedCall:
        offered = [tool.name for tool in request.tools]
        name = chance.choice([*offered * 40, *TOOLS])
        if name == "transfer_to_agent":
            return ScriptedCall(name=name, arguments={"agent_name": self._target(request, chance)})
        if name in TOOLS:
            return ScriptedCall(name=name, arguments={"n": chance.randrange(100)})
        return ScriptedCall(name=name, arguments={"input": f"Do {chance.randrange(100)}."})

    def _target(self, request: ModelRequest, chance: random.Random) -> str:
        transfers = [tool for tool in request.tools if tool.name == "transfer_to_agent"]
        enums: list[list[str]] = [tool.parameters["properties"]["agent_name"]["enum"] for tool in transfers]
        return chance.choice([*(name for enum in enums for name in enum * 40), f"a{chance.randrange(8)}"])


class Kit:
    """Tools that note who called them, and that ask for anything."""

    def __init__(self, seed: int) -> None:
        self.used: list[tuple[str, str]] = []
        self._seed = seed
        self.tools = {name: self._make(name) for name in TOOLS}

    def _make(self, name: str) -> Any:
        async def tool(arguments: dict[str, Any], context: ToolContext) -> str:
            self.used.append((context.agent, name))
            await asyncio.sleep(0)
            self._ask(name, context)
            return "done"

        return tool

    def _ask(self, name: str, context: ToolContext) -> None:
        actions = context.actions
        actions.escalate = name == "rise"
        actions.skip_summarization = name == "finish"
        if name == "jump":
            actions.transfer_to_agent = f"a{random.Random(f'{self._seed}/{context.call_id}').randrange(8)}"
        if name == "break_":
            raise RuntimeError("out of order")


def drawn(root: Agent) -> Iterator[tuple[str, Agent]]:
    """Every agent with the tools that it was granted, by name; those that are called too."""
    for name, one in draw_team(root).items():
        yield name, one.agent
        for delegate in one.delegates.values():
            yield from drawn(delegate)


def team_of(path: str, root: Agent) -> set[str]:
    """The agents that a run of this agent can be under."""
    [agent] = [agent for name, agent in drawn(root) if name == path]
    return set(draw_team(agent))


@settings(max_examples=120, deadline=None)
@given(root=teams(), seed=st.integers(0, 10_000))
def test_any_team_and_any_transfers_end_once_under_a_member_with_nothing_but_granted_tools(
    root: Agent, seed: int
) -> None:
    kit = Kit(seed)
    crew = Crew({}, kit.tools)
    crew.provider._scripts["model"] = Erratic(seed)
    run = asyncio.run(crew.run(root))
    logs = dict(walk(crew, run.events, root.name, run.run_id))
    agents = dict(drawn(root))
    assert run.state.is_terminal
    assert [log[-1].kind for log in logs.values()] == ["terminated"] * len(logs)
    assert [sum(event.kind == "terminated" for event in log) for log in logs.values()] == [1] * len(logs)
    assert {event.body.author for log in logs.values() for event in log[1:]} <= set(agents)
    assert [name for (name, _), log in logs.items() if not authors_of(log) <= team_of(name, root)] == []
    assert [(who, tool) for who, tool in kit.used if tool not in agents[who].tools] == []
    assert [moved for log in logs.values() for moved in transfers(log) if not is_allowed(root, *moved)] == []
    assert len(crew.provider.requests) <= CAP


def walk(
    crew: Crew, events: tuple[RunEvent, ...], name: str, root: str
) -> Iterator[tuple[tuple[str, str], tuple[RunEvent, ...]]]:
    """The logs of a run and of everything below it, by who it was begun under and its id."""
    yield (name, events[0].run_id), events
    for event in events:
        made = event.body
        if isinstance(made, ToolCalled) and made.child_run_id is not None and made.dispatch == 1:
            yield from walk(crew, crew.log(made.child_run_id, root=root), made.name, root)


def authors_of(log: tuple[RunEvent, ...]) -> set[str]:
    return {event.body.author for event in log[1:]}


def transfers(log: tuple[RunEvent, ...]) -> list[tuple[str, str, bool]]:
    moves = [event.body for event in log if isinstance(event.body, AgentTransfer)]
    return [(moved.from_agent, moved.to_agent, bool(moved.actions.escalate)) for moved in moves]


def is_allowed(root: Agent, from_agent: str, to_agent: str, escalates: bool) -> bool:
    """Whether one of the teams lets that agent hand over to this one."""
    members = [team[from_agent] for _, one in drawn(root) if from_agent in (team := draw_team(one))]
    return any(to_agent in found.targets or (escalates and to_agent == found.parent) for found in members)
