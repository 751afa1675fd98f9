"""Four tenants before one app: one that has everything, and three that ask for what it has.

Reading, changing and naming have an asker each: what one makes under a name of the first tenant's would be its own at
the next question.
"""

import asyncio
import ipaddress
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import asyncpg
import httpx

from app.api import ApiConfig, ApiDeps, create_app
from app.auth.attempts import AttemptRules, Attempts
from app.execution.system import SystemClock, Uuid7Ids
from app.observability import Metrics
from app.service.cursors import Cursors
from app.service.signing import WebhookSigner
from app.service.webhooks import Notices
from app.store.database import Database, DatabaseConfig
from app.store.gauges import PostgresGauges
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from app.store.signals import LocalFeed
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.tools.outgoing import OutgoingClient
from tests.api.harness import Keys, Scribe, Service, SmallCatalogue, make_keys, with_key
from tests.conftest import DatabaseUrls
from tests.isolation.household import WEBHOOK_URL, Household, settle
from tests.isolation.kinds import Kind, kind_of
from tests.isolation.plan import Probe, RouteFacts, list_routes
from tests.isolation.rows import digest_rows

WORDS: Final = ("alpaca", "bison", "camel", "dingo")
ASKED_AS: Final = {"X-Request-Id": "the-same-for-both"}
_ID: Final = re.compile(r"\b[a-z]{3,4}_[0-9a-hjkmnp-tv-z]{26}\b")
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_DIGEST: Final = re.compile(r"\b[0-9a-f]{12,64}\b")
_SECRET: Final = re.compile(r"\b(whsec|rw)_[A-Za-z0-9_+/=-]{20,}")
_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LISTS: Final = {"sub_agents"}
_BODY: Final[dict[str, Any]] = {"url": WEBHOOK_URL}


@dataclass(frozen=True, kw_only=True)
class Told:
    """An answer without what differs between any two requests, and the statements that led to it. ``raw`` is all of it
    but what was sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str
    statements: tuple[str, ...]
    raw: str = field(compare=False)


class Recorder:
    """Hears every statement of a pool's connections, without its arguments."""

    def __init__(self, database: Database) -> None:
        self._heard: list[str] | None = None
        self._connect = database.pool.connect
        database.pool.connect = self._connect_and_listen

    @asynccontextmanager
    async def record(self) -> AsyncIterator[list[str]]:
        heard: list[str] = []
        self._heard = heard
        yield heard
        # The driver tells of a statement at the event loop's next turn.
        await asyncio.sleep(0)
        self._heard = None

    async def _connect_and_listen(self) -> asyncpg.Connection:
        connection = await self._connect()
        connection.add_query_logger(self._hear)
        return connection

    def _hear(self, logged: asyncpg.connection.LoggedQuery) -> None:
        if self._heard is not None:
            self._heard.append(logged.query)


@dataclass(kw_only=True)
class World:
    """``owner`` has everything; the others ask. ``routes`` are the app's own; ``rows_before`` are digests of the
    owner's rows before anybody asked."""

    routes: list[RouteFacts]
    owner: Household
    reader: Household
    changer: Household
    namer: Household
    database: Database
    recorder: Recorder
    rows_before: dict[str, str]
    answers: dict[str, tuple[Told, Told]] = field(default_factory=dict)

    def asker(self, probe: Probe) -> Household:
        if probe.method in ("GET", "HEAD"):
            return self.reader
        names = probe.place == "path" and (probe.method == "PUT" or probe.kind is Kind.USER)
        return self.namer if names else self.changer

    async def ask(self, probe: Probe) -> tuple[Told, Told]:
        """What the asker is told of the other tenant's value, and of one that nobody has. Asked once."""
        if probe.label not in self.answers:
            theirs = self.value_of(probe)
            unknown = make_unlike(theirs, probe.kind)
            # Unknown first: whatever the first request of its sort warms up is warm for the other one.
            nobodys = await self._send(probe, unknown)
            self.answers[probe.label] = await self._send(probe, theirs), nobodys
        return self.answers[probe.label]

    def value_of(self, probe: Probe) -> str:
        if probe.kind is Kind.CURSOR:
            return self.owner.cursors[probe.route.name]
        return self.owner.has[probe.kind][probe.which]

    async def _send(self, probe: Probe, value: str) -> Told:
        asker = self.asker(probe)
        request = self.build(probe, value)
        async with self.recorder.record() as statements:
            response = await asker.service.client.send(request)
        return tell(response, value, tuple(statements))

    def build(self, probe: Probe, value: str) -> httpx.Request:
        asker, route = self.asker(probe), probe.route
        path = asker.fill_path(route, {probe.name: value} if probe.place == "path" else {})
        if probe.place == "path" and probe.kind is Kind.SESSION and "name" in route.path_names:
            # What is in another's session goes by the name that it has there.
            path = asker.fill_path(route, {probe.name: value, "name": self.owner.has[Kind.ARTIFACT][0]})
        query = {**probe.query, **({"cursor": self.owner.cursors[route.name]} if probe.with_cursor else {})}
        headers = {**ASKED_AS, **probe.headers}
        content: dict[str, Any] = {}
        if route.example is not None:
            example = _fill_body(asker, route, {probe.name: value} if probe.place == "body" else {})
            content["json"] = {**example, **probe.body}
        elif route.has_body:
            content["content"] = b"some bytes"
        match probe.place:
            case "query":
                query[probe.name] = value
            case "header":
                headers[probe.name] = value
        return asker.service.client.build_request(probe.method, path, params=query, headers=headers, **content)


def _fill_body(asker: Household, route: RouteFacts, instead: dict[str, str]) -> dict[str, Any]:
    """The route's own example with the asker's ids, and the one value in its place."""
    body = {
        name: _BODY.get(name, value) if kind_of(route.template, name) is None else asker.own(route.template, name)
        for name, value in route.example.items()
    }
    return {**body, **{name: [value] if name in _LISTS else value for name, value in instead.items()}}


def tell(response: httpx.Response, sent: str, statements: tuple[str, ...]) -> Told:
    headers = tuple(sorted((name, _blot(value, sent)) for name, value in response.headers.items()))
    raw = f"{dict(response.headers)} {response.text}".replace(sent, "<sent>")
    return Told(
        status=response.status_code,
        headers=headers,
        body=_blot(response.text, sent),
        statements=tuple(_blot(statement, sent) for statement in statements),
        raw=raw,
    )


def _blot(text: str, sent: str) -> str:
    text = _ID.sub("<id>", text.replace(sent, "<sent>"))
    return _DIGEST.sub("<digest>", _SECRET.sub("<secret>", _INSTANT.sub("<instant>", text)))


def make_unlike(value: str, kind: Kind) -> str:
    """A value of the same kind and length that nobody has."""
    prefix, separator, tail = value.partition("_")
    if _ID.fullmatch(value):
        return f"{prefix}{separator}{''.join(secrets.choice(_ALPHABET) for _ in tail)}"
    letters = "".join(secrets.choice("abcdefghij") for _ in value)
    # Of names the ending and the separators stay.
    return "".join(old if old in "-.:" else new for old, new in zip(value, letters, strict=True))


@asynccontextmanager
async def open_world(urls: DatabaseUrls, *, pool_size: int = 4) -> AsyncIterator[World]:
    """The app over a migrated database, and its four tenants."""
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=pool_size))
    recorder = Recorder(database)
    feed = LocalFeed()
    deps = _make_deps(database, feed)
    app = create_app(deps)
    keys = await _make_tenants(urls)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        scribe = Scribe(PostgresWorkStore(database, deps.clock), feed)
        homes: list[Household] = []
        for own in keys:
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://test", headers=with_key(own.service)
            )
            await stack.enter_async_context(client)
            service = Service(
                app=app, deps=deps, client=client, keys=own, others_keys=keys[0], scribe=scribe, feed=feed
            )
            homes.append(await settle(service, WORDS[len(homes)]))
        routes = list_routes(app)
        for home in homes:
            home.cursors = await _read_cursors(routes, home)
        owner, reader, changer, namer = homes
        yield World(
            routes=routes,
            owner=owner,
            reader=reader,
            changer=changer,
            namer=namer,
            database=database,
            recorder=recorder,
            rows_before=await _digest(urls, owner),
        )


async def _digest(urls: DatabaseUrls, home: Household) -> dict[str, str]:
    connection = await asyncpg.connect(urls.superuser_url)
    try:
        return await digest_rows(connection, home.has[Kind.TENANT][0])
    finally:
        await connection.close()


async def _make_tenants(urls: DatabaseUrls) -> list[Keys]:
    database = Database(DatabaseConfig(url=urls.admin_url, pool_size=1))
    try:
        operator = PostgresOperatorStore(database, Uuid7Ids())
        return [await make_keys(operator, f"{word}-tenant") for word in WORDS]
    finally:
        await database.close()


def _make_deps(database: Database, feed: LocalFeed) -> ApiDeps:
    metrics, gauges = Metrics(), PostgresGauges(database)

    async def check_readiness() -> dict[str, str]:
        return {"database": "ok"}

    async def render_metrics() -> bytes:
        return metrics.render(await gauges.snapshot())[0]

    secret = b"a secret of the tests, 32 bytes.."
    carrier = OutgoingClient((ipaddress.ip_network("127.0.0.0/8"),))
    return ApiDeps(
        store=PostgresTenantStore(database),
        keys=PostgresKeyStore(database),
        operator=PostgresOperatorStore(database, Uuid7Ids()),
        feed=feed,
        clock=SystemClock(),
        ids=Uuid7Ids(),
        catalogue=SmallCatalogue(),
        cursors=Cursors(secret),
        notices=Notices(carrier=carrier, signer=WebhookSigner(secret)),
        check_readiness=check_readiness,
        render_metrics=render_metrics,
        # Whoever asks without a key here asks more often than a guesser may.
        attempts=Attempts(AttemptRules(burst=100_000)),
        config=ApiConfig(),
    )


async def _read_cursors(routes: list[RouteFacts], home: Household) -> dict[str, str]:
    """Where lists go on, the tenant's own and the operator's, by the route's name: each has at least two entries."""
    lists = [route for route in routes if route.takes("query", "cursor")]
    pages = {route.name: await read_list(home, route, limit=1) for route in lists}
    return {name: str(page["next_cursor"]) for name, page in pages.items()}


async def read_list(home: Household, route: RouteFacts, *, limit: int) -> dict[str, Any]:
    """A page as the tenant gets it; of a list that is the operator's, as the operator does."""
    path, client = home.fill_path(route), home.service.client
    answer = await client.get(path, params={"limit": limit})
    if answer.status_code == 403:
        answer = await client.get(path, params={"limit": limit}, headers=with_key(home.service.keys.operator))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())
