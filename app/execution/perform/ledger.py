"""A tenant's ceilings over time: room is reserved before a call goes out, in the append that announces it.

What a call used is charged with the events that tell it, so the ledger and the log can't part. A ceiling without room
ends the run; a ledger that does not answer ends it too, unless the run says to go on without.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final

from app.errors import CeilingReached, LedgerUnavailable
from app.events import AnyEvent, BudgetRefused, ModelCall, ToolCalled, Warned
from app.execution.perform.context import Drained, DriveContext
from app.execution.perform.holding import hold
from app.execution.perform.prompts import ReadyPrompt
from app.execution.race import Cut, CutOff
from app.policy import CallRoom, CeilingDimension, CeilingRoom, Price, Scope, Spend, room_for_call, should_wait
from app.run import CallModel

# Between the look at the room and the reservation others may have taken of it.
_ATTEMPTS: Final = 3
_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Announced:
    """``instead``: the call does not go out, and this has happened, after what was not stored yet. Without it the call
    may go out as ``room`` says."""

    room: CallRoom
    instead: tuple[AnyEvent, ...] | None = None


async def announce_model_call(
    context: DriveContext,
    pending: tuple[AnyEvent, ...],
    call: ModelCall,
    ready: ReadyPrompt,
    command: CallModel,
    find_objection: Callable[[], tuple[AnyEvent, ...] | None],
) -> Announced:
    """Stores ``pending`` and the call, which may write as much as the tenant's ceilings leave it. Where that is little
    or nothing because of what is reserved for others' calls, it waits for those: most use less.

    ``find_objection`` is asked right before the call is stored, with nothing between; what it answers is told instead
    of the call. Raises LedgerUnavailable where nobody can tell of the ceilings, and the run is to fail then;
    ``pending`` is stored all the same.
    """
    look = _Look(context=context, ready=ready, command=command)
    attempt, waits = 1, 0
    while True:
        room = look.unbounded
        rooms: Mapping[CeilingDimension, CeilingRoom] = {}
        try:
            if context.terms.ceilings:
                rooms = await look.ask()
                room = look.share(rooms)
            if (objection := find_objection()) is not None:
                return Announced(room=room, instead=(*pending, *objection))
            if not look.should_wait(rooms, room):
                bounded = call.model_copy(update={"max_output_tokens": room.max_output_tokens})
                await context.journal.append(*pending, bounded, held=_held(room), announces=True)
                return Announced(room=room)
        except CeilingReached as reached:
            if not _is_held(rooms, reached):
                # Some of the room may be there still: it is shared out anew.
                if attempt >= _ATTEMPTS or not context.terms.ceilings:
                    return Announced(room=room, instead=(*pending, _refusal(context, reached)))
                attempt += 1
        except LedgerUnavailable as error:
            goes_on = context.record.on_ledger_error != "fail"
            if goes_on and (objection := find_objection()) is not None:
                return Announced(room=room, instead=(*pending, *objection))
            await _go_on_without(context, pending, (call,), error)
            return Announced(room=look.unbounded)
        # What was used before this call is no room for it, and who waits holds nothing.
        await context.journal.append(*pending)
        pending = ()
        waits += 1
        if stopped := await _wait(context, min(_LONGEST_WAIT_SECONDS, _WAIT_SECONDS * waits)):
            return Announced(room=room, instead=stopped)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Look:
    """What one call wants of the tenant's ceilings."""

    context: DriveContext
    ready: ReadyPrompt
    command: CallModel

    @property
    def unbounded(self) -> CallRoom:
        return CallRoom(max_output_tokens=self.command.max_output_tokens, held=Spend())

    @property
    def _price(self) -> Price | None:
        return self.context.runtime.prices.get(self.ready.full_model)

    async def ask(self) -> Mapping[CeilingDimension, CeilingRoom]:
        look = partial(self.context.runtime.store.ledger_room, self.context.lease.claim)
        return await hold(self.context.runtime, self.context.lease, look)

    def share(self, rooms: Mapping[CeilingDimension, CeilingRoom]) -> CallRoom:
        return room_for_call(
            {dimension: room.left for dimension, room in rooms.items()},
            input_tokens=self.ready.tokens,
            wanted_output=self.command.max_output_tokens,
            price=self._price,
        )

    def should_wait(self, rooms: Mapping[CeilingDimension, CeilingRoom], room: CallRoom) -> bool:
        return should_wait(
            rooms,
            room,
            input_tokens=self.ready.tokens,
            wanted_output=self.command.max_output_tokens,
            price=self._price,
        )


def _is_held(rooms: Mapping[CeilingDimension, CeilingRoom], reached: CeilingReached) -> bool:
    """Whether it is only in the way what is reserved for others, also since the look at the room."""
    room = rooms.get(CeilingDimension(reached.dimension))
    return room is not None and reached.requested <= room.unheld


async def _wait(context: DriveContext, seconds: float) -> tuple[AnyEvent, ...]:
    """What stopped the run meanwhile; nothing where the time just passed. Raises Drained."""
    bounds = [bound for bound in context.bounds(None) if bound.seconds < seconds]
    outcome = await context.abandonable.race(context.runtime.clock.sleep(seconds), bounds)
    if not isinstance(outcome, CutOff):
        return ()
    if outcome.cut is Cut.DRAIN:
        raise Drained
    return (context.ended_by(outcome.cut, what="wait for the tenant's ceilings", step_seconds=None),)


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
