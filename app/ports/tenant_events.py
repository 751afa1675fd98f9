"""All events of a tenant as one stream, in the order of commits."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.ids import RunId, TenantId
from app.ports.records import StoredEventRow


@dataclass(frozen=True, kw_only=True, order=True, slots=True)
class EventPlace:
    """Where a reader stands: behind that event. ``cluster`` tells which database counts; ``turn`` only grows in it.
    Events of one turn come in the order of their runs' ids and numbers."""

    cluster: int
    turn: int
    run_id: RunId
    seq: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Frontier:
    """Where the stream ends now: no event will get a place before ``now`` any more, and none has one in the turn
    ``coming`` or later yet."""

    now: EventPlace
    coming: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedEvent:
    """An event, whose it is, and its place."""

    place: EventPlace
    event: StoredEventRow


@dataclass(frozen=True, kw_only=True, slots=True)
class EventsWanted:
    """Which events a reader is shown; both conditions hold together, and an empty one holds for all. ``agents`` are the
    names of the runs' agents."""

    agents: Collection[str] = ()
    kinds: Collection[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class EventsPage:
    """What was wanted of what was looked at; ``behind`` is the place behind all of that."""

    events: Sequence[PlacedEvent]
    behind: EventPlace
    has_more: bool


class TenantEvents(Protocol):
    """Each in one statement that is its own transaction. They raise StoreUnavailable."""

    async def event_frontier(self) -> Frontier:
        """Behind everything that can be read now."""
        ...

    async def tenant_events(
        self, tenant_id: TenantId, after: EventPlace, wanted: EventsWanted, *, limit: int
    ) -> EventsPage:
        """Events behind that place, in the order of commits: none is ever put in before one that was read, and those of
        one run come in the order of its log. No more than ``limit`` are looked at, and no more told than an answer
        should hold at once.

        Raises ValueError for a place of another database.
        """
        ...
