"""What a new run has to pass, whoever asks for it and however: tools, models, prices, room in the queue, and what it
needs."""

from collections.abc import Collection, Iterator, Sequence

from app.agents import Agent
from app.errors import FieldProblem, InvalidRequest, TooManyRequests
from app.policy import CeilingDimension, ResolvedBudget
from app.ports.catalogue import Catalogue
from app.ports.model import DETERMINISTIC_UNAVAILABLE
from app.ports.store import TenantTx
from app.ports.tenancy import TenantRules
from app.service.models import find_unpriced, tell_unpriced
from app.service.teams import Team, everybody, find_indeterminate, models_by_agent


def refuse_ungranted_tools(whole: Agent, terms: TenantRules, *, pointer: str) -> None:
    """Raises InvalidRequest (``unknown_tool``) where an agent names a tool that its tenant was not granted, or not any
    more. One that no process has is no reason: the run waits for a worker that has it."""
    if terms.tools is None:
        return
    missing = {agent.name: [name for name in agent.tools if name not in terms.tools] for agent in everybody(whole)}
    problems = [
        FieldProblem(pointer=pointer, detail=f"{name} names {', '.join(tools)}, which is not this tenant's to use")
        for name, tools in missing.items()
        if tools
    ]
    if problems:
        raise InvalidRequest("a tool of the agent is not granted", code="unknown_tool", problems=problems)


def bounds_cost(budget: ResolvedBudget, terms: TenantRules) -> bool:
    """Whether a ceiling on cost holds for the run: its own, or one of its tenant's over a window."""
    over_time = any(ceiling.dimension is CeilingDimension.COST for ceiling in terms.ceilings)
    return over_time or budget.limits.max_cost is not None


def find_models(whole: Agent, catalogue: Catalogue, *, pointer: str) -> Sequence[str]:
    """The models of all agents, the first agent's first; each has at least one. Raises InvalidRequest
    (``unknown_model``)."""
    known = {model.name for model in catalogue.models()}
    found = models_by_agent(whole, catalogue)
    problems = [
        FieldProblem(pointer=pointer, detail=f"the model of {name} is not available in this deployment")
        for name, models in found.items()
        if not models or not known.issuperset(models)
    ]
    if problems:
        raise InvalidRequest("the agent's model is not available", code="unknown_model", problems=problems)
    return list(dict.fromkeys(model for models in found.values() for model in models))


def refuse_unpriced(models: Sequence[str], catalogue: Catalogue, *, pointer: str) -> None:
    """Raises InvalidRequest (``price_missing``): a ceiling on a cost that can't be told would bound nothing."""
    if unpriced := find_unpriced(models, catalogue):
        problem = FieldProblem(pointer=pointer, detail=tell_unpriced(unpriced))
        raise InvalidRequest("a cost is bounded that can't be told", code="price_missing", problems=[problem])


def refuse_indeterminate(team: Team, catalogue: Catalogue, *, is_asked: bool, pointer: str) -> None:
    """Raises InvalidRequest (``deterministic_unavailable``) where an agent is deterministic, or all are asked to be,
    and its model can't promise that."""
    problems = [
        FieldProblem(pointer=pointer, detail=told)
        for _, told in find_indeterminate(team.whole, catalogue, is_asked=is_asked)
    ]
    if problems:
        told = "a model can't promise equal answers to equal requests"
        raise InvalidRequest(told, code=DETERMINISTIC_UNAVAILABLE, problems=problems)


async def refuse_if_queue_is_full(tx: TenantTx, max_queued_runs: int) -> None:
    """Raises TooManyRequests (``queue_full``), with the time in which the next place becomes free."""
    # Requests that count at the same time may pass the limit by as many as they are: it bounds a queue, no more.
    if await tx.count_queued(up_to=max_queued_runs) >= max_queued_runs:
        told = f"{max_queued_runs} runs are queued, which is this tenant's limit"
        raise TooManyRequests(told, code="queue_full", retry_after_seconds=await tx.queue_wait_seconds())


def needs_of(whole: Agent, models: Collection[str]) -> frozenset[str]:
    """What a worker must have to drive a run of the agent with all who are below it: ``model:llama:default``,
    ``tool:look_up``, ``hook:…``, ``guardrail:…``, ``callbacks:…``."""
    return frozenset([*(f"model:{model}" for model in models), *_named_by(whole)])


def _named_by(whole: Agent) -> Iterator[str]:
    for agent in everybody(whole):
        yield from (f"tool:{name}" for name in agent.tools)
        yield from (f"hook:{name}" for name in agent.hooks)
        yield from (f"guardrail:{name}" for name in agent.guardrails)
        yield from (f"callbacks:{name}" for name in agent.callbacks)
