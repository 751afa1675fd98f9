"""Which agents a run may go on under, or call: named in definitions, found and pinned when they are needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.agents import Agent, AgentVersion, SubAgent, draw_team, inline_team
from app.agents.team import granted
from app.errors import ConfigurationError, Conflict, FieldProblem, InvalidRequest, RequestError
from app.ports.catalogue import Catalogue
from app.ports.store import TenantTx
from app.service.models import models_of

# Each is read by itself when a run is submitted.
MAX_MEMBERS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Team:
    """An agent with the agents below it. ``whole`` holds them in place of their names; ``versions`` are what was
    found, by name, without the root, and ``found`` their definitions as they stand alone."""

    whole: Agent
    versions: Mapping[str, int] = field(default_factory=dict)
    found: Mapping[str, Agent] = field(default_factory=dict)

    @property
    def pinned(self) -> Mapping[str, int] | None:
        return dict(self.versions) or None

    def transfer_names(self) -> frozenset[str]:
        """The agents that the run itself may be under."""
        return frozenset(draw_team(self.whole))


async def find_team(tx: TenantTx, root: Agent, *, unknown: str, pointer: Callable[[int | None], str]) -> Team:
    """Finds whom the agent names, and whom these name, in the versions that a run would get now.

    ``pointer`` tells which field of the request holds the root's sub-agent of that number, or all of them. Raises
    InvalidRequest (``unknown`` is the code for names that are not there; ``invalid_team`` for what can be no team) and
    Conflict (``agent_retired``).
    """
    if not root.sub_agents:
        return Team(whole=root)
    search = _Search(tx)
    for index, entry in enumerate(root.below):
        await search.add(entry, path=(root.name,), pointer=pointer(index))
    search.refuse(unknown)
    found = search.found
    try:
        whole = inline_team(root, {name: version.agent for name, version in found.items()})
        for agent in everybody(whole):
            draw_team(agent)
    except ConfigurationError as error:
        raise _invalid_team(pointer(None), str(error)) from None
    return Team(
        whole=whole,
        versions={name: version.version for name, version in found.items()},
        found={name: version.agent for name, version in found.items()},
    )


async def find_pinned(tx: TenantTx, root: Agent, pinned: Mapping[str, int]) -> tuple[Team, Sequence[str]]:
    """The team in the versions that an earlier run had, and the names of those in it that are retired by now."""
    found: dict[str, Agent] = {}
    retired: list[str] = []
    for name, number in pinned.items():
        version = await tx.get_agent(name, number)
        if version is None:
            raise InvalidRequest(f"version {number} of {name} is not here any more", code="unknown_agent")
        found[name] = version.agent
        retired += [name] if version.retired else []
    return Team(whole=inline_team(root, found), versions=pinned, found=found), retired


def find_empty_grants(agent: Agent, found: Mapping[str, Agent]) -> Iterator[FieldProblem]:
    """Grants that come to nothing: of tools that the sub-agent does not have, and of none of those that it has where
    nobody said that it shall have none."""
    for index, entry in enumerate(agent.below):
        own = found[entry.name].tools
        for place, name in enumerate(entry.tools or ()):
            if name not in own:
                yield FieldProblem(
                    pointer=f"/sub_agents/{index}/tools/{place}", detail=f"{entry.name} does not have it"
                )
        if entry.tools is None and own and not set(own).intersection(agent.tools):
            told = f"{entry.name} may call none of its tools here; grant it some in tools, or say that it gets []"
            yield FieldProblem(pointer=f"/sub_agents/{index}", detail=told)


def everybody(whole: Agent) -> Iterator[Agent]:
    """The agent and all below it, each with the tools that it may call there."""
    yield whole
    for entry in whole.below:
        yield from everybody(granted(entry))


def models_by_agent(whole: Agent, catalogue: Catalogue) -> dict[str, Sequence[str]]:
    """Which models each agent may call, by the agents' names, the root first. One that names none has its caller's."""
    return dict(_models_below(whole, models_of(whole, catalogue), catalogue))


def _models_below(agent: Agent, models: Sequence[str], catalogue: Catalogue) -> Iterator[tuple[str, Sequence[str]]]:
    yield agent.name, models
    for entry in agent.below:
        below = granted(entry)
        names_none = below.model is None and below.task_class is None
        yield from _models_below(below, models if names_none else models_of(below, catalogue), catalogue)


def find_indeterminate(whole: Agent, catalogue: Catalogue, *, is_asked: bool = False) -> Iterator[tuple[str, str]]:
    """The agents that are deterministic, by themselves, by one above them or because it ``is_asked`` of all, and whose
    models can't promise that: each agent's name with what to tell."""
    able = {model.name for model in catalogue.models() if model.supports_deterministic}
    models = models_by_agent(whole, catalogue)
    for name in _deterministic_below(whole, is_asked):
        if unable := [model for model in models[name] if model not in able]:
            yield name, f"{', '.join(unable)} of {name} does not answer equal requests alike"


def _deterministic_below(agent: Agent, is_asked: bool) -> Iterator[str]:
    is_asked = is_asked or agent.deterministic
    if is_asked:
        yield agent.name
    for entry in agent.below:
        yield from _deterministic_below(granted(entry), is_asked)


class _Search:
    """Looks each name up once, and keeps what is wrong."""

    def __init__(self, tx: TenantTx) -> None:
        self._tx = tx
        self.found: dict[str, AgentVersion] = {}
        self._missing: list[FieldProblem] = []
        self._retired: list[FieldProblem] = []

    async def add(self, entry: SubAgent, *, path: tuple[str, ...], pointer: str) -> None:
        name = entry.name
        if name in path:
            raise _invalid_team(pointer, f"the team leads back into itself: {' → '.join((*path, name))}")
        if name in self.found:
            raise _invalid_team(pointer, f"{name} is in the team twice")
        version = await self._look_up(str(entry.agent), pointer)
        if version is None:
            return
        if len(self.found) == MAX_MEMBERS:
            raise _invalid_team(pointer, f"the team has more than {MAX_MEMBERS} agents below the first")
        self.found[name] = version
        for below in version.agent.below:
            await self.add(below, path=(*path, name), pointer=pointer)

    async def _look_up(self, reference: str, pointer: str) -> AgentVersion | None:
        name, _, number = reference.partition("@")
        version = await self._tx.get_agent(name, int(number) if number else None)
        if version is None:
            self._missing.append(FieldProblem(pointer=pointer, detail=f"there is no agent {reference}"))
        elif version.retired:
            self._retired.append(FieldProblem(pointer=pointer, detail=f"{name} is retired"))
        return version

    def refuse(self, unknown: str) -> None:
        if self._missing:
            raise InvalidRequest("a sub-agent is not known", code=unknown, problems=self._missing)
        if self._retired:
            told = "a sub-agent is retired; put its definition again to revive it"
            raise Conflict(told, code="agent_retired", problems=self._retired)


def _invalid_team(pointer: str, detail: str) -> RequestError:
    problem = FieldProblem(pointer=pointer, detail=detail)
    return InvalidRequest("the agents can't be one team", code="invalid_team", problems=[problem])
