"""A run once more: going on from where one was lost, or from its beginning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from app.agents import Agent, AgentVersion
from app.auth import Principal
from app.errors import Conflict, FieldProblem, InvalidRequest, NotFound
from app.events import RunState
from app.ids import CallId, RunId
from app.policy import BudgetLimits, Outcome, ResolvedBudget, Scope, most_restrictive
from app.ports.catalogue import Catalogue
from app.ports.records import NewRun, RunNow, RunRecord
from app.ports.store import TenantTx
from app.run.reopen import unresolved
from app.service import idempotency, runs
from app.service.admission import (
    bounds_cost,
    find_models,
    needs_of,
    refuse_if_queue_is_full,
    refuse_indeterminate,
    refuse_ungranted_tools,
    refuse_unpriced,
)
from app.service.idempotency import IdempotencyKey
from app.service.runs import Admission, Submitted
from app.service.teams import Team, everybody, find_pinned

_RESUMABLE: Final = frozenset({"worker_lost", "tool_indeterminate"})


class AlreadyResumed(Conflict):
    """``run_id`` is the run that goes on from it."""

    code = "run_already_resumed"

    def __init__(self, run_id: RunId) -> None:
        super().__init__(f"{run_id} goes on from it")
        self.run_id = run_id


@dataclass(frozen=True, kw_only=True, slots=True)
class _Origin:
    """What the new run has from the chain that it goes on with."""

    resumes: RunId | None = None
    first_run_id: RunId | None = None
    resolutions: Mapping[CallId, Outcome] = field(default_factory=dict)


async def resume(
    tx: TenantTx,
    principal: Principal,
    run_id: str,
    resolutions: Mapping[str, Outcome],
    *,
    admission: Admission,
    key: IdempotencyKey | None = None,
) -> Submitted:
    """A run that goes on from one whose worker was lost, or which did not know what became of a call. ``resolutions``
    say it, by the ids of the calls.

    Also where the agent was retired since: what was begun can be brought to its end. To be committed and announced as
    ``runs.submit``. Raises NotFound, Conflict (``run_not_resumable``, ``run_already_resumed``) and InvalidRequest
    (``resolution_missing``, ``unknown_call``), and what ``submit`` raises for tools, models, prices, the queue and the
    key.
    """
    if key is not None and (earlier := await idempotency.find_earlier(tx, key)) is not None:
        return Submitted(run=await runs.look(tx, earlier), replayed=True)
    run = await runs.get(tx, run_id)
    _refuse_unless_resumable(run)
    await _lock_session(tx, run)
    await _refuse_second(tx, run)
    await _refuse_broken_chain(tx, run)
    given = {CallId(call_id): outcome for call_id, outcome in resolutions.items()}
    _check_resolutions([call.call.call_id for call in unresolved(await tx.logs_before(run.run_id))], given)
    origin = _Origin(resumes=run.run_id, first_run_id=run.first_run_id or run.run_id, resolutions=given)
    team, _ = await _find_team(tx, run)
    admission = admission.under(await tx.rules())
    new = await _fix(tx, principal, run, team, admission, origin)
    try:
        return await _insert(tx, new, admission, key)
    except ValueError:
        # Somebody was faster, or it was erased at this moment.
        await _refuse_second(tx, await runs.get(tx, run_id))
        raise


async def rerun(
    tx: TenantTx, principal: Principal, run_id: str, *, admission: Admission, key: IdempotencyKey | None = None
) -> Submitted:
    """A run with the input of one that has ended, and with the versions that it had.

    To be committed and announced as ``runs.submit``. Raises NotFound, Conflict (``run_has_parent``,
    ``run_not_terminal``, ``agent_retired``), and what ``submit`` raises for tools, models, prices, the queue and the
    key.
    """
    if key is not None and (earlier := await idempotency.find_earlier(tx, key)) is not None:
        return Submitted(run=await runs.look(tx, earlier), replayed=True)
    run = await runs.get(tx, run_id)
    if run.parent_run_id is not None:
        raise Conflict(f"the run is a part of {run.parent_run_id}", code="run_has_parent")
    if not run.state.is_terminal:
        raise Conflict("the run has not ended", code="run_not_terminal")
    await _lock_session(tx, run)
    team, retired = await _find_team(tx, run)
    if retired:
        told = f"{', '.join(retired)}: retired; put the definition again to revive it"
        raise Conflict(told, code="agent_retired")
    admission = admission.under(await tx.rules())
    return await _insert(tx, await _fix(tx, principal, run, team, admission, _Origin()), admission, key)


def _refuse_unless_resumable(run: RunRecord) -> None:
    if run.parent_run_id is not None:
        raise Conflict(f"the run is a part of {run.parent_run_id}", code="run_not_resumable")
    if run.state is not RunState.FAILED or run.error_code not in _RESUMABLE:
        ended = run.error_code or run.state.value
        told = f"only a run that failed with {' or '.join(sorted(_RESUMABLE))} can be resumed, and this one is {ended}"
        raise Conflict(told, code="run_not_resumable")


async def _lock_session(tx: TenantTx, run: RunRecord) -> None:
    """Before anything else is, as everywhere. Raises NotFound where it was erased at this moment, with its runs."""
    if run.session_id is not None and await tx.lock_session(run.session_id) is None:
        raise NotFound("there is no such run")


async def _refuse_second(tx: TenantTx, run: RunRecord) -> None:
    if (following := await tx.find_resumed(run.run_id)) is not None:
        raise AlreadyResumed(following)


async def _refuse_broken_chain(tx: TenantTx, run: RunRecord) -> None:
    """The history is put together from the logs of the whole chain."""
    before = run.resumes
    while before is not None:
        earlier = await tx.get_run(before)
        if earlier is None:
            raise Conflict(f"{before}, which it goes on from, was erased", code="run_not_resumable")
        before = earlier.resumes


def _check_resolutions(open_calls: Sequence[CallId], given: Mapping[CallId, Outcome]) -> None:
    if strays := [call_id for call_id in given if call_id not in open_calls]:
        problems = [_point(call_id, "is no call of this run whose outcome is unknown") for call_id in strays]
        raise InvalidRequest("an outcome is told of no such call", code="unknown_call", problems=problems)
    if missing := [call_id for call_id in open_calls if call_id not in given]:
        problems = [_point(call_id, "succeeded, failed, or retry?") for call_id in missing]
        told = "nobody knows what became of a call; say it of each"
        raise InvalidRequest(told, code="resolution_missing", problems=problems)


def _point(call_id: CallId, detail: str) -> FieldProblem:
    return FieldProblem(pointer=f"/resolutions/{call_id.replace('~', '~0').replace('/', '~1')}", detail=detail)


async def _find_team(tx: TenantTx, run: RunRecord) -> tuple[Team, Sequence[str]]:
    """The run's agents in its versions, and which of them are retired by now."""
    version: AgentVersion | None = await tx.get_agent(run.agent, run.agent_version)
    if version is None:
        raise InvalidRequest("the agent is not known any more", code="unknown_agent")
    team, retired = await find_pinned(tx, version.agent, run.team or {})
    return team, [*([run.agent] if version.retired else []), *retired]


async def _fix(
    tx: TenantTx, principal: Principal, run: RunRecord, team: Team, admission: Admission, origin: _Origin
) -> NewRun:
    catalogue = admission.catalogue
    model = _kept_model(run, team.whole, catalogue)
    driven = team.whole if model is None else team.whole.model_copy(update={"model": model})
    refuse_ungranted_tools(driven, admission.terms, pointer="")
    models = find_models(driven, catalogue, pointer="")
    budget = _narrow(run.budget, {Scope.DEPLOYMENT: admission.rules.budget, Scope.TENANT: admission.terms.budget})
    if bounds_cost(budget, admission.terms):
        refuse_unpriced(models, catalogue, pointer="")
    refuse_indeterminate(team, catalogue, is_asked=run.deterministic, pointer="")
    new = NewRun(
        run_id=RunId(admission.ids.new("run")),
        tenant_id=tx.tenant_id,
        agent=team.whole,
        agent_version=run.agent_version,
        team=team.pinned,
        input=run.input,
        context=run.context,
        user=run.user,
        subject=principal.subject,
        model=model,
        output_schema=run.output_schema,
        deterministic=run.deterministic,
        deadline_at=await _same_length(tx, run),
        budget=budget,
        max_llm_calls=run.max_llm_calls,
        priority=run.priority,
        metadata=run.metadata,
        session_id=run.session_id,
        needs=needs_of(driven, models),
        on_ledger_error=admission.terms.on_ledger_error,
    )
    return replace(new, resumes=origin.resumes, first_run_id=origin.first_run_id, resolutions=origin.resolutions)


def _kept_model(run: RunRecord, whole: Agent, catalogue: Catalogue) -> str | None:
    """The first agent's. In rows of the release before stands the model that was called last, perhaps that of an agent
    below it."""
    if whole.task_class is not None:
        return None
    below = {agent.model for agent in everybody(whole) if agent is not whole}
    was_its_own = run.model is not None and run.model not in below
    return whole.model or (run.model if was_its_own else catalogue.default_model())


def _narrow(budget: ResolvedBudget, today: Mapping[Scope, BudgetLimits]) -> ResolvedBudget:
    """The ceilings that the run had, each with who set it; those of ``today`` may only tighten them."""
    kept = {scope: _limits_of(budget, scope) for scope in Scope}
    for scope, limits in today.items():
        kept[scope] = most_restrictive({Scope.DEPLOYMENT: limits, Scope.REQUEST: kept[scope]}).limits
    return most_restrictive(kept)


def _limits_of(budget: ResolvedBudget, scope: Scope) -> BudgetLimits:
    chosen = {name: value for name, value in budget.limits if budget.sources.get(name) is scope}
    return BudgetLimits.model_validate(chosen)


async def _same_length(tx: TenantTx, run: RunRecord) -> float | None:
    """As much time as the first one had."""
    if run.deadline_at is None:
        return None
    return await tx.now() + (run.deadline_at - run.created_at)


async def _insert(tx: TenantTx, new: NewRun, admission: Admission, key: IdempotencyKey | None) -> Submitted:
    await refuse_if_queue_is_full(tx, admission.max_queued_runs)
    run = await tx.insert_run(new)
    if key is not None:
        await idempotency.settle(tx, key, run.run_id)
    return Submitted(run=RunNow(record=run), replayed=False)
