"""What a claim begins with: the facts of the run, its budgets and bounds, and its first words in the log."""

from dataclasses import replace

from app.agents import Agent
from app.agents.team import takes_up
from app.errors import ConfigurationError
from app.events import AnyEvent, RunResumed, RunStarted
from app.execution.journal import Journal
from app.execution.lease import Lease
from app.execution.perform.cast import Cast
from app.execution.perform.context import Drive, DriveContext
from app.execution.purse import Purse
from app.execution.race import Cut, Racetrack
from app.execution.runtime import Runtime
from app.execution.start import Start
from app.policy import RunBudget
from app.ports.cancellation import CancellationToken
from app.ports.context import RunContext
from app.ports.records import LoadedRun
from app.run import Phase, State
from app.run.fold import estimate_in_flight


def first_words(context: DriveContext, loaded: LoadedRun, notes: tuple[AnyEvent, ...]) -> tuple[AnyEvent, ...]:
    """What this claim writes first: ``run_started``, ``run_resumed``, or both where earlier claims were lost before
    they wrote anything: they count too, or a run that kills its workers at once would never be given up. ``notes`` are
    told with the start."""
    claim, state = context.lease.claim, context.journal.state
    goes_on = bool(loaded.before)
    starts_with = _find_start(loaded) if state.phase is Phase.QUEUED and not goes_on else None
    author = starts_with or context.agent.name
    started = RunStarted(worker_id=claim.worker_id, fence=claim.fence, starts_with=starts_with, author=author)
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
    if state.calls:
        # In the middle of the turn that an earlier run left open.
        return (resumed, *notes)
    return (started, resumed, *notes) if claim.recoveries else (started, *notes)


def _find_start(loaded: LoadedRun) -> str | None:
    """The agent of the team that the run's session is with; None where the run begins under its own. Known no sooner
    than now: the runs of a session go one after the other. A team that can't be drawn is refused later."""
    try:
        return takes_up(loaded.agent, loaded.last_agent)
    except ConfigurationError:
        return None


def _reason(state: State, *, recovered: bool) -> str:
    if recovered:
        return "recovered"
    if state.phase is Phase.QUEUED:
        return "resumed"
    return "approval" if state.phase is Phase.HELD else "handed_over"


def open_drive(
    runtime: Runtime, lease: Lease, loaded: LoadedRun, drain: CancellationToken, start: Start, drive: Drive
) -> DriveContext:
    """Everything that performing needs. Raises ConfigurationError for a team that can't be drawn."""
    agent, record = _as_asked(loaded, start), loaded.record
    deadlines = agent.deadlines or runtime.rules.deadlines
    track = Racetrack(
        clock=runtime.clock,
        orphans=runtime.orphans,
        grace_seconds=deadlines.grace_seconds,
        tokens=((Cut.LOST, lease.lost), (Cut.CANCEL, lease.cancellation)),
    )
    cast = Cast(runtime, agent, record, start.form)
    own = RunBudget(resolved=record.budget, clock=runtime.clock, max_llm_calls=record.max_llm_calls)
    purse = Purse(start.holder or record.run_id, (own, *start.budgets))
    journal = Journal(runtime, lease, loaded, purse)
    # Those below are bound by what is left of the run's own seconds.
    own.go_on(journal.state.active_seconds)
    purse.restore(loaded.children)
    return DriveContext(
        runtime=runtime,
        lease=lease,
        journal=journal,
        record=record,
        cast=cast,
        acting=cast.acting(journal.state.stack),
        racetrack=track,
        abandonable=replace(track, tokens=(*track.tokens, (Cut.DRAIN, drain))),
        drain=drain,
        drive=drive,
        terms=loaded.terms,
        history=loaded.history,
        session_state={**start.state, **loaded.session_state},
        is_below_flagged=start.is_flagged,
        random=runtime.new_random(),
        purse=purse,
        run_context=RunContext(
            run_id=record.run_id,
            tenant_id=record.tenant_id,
            path=journal.state.path or (agent.name,),
            depth=journal.state.depth,
            budgets=purse.budgets,
            cancellation=lease.cancellation,
            deadline=cast.spec.deadline,
        ),
    )


def _as_asked(loaded: LoadedRun, start: Start) -> Agent:
    """The agent, with what was fixed for this run when it was accepted."""
    agent, record = start.agent or loaded.agent, loaded.record
    fixed: dict[str, object] = {}
    if record.model is not None and agent.task_class is None:
        fixed["model"] = record.model
    if record.output_schema is not None:
        fixed["output_schema"] = record.output_schema
    if record.deterministic:
        fixed["deterministic"] = True
    return agent.model_copy(update=fixed)
