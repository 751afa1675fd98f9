"""The tenants' store with something of a test's own around it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from app.ids import RunId, TenantId
from app.ports.records import AdmissionFacts, LogPage, NewRun, RunNow, RunRecord
from app.ports.store import TenantStore, TenantTx
from app.ports.tenant_events import EventPlace, EventsPage, EventsWanted, Frontier


class WrappedStore:
    """Passes everything on. A test overrides what it is about."""

    def __init__(self, store: TenantStore) -> None:
        self.store = store

    def begin(self, tenant_id: TenantId, *, actor: str | None = None) -> AbstractAsyncContextManager[TenantTx]:
        return self.store.begin(tenant_id, actor=actor)

    async def look(self, tenant_id: TenantId, run_id: RunId) -> RunNow | None:
        return await self.store.look(tenant_id, run_id)

    async def admission_facts(
        self, tenant_id: TenantId, agent: str, version: int | None, *, max_queued: int
    ) -> AdmissionFacts:
        return await self.store.admission_facts(tenant_id, agent, version, max_queued=max_queued)

    async def insert_run(self, run: NewRun) -> RunRecord:
        return await self.store.insert_run(run)

    async def read_logs(
        self, tenant_id: TenantId, places: Sequence[tuple[RunId, int]], *, limit: int
    ) -> Mapping[tuple[RunId, int], LogPage]:
        return await self.store.read_logs(tenant_id, places, limit=limit)

    async def event_frontier(self) -> Frontier:
        return await self.store.event_frontier()

    async def tenant_events(
        self, tenant_id: TenantId, after: EventPlace, wanted: EventsWanted, *, limit: int
    ) -> EventsPage:
        return await self.store.tenant_events(tenant_id, after, wanted, limit=limit)
