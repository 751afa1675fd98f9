"""A tenant's stream of events as readers meet it, and transactions that take their time."""

from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg

from app.ids import RunId, TenantId
from app.ports.tenant_events import EventPlace, EventsWanted, PlacedEvent
from app.store.tenant import PostgresTenantStore

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
EVERYTHING = EventsWanted()
# A run as submit_run leaves it, its first event, and one more.
INSERT_RUN = """
    INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, budget, max_llm_calls,
        priority, metadata, created_at, queued_at)
    VALUES ($1, $2, (clock_timestamp() AT TIME ZONE 'UTC')::date, 'queued', 'clerk', 1, '"hi"', '{}', '{}', 10, 0,
        '{}', clock_timestamp(), clock_timestamp())
"""
APPEND = """
    WITH r AS (UPDATE runs SET last_seq = last_seq + 1 WHERE tenant_id = $1 AND run_id = $2 RETURNING *)
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    SELECT r.tenant_id, r.run_day, r.run_id, r.last_seq, 'warning', clock_timestamp(), 0, '{}' FROM r RETURNING seq
"""


@dataclass
class Writer:
    """A connection with a transaction that is open for as long as a test likes. Its number is given to it at once."""

    connection: asyncpg.Connection
    written: list[tuple[RunId, int]] = field(default_factory=list)

    async def begin(self) -> None:
        await self.connection.execute("BEGIN; SELECT pg_current_xact_id()")

    async def append(self, run_id: RunId, tenant_id: TenantId = TENANT) -> tuple[RunId, int]:
        event = run_id, await self.connection.fetchval(APPEND, tenant_id, run_id)
        self.written.append(event)
        return event

    async def commit(self) -> list[tuple[RunId, int]]:
        """What it has written."""
        await self.connection.execute("COMMIT")
        written, self.written = self.written, []
        return written

    async def roll_back(self) -> None:
        await self.connection.execute("ROLLBACK")
        self.written = []


@dataclass
class StreamReader:
    """Reads on from where it stands, and remembers what it was told."""

    store: PostgresTenantStore
    place: EventPlace
    told: list[PlacedEvent] = field(default_factory=list)

    async def read(self, *, limit: int = 1000, wanted: EventsWanted = EVERYTHING) -> list[tuple[str, int]]:
        """A page; what it tells."""
        page = await self.store.tenant_events(TENANT, self.place, wanted, limit=limit)
        self.place = page.behind
        self.told += page.events
        return names(page.events)


async def begin_reading(store: PostgresTenantStore) -> StreamReader:
    """Behind all that is there now."""
    return StreamReader(store, (await store.event_frontier()).now)


def names(events: Any) -> list[tuple[str, int]]:
    return [(event.place.run_id, event.event.seq) for event in events]


def elsewhere(place: EventPlace) -> EventPlace:
    return replace(place, cluster=place.cluster + 1)
