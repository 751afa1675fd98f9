"""The app over the real store, two tenants, and clients whose every answer is held against openapi.yaml."""

import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache

import asyncpg
import httpx
import pytest
from starlette.routing import BaseRoute

from app.api import ApiConfig, ApiDeps, create_app
from app.api.app import describe_only
from app.execution.system import SystemClock, Uuid7Ids
from app.ports.tenancy import OperatorStore
from app.service.cursors import Cursors
from app.service.signing import WebhookSigner
from app.service.webhooks import Notices
from app.store.database import Database, DatabaseConfig
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from app.store.signals import LocalFeed
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.tools.outgoing import OutgoingClient
from tests.api.contract import check_answer
from tests.api.harness import Scribe, Service, SmallCatalogue, make_keys, serve, with_key
from tests.api.sockets import serve_sockets
from tests.conftest import Cluster, DatabaseUrls

POOL_SIZE = 5
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)
ALL_WELL = dict.fromkeys(("database", "migrations", "model", "worker", "clock"), "ok")


@pytest.fixture(scope="session")
def api_urls(cluster: Cluster, template_database: str) -> Iterator[DatabaseUrls]:
    """A database of these tests' own: the scribe claims runs, and nobody else should find his leases in the way."""
    name = cluster.create_database(template=template_database)
    yield cluster.database(name)
    cluster.drop_database(name)


@pytest.fixture
async def database(api_urls: DatabaseUrls) -> AsyncIterator[Database]:
    opened = Database(DatabaseConfig(url=api_urls.app_url, pool_size=POOL_SIZE))
    yield opened
    await opened.close()


@pytest.fixture
async def owner(api_urls: DatabaseUrls) -> AsyncIterator[Database]:
    opened = Database(DatabaseConfig(url=api_urls.admin_url, pool_size=1))
    yield opened
    await opened.close()


@pytest.fixture
def revoke(api_urls: DatabaseUrls) -> Callable[[str], Awaitable[None]]:
    """Revokes the key with that id, as an operator's route will."""

    async def execute(key_id: str) -> None:
        connection = await asyncpg.connect(api_urls.superuser_url)
        await connection.execute("UPDATE keys SET revoked_at = clock_timestamp() WHERE key_id = $1", key_id)
        await connection.close()

    return execute


@pytest.fixture
def admin(owner: Database) -> OperatorStore:
    return PostgresOperatorStore(owner, Uuid7Ids())


@pytest.fixture
def feed() -> LocalFeed:
    return LocalFeed()


@pytest.fixture
def config() -> ApiConfig:
    """Tests of a module override it where they need other limits."""
    return ApiConfig()


@cache
def carry() -> OutgoingClient:
    """It keeps nothing but what TLS is checked by, which takes longer to read than most of these tests."""
    return OutgoingClient(LOOPBACK)


@cache
def route() -> Sequence[BaseRoute]:
    """What the first request has to work out, once for all apps: it is the same for each."""
    return describe_only().router.routes


@pytest.fixture
def deps(database: Database, feed: LocalFeed, config: ApiConfig) -> ApiDeps:
    async def check_readiness() -> Mapping[str, str]:
        return ALL_WELL

    return ApiDeps(
        store=PostgresTenantStore(database),
        keys=PostgresKeyStore(database),
        operator=PostgresOperatorStore(database, Uuid7Ids()),
        feed=feed,
        clock=SystemClock(),
        ids=Uuid7Ids(),
        catalogue=SmallCatalogue(),
        cursors=Cursors(b"a secret of the tests, 32 bytes.."),
        notices=Notices(carrier=carry(), signer=WebhookSigner(b"a secret of the tests, 32 bytes..")),
        check_readiness=check_readiness,
        config=config,
    )


@pytest.fixture
async def service(deps: ApiDeps, admin: OperatorStore, database: Database, feed: LocalFeed) -> AsyncIterator[Service]:
    app = create_app(deps)
    app.router.routes[:] = route()
    name = deps.ids.new("test")
    keys = await make_keys(admin, f"{name}-a")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport,
        base_url="http://test",
        headers=with_key(keys.service),
        event_hooks={"response": [check_answer]},
    ) as client:
        yield Service(
            app=app,
            deps=deps,
            client=client,
            keys=keys,
            others_keys=await make_keys(admin, f"{name}-b"),
            scribe=Scribe(PostgresWorkStore(database, deps.clock), feed),
            feed=feed,
        )


@pytest.fixture
def client(service: Service) -> httpx.AsyncClient:
    """Asks with the service's key of the first tenant."""
    return service.client


@pytest.fixture
async def live(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """The same app behind a real server and real sockets."""
    async with (
        serve(service.app) as (address, _),
        httpx.AsyncClient(
            base_url=address, headers=with_key(service.keys.service), event_hooks={"response": [_check_unless_stream]}
        ) as client,
    ):
        yield client


async def _check_unless_stream(response: httpx.Response) -> None:
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        await check_answer(response)


@pytest.fixture
async def address(service: Service) -> AsyncIterator[str]:
    """Of the service over a server that speaks WebSocket."""
    async with serve_sockets(service.app) as address:
        yield address


@pytest.fixture
def key(service: Service) -> str:
    """What stands in the Authorization of who may do all that a tenant's key may."""
    return f"Bearer {service.keys.service}"
