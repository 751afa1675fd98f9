"""The stream of a tenant's events. ``0006_events.sql`` says why nobody misses one."""

from collections.abc import Collection
from typing import Any, Final

import asyncpg

from app.ids import RunId, TenantId
from app.ports.records import StoredEventRow
from app.ports.tenant_events import EventPlace, EventsPage, EventsWanted, Frontier, PlacedEvent
from app.store.database import Database

_FRONTIER: Final = "SELECT incarnation, settled, coming FROM event_frontier()"
_READ: Final = """
    SELECT number, xid, run_id, seq, kind, at, payload FROM read_tenant_events($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_MOST_BYTES: Final = 262_144
_ANOTHER_CLUSTER: Final = "RW002"


class TenantEventReads:
    """Satisfies ``ports.tenant_events.TenantEvents``."""

    _database: Database

    async def event_frontier(self) -> Frontier:
        [row] = await self._database.fetch(_FRONTIER)
        now = EventPlace(cluster=row["incarnation"], turn=row["settled"], run_id=RunId(""), seq=0)
        return Frontier(now=now, coming=row["coming"])

    async def tenant_events(
        self, tenant_id: TenantId, after: EventPlace, wanted: EventsWanted, *, limit: int
    ) -> EventsPage:
        place = (after.cluster, after.turn, after.run_id, after.seq)
        filters = (_or_all(wanted.agents), _or_all(wanted.kinds))
        try:
            rows = await self._database.fetch(_READ, tenant_id, *place, limit, _MOST_BYTES, *filters)
        except asyncpg.PostgresError as error:
            if error.sqlstate == _ANOTHER_CLUSTER:
                raise ValueError("the place is of another database") from None
            raise
        if not rows:
            return EventsPage(events=(), behind=after, has_more=False)
        size = sum(len(row["payload"] or "") for row in rows)
        return EventsPage(
            events=[_to_placed(after.cluster, row) for row in rows if row["payload"] is not None],
            behind=_to_place(after.cluster, rows[-1]),
            has_more=rows[-1]["number"] >= limit or size >= _MOST_BYTES,
        )


def _or_all(names: Collection[str]) -> list[str] | None:
    return sorted(names) or None


def _to_placed(cluster: int, row: Any) -> PlacedEvent:
    event = StoredEventRow(seq=row["seq"], kind=row["kind"], at=row["at"].timestamp(), payload=row["payload"])
    return PlacedEvent(place=_to_place(cluster, row), event=event)


def _to_place(cluster: int, row: Any) -> EventPlace:
    return EventPlace(cluster=cluster, turn=row["xid"], run_id=RunId(row["run_id"]), seq=row["seq"])
