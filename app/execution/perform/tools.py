"""One dispatch: stored, then made, then told as events.

Promise 7: ``tool_call`` is stored before the call. If we die between the two we would rather say "unknown" than charge
the card twice.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from app.conversation import OUTCOME_UNKNOWN
from app.errors import LeaseLost
from app.events import (
    AnyEvent,
    ApprovalRequired,
    BudgetRefused,
    CancellationRequested,
    DeadlineExceeded,
    GuardrailRefusal,
    HookRefusal,
    RunSuspended,
    ToolIndeterminate,
)
from app.execution.perform.context import Drained, DriveContext
from app.execution.perform.dispatch import Dispatch
from app.execution.perform.ledger import announce_tool_calls
from app.ports.callbacks import CallbackPoint
from app.run import DispatchTool, Plan
from app.run.steps.calls import close_open_calls
from app.run.transitions import label_of


async def dispatch_tools(
    context: DriveContext, planned: Plan, commands: Sequence[DispatchTool]
) -> tuple[AnyEvent, ...]:
    """Outcomes: each call's one outcome, in the model's order, then what settles the run's end where one was cut
    off. Where a callback answers, nothing goes out: a call without ``tool_call`` was never dispatched."""
    calls = [Dispatch(context, planned, command) for command in commands]
    pending = planned.events
    if context.callbacks_at(CallbackPoint.BEFORE_TOOL):
        # Somebody is asked, which takes time: what is known so far is stored first.
        await context.journal.append(*pending)
        pending = ()
        for call in calls:
            if await call.ask_before():
                return _in_order([event for asked in calls for event in asked.told])
    going = [call for call in calls if call.goes_out]
    refused = await announce_tool_calls(context, pending, tuple(call.announce() for call in going))
    if refused is not None:
        return (*pending, *close_open_calls(context.spec, planned.state), refused)
    if going and not context.lease.is_safe(context.runtime.clock):
        # No fence can see a worker that was paused right here: only its own clock can.
        raise LeaseLost(f"the lease of {context.record.run_id} may have ended before its calls went out")
    results = await asyncio.gather(*(call.run() for call in calls), return_exceptions=True)
    told = _in_order([event for result in results if not isinstance(result, BaseException) for event in result])
    for result in results:
        if isinstance(result, Drained):
            # Those that were out beside it have ended: their outcome is not to be lost with it.
            await context.journal.append(*told)
        if isinstance(result, BaseException):
            raise result
    if told and isinstance(told[-1], RunSuspended):
        # Nothing can be decided before people have answered: a later claim goes on.
        await context.journal.append(*told)
        return ()
    return told


def _in_order(events: Sequence[AnyEvent]) -> tuple[AnyEvent, ...]:
    """In the model's order. What ends the run by name comes once, the first by its rank: after the outcomes of the
    calls that were out with it, and before those that would end it too. Nobody is asked about a run that ends."""
    held = [event for event in events if isinstance(event, RunSuspended)]
    outcomes: list[AnyEvent] = [event for event in events if not isinstance(event, (*_ENDINGS, RunSuspended))]
    endings = sorted((event for event in events if isinstance(event, _ENDINGS)), key=_rank)[:1]
    fatal = [event for event in outcomes if _is_fatal(event)]
    if endings or fatal:
        outcomes = [_unasked(event) for event in outcomes]
    elif held:
        asked = [event.approval_id for event in outcomes if isinstance(event, ApprovalRequired)]
        waiting_for = dict.fromkeys((*asked, *(approval_id for one in held for approval_id in one.approval_ids)))
        return (*outcomes, held[0].model_copy(update={"approval_ids": tuple(waiting_for)}))
    if not endings:
        return tuple(outcomes)
    told = [event for event in outcomes if not _is_fatal(event)]
    return (*told, *endings, *fatal)


def _unasked(event: AnyEvent) -> AnyEvent:
    """A question about an outcome, as what it is without anybody to answer."""
    if not isinstance(event, ApprovalRequired):
        return event
    return ToolIndeterminate(
        call_id=event.call_id,
        name=event.name,
        content=OUTCOME_UNKNOWN,
        detail=event.detail,
        iteration=event.iteration,
        author=event.author,
    )


_ENDINGS: Final = (CancellationRequested, DeadlineExceeded, BudgetRefused, HookRefusal, GuardrailRefusal)


def _rank(event: AnyEvent) -> int:
    return [isinstance(event, kind) for kind in _ENDINGS].index(True)


def _is_fatal(event: AnyEvent) -> bool:
    return label_of(event).endswith(":fatal")
