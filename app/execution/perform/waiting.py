"""A backoff: nothing to do until an instant, unless the run is told to stop."""

from app.events import AnyEvent
from app.execution.perform.context import Drained, DriveContext
from app.execution.race import Bound, Cut, CutOff
from app.run import Plan, WaitUntil


async def wait_until(context: DriveContext, planned: Plan, command: WaitUntil) -> tuple[AnyEvent, ...]:
    """Waits only the rest: the instant is in the log, also for whoever takes the run over."""
    await context.journal.append(*planned.events)
    clock = context.runtime.clock
    seconds = max(0.0, command.at - clock.now())
    bounds: list[Bound] = [bound for bound in context.bounds(None) if bound.seconds < seconds]
    outcome = await context.abandonable.race(clock.sleep(seconds), bounds)
    if not isinstance(outcome, CutOff):
        return ()
    if outcome.cut is Cut.DRAIN:
        raise Drained
    return (context.ended_by(outcome.cut, what="backoff", step_seconds=None),)
