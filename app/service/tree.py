"""A run's log together with its children's, as one: depth first, each child behind the event that opened it.

A position is the path of numbers from the root's event down: ``(7, 3)`` is event 3 of the child that event 7 opened.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from app.errors import MalformedRequest
from app.ids import RunId, is_id
from app.ports.records import RunRecord, StoredEventRow

Position = tuple[int, ...]

_OUTCOMES: Final = frozenset({"tool_result", "tool_error", "tool_refused", "tool_indeterminate"})
_READ_AHEAD: Final = 100
START: Final[Position] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEvent:
    """A stored event of a run or of one below it. ``run_id`` is whose it is."""

    run_id: RunId
    position: Position
    event: StoredEventRow


class Logs(Protocol):
    """Where a walk reads: a tenant's transaction has it all."""

    async def events_after(self, run_id: RunId, seq: int, *, limit: int) -> Sequence[StoredEventRow]:
        """Stored events with a higher number, in order; fewer than ``limit`` only where there are no more."""
        ...

    async def get_run(self, run_id: RunId) -> RunRecord | None: ...


@dataclass(kw_only=True, slots=True)
class _Level:
    """How far one run's log was read. ``opened_by`` is the call in the log above; ``may_grow``: it can get more."""

    run_id: RunId
    after: int = 0
    opened_by: str = ""
    may_grow: bool = True


class Walk:
    """Reads the log of a run and of its children, from one position to the next."""

    def __init__(self, root: RunId) -> None:
        self._levels = [_Level(run_id=root)]
        self.has_ended = False

    @property
    def root(self) -> RunId:
        return self._levels[0].run_id

    @property
    def reads(self) -> RunId:
        """The run whose log comes next."""
        return self._levels[-1].run_id

    async def go_to(self, logs: Logs, position: Position) -> None:
        """Goes on behind that event. Raises MalformedRequest (``unknown_event_id``) where there never was one."""
        for depth, seq in enumerate(position, start=1):
            if len(self._levels) != depth:
                # The event before has opened nothing.
                raise unknown_position()
            level = self._levels[-1]
            found = await logs.events_after(level.run_id, seq - 1, limit=1) if seq > 0 else ()
            if not found or found[0].seq != seq:
                raise unknown_position()
            self._pass(level, found[0])

    async def read(self, logs: Logs, *, limit: int) -> list[TreeEvent]:
        """The next events, up to ``limit``. Fewer: there are no more for now, or the root's last one is among them."""
        events: list[TreeEvent] = []
        while len(events) < limit and not self.has_ended:
            level = self._levels[-1]
            for event in await logs.events_after(level.run_id, level.after, limit=limit - len(events)):
                events.append(TreeEvent(run_id=level.run_id, position=self._position(event.seq), event=event))
                self._pass(level, event)
                if self._levels[-1] is not level:
                    break
            else:
                if len(events) < limit and not await self._leave(logs):
                    break
        return events

    def _position(self, seq: int) -> Position:
        return (*(level.after for level in self._levels[:-1]), seq)

    def _pass(self, level: _Level, event: StoredEventRow) -> None:
        level.after = event.seq
        if (opened := read_opening(event)) is not None:
            child, call_id = opened
            self._levels.append(_Level(run_id=child, opened_by=call_id))
        elif event.kind == "terminated":
            self._pop()

    def _pop(self) -> None:
        if len(self._levels) == 1:
            self.has_ended = True
        else:
            self._levels.pop()

    async def _leave(self, logs: Logs) -> bool:
        """What to do at the end of what is stored: False to wait for more. A child that was left behind without an end
        is read once more, since something may have been stored before its caller went on."""
        level = self._levels[-1]
        if len(self._levels) == 1:
            return False
        if level.may_grow:
            level.may_grow = not await self._is_over(logs, level)
            return not level.may_grow
        self._pop()
        return True

    async def _is_over(self, logs: Logs, level: _Level) -> bool:
        above = self._levels[-2]
        ahead = await logs.events_after(above.run_id, above.after, limit=_READ_AHEAD)
        if any(_is_outcome(event, level.opened_by) for event in ahead):
            return True
        for run_id in dict.fromkeys((above.run_id, self.root)):
            run = await logs.get_run(run_id)
            if run is None or run.state.is_terminal:
                return True
        return False


def read_opening(event: StoredEventRow) -> tuple[RunId, str] | None:
    """The child that an event opened, and the call that it is for; None for every other event. A later dispatch of the
    same call goes on with the child that is there."""
    if event.kind != "tool_call" or '"child_run_id":"' not in event.payload:
        return None
    payload: dict[str, Any] = json.loads(event.payload)
    child = payload.get("child_run_id")
    if not isinstance(child, str) or not is_id("run", child) or payload.get("dispatch", 1) != 1:
        return None
    return RunId(child), str(payload.get("call_id", ""))


def _is_outcome(event: StoredEventRow, call_id: str) -> bool:
    if event.kind not in _OUTCOMES:
        return False
    payload: dict[str, Any] = json.loads(event.payload)
    return payload.get("call_id") == call_id


async def open_walk(logs: Logs, run: RunRecord, position: Position) -> Walk:
    """A walk that goes on behind that position. Raises MalformedRequest (``unknown_event_id``)."""
    walk = Walk(run.run_id)
    await walk.go_to(logs, position)
    return walk


def unknown_position() -> MalformedRequest:
    return MalformedRequest("this run has no event with that id", code="unknown_event_id")


def write_position(position: Sequence[int]) -> str:
    """As it stands in ``id:`` and in ``after``."""
    return ".".join(map(str, position))
