"""A tenant's ceilings over time: room is reserved before a call goes out, in the append that announces it.

What a call used is charged with the events that tell it, so the ledger and the log can't part. A ceiling without room
ends the run; a ledger that does not answer ends it too, unless the run says to go on without.
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final

from app.errors import CeilingReached, LedgerUnavailable
from app.events import AnyEvent, BudgetRefused, ModelCall, ToolCalled, Warned
from app.execution.perform.context import DriveContext
from app.execution.perform.holding import hold
from app.execution.perform.prompts import ReadyPrompt
from app.policy import CallRoom, Scope, Spend, room_for_call
from app.run import CallModel

# Between the look at the room and the reservation others may have taken of it.
_ATTEMPTS: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Announced:
    """``refused`` ends the run: the refusal, after what is not stored yet. Without it the call may go out as ``room``
    says."""

    room: CallRoom
    refused: tuple[AnyEvent, ...] = ()


async def announce_model_call(
    context: DriveContext, pending: tuple[AnyEvent, ...], call: ModelCall, ready: ReadyPrompt, command: CallModel
) -> Announced:
    """Stores ``pending`` and the call, which may write as much as the tenant's ceilings leave it. Raises
    LedgerUnavailable where nobody can tell, and the run is to fail then; ``pending`` is stored all the same."""
    room = CallRoom(max_output_tokens=command.max_output_tokens, held=Spend())
    attempt = 1
    while True:
        try:
            if context.terms.ceilings:
                room = await _find_room(context, ready, command)
            bounded = call.model_copy(update={"max_output_tokens": room.max_output_tokens})
            await context.journal.append(*pending, bounded, held=_held(room), announces=True)
        except CeilingReached as reached:
            # Some of the room may be there still: it is shared out anew.
            if attempt >= _ATTEMPTS or not context.terms.ceilings:
                return Announced(room=room, refused=(*pending, _refusal(context, reached)))
            attempt += 1
            # What was used before this call is no room for it.
            await context.journal.append(*pending)
            pending = ()
        except LedgerUnavailable as error:
            await _go_on_without(context, pending, (call,), error)
            return Announced(room=CallRoom(max_output_tokens=command.max_output_tokens, held=Spend()))
        else:
            return Announced(room=room)


async def announce_tool_calls(
    context: DriveContext, pending: tuple[AnyEvent, ...], calls: tuple[ToolCalled, ...]
) -> BudgetRefused | None:
    """Stores ``pending`` and the calls; or the refusal that ends the run, and nothing is stored. Raises
    LedgerUnavailable as above."""
    try:
        await context.journal.append(*pending, *calls, announces=bool(calls))
    except CeilingReached as reached:
        return _refusal(context, reached)
    except LedgerUnavailable as error:
        await _go_on_without(context, pending, calls, error)
    return None


def refuse_more(context: DriveContext, room: CallRoom) -> BudgetRefused | None:
    """What is recorded of an answer that was stopped where the tenant's room ended; None where another bound did."""
    if room.bound_by is None or room.max_output_tokens is None:
        return None
    return BudgetRefused(
        dimension=room.bound_by.value,
        limit=float(room.max_output_tokens),
        used=float(room.max_output_tokens),
        source=Scope.TENANT.value,
        # None where the ceiling was set after this claim began.
        window_seconds=min(
            (one.window_seconds for one in context.terms.ceilings if one.dimension is room.bound_by), default=None
        ),
        detail="the tenant's ceiling left no more tokens to this call",
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


async def _find_room(context: DriveContext, ready: ReadyPrompt, command: CallModel) -> CallRoom:
    look = partial(context.runtime.store.ledger_room, context.lease.claim)
    rooms = await hold(context.runtime, context.lease, look)
    return room_for_call(
        rooms,
        input_tokens=ready.tokens,
        wanted_output=command.max_output_tokens,
        price=context.runtime.prices.get(ready.full_model),
    )


def _held(room: CallRoom) -> Spend | None:
    return None if room.held == Spend() else room.held


async def _go_on_without(
    context: DriveContext, pending: tuple[AnyEvent, ...], calls: tuple[AnyEvent, ...], error: LedgerUnavailable
) -> None:
    """What happened so far is stored in any case: it was paid for."""
    if context.record.on_ledger_error == "fail":
        if pending:
            await context.journal.append(*pending)
        raise error
    warned = Warned(
        code=error.code,
        detail="a call went out that no ceiling was asked about",
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )
    await context.journal.append(*pending, warned, *calls)


def _refusal(context: DriveContext, reached: CeilingReached) -> BudgetRefused:
    return BudgetRefused(
        dimension=reached.dimension,
        limit=_told(reached.limit),
        used=_told(reached.used),
        requested=_told(reached.requested),
        source=Scope.TENANT.value,
        window_seconds=reached.window_seconds,
        iteration=context.journal.state.iteration,
        author=context.agent.name,
    )


def _told(amount: Decimal) -> float:
    return float(amount)
