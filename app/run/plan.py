"""From outcomes to the next thing that touches the world: everything between shares one append."""

from dataclasses import dataclass

from app.events import AnyEvent
from app.run.commands import Command, Record
from app.run.decide import Situation, decide
from app.run.fold import fold
from app.run.spec import RunSpec
from app.run.state import State


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """``events`` are to be stored before ``command`` is performed; ``state`` is what their fold will be."""

    events: tuple[AnyEvent, ...]
    state: State
    command: Command


def plan(spec: RunSpec, state: State, outcomes: tuple[AnyEvent, ...], situation: Situation) -> Plan:
    """Takes the outcomes of the last command, and decides until something has to touch the world.

    Nobody acts on the events in between, so they can be stored together (promise 2 holds: they are folded for good
    only when the log has them). Pure: a crash before the append loses a plan, not a fact.
    """
    events: list[AnyEvent] = []
    pending: tuple[AnyEvent, ...] = outcomes
    while True:
        for body in pending:
            state = fold(state, body, at=max(situation.now, state.last_at))
            events.append(body)
        command = decide(spec, state, situation)
        if not isinstance(command, Record):
            return Plan(events=tuple(events), state=state, command=command)
        pending = command.events
