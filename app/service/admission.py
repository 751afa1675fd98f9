"""What a new run has to pass, whoever asks for it and however: models, prices, room in the queue, and what it needs."""

from collections.abc import Collection, Iterator, Sequence

from app.agents import Agent
from app.errors import FieldProblem, InvalidRequest, TooManyRequests
from app.ports.catalogue import Catalogue
from app.ports.model import DETERMINISTIC_UNAVAILABLE
from app.ports.store import TenantTx
from app.service.models import find_unpriced, tell_unpriced
from app.service.teams import Team, everybody, find_indeterminate, models_by_agent


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
    """Raises TooManyRequests (``queue_full``)."""
    # Requests that count at the same time may pass the limit by as many as they are: it bounds a queue, no more.
    if await tx.count_queued(up_to=max_queued_runs) >= max_queued_runs:
        raise TooManyRequests(
            f"{max_queued_runs} runs are queued, which is this tenant's limit", code="queue_full", retry_after_seconds=1
        )


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
