"""Runs: submit, read, list, cancel, wait.

Promises kept here (the architecture's numbers):

10. No transaction is open while somebody waits.
12. Ids come from outside; times are the store's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from app.agents import Agent, AgentVersion
from app.auth import Principal
from app.conversation import Message
from app.errors import Conflict, FieldProblem, InvalidRequest, NotFound, TooManyRequests
from app.events import RunState
from app.ids import RunId, TenantId, is_id
from app.policy import BudgetLimits, Deadline, DeadlineConfig, Scope, most_restrictive
from app.ports.catalogue import Catalogue
from app.ports.clock import IdSource
from app.ports.feed import Doorbell, Subscription
from app.ports.records import CancelWish, NewRun, RunContextInput, RunFilter, RunRecord
from app.ports.store import TenantTx
from app.service import idempotency
from app.service.agents import is_agent_name
from app.service.drain import next_news
from app.service.idempotency import IdempotencyKey
from app.service.models import find_unpriced, models_of, tell_unpriced
from app.service.reading import Reading

_AGENT_REFERENCE: Final = re.compile(r"([a-z0-9][a-z0-9._-]{0,63})(?:@([1-9][0-9]{0,8}))?")


class RunRules(BaseModel):
    """What the operator allows every run. ``deadlines``: a default that an agent's own replaces. Budgets narrow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: BudgetLimits = Field(default_factory=BudgetLimits.conservative)
    deadlines: DeadlineConfig = Field(default_factory=DeadlineConfig)
    max_queued_runs: int = Field(default=10_000, ge=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission:
    """What it takes to accept a run."""

    ids: IdSource
    catalogue: Catalogue
    rules: RunRules


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """A run as a caller asks for it. ``agent`` is ``name`` or ``name@version``; ``output_schema``, once it was checked,
    stands in for the agent's; the rest narrows and never widens."""

    agent: str
    input: str | tuple[Message, ...]
    user: str | None = None
    timeout_seconds: float | None = None
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    max_llm_calls: int | None = None
    output_schema: dict[str, Any] | None = None
    context: RunContextInput = field(default_factory=RunContextInput)
    priority: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """An accepted run. ``replayed``: the idempotency key had led to it before."""

    run: RunRecord
    replayed: bool


async def submit(
    tx: TenantTx,
    principal: Principal,
    request: RunRequest,
    *,
    admission: Admission,
    key: IdempotencyKey | None = None,
) -> Submitted:
    """Writes a run into the queue and fixes what may not drift: version, model, form of the answer, deadline, budget.

    Nothing is accepted before the transaction commits; whoever commits it then calls ``Feed.announce_queued``.
    Raises InvalidRequest (``unknown_agent``, ``unknown_model``, ``price_missing``, ``idempotency_key_reused``),
    Conflict (``agent_retired``, ``idempotency_in_progress``), TooManyRequests (``queue_full``).
    """
    if key is not None and (earlier := await idempotency.find_earlier_run(tx, key)) is not None:
        return Submitted(run=await get(tx, earlier), replayed=True)
    version = await _find_agent(tx, request.agent)
    agent = version.agent
    models = _find_models(agent, admission.catalogue)
    budget = most_restrictive(
        {Scope.DEPLOYMENT: admission.rules.budget, Scope.AGENT: agent.budget, Scope.REQUEST: request.budget}
    )
    if budget.limits.max_cost is not None:
        _refuse_unpriced(models, request, admission.catalogue)
    await _refuse_if_queue_is_full(tx, admission.rules.max_queued_runs)
    run_id = RunId(admission.ids.new("run"))
    run = await tx.insert_run(
        NewRun(
            run_id=run_id,
            tenant_id=tx.tenant_id,
            agent=agent,
            agent_version=version.version,
            input=request.input,
            context=request.context,
            user=request.user,
            subject=principal.subject,
            # Of a route the router takes its choice when the run starts.
            model=models[0] if agent.task_class is None else None,
            output_schema=agent.output_schema if request.output_schema is None else request.output_schema,
            deadline_at=_fix_deadline(request, agent, admission.rules, now=await tx.now()),
            budget=budget,
            max_llm_calls=min(agent.max_llm_calls, request.max_llm_calls or agent.max_llm_calls),
            priority=request.priority,
            metadata=request.metadata,
        )
    )
    if key is not None:
        await idempotency.settle(tx, key, run_id)
    return Submitted(run=run, replayed=False)


async def get(tx: TenantTx, run_id: str) -> RunRecord:
    """Raises NotFound for an unknown id, another tenant's, and a text that is no id: the three look the same."""
    run = await tx.get_run(RunId(run_id)) if is_id("run", run_id) else None
    if run is None:
        raise NotFound("there is no such run")
    return run


async def list_page(
    tx: TenantTx, where: RunFilter, *, limit: int, before: tuple[float, RunId] | None
) -> tuple[Sequence[RunRecord], tuple[float, RunId] | None]:
    """Up to ``limit`` runs, newest first, and where the next page begins; None on the last one."""
    if where.agent is not None and not is_agent_name(where.agent):
        # No run has it, and the database would refuse some of the texts that are no name.
        return (), None
    runs = await tx.list_runs(where, limit=limit + 1, before=before)
    page = runs[:limit]
    return page, (page[-1].created_at, page[-1].run_id) if len(runs) > limit else None


async def cancel(tx: TenantTx, principal: Principal, run_id: str, *, reason: str | None) -> RunRecord:
    """Writes the wish to end the run; asking again, or asking for a run that has ended, changes nothing.

    Whoever commits it then calls ``Feed.announce_cancel`` where the run goes on. Raises NotFound.
    """
    await get(tx, run_id)
    run = await tx.request_cancel(RunId(run_id), CancelWish(reason=reason, requested_by=principal.actor))
    if run is None:
        raise NotFound("there is no such run")
    return run


async def wait(reading: Reading, tenant_id: TenantId, run_id: RunId, *, seconds: float) -> RunRecord:
    """The run as soon as it has ended or waits for an approval, and at the latest after so many seconds."""
    until = reading.clock.monotonic() + seconds
    subscription = reading.feed.subscribe(run_id)
    try:
        while True:
            async with reading.store.begin(tenant_id) as tx:
                run = await get(tx, run_id)
            if _is_at_rest(run.state) or reading.drain.is_draining or reading.clock.monotonic() >= until:
                return run
            await _hear_doorbell(reading, subscription, until=until)
    finally:
        subscription.close()


async def _hear_doorbell(reading: Reading, subscription: Subscription, *, until: float) -> None:
    """Returns when the run may be at rest: at such a doorbell, after the slow poll's time, or when time is up."""
    look_at = min(until, reading.clock.monotonic() + reading.poll_seconds)
    while not reading.drain.is_draining and (left := look_at - reading.clock.monotonic()) > 0:
        news = await next_news(subscription, reading.drain, left)
        # Neither a delta nor a step on the way is a reason to ask the database again.
        if any(isinstance(signal, Doorbell) and signal.may_have_ended for signal in news):
            return


def _is_at_rest(state: RunState) -> bool:
    return state.is_terminal or state is RunState.SUSPENDED


async def _find_agent(tx: TenantTx, reference: str) -> AgentVersion:
    match = _AGENT_REFERENCE.fullmatch(reference)
    version = await tx.get_agent(match[1], int(match[2]) if match[2] else None) if match else None
    if version is None:
        problem = FieldProblem(pointer="/agent", detail="there is no such agent or version")
        raise InvalidRequest("the agent is not known", code="unknown_agent", problems=[problem])
    if version.retired:
        raise Conflict("the agent is retired; put its definition again to revive it", code="agent_retired")
    return version


def _find_models(agent: Agent, catalogue: Catalogue) -> Sequence[str]:
    """At least one."""
    names = models_of(agent, catalogue)
    if not names or not {model.name for model in catalogue.models()}.issuperset(names):
        problem = FieldProblem(pointer="/agent", detail="its model is not available in this deployment")
        raise InvalidRequest("the agent's model is not available", code="unknown_model", problems=[problem])
    return names


def _refuse_unpriced(models: Sequence[str], request: RunRequest, catalogue: Catalogue) -> None:
    if unpriced := find_unpriced(models, catalogue):
        pointer = "/agent" if request.budget.max_cost is None else "/budget/max_cost"
        problem = FieldProblem(pointer=pointer, detail=tell_unpriced(unpriced))
        raise InvalidRequest("a cost is bounded that can't be told", code="price_missing", problems=[problem])


async def _refuse_if_queue_is_full(tx: TenantTx, max_queued_runs: int) -> None:
    # Requests that count at the same time may pass the limit by as many as they are: it bounds a queue, no more.
    if await tx.count_queued(up_to=max_queued_runs) >= max_queued_runs:
        raise TooManyRequests(
            f"{max_queued_runs} runs are queued, which is this tenant's limit", code="queue_full", retry_after_seconds=1
        )


def _fix_deadline(request: RunRequest, agent: Agent, rules: RunRules, *, now: float) -> float | None:
    durations = [request.timeout_seconds, (agent.deadlines or rules.deadlines).run_seconds]
    bounds = [Deadline.in_seconds(seconds, now=now).at for seconds in durations if seconds is not None]
    return min(bounds, default=None)
