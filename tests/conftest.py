"""Databases for tests: one server a session, a migrated template in it, and copies of that.

The server is the embedded one, or, where ``RUNWRIGHT_TEST_SUPERUSER_URL`` is set, that one: then roles and databases
are made in it under names of this session, and removed at the end. Where the tests run in several processes
(``make test``), each of them is a session of its own in this, and the variable names a server for each, with spaces
between: what is told in commit order waits for every transaction of a server, also for another database's.
"""

import asyncio
import fcntl
import gc
import os
import secrets
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import hypothesis
import pytest

from app.ids import TenantId
from app.store.database import Database, DatabaseConfig
from app.store.embedded import temporary_postgres
from app.store.migrate import migrate
from app.store.tables import metadata
from tests import secrets_watch


@dataclass(frozen=True, kw_only=True)
class DatabaseUrls:
    """One migrated database, as its three kinds of login."""

    app_url: str
    admin_url: str
    superuser_url: str


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A server. Its URLs name no database of ours yet. ``owner`` is the role that owns new databases."""

    urls: DatabaseUrls
    owner: str
    prefix: str

    def database(self, name: str) -> DatabaseUrls:
        return DatabaseUrls(
            app_url=with_database(self.urls.app_url, name),
            admin_url=with_database(self.urls.admin_url, name),
            superuser_url=with_database(self.urls.superuser_url, name),
        )

    def create_database(self, *, template: str = "template0") -> str:
        name = f"{self.prefix}_{secrets.token_hex(4)}"
        run_sql(self.urls.superuser_url, f'CREATE DATABASE "{name}" OWNER "{self.owner}" TEMPLATE "{template}"')
        return name

    def drop_database(self, name: str) -> None:
        secrets_watch.look_into_database(self.database(name).superuser_url)
        run_sql(self.urls.superuser_url, f'DROP DATABASE "{name}" WITH (FORCE)')


COUNT_ROLES = """
    SELECT count(*) FROM pg_roles WHERE rolname IN ('runwright_app', 'runwright_scheduler', 'runwright_owner')
"""
# Another session on the same server may have come to need them meanwhile.
DROP_UNUSED_ROLES = """
    DO $$ BEGIN
        DROP ROLE IF EXISTS runwright_app, runwright_scheduler, runwright_owner;
    EXCEPTION WHEN dependent_objects_still_exist THEN NULL;
    END $$
"""


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def with_login(url: str, role: str, password: str) -> str:
    """The same server for another role; host and port stay as they are written."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:{password}@{parts.netloc.rpartition('@')[2]}"))


def run_sql(url: str, *statements: str) -> Any:
    """One after the other, each in its own transaction. Returns the last one's first value, if it has any."""

    async def run() -> Any:
        connection = await asyncpg.connect(url)
        try:
            value = None
            for statement in statements:
                value = await connection.fetchval(statement)
            return value
        finally:
            await connection.close()

    return asyncio.run(run())


# Another process of the tests has the CPU at times: how long one example takes says nothing. Tests have a timeout.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    """Refuses what several processes would leave out without a word. Secrets are watched from here on."""
    if config.getoption("keepduplicates") and config.getoption("dist", "no") != "no":
        raise pytest.UsageError("--keep-duplicates needs all tests in one process: JOBS=0")
    config.pluginmanager.register(secrets_watch)


def pytest_unconfigure() -> None:
    """Closes the two files that llama.cpp's binding opens where it is imported, and leaves to the interpreter's end:
    that warns of them there wherever the warnings of some test are still in force."""
    binding = sys.modules.get("llama_cpp._utils")
    if binding is not None:
        binding.outnull_file.close()
        binding.errnull_file.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end, so that no collection of garbage has to look at it: a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What a test printed goes from its process to the one that tells, as UTF-8: lone surrogates are none."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_sendable(key): _sendable(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(_sendable, value))
        case _:
            return value


@pytest.fixture(scope="session")
def roles_lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that all processes of one run of the tests hold while they change what a server has once: its roles."""
    return tmp_path_factory.getbasetemp().parent / "runwright-roles.lock"


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Nobody else holds it meanwhile."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def find_server(urls: str, process: str) -> str:
    """Of the servers that are named, the one for that process of the tests. Raises where there are too few."""
    named = urls.split()
    number = int(process.removeprefix("gw"))
    if number >= len(named):
        raise pytest.UsageError(
            f"RUNWRIGHT_TEST_SUPERUSER_URL names {len(named)} servers: JOBS={len(named)}, or name more"
        )
    return named[number]


def _drop_roles(url: str, lock: Path, *statements: str) -> None:
    with hold(lock):
        run_sql(url, *statements)


@pytest.fixture(scope="session")
def cluster(roles_lock: Path) -> Iterator[Cluster]:
    """The server of this session, without a database."""
    prefix = f"runwright_test_{secrets.token_hex(3)}"
    with ExitStack() as stack:
        named = os.environ.get("RUNWRIGHT_TEST_SUPERUSER_URL")
        if named is None:
            started = stack.enter_context(temporary_postgres(settings={"max_connections": "200"}))
            urls = DatabaseUrls(
                app_url=started.app_url, admin_url=started.admin_url, superuser_url=started.superuser_url
            )
            yield Cluster(urls=urls, owner="runwright_owner", prefix=prefix)
            return
        given = find_server(named, os.environ.get("PYTEST_XDIST_WORKER", "gw0"))
        app, password = f"{prefix}_app", secrets.token_hex(8)
        urls = DatabaseUrls(app_url=with_login(given, app, password), admin_url=given, superuser_url=given)
        # The first migration on a server makes the roles: those that were there before stay.
        made_here = [] if run_sql(given, COUNT_ROLES) else [DROP_UNUSED_ROLES]
        stack.callback(_drop_roles, given, roles_lock, f"DROP ROLE {app}", *made_here)
        run_sql(given, f"CREATE ROLE {app} LOGIN PASSWORD '{password}'")
        superuser = urlsplit(given).username or "postgres"
        yield Cluster(urls=urls, owner=superuser, prefix=prefix)


@pytest.fixture(scope="session")
def template_database(cluster: Cluster, roles_lock: Path) -> Iterator[str]:
    """A migrated database that nobody connects to: copies of it are cheap."""
    name = cluster.create_database()
    app = urlsplit(cluster.urls.app_url).username
    with hold(roles_lock):
        asyncio.run(migrate(cluster.database(name).admin_url))
        if app != "runwright_app":
            run_sql(cluster.urls.superuser_url, f"GRANT runwright_app TO {app}")
    yield name
    cluster.drop_database(name)


@pytest.fixture(scope="session")
def shared_urls(cluster: Cluster, template_database: str) -> Iterator[DatabaseUrls]:
    """One migrated database for all tests that keep to tenants of their own."""
    name = cluster.create_database(template=template_database)
    yield cluster.database(name)
    cluster.drop_database(name)


class _Cleared:
    """A database that is emptied for one test after the other, over one connection: it knows the statements by then."""

    def __init__(self, urls: DatabaseUrls) -> None:
        self.urls = urls
        # What a migration put there stays.
        filled = (table for table in reversed(metadata.sorted_tables) if table.name != "audit_key")
        self._clear = "; ".join(f"DELETE FROM {table.name}" for table in filled)
        # Its loop is nobody else's: those of the tests come and go.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._connection = self._runner.run(asyncpg.connect(urls.superuser_url))
        # Past the triggers: what is cleared here is no news for the audit trail, which nobody else may clear.
        self._runner.run(self._connection.execute("SET session_replication_role = replica"))

    def clear(self) -> None:
        """Looks for secrets in it, and deletes every row."""
        self._runner.run(secrets_watch.look_through(self._connection))
        self._runner.run(self._connection.execute(self._clear))
        # What it has read it would tell the server some seconds later: in the middle of a test that counts.
        self._runner.run(self._connection.execute("SELECT pg_stat_force_next_flush()"))

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()


@pytest.fixture(scope="session")
def _cleared(cluster: Cluster, template_database: str) -> Iterator[_Cleared]:
    name = cluster.create_database(template=template_database)
    with closing(_Cleared(cluster.database(name))) as cleared:
        yield cleared
    cluster.drop_database(name)


@pytest.fixture
def empty_urls(_cleared: _Cleared) -> DatabaseUrls:
    """A migrated database without a row, for claims, which see all tenants, and for whole processes.

    It is one for the session, and cleared for each test: a hundred times quicker than a new one. A process that a test
    leaves behind would be seen here.
    """
    _cleared.clear()
    return _cleared.urls


@pytest.fixture
def fresh_urls(cluster: Cluster, template_database: str) -> Iterator[DatabaseUrls]:
    """A migrated database of this test's own, for what can't be undone. Takes about a second."""
    name = cluster.create_database(template=template_database)
    yield cluster.database(name)
    cluster.drop_database(name)


@pytest.fixture
def blank_urls(cluster: Cluster) -> Iterator[DatabaseUrls]:
    """A database of this test's own that was never migrated."""
    name = cluster.create_database()
    yield cluster.database(name)
    cluster.drop_database(name)


@pytest.fixture
async def shared_database(shared_urls: DatabaseUrls) -> AsyncIterator[Database]:
    database = Database(DatabaseConfig(url=shared_urls.app_url, pool_size=4))
    yield database
    await database.close()


@pytest.fixture
async def empty_database(empty_urls: DatabaseUrls) -> AsyncIterator[Database]:
    database = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=4))
    yield database
    await database.close()


@pytest.fixture
def tenant_id() -> TenantId:
    """A tenant that no other test knows."""
    return TenantId(f"ten_{secrets.token_hex(13)}")
