"""Several agents that share one run: who may hand it to whom, and what each of them may call.

A team is drawn from its root's ``sub_agents``. A member's tools are what its caller's author gave it (``SubAgent``):
handing the run over never widens what it may do.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.agents.definition import TRANSFER_TOOL, Agent, SubAgent, SubAgentMode, ToolChoice
from app.agents.tools import ToolDeclaration
from app.errors import ConfigurationError

_MOST_MEMBERS: Final = 256

# What belongs to the run as a whole, and not to the agent that it happens to be under.
_OF_THE_RUN: Final = ("budget", "max_llm_calls", "max_iterations", "output_schema")


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One agent of a team. ``agent`` carries the tools that it may call in this team, its own names only.

    ``targets`` are the agents that it may hand the run to, with what they are for. ``delegates`` are the agents that it
    may call, by the names of their tools.
    """

    agent: Agent
    parent: str | None = None
    targets: Mapping[str, str] = field(default_factory=dict)
    delegates: Mapping[str, Agent] = field(default_factory=dict)

    def transfer_declaration(self) -> ToolDeclaration | None:
        """How the model is told to whom it may hand over; None where there is nobody."""
        if not self.targets:
            return None
        # By name: the order in which a team is written down must not make its prompt another one.
        targets = sorted(self.targets.items())
        listed = "".join(f"\n- {name}: {said}" if said else f"\n- {name}" for name, said in targets)
        return ToolDeclaration(
            name=TRANSFER_TOOL,
            description=f"Hands the conversation over to another agent, which then answers:{listed}",
            parameters={
                "type": "object",
                "properties": {"agent_name": {"type": "string", "enum": [name for name, _ in targets]}},
                "required": ["agent_name"],
                "additionalProperties": False,
            },
        )


def tool_name_of(agent_name: str) -> str:
    """How an agent is called as a tool."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", agent_name)
    return name if not name[0].isdigit() else f"_{name[:63]}"


def draw_team(root: Agent) -> Mapping[str, Member]:
    """The members by name, the root first. Raises ConfigurationError for an agent that is only named, one that is in
    the team twice, and one that would bring along what belongs to the run."""
    if not root.sub_agents:
        return {root.name: Member(agent=root)}
    members: dict[str, Member] = {}
    _check(root)
    for agent, parent, peers in _walk(root, None, ()):
        members[agent.name] = Member(
            agent=agent,
            parent=None if parent is None else parent.name,
            targets=_targets(agent, parent, peers),
            delegates=_delegates(agent),
        )
    return members


def _walk(
    agent: Agent, parent: Agent | None, peers: tuple[Agent, ...]
) -> Iterator[tuple[Agent, Agent | None, tuple[Agent, ...]]]:
    yield agent, parent, peers
    below = tuple(granted(entry) for entry in agent.below if entry.mode is SubAgentMode.TRANSFER)
    for sub_agent in below:
        yield from _walk(sub_agent, agent, tuple(other for other in below if other is not sub_agent))


def granted(entry: SubAgent) -> Agent:
    """The agent with the tools that it may call below its caller. Raises ConfigurationError for one that is only
    named."""
    agent = entry.agent
    if isinstance(agent, str):
        raise ConfigurationError(f"the agent {agent!r} is named as a sub-agent, and is not here")
    if entry.tools is None:
        return agent
    tools = tuple(name for name in agent.tools if name in entry.tools)
    choice = agent.tool_choice
    return agent.model_copy(
        update={
            "tools": tools,
            "idempotent_tools": tuple(name for name in agent.idempotent_tools if name in tools),
            "approval_required_tools": tuple(name for name in agent.approval_required_tools if name in tools),
            "tool_choice": choice if choice in tools or choice not in agent.tools else ToolChoice.AUTO.value,
        }
    )


def _targets(agent: Agent, parent: Agent | None, peers: tuple[Agent, ...]) -> Mapping[str, str]:
    below = [granted(entry) for entry in agent.below if entry.mode is SubAgentMode.TRANSFER]
    above = [parent] if parent is not None and not agent.disallow_transfer_to_parent else []
    beside = [] if parent is None or agent.disallow_transfer_to_peers else list(peers)
    return {other.name: other.description for other in (*below, *above, *beside)}


def _delegates(agent: Agent) -> Mapping[str, Agent]:
    called = [granted(entry) for entry in agent.below if entry.mode is SubAgentMode.TOOL]
    return {tool_name_of(other.name): other for other in called}


def _check(root: Agent) -> None:
    """Each agent is in a team once: its name is who an event is by. Those that are only called have teams of their own
    below them, which are judged here too."""
    seen: set[str] = set()
    for agent in _everybody(root):
        if agent.name in seen:
            raise ConfigurationError(f"the agent {agent.name!r} is in the team of {root.name!r} twice")
        seen.add(agent.name)
        if len(seen) > _MOST_MEMBERS:
            raise ConfigurationError(f"the team of {root.name!r} has more than {_MOST_MEMBERS} agents")
        called = [tool_name_of(entry.name) for entry in agent.below if entry.mode is SubAgentMode.TOOL]
        names = [*agent.tools, *called]
        if taken := {TRANSFER_TOOL, *(choice.value for choice in ToolChoice)}.intersection(called):
            raise ConfigurationError(f"a sub-agent of {agent.name!r} has a reserved name: {', '.join(sorted(taken))}")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError(f"two tools of {agent.name!r} are called alike: {', '.join(twice)}")
        for entry in agent.below:
            if entry.mode is SubAgentMode.TRANSFER:
                _check_target(granted(entry))


def _everybody(agent: Agent) -> Iterator[Agent]:
    yield agent
    for entry in agent.below:
        yield from _everybody(granted(entry))


def _check_target(agent: Agent) -> None:
    if found := why_no_target(agent):
        raise ConfigurationError(f"{agent.name!r} can't take a run over: {found}")


def why_no_target(agent: Agent) -> str | None:
    """Why no run can be handed to an agent: it declares what belongs to the run as a whole. None where one can."""
    fields = Agent.model_fields
    own = [name for name in _OF_THE_RUN if getattr(agent, name) != fields[name].get_default(call_default_factory=True)]
    if agent.deadlines is not None and agent.deadlines.run_seconds is not None:
        own.append("deadlines.run_seconds")
    return f"{', '.join(own)} belong to the run, which has them from its first agent" if own else None


def inline_team(root: Agent, versions: Mapping[str, Agent]) -> Agent:
    """The agent with the agents themselves where its ``sub_agents`` only name them. ``versions`` go by name.

    A named agent hands on no more than it was given itself, whatever its own author grants to those below it. Raises
    ConfigurationError for a name that is not there, and where a team leads back into itself.
    """
    return _inline(root, versions, path=(root.name,), most=None)


def _inline(agent: Agent, versions: Mapping[str, Agent], *, path: tuple[str, ...], most: Sequence[str] | None) -> Agent:
    """``most`` is what the agents below may have at all; None where their author is the one who grants."""
    entries: list[SubAgent] = []
    for entry in agent.below:
        if entry.name in path:
            raise ConfigurationError(f"the team leads back into itself: {'→'.join((*path, entry.name))}")
        is_named = isinstance(entry.agent, str)
        found = versions.get(entry.name) if isinstance(entry.agent, str) else entry.agent
        if found is None:
            raise ConfigurationError(f"the agent {entry.agent!r} is named as a sub-agent, and is not here")
        tools = agent.tools if is_named and entry.tools is None else entry.tools
        if most is not None:
            tools = tuple(name for name in found.tools if name in most and (tools is None or name in tools))
        below = granted(SubAgent(agent=found, mode=entry.mode, tools=tools))
        whole = _inline(below, versions, path=(*path, entry.name), most=below.tools if is_named else most)
        entries.append(SubAgent(agent=whole, mode=entry.mode))
    return agent.model_copy(update={"sub_agents": tuple(entries)}) if entries else agent


def takes_up(root: Agent, last_agent: str | None) -> str | None:
    """Who begins the next run of a conversation in which ``last_agent`` spoke last; None for the root.

    As in ADK: an agent that could hand back, and whose callers could too, goes on where it was; any other conversation
    begins at the root again. Raises ConfigurationError for a team that can't be drawn.
    """
    if last_agent is None or last_agent == root.name or not root.sub_agents:
        return None
    team = draw_team(root)
    name = last_agent
    while name in team and (parent := team[name].parent) is not None:
        if team[name].agent.disallow_transfer_to_parent:
            return None
        name = parent
    return last_agent if last_agent in team else None
