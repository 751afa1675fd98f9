"""``runwright serve``: builds the process, in order, and takes it down, in reverse."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from app.api import Surface, create_app
from app.errors import ConfigurationError
from app.execution.system import Uuid7Ids
from app.observability import configure_logs
from app.settings import ProcessRole, Settings
from app.store.database import Database, DatabaseConfig, check_role
from app.store.gauges import PostgresGauges
from app.store.migrate import migrate
from app.store.operator import PostgresOperatorStore
from app.wiring.first_keys import FIRST_TENANT, FirstKeys, ensure_dev_keys
from app.wiring.http import HttpServer
from app.wiring.limits import raise_file_limit
from app.wiring.parts import build_parts
from app.wiring.process import Process, build_process
from app.wiring.schema import open_server
from app.wiring.signals import StopSignals


async def serve(settings: Settings) -> None:
    """Serves until it is told to stop, also where that is while it starts. Raises ConfigurationError, at the start,
    for what can't work; StoreUnavailable when the database does not answer then."""
    configure_logs(level=settings.log_level)
    raise_file_limit()
    task = asyncio.current_task()
    assert task is not None
    with StopSignals(otherwise=task.cancel) as signals:
        try:
            await _build_and_serve(settings, signals)
        except asyncio.CancelledError:
            if not signals.were_heard:
                raise


async def _build_and_serve(settings: Settings, signals: StopSignals) -> None:
    async with AsyncExitStack() as stack:
        parts = build_parts(settings)
        stack.push_async_callback(parts.router.close)
        config = await stack.enter_async_context(open_server(settings))
        keys = await _prepare_embedded(settings, config)
        database = Database(config)
        stack.push_async_callback(database.close)
        await check_role(database, allow_owner=settings.allow_owner_role)
        await _refuse_other_schema(database)
        process = build_process(settings, parts, database, config)
        stack.push_async_callback(process.stop)
        # What was loaded until here lives as long as the process: no collection has to look at it again.
        gc.collect()
        gc.freeze()
        metrics_address = await stack.enter_async_context(_metrics_apart(settings, process))
        await _serve(settings, process, keys, signals, metrics_address)


@asynccontextmanager
async def _metrics_apart(settings: Settings, process: Process) -> AsyncIterator[str | None]:
    """Serves the metrics on an address of their own while the block runs. Yields it; None where none is set."""
    if settings.metrics_port is None:
        yield None
        return
    server = HttpServer(
        create_app(process.deps, Surface.METRICS),
        host=settings.metrics_host or settings.host,
        port=settings.metrics_port,
        drain_seconds=0,
        request_seconds=settings.request_seconds,
    )
    serving = asyncio.create_task(server.serve_beside())
    try:
        yield server.address
    finally:
        server.stop()
        await asyncio.gather(serving, return_exceptions=True)


async def _serve(
    settings: Settings,
    process: Process,
    keys: FirstKeys | None,
    signals: StopSignals,
    metrics_address: str | None,
) -> None:
    surface = Surface.OPERATIONS if settings.role is ProcessRole.WORKER else Surface.ALL
    app = create_app(process.deps, surface, without_metrics=metrics_address is not None)
    server = HttpServer(
        app,
        host=settings.host,
        port=settings.port,
        drain_seconds=settings.drain_seconds,
        request_seconds=settings.request_seconds,
        trusted_proxies=[str(network) for network in settings.trusted_proxies],
    )
    serving = asyncio.create_task(server.serve(signals, on_stop=process.begin_drain))
    starting = asyncio.create_task(process.start())
    try:
        # A model that can't be loaded ends the process, by name: it would never be ready.
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _greet(server.address, settings, keys, metrics_address)
        await serving
    finally:
        server.stop()
        starting.cancel()
        await asyncio.gather(serving, starting, return_exceptions=True)


async def _prepare_embedded(settings: Settings, config: DatabaseConfig) -> FirstKeys | None:
    """The embedded database is ours alone: migrated at each start, with keys for its first user."""
    if settings.database_url is not None:
        return None
    assert config.admin_url is not None
    await migrate(config.admin_url)
    owner = Database(DatabaseConfig(url=config.admin_url, pool_size=1))
    try:
        ids = Uuid7Ids()
        return await ensure_dev_keys(PostgresOperatorStore(owner, ids), ids, settings.data_dir / "dev-keys.json")
    finally:
        await owner.close()


async def _refuse_other_schema(database: Database) -> None:
    code = await PostgresGauges(database).check()
    if code is not None:
        raise ConfigurationError("the database is not at this release's schema: run runwright migrate", code=code)


def _greet(address: str, settings: Settings, keys: FirstKeys | None, metrics_address: str | None) -> None:
    lines = [f"runwright serves on {address} (docs: {address}/docs)"]
    if settings.role is not ProcessRole.ALL:
        lines.append(f"role      {settings.role.value}")
    if metrics_address is not None:
        lines.append(f"metrics   {metrics_address}/metrics")
    if keys is not None:
        lines += [
            f"tenant    {FIRST_TENANT} ({keys.tenant_id})",
            f"service   {keys.service}",
            f"approver  {keys.approver}",
            f"operator  {keys.operator}",
            f"These keys are kept in {settings.data_dir / 'dev-keys.json'}; the database has only their hashes.",
        ]
    print("\n".join(lines), flush=True)  # noqa: T201 - what a newcomer looks for
