"""What every process keeps doing beside its work, by name."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.auth import Uses, keep_uses
from app.execution.deliveries import DeliveryParts, deliver
from app.execution.erasures import forget_prefixes
from app.execution.retention import Retained, Retention, retain
from app.execution.runtime import Runtime
from app.execution.supervisor import Job
from app.execution.sweeper import sweep
from app.execution.tenant_erasure import TenantErasure, erase_tenants
from app.ids import TenantId
from app.observability import Metrics, get_logger, measure_loop_lag
from app.providers import LlamaProvider
from app.service.webhooks import Notices
from app.settings import Settings
from app.store.archive import FileArchive
from app.store.database import Database
from app.store.erasure import PostgresTenantErasure
from app.store.feed import PostgresFeed
from app.store.keys import PostgresKeyStore
from app.store.retention import PostgresErasures, PostgresRetention
from app.store.webhooks import PostgresOutbox
from app.wiring.chores import Skew, keep_maintained, watch_skew

_ERASURES_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class JobParts:
    """What the jobs work with. ``llama`` is None where nothing here runs the local model."""

    settings: Settings
    runtime: Runtime
    database: Database
    feed: PostgresFeed
    metrics: Metrics
    notices: Notices
    skew: Skew
    llama: LlamaProvider | None
    uses: Uses = field(default_factory=Uses)


def jobs_of(parts: JobParts, *, drives_runs: bool) -> Mapping[str, Job]:
    """Those of every process, and those of processes that drive runs. Raises ConfigurationError
    (``archive_dir_unusable``)."""
    runtime, database = parts.runtime, parts.database
    jobs: dict[str, Job] = {
        "feed": parts.feed.run,
        "sweeper": lambda: sweep(runtime, every_seconds=parts.settings.lease_seconds / 6),
        "maintenance": lambda: keep_maintained(database),
        "loop lag": lambda: measure_loop_lag(runtime.clock, parts.metrics.observe_loop_lag),
        "clock": lambda: watch_skew(database, parts.skew),
        "key uses": lambda: keep_uses(parts.uses, PostgresKeyStore(database), runtime.clock),
    }
    if not drives_runs:
        return jobs
    retention = _retention(parts)
    deliveries = DeliveryParts(
        outbox=PostgresOutbox(database),
        carrier=parts.notices.carrier,
        sign=parts.notices.signer.sign,
        clock=runtime.clock,
        draw=random.random,
        told=parts.metrics.delivery_attempted,
        store_away=runtime.sink.store_away,
    )
    jobs["webhooks"] = lambda: deliver(deliveries)
    jobs["retention"] = lambda: retain(retention)
    erasure = _tenant_erasure(parts)
    jobs["tenant erasure"] = lambda: erase_tenants(erasure)
    if (llama := parts.llama) is not None:
        jobs["erasures"] = lambda: _forget(parts, llama)
    return jobs


def _retention(parts: JobParts) -> Retention:
    folder = parts.settings.archive_dir
    archive = None if folder is None else FileArchive(folder, parts.runtime.ids)
    if archive is not None:
        archive.check()

    def tell(retained: Retained) -> None:
        parts.metrics.runs_erased(retained.runs)
        get_logger("runwright.retention").info(
            "erased", tenant_id=retained.tenant_id, runs=retained.runs, sessions=retained.sessions
        )

    store, runtime = PostgresRetention(parts.database), parts.runtime
    return Retention(store=store, archive=archive, clock=runtime.clock, sink=runtime.sink, tell=tell)


def _tenant_erasure(parts: JobParts) -> TenantErasure:
    def tell(tenant_id: TenantId) -> None:
        get_logger("runwright.erasure").info("tenant_erased", tenant_id=tenant_id)

    store, runtime = PostgresTenantErasure(parts.database), parts.runtime
    return TenantErasure(store=store, clock=runtime.clock, sink=runtime.sink, tell=tell)


async def _forget(parts: JobParts, llama: LlamaProvider) -> None:
    async def erase(tenant_id: TenantId, before: float) -> None:
        llama.erase_tenant(tenant_id, before)

    runtime, erasures = parts.runtime, PostgresErasures(parts.database)
    await forget_prefixes(erasures, erase, runtime.clock, _ERASURES_SECONDS, sink=runtime.sink)
