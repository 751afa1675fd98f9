"""Where services run: on a database of a server, or with the Postgres that comes along."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from app.execution.system import Uuid7Ids
from app.store.audits import audit
from app.store.database import Database, DatabaseConfig
from app.store.operator import PostgresOperatorStore
from app.store.tables import metadata
from app.wiring.first_keys import FirstKeys, make_keys
from tests.acceptance.client import TOOLS, Caller
from tests.acceptance.service import Birth, Child, Place, Service, Stage, execute, fork
from tests.conftest import DatabaseUrls

SECRET_KEY: Final = "the same for all processes of these tests"


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A migrated database with keys, on which services can be started. They are killed at the end of its scope."""

    urls: DatabaseUrls
    keys: FirstKeys
    stage: Stage
    stack: ExitStack

    @property
    def env(self) -> dict[str, str]:
        return {**self.stage.env, "DATABASE_URL": self.urls.app_url, "RUNWRIGHT_SECRET_KEY": SECRET_KEY}

    def start(self, **settings: str) -> Service:
        """A service on this database; ``lease_seconds="2"`` is RUNWRIGHT_LEASE_SECONDS."""
        return start(self.stack, {**self.env, **as_variables(settings)}, fork)

    def call(self, service: Service) -> Caller:
        """A caller with the service's key, whose agent ``player`` is stored."""
        return call(self.stack, service.address, self.keys.service)

    def visit(self, service: Service) -> Caller:
        """A caller with the service's key, where nothing is stored."""
        return visit(self.stack, service.address, self.keys.service)

    def approve(self, service: Service) -> Caller:
        """A caller with the approver's key."""
        return visit(self.stack, service.address, self.keys.approver)

    def operate(self, service: Service) -> Caller:
        """A caller with the operator's key."""
        return visit(self.stack, service.address, self.keys.operator)

    def set_tenant(self, address: str, **changes: Any) -> None:
        """Changes what the operator has set for the tenant of the keys."""
        answer = visit(self.stack, address, self.keys.operator).http.patch(f"/tenants/{self.tenant_id}", json=changes)
        assert answer.status_code == 200, answer.text

    @property
    def tenant_id(self) -> str:
        return str(self.ask("SELECT tenant_id FROM tenants"))

    @property
    def operator_subject(self) -> str:
        """Who the operator's key says it is."""
        return str(self.ask("SELECT coalesce(subject, key_id) FROM keys WHERE tenant_id IS NULL"))

    @contextmanager
    def paused(self, service: Service, kind: str, name: str | None) -> Iterator[None]:
        """For as long as the block lasts, of the tenant or, with a name, of everybody's tool or model."""
        operator = self.operate(service)
        of_tenant = {"tenant_id": self.tenant_id} if kind in ("tenant", "agent") else {}
        body = {"kind": kind, "reason": "a test", **({} if name is None else {"name": name}), **of_tenant}
        answer = operator.http.post("/pauses", json=body)
        assert answer.status_code == 201, answer.text
        yield
        assert operator.http.delete(f"/pauses/{answer.json()['id']}").status_code == 204

    def is_idle(self, service: Service) -> bool:
        """Whether no run is driven."""
        return int(self.ask("SELECT count(*) FROM runs WHERE state = 'running'")) == 0

    @contextmanager
    def holding_ledger(self) -> Iterator[None]:
        """Somebody holds the lock without which nothing is reserved of a tenant's ceilings."""
        connection = asyncio.Runner()
        try:
            held = connection.run(asyncpg.connect(self.urls.superuser_url))
            connection.run(held.execute("BEGIN"))
            lock = "SELECT pg_advisory_xact_lock(hashtextextended('runwright.ledger.' || tenant_id, 0)) FROM tenants"
            connection.run(held.execute(lock))
            yield
            connection.run(held.close())
        finally:
            connection.close()

    def ask(self, query: str) -> Any:
        """One value, asked as the superuser."""

        async def ask() -> Any:
            connection = await asyncpg.connect(self.urls.superuser_url)
            try:
                return await connection.fetchval(query)
            finally:
                await connection.close()

        return asyncio.run(ask())

    def count_connections(self, where: str = "true") -> int:
        """The service's connections to this database."""
        of_service = "datname = current_database() AND application_name = 'runwright'"
        return int(self.ask(f"SELECT count(*) FROM pg_stat_activity WHERE {of_service} AND {where}"))

    def tables_that_name(self, ids: Iterable[str]) -> list[str]:
        """Those in which one of the ids is written anywhere, without the audit trail, which names what was erased."""
        of_ids = f"t::text ~ '{'|'.join(ids)}'"
        names = [table.name for table in metadata.sorted_tables if table.name != "audit"]
        return [name for name in names if self.ask(f"SELECT count(*) FROM {name} t WHERE {of_ids}")]

    def audit(self) -> Mapping[str, tuple[str, ...]]:
        """Each of the durability promises that does not hold in the database, with runs that break it."""

        async def ask() -> Mapping[str, tuple[str, ...]]:
            database = Database(DatabaseConfig(url=self.urls.superuser_url, pool_size=1))
            try:
                async with database.begin() as connection:
                    return await audit(connection)
            finally:
                await database.close()

        return asyncio.run(ask())


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """A data folder: services on it share the Postgres that comes along."""

    place: Place
    stage: Stage
    stack: ExitStack

    @property
    def env(self) -> dict[str, str]:
        return {**self.stage.env, **self.place.env}

    def start(self, **settings: str) -> Service:
        return start(self.stack, {**self.env, **as_variables(settings)})

    def call(self, service: Service) -> Caller:
        keys = json.loads((self.place.path / "dev-keys.json").read_text())
        return call(self.stack, service.address, keys["service"])


def start(stack: ExitStack, env: Mapping[str, str], birth: Birth = execute) -> Service:
    return stack.enter_context(closing(Service.start(env, birth)))


def visit(stack: ExitStack, address: str, key: str) -> Caller:
    return stack.enter_context(closing(Caller(address, key)))


def call(stack: ExitStack, address: str, key: str) -> Caller:
    caller = visit(stack, address, key)
    caller.put_agent("player", tools=TOOLS)
    return caller


def as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"RUNWRIGHT_{name.upper()}": value for name, value in settings.items()}


def add_keys(urls: DatabaseUrls) -> FirstKeys:
    async def add() -> FirstKeys:
        database = Database(DatabaseConfig(url=urls.admin_url, pool_size=1))
        try:
            ids = Uuid7Ids()
            return await make_keys(PostgresOperatorStore(database, ids), ids, "acceptance")
        finally:
            await database.close()

    return asyncio.run(add())


def run_command(stack: ExitStack, *arguments: str, env: Mapping[str, str]) -> Child:
    """A command, run to its end."""
    child = stack.enter_context(closing(Child(*arguments, env=env)))
    child.wait()
    return child
