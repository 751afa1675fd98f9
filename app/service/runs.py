"""Runs: submit, read, list, cancel, wait, erase.

Promises kept here (the architecture's numbers):

10. No transaction is open while somebody waits.
12. Ids come from outside; times are the store's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from app.agents import Agent, AgentVersion
from app.auth import Principal
from app.conversation import Message
from app.errors import Conflict, FieldProblem, InvalidRequest, NotFound
from app.events import RunState
from app.ids import RunId, TenantId, is_id
from app.policy import BudgetLimits, Deadline, DeadlineConfig, Scope, most_restrictive
from app.ports.catalogue import Catalogue
from app.ports.clock import IdSource
from app.ports.feed import Subscription
from app.ports.records import AdmissionFacts, CancelWish, NewRun, RunContextInput, RunFilter, RunNow, RunRecord
from app.ports.store import TenantStore, TenantTx
from app.ports.tenancy import TenantRules
from app.service import idempotency, sessions
from app.service.admission import (
    bounds_cost,
    find_models,
    needs_of,
    refuse_if_queue_is_full,
    refuse_indeterminate,
    refuse_ungranted_tools,
    refuse_unpriced,
)
from app.service.agents import is_agent_name
from app.service.drain import next_news
from app.service.grants import GrantedCatalogue
from app.service.idempotency import IdempotencyKey
from app.service.reading import Reading
from app.service.sessions import OnBusy
from app.service.teams import Team, find_team

_AGENT_REFERENCE: Final = re.compile(r"([a-z0-9][a-z0-9._-]{0,63})(?:@([1-9][0-9]{0,8}))?")


class RunRules(BaseModel):
    """What the operator allows every run. ``deadlines``: a default that an agent's own replaces. Budgets narrow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: BudgetLimits = Field(default_factory=BudgetLimits.conservative)
    deadlines: DeadlineConfig = Field(default_factory=DeadlineConfig)
    max_queued_runs: int = Field(default=10_000, ge=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission:
    """What it takes to accept a run. ``terms`` are its tenant's."""

    ids: IdSource
    catalogue: Catalogue
    rules: RunRules
    terms: TenantRules = field(default_factory=TenantRules)

    def under(self, terms: TenantRules) -> "Admission":
        """The same for one tenant: it gets what it was granted, and no more than it may have."""
        return replace(self, catalogue=GrantedCatalogue(whole=self.catalogue, rules=terms), terms=terms)

    @property
    def max_queued_runs(self) -> int:
        return tighter_queue(self.rules, self.terms)


def tighter_queue(rules: RunRules, terms: TenantRules) -> int:
    """How many runs of the tenant may be queued: its own limit, within the deployment's."""
    return rules.max_queued_runs if terms.max_queued is None else min(rules.max_queued_runs, terms.max_queued)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """A run as a caller asks for it. ``agent`` is ``name`` or ``name@version``; ``output_schema``, once it was checked,
    stands in for the agent's; ``deterministic`` makes every agent of the run so; the rest narrows and never widens.
    ``on_session_busy`` is about runs of the same session that have not ended."""

    agent: str
    input: str | tuple[Message, ...]
    session_id: str | None = None
    on_session_busy: OnBusy = OnBusy.ENQUEUE
    user: str | None = None
    timeout_seconds: float | None = None
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    max_llm_calls: int | None = None
    output_schema: dict[str, Any] | None = None
    deterministic: bool = False
    context: RunContextInput = field(default_factory=RunContextInput)
    priority: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """An accepted run. ``replayed``: the idempotency key had led to it before. ``interrupted`` are the runs that are
    asked to end for it."""

    run: RunNow
    replayed: bool
    interrupted: tuple[RunId, ...] = ()


async def submit(
    tx: TenantTx,
    principal: Principal,
    request: RunRequest,
    *,
    admission: Admission,
    key: IdempotencyKey | None = None,
) -> Submitted:
    """Writes a run into the queue and fixes what may not drift: versions, model, form of the answer, deadline, budget,
    and its place in its session.

    Nothing is accepted before the transaction commits; whoever commits it then calls ``Feed.announce_queued``, and
    ``Feed.announce_cancel`` for each run that was interrupted. Raises InvalidRequest (``unknown_agent``,
    ``unknown_tool``, ``unknown_model``, ``unknown_session``, ``session_mismatch``, ``invalid_team``, ``price_missing``,
    ``deterministic_unavailable``, ``idempotency_key_reused``), Conflict (``agent_retired``, ``session_busy``,
    ``idempotency_in_progress``), TooManyRequests (``queue_full``).
    """
    if key is not None and (earlier := await idempotency.find_earlier(tx, key)) is not None:
        return Submitted(run=await look(tx, earlier), replayed=True)
    session = None if request.session_id is None else await sessions.lock_for_run(tx, request.session_id)
    name, number = _read_reference(request.agent)
    facts = await tx.admission_facts(name, number, max_queued=admission.rules.max_queued_runs)
    version = _check_agent(facts.version)
    if session is not None:
        sessions.check_match(session, agent=version.agent.name, user=request.user)
    team = await find_team(tx, version.agent, unknown="unknown_agent", pointer=_point_to_agent)
    admission = admission.under(facts.rules)
    wish = _Wish(tenant_id=tx.tenant_id, run_id=new_run_id(admission), principal=principal, request=request)
    new = _fix(wish, facts, version, team, admission)
    if facts.queued >= admission.max_queued_runs:
        await refuse_if_queue_is_full(tx, admission.max_queued_runs)
    interrupted: tuple[RunId, ...] = ()
    if session is not None:
        interrupted = await sessions.take_place(tx, principal, session, request.on_session_busy)
        user = session.user if request.user is None else request.user
        new = replace(new, session_id=session.session_id, user=user)
    run = await tx.insert_run(new)
    if key is not None:
        await idempotency.settle(tx, key, run.run_id)
    return Submitted(run=RunNow(record=run), replayed=False, interrupted=interrupted)


def new_run_id(admission: Admission) -> RunId:
    """The id of a run that may be submitted."""
    return RunId(admission.ids.new("run"))


async def submit_alone(
    store: TenantStore,
    tenant_id: TenantId,
    principal: Principal,
    request: RunRequest,
    *,
    admission: Admission,
    run_id: RunId,
) -> Submitted:
    """``submit`` of a run outside of any session and without an idempotency key: nothing has to hold together, so it is
    one question and one insertion, each a transaction of its own. It is committed when this returns."""
    if request.session_id is not None:
        raise ValueError("a run of a session is submitted in a transaction")
    name, number = _read_reference(request.agent)
    facts = await store.admission_facts(tenant_id, name, number, max_queued=admission.rules.max_queued_runs)
    version = _check_agent(facts.version)
    team = Team(whole=version.agent)
    admission = admission.under(facts.rules)
    if version.agent.sub_agents:
        async with store.begin(tenant_id) as tx:
            team = await find_team(tx, version.agent, unknown="unknown_agent", pointer=_point_to_agent)
    wish = _Wish(tenant_id=tenant_id, run_id=run_id, principal=principal, request=request)
    new = _fix(wish, facts, version, team, admission)
    if facts.queued >= admission.max_queued_runs:
        async with store.begin(tenant_id) as tx:
            await refuse_if_queue_is_full(tx, admission.max_queued_runs)
    return Submitted(run=RunNow(record=await store.insert_run(new)), replayed=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wish:
    """Who wants which run."""

    tenant_id: TenantId
    run_id: RunId
    principal: Principal
    request: RunRequest


def _fix(wish: _Wish, facts: AdmissionFacts, version: AgentVersion, team: Team, admission: Admission) -> NewRun:
    """The run as it will be, outside of any session."""
    agent, request = version.agent, wish.request
    refuse_ungranted_tools(team.whole, admission.terms, pointer="/agent")
    models = find_models(team.whole, admission.catalogue, pointer="/agent")
    budget = most_restrictive(
        {
            Scope.DEPLOYMENT: admission.rules.budget,
            Scope.TENANT: admission.terms.budget,
            Scope.AGENT: agent.budget,
            Scope.REQUEST: request.budget,
        }
    )
    if bounds_cost(budget, admission.terms):
        pointer = "/agent" if request.budget.max_cost is None else "/budget/max_cost"
        refuse_unpriced(models, admission.catalogue, pointer=pointer)
    pointer = "/deterministic" if request.deterministic else "/agent"
    refuse_indeterminate(team, admission.catalogue, is_asked=request.deterministic, pointer=pointer)
    return NewRun(
        run_id=wish.run_id,
        tenant_id=wish.tenant_id,
        agent=agent,
        agent_version=version.version,
        team=team.pinned,
        input=request.input,
        context=request.context,
        user=request.user,
        subject=wish.principal.subject,
        # Of a route the router takes its choice when the run starts.
        model=models[0] if agent.task_class is None else None,
        output_schema=agent.output_schema if request.output_schema is None else request.output_schema,
        deterministic=agent.deterministic or request.deterministic,
        deadline_at=_fix_deadline(request, agent, admission.rules, now=facts.now),
        budget=budget,
        max_llm_calls=min(agent.max_llm_calls, request.max_llm_calls or agent.max_llm_calls),
        priority=request.priority,
        metadata=request.metadata,
        needs=needs_of(team.whole, models),
        on_ledger_error=admission.terms.on_ledger_error,
    )


async def get(tx: TenantTx, run_id: str) -> RunRecord:
    """Raises NotFound for an unknown id, another tenant's, and a text that is no id: the three look the same."""
    run = await tx.get_run(RunId(run_id)) if is_id("run", run_id) else None
    if run is None:
        raise NotFound("there is no such run")
    return run


async def look(tx: TenantTx, run_id: str) -> RunNow:
    """The same with what it waits for."""
    [run] = await _with_questions(tx, [await get(tx, run_id)])
    return run


async def list_page(
    tx: TenantTx, where: RunFilter, *, limit: int, before: tuple[float, RunId] | None
) -> tuple[Sequence[RunNow], tuple[float, RunId] | None]:
    """Up to ``limit`` runs, newest first, and where the next page begins; None on the last one."""
    ids = (("ses", where.session_id), ("run", where.parent_run_id))
    if any(text is not None and not is_id(prefix, text) for prefix, text in ids) or (
        where.agent is not None and not is_agent_name(where.agent)
    ):
        # No run has it, and the database would refuse some of the texts that are no name or id.
        return (), None
    runs = await tx.list_runs(where, limit=limit + 1, before=before)
    page = runs[:limit]
    following = (page[-1].created_at, page[-1].run_id) if len(runs) > limit else None
    return await _with_questions(tx, page), following


async def _with_questions(tx: TenantTx, runs: Sequence[RunRecord]) -> Sequence[RunNow]:
    suspended = [run.run_id for run in runs if run.state is RunState.SUSPENDED]
    pending = await tx.pending_approvals(suspended) if suspended else {}
    return [RunNow(record=run, waiting_for=pending.get(run.run_id, ())) for run in runs]


async def cancel(tx: TenantTx, principal: Principal, run_id: str, *, reason: str | None) -> RunRecord:
    """Writes the wish to end the run; asking again, or asking for a run that has ended, changes nothing.

    Whoever commits it then calls ``Feed.announce_cancel`` where the run goes on. Raises NotFound.
    """
    await get(tx, run_id)
    run = await tx.request_cancel(RunId(run_id), CancelWish(reason=reason, requested_by=principal.actor))
    if run is None:
        raise NotFound("there is no such run")
    return run


async def erase(tx: TenantTx, run_id: str) -> None:
    """Erases a run that has ended, those below it, and all that is kept of them.

    Raises NotFound and Conflict: ``run_has_parent`` for a run below another one, which goes with that;
    ``run_not_terminal`` while the run has not ended, or one that goes on from it and reads its log, or a later one of
    its session.
    """
    run = await get(tx, run_id)
    if run.parent_run_id is not None:
        raise Conflict(f"the run is a part of {run.parent_run_id} and goes with it", code="run_has_parent")
    await _refuse_unless_over(tx, run)
    if not await tx.erase_run(run.run_id):
        await get(tx, run_id)
        # Its session's history is told in the order of its runs.
        raise Conflict("the run, or a later one of its session, has not ended", code="run_not_terminal")


async def _refuse_unless_over(tx: TenantTx, run: RunRecord) -> None:
    following: RunRecord | None = run
    while following is not None:
        if not following.state.is_terminal:
            who = "the run" if following is run else f"{following.run_id}, which goes on from it,"
            raise Conflict(f"{who} has not ended", code="run_not_terminal")
        resumed_by = await tx.find_resumed(following.run_id)
        following = None if resumed_by is None else await tx.get_run(resumed_by)


async def look_alone(store: TenantStore, tenant_id: TenantId, run_id: str) -> RunNow:
    """``look`` in one statement, outside of any transaction."""
    run = await store.look(tenant_id, RunId(run_id)) if is_id("run", run_id) else None
    if run is None:
        raise NotFound("there is no such run")
    return run


async def wait(reading: Reading, tenant_id: TenantId, run_id: RunId, *, seconds: float) -> RunNow:
    """The run as soon as it has ended or waits for an approval, and at the latest after so many seconds."""
    subscription = reading.feed.subscribe_end(run_id)
    try:
        run = await look_alone(reading.store, tenant_id, run_id)
        return await wait_for_news(reading, subscription, run, seconds=seconds)
    finally:
        subscription.close()


async def wait_for_news(reading: Reading, subscription: Subscription, run: RunNow, *, seconds: float) -> RunNow:
    """The same for a run as it is known to the caller, whose ``subscription`` to its end is older than that: nothing
    falls between the two."""
    tenant_id, run_id = run.record.tenant_id, run.record.run_id
    until = reading.clock.monotonic() + seconds
    while not (_is_at_rest(run.record.state) or reading.drain.is_draining or reading.clock.monotonic() >= until):
        await _hear_doorbell(reading, subscription, until=until)
        run = await look_alone(reading.store, tenant_id, run_id)
    return run


async def _hear_doorbell(reading: Reading, subscription: Subscription, *, until: float) -> None:
    """Returns when the run may be at rest: at such a doorbell, after the slow poll's time, or when time is up."""
    look_at = min(until, reading.clock.monotonic() + reading.poll_seconds)
    while not reading.drain.is_draining and (left := look_at - reading.clock.monotonic()) > 0:
        # Only ends are heard of: no delta and no step on the way is a reason to ask the database again.
        if await next_news(subscription, reading.drain, left):
            return


def _is_at_rest(state: RunState) -> bool:
    return state.is_terminal or state is RunState.SUSPENDED


def _read_reference(reference: str) -> tuple[str, int | None]:
    """An agent's name, and the version where one is meant."""
    match = _AGENT_REFERENCE.fullmatch(reference)
    # No agent is called nothing.
    return (match[1], int(match[2]) if match[2] else None) if match else ("", None)


def _check_agent(version: AgentVersion | None) -> AgentVersion:
    if version is None:
        problem = FieldProblem(pointer="/agent", detail="there is no such agent or version")
        raise InvalidRequest("the agent is not known", code="unknown_agent", problems=[problem])
    if version.retired:
        raise Conflict("the agent is retired; put its definition again to revive it", code="agent_retired")
    return version


def _point_to_agent(_: int | None) -> str:
    return "/agent"


def _fix_deadline(request: RunRequest, agent: Agent, rules: RunRules, *, now: float) -> float | None:
    durations = [request.timeout_seconds, (agent.deadlines or rules.deadlines).run_seconds]
    bounds = [Deadline.in_seconds(seconds, now=now).at for seconds in durations if seconds is not None]
    return min(bounds, default=None)
