"""What one process consists of while it serves."""

import os
import socket
from dataclasses import replace
from functools import partial
from typing import Final

from app.api import ApiConfig, ApiDeps, OpenStreams
from app.auth import Tickets, Uses
from app.conversation.text import text_digest
from app.execution.desk import StoredGate
from app.execution.runtime import LoopRules, Runtime
from app.execution.supervisor import Supervisor
from app.execution.system import SystemClock, Uuid7Ids
from app.execution.worker import Worker, WorkerConfig
from app.ids import WorkerId
from app.observability import EngineFigures, Metrics, ObservingSink, Scraper, Watched, get_logger
from app.observability.logs import describe_exception
from app.policy import keyed_digest
from app.ports.clock import IdSource
from app.ports.model import ModelInfo
from app.providers import LlamaProvider
from app.service.cursors import Cursors
from app.service.runs import RunRules
from app.service.signing import WebhookSigner
from app.service.webhooks import Notices
from app.settings import ProcessRole, Settings
from app.store.database import Database, DatabaseConfig
from app.store.feed import PostgresFeed
from app.store.gauges import PostgresGauges
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.tools.outgoing import OutgoingClient
from app.wiring.auth import build_tokens
from app.wiring.chores import Skew
from app.wiring.jobs import JobParts, jobs_of
from app.wiring.parts import Parts
from app.wiring.readiness import Readiness
from app.wiring.secret import derive_key, load_secret

_SEND_SECONDS: Final = 60.0


class Process:
    """Started once, drained once, stopped once."""

    def __init__(self, *, parts: Parts, deps: ApiDeps, supervisor: Supervisor, drives_runs: bool) -> None:
        self.deps = deps
        self._parts = parts
        self._supervisor = supervisor
        self._drives_runs = drives_runs

    async def start(self) -> None:
        """Loads the model where this process drives runs, then starts claiming. Raises ConfigurationError."""
        self._supervisor.start()
        if self._drives_runs and self._parts.llama is not None:
            await self._parts.llama.start()
            _tell_model(self._parts.llama.models()[0])
        self._supervisor.start_worker()

    def begin_drain(self) -> None:
        """Nothing new is taken, streams end, and the worker hands back what it can."""
        self.deps.drain.begin()
        self._supervisor.begin_drain()

    async def stop(self) -> None:
        self.begin_drain()
        await self._supervisor.stop()


def build_process(settings: Settings, parts: Parts, database: Database, config: DatabaseConfig) -> Process:
    """Introduces the rooms to each other. Starts nothing. Raises ConfigurationError."""
    metrics, feed, skew, secret = Metrics(), PostgresFeed(config), Skew(), _load_secret(settings)
    drives_runs = settings.role is not ProcessRole.API
    digest = partial(keyed_digest, derive_key(secret, "approvals"))
    runtime = replace(
        _build_runtime(settings, parts, database, feed, metrics),
        digest=digest,
        digest_text=partial(text_digest, key=derive_key(secret, "texts")),
    )
    notices = Notices(carrier=OutgoingClient(settings.allowed_networks), signer=WebhookSigner(secret))
    job_parts = JobParts(
        settings=settings,
        runtime=runtime,
        database=database,
        feed=feed,
        metrics=metrics,
        notices=notices,
        skew=skew,
        llama=parts.llama,
        uses=(uses := Uses()),
    )
    supervisor = Supervisor(
        runtime,
        worker=Worker(runtime, _worker_id(runtime.ids), _worker_config(settings)) if drives_runs else None,
        jobs=jobs_of(job_parts, drives_runs=drives_runs),
        failed=_tell_failure,
    )
    gauges = PostgresGauges(database)
    readiness = Readiness(gauges, supervisor, parts.router if drives_runs else None, skew)
    deps = ApiDeps(
        store=PostgresTenantStore(database),
        keys=PostgresKeyStore(database),
        operator=PostgresOperatorStore(database, runtime.ids),
        feed=feed,
        clock=runtime.clock,
        ids=runtime.ids,
        catalogue=parts.catalogue,
        cursors=Cursors(secret),
        notices=notices,
        digest=digest,
        check_readiness=readiness.check,
        find_warnings=readiness.warnings,
        render_metrics=Scraper(metrics, gauges.snapshot).render,
        streams=OpenStreams(metrics.reader_dropped),
        requests=metrics,
        config=_api_config(settings),
        uses=uses,
        tokens=build_tokens(settings, runtime.clock),
        tickets=Tickets(derive_key(secret, "tickets")),
    )
    worker_slots = settings.slots if drives_runs else 0
    metrics.watch(
        Watched(
            open_streams=lambda: deps.streams.count,
            tool_threads=lambda: parts.tools.busy_threads,
            worker_runs=lambda: supervisor.driven_runs,
            worker_slots=lambda: worker_slots,
            connections_in_use=lambda: database.pool.borrowed,
            connections_allowed=lambda: database.pool.size,
            connection_waiters=lambda: database.pool.waiting,
            clock_skew_seconds=lambda: skew.seconds,
            engine=partial(_engine_figures, parts.llama),
        )
    )
    return Process(parts=parts, deps=deps, supervisor=supervisor, drives_runs=drives_runs)


def _build_runtime(
    settings: Settings, parts: Parts, database: Database, feed: PostgresFeed, metrics: Metrics
) -> Runtime:
    clock = SystemClock()
    store = PostgresWorkStore(database, clock)
    return Runtime(
        store=store,
        models=parts.router,
        tools=parts.tools,
        hooks=parts.hooks,
        clock=clock,
        ids=Uuid7Ids(),
        feed=feed,
        sink=ObservingSink(metrics),
        rules=_loop_rules(settings),
        prices=parts.prices,
        approvals=StoredGate(store),
        approval_ttl_seconds=settings.approval_ttl_seconds,
        has=parts.catalogue.names,
        router=parts.routes,
        callbacks=parts.hooks,
        max_artifact_bytes=settings.max_artifact_bytes,
    )


def _engine_figures(llama: LlamaProvider | None) -> EngineFigures:
    if llama is None:
        return EngineFigures()
    counters = llama.counters()
    return EngineFigures(
        requests_waiting=counters.queue_depth,
        requests_running=counters.active,
        gave_way=counters.gave_way,
        cells=counters.cells,
        cells_used=counters.used_cells,
        entries=counters.stored_entries,
        entry_cells=counters.stored_cells,
        entry_bytes=counters.stored_bytes,
        lookups=counters.lookups,
        hits=counters.hits,
        restored_tokens=counters.prompt_tokens_restored,
        batch_tokens=counters.batch_tokens,
        batch_requests=counters.batch_requests,
        step_seconds=counters.step_seconds,
    )


def _worker_id(ids: IdSource) -> WorkerId:
    """Unlike any other, also after a restart: a draining process must not be taken for its successor."""
    return WorkerId(f"{socket.gethostname()}:{os.getpid()}:{ids.new('wrk')}")


def _worker_config(settings: Settings) -> WorkerConfig:
    return WorkerConfig(
        slots=settings.slots, lease_seconds=settings.lease_seconds, drain_seconds=settings.drain_seconds
    )


def _loop_rules(settings: Settings) -> LoopRules:
    # A lease is renewed when two thirds of it are left. A margin above that would let no call go out at all.
    margin_seconds = min(1.0, settings.lease_seconds / 6)
    return LoopRules(
        deadlines=settings.deadlines,
        retry=settings.retry,
        max_recoveries=settings.max_recoveries,
        lease_margin_seconds=margin_seconds,
    )


def _api_config(settings: Settings) -> ApiConfig:
    rules = RunRules(budget=settings.budget, deadlines=settings.deadlines, max_queued_runs=settings.max_queued_runs)
    return ApiConfig(
        max_request_bytes=settings.max_request_bytes,
        max_artifact_bytes=settings.max_artifact_bytes,
        allowed_origins=settings.allowed_origins,
        # Before the server cuts the connection: who takes nothing is dropped by us, and counted.
        send_seconds=min(_SEND_SECONDS, 0.9 * settings.request_seconds),
        rules=rules,
    )


def _load_secret(settings: Settings) -> bytes:
    given = None if settings.secret_key is None else settings.secret_key.get_secret_value()
    return load_secret(given, settings.data_dir)


def _tell_failure(job: str, error: Exception) -> None:
    get_logger("runwright.process").error("job_failed", job=job, exception=describe_exception(error))


def _tell_model(model: ModelInfo) -> None:
    """What whoever starts the service should know of its model: that its format is a slow one, say."""
    get_logger("runwright.llama").info(
        "model_loaded", model=model.name, context_tokens=model.context_tokens, notes=list(model.notes)
    )
