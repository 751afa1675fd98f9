"""What a claim begins with: the facts of the run, its budgets and bounds, and its first words in the log."""

from dataclasses import dataclass, replace

from app.agents import Agent
from app.events import AnyEvent, RunResumed, RunStarted
from app.execution.answers import AnswerForm
from app.execution.journal import Journal
from app.execution.lease import Lease
from app.execution.perform.context import DriveContext
from app.execution.perform.prompts import PromptMaker
from app.execution.purse import Purse
from app.execution.race import Cut, Racetrack
from app.execution.runtime import Runtime
from app.policy import Deadline, RunBudget
from app.ports.cancellation import CancellationToken
from app.ports.context import RunContext
from app.ports.hooks import Hook, HookPoint
from app.ports.records import LoadedRun
from app.run import Phase, RunSpec, State
from app.run.fold import estimate_in_flight


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What a run was started with in this process. ``budgets``: those that it spends of beside its own, and ``holder``
    its name in their books. ``notes`` are told with its start. ``form`` reads its answer."""

    budgets: tuple[RunBudget, ...] = ()
    holder: str | None = None
    notes: tuple[AnyEvent, ...] = ()
    form: AnswerForm | None = None


def first_words(context: DriveContext, notes: tuple[AnyEvent, ...]) -> tuple[AnyEvent, ...]:
    """What this claim writes first: ``run_started``, ``run_resumed``, or both where earlier claims were lost before
    they wrote anything: they count too, or a run that kills its workers at once would never be given up. ``notes`` are
    told with the start."""
    claim, state, author = context.lease.claim, context.journal.state, context.agent.name
    started = RunStarted(worker_id=claim.worker_id, fence=claim.fence, author=author)
    is_abandoned = state.phase is Phase.THINKING
    resumed = RunResumed(
        reason=_reason(state, recovered=claim.recoveries > state.recoveries),
        recoveries=claim.recoveries,
        worker_id=claim.worker_id,
        fence=claim.fence,
        usage=estimate_in_flight(state) if is_abandoned else None,
        cost=state.in_flight_cost if is_abandoned else None,
        iteration=state.iteration,
        author=author,
    )
    if state.phase is not Phase.QUEUED:
        return (resumed,)
    return (started, resumed, *notes) if claim.recoveries else (started, *notes)


def _reason(state: State, *, recovered: bool) -> str:
    if recovered:
        return "recovered"
    return "approval" if state.phase is Phase.HELD else "handed_over"


def open_drive(
    runtime: Runtime, lease: Lease, loaded: LoadedRun, drain: CancellationToken, start: Start
) -> DriveContext:
    """Everything that performing needs."""
    agent, record = _as_asked(loaded), loaded.record
    deadlines = agent.deadlines or runtime.rules.deadlines
    track = Racetrack(
        clock=runtime.clock,
        orphans=runtime.orphans,
        grace_seconds=deadlines.grace_seconds,
        tokens=((Cut.LOST, lease.lost), (Cut.CANCEL, lease.cancellation)),
    )
    hooks = runtime.known_hooks(agent)
    spec = _spec(runtime, loaded, agent, hooks, start)
    own = RunBudget(resolved=record.budget, clock=runtime.clock)
    purse = Purse(start.holder or record.run_id, (own, *start.budgets))
    journal = Journal(runtime, lease, loaded, purse)
    return DriveContext(
        runtime=runtime,
        lease=lease,
        journal=journal,
        record=record,
        prompts=PromptMaker(agent, models=runtime.models, tools=runtime.tools, given=record.context),
        spec=spec,
        racetrack=track,
        abandonable=replace(track, tokens=(*track.tokens, (Cut.DRAIN, drain))),
        hooks=hooks,
        guardrails=runtime.known_guardrails(agent),
        deadlines=deadlines,
        retry=agent.retry or runtime.rules.retry,
        random=runtime.new_random(),
        purse=purse,
        run_context=RunContext(
            run_id=record.run_id,
            tenant_id=record.tenant_id,
            path=journal.state.path or (agent.name,),
            depth=journal.state.depth,
            budgets=purse.budgets,
            cancellation=lease.cancellation,
            deadline=spec.deadline,
        ),
    )


def _as_asked(loaded: LoadedRun) -> Agent:
    """The agent, with what was fixed for this run when it was accepted."""
    agent, record = loaded.agent, loaded.record
    fixed: dict[str, object] = {}
    if record.model is not None and agent.task_class is None:
        fixed["model"] = record.model
    if record.output_schema is not None:
        fixed["output_schema"] = record.output_schema
    return agent.model_copy(update=fixed)


def _spec(runtime: Runtime, loaded: LoadedRun, agent: Agent, hooks: tuple[Hook, ...], start: Start) -> RunSpec:
    record = loaded.record
    return RunSpec(
        agent=agent,
        limits=record.budget.limits,
        sources=record.budget.sources,
        deadline=None if record.deadline_at is None else Deadline(at=record.deadline_at),
        max_llm_calls=record.max_llm_calls,
        max_recoveries=runtime.rules.max_recoveries,
        effects=runtime.effects(),
        check_arguments=runtime.tools.check_arguments,
        check_output=AnswerForm(agent).check if start.form is None else start.form.check,
        gates_dispatch=any(HookPoint.BEFORE_TOOL_DISPATCH in hook.points for hook in hooks),
        approved_by_people=runtime.approved_by_people(agent),
        parallel_safe=frozenset(tool.name for tool in runtime.tools.all() if tool.parallel_safe),
        route=runtime.known_route(agent),
    )
