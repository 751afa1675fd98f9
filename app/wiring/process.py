"""What one process consists of while it serves."""

import os
import socket
from collections.abc import Callable, Mapping

from app.api import ApiConfig, ApiDeps, OpenStreams
from app.errors import StoreUnavailable
from app.execution.runtime import LoopRules, Runtime
from app.execution.supervisor import Supervisor
from app.execution.sweeper import sweep
from app.execution.system import SystemClock, Uuid7Ids
from app.execution.worker import Worker, WorkerConfig
from app.ids import WorkerId
from app.observability import Metrics, ObservingSink, get_logger, measure_loop_lag
from app.observability.logs import describe_exception
from app.providers import LlamaProvider
from app.service.cursors import Cursors
from app.service.runs import RunRules
from app.settings import ProcessRole, Settings
from app.store.database import Database, DatabaseConfig
from app.store.feed import PostgresFeed
from app.store.gauges import PostgresGauges
from app.store.keys import PostgresKeyStore
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.wiring.chores import Skew, keep_maintained, watch_skew
from app.wiring.parts import Parts
from app.wiring.readiness import Readiness
from app.wiring.secret import load_secret


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
        self._supervisor.start_worker()

    def begin_drain(self) -> None:
        """Nothing new is taken, streams end, and the worker hands back what it can."""
        self.deps.drain.begin()
        self._supervisor.begin_drain()

    async def stop(self) -> None:
        self.begin_drain()
        await self._supervisor.stop()


def build_process(settings: Settings, parts: Parts, database: Database, config: DatabaseConfig) -> Process:
    """Introduces the rooms to each other. Starts nothing."""
    clock, ids, metrics, feed = SystemClock(), Uuid7Ids(), Metrics(), PostgresFeed(config)
    drives_runs = settings.role is not ProcessRole.API
    runtime = Runtime(
        store=PostgresWorkStore(database, clock),
        models=parts.router,
        tools=parts.tools,
        hooks=parts.hooks,
        clock=clock,
        ids=ids,
        feed=feed,
        sink=ObservingSink(metrics),
        rules=_loop_rules(settings),
        prices=parts.prices,
        router=parts.routes,
        callbacks=parts.hooks,
        max_artifact_bytes=settings.max_artifact_bytes,
    )
    skew = Skew()
    supervisor = Supervisor(
        runtime,
        worker=Worker(runtime, _worker_id(ids), _worker_config(settings)) if drives_runs else None,
        jobs={
            "feed": feed.run,
            "sweeper": lambda: sweep(runtime, every_seconds=settings.lease_seconds / 6),
            "maintenance": lambda: keep_maintained(database),
            "loop lag": lambda: measure_loop_lag(clock, metrics.observe_loop_lag),
            "clock": lambda: watch_skew(database, skew),
        },
        failed=_tell_failure,
    )
    gauges = PostgresGauges(database)
    deps = ApiDeps(
        store=PostgresTenantStore(database),
        keys=PostgresKeyStore(database),
        feed=feed,
        clock=clock,
        ids=ids,
        catalogue=parts.catalogue,
        cursors=Cursors(load_secret(_secret(settings), settings.data_dir)),
        check_readiness=Readiness(gauges, supervisor, parts.router if drives_runs else None, skew).check,
        render_metrics=lambda: _render(metrics, gauges),
        streams=OpenStreams(metrics.reader_dropped),
        config=_api_config(settings),
    )
    metrics.watch_tool_threads(lambda: parts.tools.busy_threads)
    if parts.llama is not None:
        metrics.watch_engine(_engine_figures(parts.llama))
    metrics.watch_open_streams(lambda: deps.streams.count)
    return Process(parts=parts, deps=deps, supervisor=supervisor, drives_runs=drives_runs)


def _engine_figures(llama: LlamaProvider) -> Mapping[str, Callable[[], float]]:
    return {
        "requests_waiting": lambda: llama.counters().queue_depth,
        "requests_running": lambda: llama.counters().active,
        "cells_used": lambda: llama.counters().used_cells,
        "store_bytes": lambda: llama.counters().stored_bytes,
        "requests_gave_way": lambda: llama.counters().gave_way,
    }


async def _render(metrics: Metrics, gauges: PostgresGauges) -> bytes:
    try:
        snapshot = await gauges.snapshot()
    except StoreUnavailable:
        snapshot = None
    return metrics.render(snapshot)[0]


def _worker_id(ids: Uuid7Ids) -> WorkerId:
    """Unlike any other, also after a restart: a draining process must not be taken for its successor."""
    return WorkerId(f"{socket.gethostname()}/{os.getpid()}/{ids.new('wrk')}")


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
        max_request_bytes=settings.max_request_bytes, max_artifact_bytes=settings.max_artifact_bytes, rules=rules
    )


def _secret(settings: Settings) -> str | None:
    return None if settings.secret_key is None else settings.secret_key.get_secret_value()


def _tell_failure(job: str, error: Exception) -> None:
    get_logger("runwright.process").error("job_failed", job=job, exception=describe_exception(error))
