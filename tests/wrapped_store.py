"""The tenants' store with something of a test's own around it."""

from contextlib import AbstractAsyncContextManager

from app.ids import RunId, TenantId
from app.ports.records import AdmissionFacts, NewRun, RunNow, RunRecord
from app.ports.store import TenantStore, TenantTx


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
