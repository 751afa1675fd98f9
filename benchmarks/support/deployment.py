"""A service process on a Postgres that the benchmark can write into, too."""

import asyncio
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
class Deployment:
    """``key`` may do everything that a tenant's may."""

    address: str
    key: str
    tenant_id: TenantId
    pid: int
    postgres_pid: int
    urls: EmbeddedUrls

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    @property
    def superuser_url(self) -> str:
        """Of the service's database, past row security."""
        return urlunsplit(urlsplit(self.urls.superuser_url)._replace(path=urlsplit(self.urls.app_url).path))


@contextmanager
def deployment(settings: Mapping[str, str]) -> Iterator[Deployment]:
    """Starts a Postgres that keeps its promises to the disk, and a service that drives no runs. Both are gone at the
    end."""
    folder = Path(tempfile.mkdtemp(prefix="runwright-bench-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with EmbeddedPostgres(folder) as server:
            urls = server.start()
            asyncio.run(migrate(urls.admin_url))
            tenant_id, key = asyncio.run(_add_tenant(urls))
            with _service(folder, urls, settings) as (address, pid):
                postgres_pid = int((folder / "postgres" / "postmaster.pid").read_text().splitlines()[0])
                yield Deployment(
                    address=address, key=key, tenant_id=tenant_id, pid=pid, postgres_pid=postgres_pid, urls=urls
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


@contextmanager
def _service(folder: Path, urls: EmbeddedUrls, settings: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    environment = {
        **os.environ,
        "RUNWRIGHT_DATA_DIR": str(folder / "service"),
        "RUNWRIGHT_PORT": "0",
        "RUNWRIGHT_ROLE": "api",
        "DATABASE_URL": urls.app_url,
        **settings,
    }
    log = folder / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve"],
            cwd=REPOSITORY,
            env=environment,
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
