"""One claim's drive: plan, append, perform, until the run ends or is handed back.

Starting, resuming and recovering are this same function: the log says where the run stands (promises 1, 2 and 5).
"""

from collections.abc import Awaitable
from functools import partial
from typing import assert_never

from app.conversation import replace_surrogates
from app.errors import AdkError, ConfigurationError, LeaseLost, LedgerUnavailable, StoreUnavailable
from app.events import AnyEvent
from app.execution.lease import Lease
from app.execution.opening import first_words, open_drive
from app.execution.perform.approvals import ask_approval, suspend
from app.execution.perform.clearing import clear_turn
from app.execution.perform.context import Drained, DriveContext
from app.execution.perform.ending import terminate
from app.execution.perform.grants import check_grants
from app.execution.perform.holding import hold
from app.execution.perform.model import call_model
from app.execution.perform.prompting import assemble
from app.execution.perform.questions import request_approval, request_outcome
from app.execution.perform.tools import dispatch_tools
from app.execution.perform.waiting import wait_until
from app.execution.runtime import Runtime
from app.execution.start import Start
from app.policy import CeilingDimension
from app.ports.cancellation import CancellationToken
from app.run import (
    AskApproval,
    AssemblePrompt,
    CallModel,
    ClearTurn,
    DispatchTool,
    DispatchTools,
    Phase,
    Plan,
    Record,
    RequestApproval,
    RequestOutcome,
    Situation,
    State,
    Suspend,
    Terminate,
    WaitUntil,
    plan,
)
from app.run.causes import Cause
from app.run.steps.calls import close_open_calls


async def drive(
    runtime: Runtime,
    lease: Lease,
    *,
    drain: CancellationToken,
    start: Start = Start(),  # noqa: B008 - frozen
) -> State:
    """Drives a claimed run to its end, or to where it waits for people, and returns the last state.

    Raises LeaseLost when another claim holds the run by now, or the store was away for too long (nothing more was
    written), Drained when the process goes away (the run stands in its log, and should be released). Whatever else goes
    wrong in a run becomes its state. ``asyncio.CancelledError`` propagates.
    """
    loaded = runtime.store.brought(lease.claim)
    if loaded is None:
        loaded = await hold(runtime, lease, partial(runtime.store.load, lease.claim))
    lease.take_wish(loaded.cancel)
    context = open_drive(runtime, lease, loaded, drain, start, _drive_below)
    opening = first_words(context, loaded, start.notes)
    try:
        await _drive(context, opening, drain)
    except (LeaseLost, Drained, StoreUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 - the top of a drive
        await _fail(context, opening, error)
    finally:
        runtime.feed.forget(lease.run_id)
    return context.journal.state


async def _drive_below(runtime: Runtime, lease: Lease, drain: CancellationToken, start: Start) -> State:
    """A run below the one that is driven: the same loop, and the same code."""
    return await drive(runtime, lease, drain=drain, start=start)


async def _drive(context: DriveContext, opening: tuple[AnyEvent, ...], drain: CancellationToken) -> None:
    if not _only_ends(context):
        ceilings = {ceiling.dimension for ceiling in context.terms.ceilings}
        bounds_cost = CeilingDimension.COST in ceilings or any(
            budget.limits.max_cost is not None for budget in context.purse.budgets
        )
        context.cast.check(bounds_cost=bounds_cost)
        check_grants(context)
    outcomes = opening
    while True:
        planned = plan(context.cast.spec, context.journal.state, outcomes, _situation(context))
        context.journal.expect(planned)
        context = context.turned_to(planned.state)
        context.purse.settle(planned.state)
        if drain.is_cancelled and not isinstance(planned.command, Terminate):
            await context.journal.append(*planned.events)
            raise Drained
        outcomes = await _perform(context, planned)
        if context.journal.state.phase in (Phase.ENDED, Phase.HELD):
            return


def _only_ends(context: DriveContext) -> bool:
    """Whether the run was to end before it was taken: that needs neither its model nor its tools."""
    deadline = context.spec.deadline
    is_late = deadline is not None and deadline.has_passed(context.runtime.clock.now())
    return is_late or context.wish() is not None


def _perform(context: DriveContext, planned: Plan) -> Awaitable[tuple[AnyEvent, ...]]:
    match planned.command:
        case AssemblePrompt():
            return assemble(context, planned)
        case CallModel() as command:
            return call_model(context, planned, command)
        case ClearTurn():
            return clear_turn(context, planned)
        case RequestApproval() as command:
            return request_approval(context, planned, command)
        case RequestOutcome() as command:
            return request_outcome(context, planned, command)
        case AskApproval() as command:
            return ask_approval(context, planned, command)
        case Suspend() as command:
            return suspend(context, planned, command)
        case DispatchTool() as command:
            return dispatch_tools(context, planned, (command,))
        case DispatchTools() as command:
            return dispatch_tools(context, planned, command.dispatches)
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
        code=error.code if isinstance(error, ConfigurationError | LedgerUnavailable) else "internal_error",
        detail=replace_surrogates(str(error)) if is_ours else type(error).__name__,
    )
    context.runtime.sink.crashed(context.lease.tenant_id, context.lease.run_id, error)
    if context.journal.state.fence != context.lease.claim.fence:
        # Nothing of this claim is stored yet, and its opening charges what the last one left in flight.
        await context.journal.append(*opening)
    context = context.turned_to(context.journal.state)
    end = Terminate(cause=cause)
    # Of calls that are out nobody will bring the outcome.
    left = close_open_calls(context.spec, context.journal.state)
    await terminate(context, Plan(events=left, state=context.journal.state, command=end), end)


def _situation(context: DriveContext) -> Situation:
    return Situation(
        now=context.runtime.clock.now(),
        cancel=context.wish(),
        shared=context.purse.shared(),
        deferred=frozenset(context.deferred),
    )
