"""What a start would find."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from app.errors import AdkError, ConfigurationError
from app.settings import ProcessRole, Settings
from app.store.database import Database, DatabaseConfig, check_role
from app.store.gauges import PostgresGauges
from app.wiring.parts import build_parts
from app.wiring.schema import open_server

MAX_SKEW_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    subject: str
    is_ok: bool
    told: str


async def examine(settings: Settings) -> list[Finding]:
    """One finding each for the service's role, the schema, the clock, the owner's login where one is set, and the
    model; one for the database where it can't be reached. Starts nothing for good."""
    findings: list[Finding] = []
    try:
        async with open_server(settings) as config:
            database = Database(config)
            try:
                findings += [
                    await _look("role", lambda: _tell_role(database, settings)),
                    await _look("schema", lambda: _tell_schema(database)),
                    await _look("clock", lambda: _tell_clock(database)),
                ]
            finally:
                await database.close()
    except AdkError as error:
        findings.append(Finding(subject="database", is_ok=False, told=f"{error} [{error.code}]"))
    if settings.admin_database_url is not None:
        admin_url = settings.admin_database_url.get_secret_value()
        findings.append(await _look("owner", lambda: _tell_owner(admin_url)))
    findings.append(await _look("model", lambda: _tell_model(settings)))
    return findings


async def _look(subject: str, tell: Callable[[], Awaitable[str]]) -> Finding:
    try:
        return Finding(subject=subject, is_ok=True, told=await tell())
    except AdkError as error:
        return Finding(subject=subject, is_ok=False, told=f"{error} [{error.code}]")


async def _tell_role(database: Database, settings: Settings) -> str:
    await check_role(database, allow_owner=settings.allow_owner_role)
    return "row-level security holds for the service's login"


async def _tell_owner(admin_url: str) -> str:
    owner = Database(DatabaseConfig(url=admin_url, pool_size=1))
    try:
        await owner.fetch("SELECT 1")
    finally:
        await owner.close()
    return "can log in"


async def _tell_schema(database: Database) -> str:
    code = await PostgresGauges(database).check()
    if code is not None:
        raise ConfigurationError("run: runwright migrate", code=code)
    return "is this release's"


async def _tell_clock(database: Database) -> str:
    skew = await measure_skew(database)
    if abs(skew) > MAX_SKEW_SECONDS:
        raise ConfigurationError(f"this machine's clock is {skew:+.1f} s off the database's", code="clock_skew")
    return f"{skew:+.3f} s off the database's"


async def measure_skew(database: Database) -> float:
    """Seconds by which this machine's clock is ahead of the database's, half the round trip taken off."""
    before = time.time()
    rows = await database.fetch("SELECT extract(epoch FROM clock_timestamp())::float8 AS now")
    after = time.time()
    now: float = rows[0]["now"]
    return (before + after) / 2 - now


async def _tell_model(settings: Settings) -> str:
    parts = build_parts(settings)
    try:
        if settings.role is ProcessRole.API:
            return "none is loaded in this role"
        if parts.llama is not None:
            await parts.llama.start()
        known = ", ".join(info.name for info in parts.router.models())
        return f"loaded; known are {known}"
    finally:
        await parts.router.close()
