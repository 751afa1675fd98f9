"""Agents: store a definition, read, list, retire."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from app.agents import Agent, AgentVersion
from app.agents.definition import AGENT_NAME_PATTERN
from app.errors import FieldProblem, InvalidRequest, NotFound
from app.policy import Effect
from app.ports.catalogue import Catalogue
from app.ports.store import TenantTx


async def put(tx: TenantTx, agent: Agent, *, catalogue: Catalogue) -> tuple[AgentVersion, bool]:
    """Stores a definition; True when it became a new version.

    Raises InvalidRequest (``unknown_name``) with a pointer to each name that this deployment does not have.
    """
    if not _is_within_bounds(agent.metadata):
        problem = FieldProblem(pointer="/metadata", detail="at most 16 pairs, names up to 64 and values up to 512 long")
        raise InvalidRequest("the metadata is too large", problems=[problem])
    if problems := list(_find_unknown_names(agent, catalogue)):
        raise InvalidRequest("the definition names what is not there", code="unknown_name", problems=problems)
    return await tx.put_agent(agent)


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


def _is_within_bounds(metadata: Mapping[str, str]) -> bool:
    # The contract's "Sizes", for callers; a definition in a file of the operator's may hold more.
    return len(metadata) <= 16 and all(0 < len(name) <= 64 and len(value) <= 512 for name, value in metadata.items())


def _find_unknown_names(agent: Agent, catalogue: Catalogue) -> Iterator[FieldProblem]:
    tools = {tool.name: tool for tool in catalogue.tools()}
    yield from _find_strays("/tools", agent.tools, tools)
    yield from _find_strays("/hooks", agent.hooks, catalogue.hook_names())
    yield from _find_strays("/guardrails", agent.guardrails, catalogue.guardrail_names())
    for index, name in enumerate(agent.idempotent_tools):
        # An agent may tighten a tool, never loosen it.
        if name in tools and tools[name].effect is Effect.ONCE:
            yield FieldProblem(pointer=f"/idempotent_tools/{index}", detail="its author declared that tool once")
    if agent.model is not None and all(model.name != agent.model for model in catalogue.models()):
        yield FieldProblem(pointer="/model", detail="this deployment does not have it")


def _find_strays(pointer: str, names: Sequence[str], known: Collection[str]) -> Iterator[FieldProblem]:
    for index, name in enumerate(names):
        if name not in known:
            yield FieldProblem(pointer=f"{pointer}/{index}", detail="this deployment does not have it")
