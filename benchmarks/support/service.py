"""A service process for the time of a benchmark, with a Postgres in a folder of its own; all is gone at the end."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from app.auth import Scope, hash_secret, new_secret
from app.execution.system import Uuid7Ids
from app.ids import KeyId, TenantId
from app.ports.tenancy import NewKey
from app.store.database import Database, DatabaseConfig
from app.store.embedded import EmbeddedPostgres, EmbeddedUrls
from app.store.migrate import migrate
from app.store.operator import PostgresOperatorStore

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class _Running:
    """``key`` may do everything that a tenant's may. ``data_dir`` holds the Postgres."""

    address: str
    key: str
    pid: int
    data_dir: Path

    @property
    def postgres_pid(self) -> int:
        """The Postgres' own first process."""
        return int((self.data_dir / "postgres" / "postmaster.pid").read_text().split()[0])

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@dataclass(frozen=True, kw_only=True)
class RunningService(_Running):
    operator_key: str


@dataclass(frozen=True, kw_only=True)
class Deployment(_Running):
    tenant_id: TenantId
    urls: EmbeddedUrls

    @property
    def superuser_url(self) -> str:
        """Of the service's database, past row security."""
        return urlunsplit(urlsplit(self.urls.superuser_url)._replace(path=urlsplit(self.urls.app_url).path))


@contextmanager
def running_service(settings: Mapping[str, str]) -> Iterator[RunningService]:
    """Starts a service as a newcomer does, which brings its Postgres along, and waits for its greeting."""
    with _new_folder() as folder, _serve(folder / "log", {"RUNWRIGHT_DATA_DIR": str(folder), **settings}) as (url, pid):
        keys = json.loads((folder / "dev-keys.json").read_text())
        yield RunningService(address=url, key=keys["service"], operator_key=keys["operator"], pid=pid, data_dir=folder)


@contextmanager
def deployment(settings: Mapping[str, str]) -> Iterator[Deployment]:
    """Starts a Postgres that keeps its promises to the disk, and that the benchmark can write into, too; and a service
    that drives no runs."""
    with _new_folder() as folder, EmbeddedPostgres(folder) as server:
        urls = server.start()
        asyncio.run(migrate(urls.admin_url))
        tenant_id, key = asyncio.run(_add_tenant(urls))
        told = {
            "RUNWRIGHT_DATA_DIR": str(folder / "service"),
            "RUNWRIGHT_ROLE": "api",
            "DATABASE_URL": urls.app_url,
            **settings,
        }
        with _serve(folder / "log", told) as (url, pid):
            yield Deployment(address=url, key=key, pid=pid, data_dir=folder, tenant_id=tenant_id, urls=urls)


@contextmanager
def _new_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="runwright-bench-", dir="/tmp"))
    # Postgres is not run as root, and has to get in.
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _serve(log: Path, settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Its address and its process. What it logs is shown when it does not start."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve"],
            cwd=REPOSITORY,
            env={**os.environ, "RUNWRIGHT_PORT": "0", **settings},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            raise RuntimeError(f"the service did not start:\n{log.read_text()[-2000:]}")
        yield found[0].rstrip("."), process.pid
    finally:
        process.terminate()
        process.wait(timeout=60)


async def _add_tenant(urls: EmbeddedUrls) -> tuple[TenantId, str]:
    database, ids, secret = Database(DatabaseConfig(url=urls.admin_url, pool_size=1)), Uuid7Ids(), new_secret()
    store = PostgresOperatorStore(database, ids)
    tenant_id = await store.ensure_tenant("bench", actor="bench")
    key = NewKey(
        key_id=KeyId(ids.new("key")),
        tenant_id=tenant_id,
        subject="bench",
        scopes=frozenset(scope for scope in Scope if scope is not Scope.OPERATOR),
        secret_hash=hash_secret(secret),
    )
    assert await store.add_key(key, actor="bench") is not None
    await database.close()
    return tenant_id, secret
