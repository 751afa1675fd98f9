"""Whose turn it is: the runs of one session go one after the other, in the order in which they were asked for."""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from app.errors import SessionBusyError
from app.execution.adk.config import OnSessionBusy
from app.execution.race import is_at_work
from app.ports.cancellation import CancellationToken

INTERRUPTED: Final = "interrupted by a newer message of the session"


@dataclass(eq=False, kw_only=True, slots=True)
class Place:
    """One run's place in its session. ``token`` cancels the run."""

    tenant: str
    session_id: str
    token: CancellationToken
    turn: asyncio.Event = field(default_factory=asyncio.Event)


# The places of the runs that wait for the work that is going on here.
WAITED_FOR_BY: Final[ContextVar[tuple[Place, ...]]] = ContextVar("waited_for_by", default=())


class Lines:
    """Every session's runs that have not ended, in order. Runners that share sessions share their lines."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], list[Place]] = {}

    def join(self, place: Place, on_busy: OnSessionBusy) -> None:
        """Takes the place at the end. Raises SessionBusyError where the caller does not want to wait, or would wait for
        ever."""
        before = self._places.get((place.tenant, place.session_id), [])
        if before and on_busy == "reject":
            raise SessionBusyError(f"the session {place.session_id} has a run that has not ended")
        if on_busy == "enqueue" and is_at_work() and any(waiting in before for waiting in WAITED_FOR_BY.get()):
            raise SessionBusyError(f"a run of the session {place.session_id} waits for this one, which waits for it")
        if on_busy == "interrupt":
            for other in before:
                other.token.cancel(INTERRUPTED)
        self._places[place.tenant, place.session_id] = [*before, place]
        self._call_next(place)

    def leave(self, place: Place) -> None:
        """The run is over, or was never begun."""
        left = [other for other in self._places.get((place.tenant, place.session_id), []) if other is not place]
        self._places[place.tenant, place.session_id] = left
        self._call_next(place)

    def _call_next(self, place: Place) -> None:
        waiting = self._places[place.tenant, place.session_id]
        if waiting:
            waiting[0].turn.set()
        else:
            del self._places[place.tenant, place.session_id]


_LINES: Final[WeakKeyDictionary[object, Lines]] = WeakKeyDictionary()


def lines_of(sessions: object) -> Lines:
    """The lines of these sessions."""
    return _LINES.setdefault(sessions, Lines())
