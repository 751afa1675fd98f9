"""One claim's drive: plan, append, perform, until the run ends or is handed back.

Starting, resuming and recovering are this same function: the log says where the run stands (promises 1, 2 and 5).
"""

from collections.abc import Awaitable
from dataclasses import replace
from typing import assert_never

from app.conversation import replace_surrogates
from app.errors import AdkError, ConfigurationError, LeaseLost, StoreUnavailable
from app.events import AnyEvent, RunResumed, RunStarted
from app.execution.journal import Journal
from app.execution.lease import Lease
from app.execution.perform.context import DriveContext
from app.execution.perform.ending import terminate
from app.execution.perform.model import Drained, call_model
from app.execution.perform.prompting import assemble
from app.execution.perform.prompts import PromptMaker
from app.execution.perform.tools import clear_turn, dispatch_tool
from app.execution.perform.waiting import wait_until
from app.execution.race import Cut, Racetrack
from app.execution.runtime import Runtime
from app.policy import Deadline
from app.ports.cancellation import CancellationToken
from app.ports.hooks import HookPoint
from app.ports.records import LoadedRun
from app.run import (
    AssemblePrompt,
    CallModel,
    ClearTurn,
    DispatchTool,
    Phase,
    Plan,
    Record,
    RunSpec,
    Situation,
    State,
    Terminate,
    WaitUntil,
    plan,
)
from app.run.causes import Cause


async def drive(runtime: Runtime, lease: Lease, *, drain: CancellationToken) -> State:
    """Drives a claimed run to its end and returns the last state.

    Raises LeaseLost when another claim holds the run by now (nothing more was written), Drained when the process goes
    away (the run stands in its log, and should be released), StoreUnavailable when it could not be loaded. Whatever
    else goes wrong in a run becomes its state. ``asyncio.CancelledError`` propagates.
    """
    loaded = await runtime.store.load(lease.claim)
    lease.take_wish(loaded.cancel)
    context = _open(runtime, lease, loaded, drain)
    opening = _opening(context)
    try:
        await _drive(context, opening, drain)
    except (LeaseLost, Drained, StoreUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - the top of a drive
        await _fail(context, opening, error)
    finally:
        runtime.feed.forget(lease.run_id)
    return context.journal.state


async def _drive(context: DriveContext, opening: tuple[AnyEvent, ...], drain: CancellationToken) -> None:
    context.runtime.check(context.agent)
    outcomes = opening
    while not context.journal.state.is_over:
        planned = plan(context.spec, context.journal.state, outcomes, _situation(context))
        if drain.is_cancelled and not isinstance(planned.command, Terminate):
            await context.journal.append(*planned.events)
            raise Drained
        outcomes = await _perform(context, planned)


def _perform(context: DriveContext, planned: Plan) -> Awaitable[tuple[AnyEvent, ...]]:
    match planned.command:
        case AssemblePrompt():
            return assemble(context, planned)
        case CallModel() as command:
            return call_model(context, planned, command)
        case ClearTurn():
            return clear_turn(context, planned)
        case DispatchTool() as command:
            return dispatch_tool(context, planned, command)
        case WaitUntil() as command:
            return wait_until(context, planned, command)
        case Terminate() as command:
            return terminate(context, planned, command)
        case Record():
            raise AssertionError("a plan never ends with something to record")
        case _:
            assert_never(planned.command)


async def _fail(context: DriveContext, opening: tuple[AnyEvent, ...], error: Exception) -> None:
    """The top of a drive: an error that nobody foresaw becomes the run's state. Its text may hold anything, so only
    its type is told, unless it is one of ours."""
    is_ours = isinstance(error, AdkError)
    cause = Cause(
        code=error.code if is_ours and isinstance(error, ConfigurationError) else "internal_error",
        detail=replace_surrogates(str(error)) if is_ours else type(error).__name__,
    )
    context.runtime.sink.crashed(context.lease.tenant_id, context.lease.run_id, error)
    if context.journal.state.fence != context.lease.claim.fence:
        # Nothing of this claim is stored yet, and its opening charges what the last one left in flight.
        await context.journal.append(*opening)
    end = Terminate(cause=cause)
    await terminate(context, Plan(events=(), state=context.journal.state, command=end), end)


def _situation(context: DriveContext) -> Situation:
    return Situation(now=context.runtime.clock.now(), cancel=context.wish())


def _opening(context: DriveContext) -> tuple[AnyEvent, ...]:
    """What this claim writes first: ``run_started``, ``run_resumed``, or both where earlier claims were lost before
    they wrote anything: they count too, or a run that kills its workers at once would never be given up."""
    claim, state, author = context.lease.claim, context.journal.state, context.agent.name
    started = RunStarted(worker_id=claim.worker_id, fence=claim.fence, author=author)
    resumed = RunResumed(
        reason="recovered" if claim.recoveries > state.recoveries else "handed_over",
        recoveries=claim.recoveries,
        worker_id=claim.worker_id,
        fence=claim.fence,
        iteration=state.iteration,
        author=author,
    )
    if state.phase is not Phase.QUEUED:
        return (resumed,)
    return (started, resumed) if claim.recoveries else (started,)


def _open(runtime: Runtime, lease: Lease, loaded: LoadedRun, drain: CancellationToken) -> DriveContext:
    agent, record = loaded.agent, loaded.record
    deadlines = agent.deadlines or runtime.rules.deadlines
    track = Racetrack(
        clock=runtime.clock,
        orphans=runtime.orphans,
        grace_seconds=deadlines.grace_seconds,
        tokens=((Cut.LOST, lease.lost), (Cut.CANCEL, lease.cancellation)),
    )
    hooks = runtime.known_hooks(agent)
    spec = RunSpec(
        agent=agent,
        limits=record.budget.limits,
        sources=record.budget.sources,
        deadline=None if record.deadline_at is None else Deadline(at=record.deadline_at),
        max_llm_calls=record.max_llm_calls,
        max_recoveries=runtime.rules.max_recoveries,
        effects=runtime.effects(),
        check_arguments=runtime.tools.check_arguments,
        gates_dispatch=any(HookPoint.BEFORE_TOOL_DISPATCH in hook.points for hook in hooks),
    )
    return DriveContext(
        runtime=runtime,
        lease=lease,
        journal=Journal(runtime, lease, loaded),
        record=record,
        prompts=PromptMaker(
            agent if record.model is None else agent.model_copy(update={"model": record.model}),
            models=runtime.models,
            tools=runtime.tools,
            given=record.context,
        ),
        spec=spec,
        racetrack=track,
        abandonable=replace(track, tokens=(*track.tokens, (Cut.DRAIN, drain))),
        hooks=hooks,
        guardrails=runtime.known_guardrails(agent),
        deadlines=deadlines,
        retry=agent.retry or runtime.rules.retry,
        random=runtime.new_random(),
    )
