"""The Postgres of a round: started, restarted, asked past everything that is disturbed."""

import asyncio
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
import psutil

from app.auth import Scope, hash_secret, new_secret
from app.execution.system import Uuid7Ids
from app.ids import KeyId
from app.policy import Ceiling, CeilingDimension
from app.ports.tenancy import NewKey
from app.store.audits import audit
from app.store.database import Database, DatabaseConfig
from app.store.embedded import EmbeddedPostgres, EmbeddedUrls
from app.store.migrate import migrate
from app.store.operator import PostgresOperatorStore
from app.wiring.first_keys import make_keys
from tests.chaos.proxy import Target

APPROVERS: Final = ("ann", "bob")
_TENANT: Final = "chaos"
_STOP_SECONDS: Final = 60
# Nothing comes near them: they are there so that everything is counted.
_CEILINGS: Final = tuple(
    Ceiling(dimension=dimension, window_seconds=86_400, limit=Decimal(10**11)) for dimension in CeilingDimension
)
_FENCED: Final[Mapping[str, Sequence[re.Pattern[str]]]] = {
    "append_events": (
        re.compile(r"\s+AND r\.fence = p_fence\b"),
        re.compile(r"\s+AND \(p_after IS NULL OR r\.last_seq = p_after\)"),
    ),
    "renew_claims": (re.compile(r"\br\.fence = h\.fence AND "),),
}


@dataclass(frozen=True, kw_only=True)
class Keys:
    """Of the tenant under load: the service's, and the approvers' by subject."""

    tenant_id: str
    service: str
    approvers: Mapping[str, str] = field(default_factory=dict)


class Postgres:
    """An embedded server in a folder. ``url`` is its address through a proxy's port; use it as a context."""

    def __init__(self, folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._server = EmbeddedPostgres(folder, settings={"max_connections": "200", **(settings or {})})
        self._urls: EmbeddedUrls | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._urls = await asyncio.to_thread(self._server.start)
        await migrate(self.urls.admin_url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._server.stop)

    @property
    def urls(self) -> EmbeddedUrls:
        assert self._urls is not None
        return self._urls

    @property
    def target(self) -> Target:
        """Where a proxy finds it."""
        folder = parse_qs(urlsplit(self.urls.app_url).query)["host"][0]
        return Target(path=Path(unquote(folder)) / ".s.PGSQL.5432")

    def url(self, port: int) -> str:
        """The application's login, through a port of this machine."""
        parts = urlsplit(self.urls.app_url)
        return f"postgresql://{parts.username}:{parts.password}@127.0.0.1:{port}{parts.path}"

    async def restart(self, how: signal.Signals) -> None:
        """SIGINT is its fast shutdown, SIGQUIT its immediate one, after which it recovers. Returns when it is back."""
        async with self._lock:
            pid = int((self._folder / "postgres" / "postmaster.pid").read_text().split()[0])
            with suppress(ProcessLookupError):
                os.kill(pid, how)
            await asyncio.to_thread(_wait_for_end, pid)
            await asyncio.to_thread(self._server.start)

    async def make_keys(self) -> Keys:
        database = Database(DatabaseConfig(url=self.urls.admin_url, pool_size=1))
        try:
            ids = Uuid7Ids()
            store = PostgresOperatorStore(database, ids)
            first = await make_keys(store, ids, _TENANT)
            await store.set_tenant(first.tenant_id, {"ceilings": _CEILINGS}, actor="chaos")
            approvers = {subject: new_secret() for subject in APPROVERS}
            for subject, secret in approvers.items():
                key = NewKey(
                    key_id=KeyId(ids.new("key")),
                    tenant_id=first.tenant_id,
                    subject=subject,
                    scopes=frozenset({Scope.APPROVALS_READ, Scope.APPROVALS_DECIDE, Scope.RUNS_READ}),
                    secret_hash=hash_secret(secret),
                )
                await store.add_key(key, actor="chaos")
        finally:
            await database.close()
        return Keys(tenant_id=first.tenant_id, service=first.service, approvers=approvers)

    async def ask(self, query: str, *arguments: Any) -> list[dict[str, Any]]:
        """Rows, asked as the superuser and past every proxy."""
        connection = await asyncpg.connect(_in_database(self.urls))
        try:
            return [dict(row) for row in await connection.fetch(query, *arguments)]
        finally:
            await connection.close()

    async def audit(self) -> Mapping[str, tuple[str, ...]]:
        database = Database(DatabaseConfig(url=_in_database(self.urls), pool_size=1))
        try:
            async with database.begin() as connection:
                return await audit(connection)
        finally:
            await database.close()

    async def switch_fence_off(self) -> None:
        """Lets whoever once held a run go on writing and renewing: without the comparison of fences, and without that
        of the last event's number, which keeps an old writer out as well. Fails where there is none to take away."""
        for name, comparisons in _FENCED.items():
            [row] = await self.ask("SELECT pg_get_functiondef(p.oid) AS text FROM pg_proc p WHERE p.proname = $1", name)
            text = row["text"]
            for comparison in comparisons:
                text, count = comparison.subn("", text)
                assert count, f"{name} does not compare {comparison.pattern}"
            await self.ask(text)


def _wait_for_end(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(_STOP_SECONDS)


def _in_database(urls: EmbeddedUrls) -> str:
    """The superuser's login, to the service's database."""
    superuser, admin = urlsplit(urls.superuser_url), urlsplit(urls.admin_url)
    return superuser._replace(path=admin.path).geturl()
