"""Agents: store a definition, read, list, retire."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from app.agents import Agent, AgentVersion
from app.agents.definition import AGENT_NAME_PATTERN
from app.agents.team import granted
from app.errors import FieldProblem, InvalidRequest, NotFound
from app.policy import Effect
from app.ports.catalogue import Catalogue
from app.ports.model import DETERMINISTIC_UNAVAILABLE
from app.ports.store import TenantTx
from app.service.grants import GrantedCatalogue
from app.service.models import find_unpriced, tell_unpriced
from app.service.teams import everybody, find_empty_grants, find_indeterminate, find_team, models_by_agent


async def put(tx: TenantTx, agent: Agent, *, catalogue: Catalogue) -> tuple[AgentVersion, bool]:
    """Stores a definition; True when it became a new version.

    Raises InvalidRequest with a pointer to each thing that is wrong: ``invalid_request`` for more metadata than
    callers may store, and for a tool that is loosened; ``unknown_name`` for names that this deployment or tenant does
    not have; ``invalid_team`` for sub-agents that can't work together, ``empty_grant`` for one that would have no tool;
    ``price_missing`` for a ceiling on a cost that can't be told; ``deterministic_unavailable`` where a model can't
    promise what the definition does. Raises Conflict (``agent_retired``) for a sub-agent that takes no more runs.
    """
    available = GrantedCatalogue(whole=catalogue, rules=await tx.rules())
    _check(_OWN_CHECKS, agent, available)
    team = await find_team(tx, agent, unknown="unknown_name", pointer=_point_to_entry)
    if problems := list(find_empty_grants(agent, team.found)):
        raise InvalidRequest("a sub-agent is granted nothing by this", code="empty_grant", problems=problems)
    _check(_TEAM_CHECKS, team.whole, available)
    return await tx.put_agent(agent)


def _check(checks: "_Checks", agent: Agent, catalogue: Catalogue) -> None:
    for code, told, find in checks:
        if problems := list(find(agent, catalogue)):
            raise InvalidRequest(told, code=code, problems=problems)


def _point_to_entry(index: int | None) -> str:
    return "/sub_agents" if index is None else f"/sub_agents/{index}"


async def get(tx: TenantTx, name: str, *, version: int | None = None) -> AgentVersion:
    """That version, or the newest one; a retired one too. Raises NotFound."""
    found = await tx.get_agent(name, version) if is_agent_name(name) else None
    if found is None:
        raise NotFound("there is no such agent or version")
    return found


async def list_page(tx: TenantTx, *, limit: int, after: str | None) -> tuple[Sequence[AgentVersion], str | None]:
    """The newest versions of up to ``limit`` agents by name, and the name after which the next page begins."""
    found = await tx.list_agents(limit=limit + 1, after=after)
    page = found[:limit]
    return page, page[-1].agent.name if len(found) > limit else None


async def retire(tx: TenantTx, name: str) -> None:
    """No new runs; those that run keep their version. Retiring twice is retiring once. Raises NotFound."""
    if not (is_agent_name(name) and await tx.retire_agent(name)):
        raise NotFound("there is no such agent")


def is_agent_name(name: str) -> bool:
    return re.fullmatch(AGENT_NAME_PATTERN.strip("^$"), name) is not None


def _find_excess(agent: Agent, _: Catalogue) -> Iterator[FieldProblem]:
    # For callers; a definition in a file of the operator's may hold more.
    pairs = agent.metadata.items()
    if len(pairs) > 16 or not all(0 < len(name) <= 64 and len(value) <= 512 for name, value in pairs):
        yield FieldProblem(pointer="/metadata", detail="at most 16 pairs, names up to 64 and values up to 512 long")


def _find_unknown_names(agent: Agent, catalogue: Catalogue) -> Iterator[FieldProblem]:
    tools = {tool.name: tool for tool in catalogue.tools()}
    yield from _find_strays("/tools", agent.tools, tools)
    yield from _find_strays("/hooks", agent.hooks, catalogue.hook_names())
    yield from _find_strays("/guardrails", agent.guardrails, catalogue.guardrail_names())
    yield from _find_strays("/callbacks", agent.callbacks, catalogue.callback_names())
    for index, entry in enumerate(agent.below):
        yield from _find_strays(f"/sub_agents/{index}/tools", entry.tools or (), tools)
    if agent.model is not None and all(model.name != agent.model for model in catalogue.models()):
        yield FieldProblem(pointer="/model", detail="this deployment does not have it")
    if agent.task_class is not None and not catalogue.route(agent.task_class):
        yield FieldProblem(pointer="/task_class", detail="this deployment has no route for it")


def _find_loosened(agent: Agent, catalogue: Catalogue) -> Iterator[FieldProblem]:
    """An agent may tighten a tool, never loosen it. A tool of which nothing was declared may be called idempotent."""
    once = {tool.name for tool in catalogue.tools() if tool.effect is Effect.ONCE}
    for index, name in enumerate(agent.idempotent_tools):
        if name in once:
            yield FieldProblem(pointer=f"/idempotent_tools/{index}", detail="its author declared that tool once")


def _find_unpriced(whole: Agent, catalogue: Catalogue) -> Iterator[FieldProblem]:
    if whole.budget.max_cost is None:
        return
    models = {model for models in models_by_agent(whole, catalogue).values() for model in models}
    if unpriced := find_unpriced(sorted(models), catalogue):
        yield FieldProblem(pointer="/budget/max_cost", detail=tell_unpriced(unpriced))


def _find_indeterminate(whole: Agent, catalogue: Catalogue) -> Iterator[FieldProblem]:
    places = {agent.name: index for index, entry in enumerate(whole.below) for agent in everybody(granted(entry))}
    for name, told in find_indeterminate(whole, catalogue):
        own = "/deterministic" if whole.deterministic else _point_to_entry(places.get(name))
        yield FieldProblem(pointer=own, detail=told)


def _find_strays(pointer: str, names: Sequence[str], known: Collection[str]) -> Iterator[FieldProblem]:
    for index, name in enumerate(names):
        if name not in known:
            yield FieldProblem(pointer=f"{pointer}/{index}", detail="this deployment does not have it")


_Checks = Sequence[tuple[str, str, Callable[[Agent, Catalogue], Iterator[FieldProblem]]]]

# One after the other: what a name stands for can be asked only where it is known.
_OWN_CHECKS: Final[_Checks] = (
    (InvalidRequest.code, "the definition is not what this route takes", _find_excess),
    ("unknown_name", "the definition names what is not there", _find_unknown_names),
    (InvalidRequest.code, "the definition loosens a tool", _find_loosened),
)
_TEAM_CHECKS: Final[_Checks] = (
    ("price_missing", "the definition bounds a cost that can't be told", _find_unpriced),
    (DETERMINISTIC_UNAVAILABLE, "a model can't promise equal answers to equal requests", _find_indeterminate),
)
