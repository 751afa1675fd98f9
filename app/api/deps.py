"""What the routes need: the ports and settings that the wiring fills in, and how a handler gets at them."""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import Depends, Security
from fastapi.security import APIKeyQuery, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection, Request

from app.api.frames import WrittenFrames
from app.api.negotiation import one_value, wants_event_stream
from app.api.request_figures import NobodyListens, RequestListener
from app.auth import REFUSAL, Attempts, Entrance, Principal, Scope, Tickets, Tokens, Uses, hash_secret
from app.errors import Forbidden, MalformedRequest, NotAcceptable, Unauthenticated
from app.ids import RunId, TenantId
from app.policy import arguments_digest
from app.ports.catalogue import Catalogue
from app.ports.clock import Clock, IdSource
from app.ports.feed import Feed
from app.ports.store import KeyStore, TenantStore
from app.ports.tenancy import OperatorStore
from app.service.approvals import Desk, Digest
from app.service.cursors import Cursors
from app.service.drain import Drain
from app.service.log_reads import LogReads
from app.service.reading import Reading
from app.service.runs import Admission, RunRules
from app.service.shared import Shared
from app.service.webhooks import Notices

TICKET: Final = "ticket"
_SPREAD_PINGS: Final = 0.5


class ApiConfig(BaseModel):
    """How the HTTP side behaves. Times are in seconds.

    A reader that takes nothing for ``send_seconds`` is dropped; ``drain_seconds`` is how long open streams may take to
    say farewell once the server was told to stop, after which they are cut off. ``allowed_origins`` are those of pages
    that may read the service beside its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_request_bytes: int = Field(default=1_048_576, ge=1_024)
    max_artifact_bytes: int = Field(default=1_048_576, ge=1)
    max_wait_seconds: int = Field(default=60, ge=0)
    ping_seconds: float = Field(default=15.0, gt=0)
    poll_seconds: float = Field(default=2.0, gt=0)
    send_seconds: float = Field(default=60.0, gt=0)
    drain_seconds: float = Field(default=5.0, ge=0)
    allowed_origins: tuple[str, ...] = ()
    rules: RunRules = Field(default_factory=RunRules)


class OpenStreams:
    """How many event streams are open in this process: a gauge for the metrics. ``dropped`` is called for each one
    that was ended because its reader was too slow."""

    def __init__(self, dropped: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self.dropped = dropped


async def _no_metrics() -> bytes:
    return b""


async def _no_warnings() -> Sequence[str]:
    return ()


def _tickets_of_this_process() -> Tickets:
    return Tickets(secrets.token_bytes(32))


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiDeps:
    """Ports and settings. ``check_readiness`` answers a code for each of database, migrations, model, worker and
    clock: ``ok``, or why not. ``render_metrics`` answers Prometheus' text format. ``digest`` is of a tool's name and
    its arguments, the one with which the workers ask for approvals. ``tokens`` is None where no issuer makes any.
    ``tickets`` that no key is named for are good in this process only.
    ``reads``, ``kept``, ``rights`` and ``frames`` are what open streams have in common."""

    store: TenantStore
    keys: KeyStore
    operator: OperatorStore
    feed: Feed
    clock: Clock
    ids: IdSource
    catalogue: Catalogue
    cursors: Cursors
    notices: Notices
    check_readiness: Callable[[], Awaitable[Mapping[str, str]]]
    find_warnings: Callable[[], Awaitable[Sequence[str]]] = _no_warnings
    render_metrics: Callable[[], Awaitable[bytes]] = _no_metrics
    digest: Digest = arguments_digest
    drain: Drain = field(default_factory=Drain)
    streams: OpenStreams = field(default_factory=OpenStreams)
    requests: RequestListener = field(default_factory=NobodyListens)
    config: ApiConfig = field(default_factory=ApiConfig)
    attempts: Attempts = field(default_factory=Attempts)
    uses: Uses = field(default_factory=Uses)
    tokens: Tokens | None = None
    tickets: Tickets = field(default_factory=_tickets_of_this_process)
    reads: LogReads = field(default_factory=LogReads)
    kept: Shared[tuple[TenantStore, TenantId, RunId], bool] = field(default_factory=Shared)
    rights: Shared[tuple[bytes, Scope], bool] = field(default_factory=Shared)
    frames: WrittenFrames = field(default_factory=WrittenFrames)

    @property
    def entrance(self) -> Entrance:
        return Entrance(
            keys=self.keys,
            clock=self.clock,
            attempts=self.attempts,
            uses=self.uses,
            tickets=self.tickets,
            tokens=self.tokens,
        )

    @property
    def admission(self) -> Admission:
        return Admission(ids=self.ids, catalogue=self.catalogue, rules=self.config.rules)

    @property
    def desk(self) -> Desk:
        return Desk(store=self.store, catalogue=self.catalogue, digest=self.digest)

    @property
    def reading(self) -> Reading:
        return Reading(
            store=self.store,
            feed=self.feed,
            clock=self.clock,
            drain=self.drain,
            ping_seconds=self.config.ping_seconds,
            poll_seconds=self.config.poll_seconds,
            spread_pings=_SPREAD_PINGS,
            reads=self.reads,
            kept=self.kept,
            replayed=self.requests.events_replayed,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who makes this request, within the scope that its route needs."""

    principal: Principal
    tenant_id: TenantId


_bearer: Final = HTTPBearer(auto_error=False, scheme_name="key", description="A tenant's or an operator's key: rw_…")
_ticket: Final = APIKeyQuery(
    name=TICKET,
    auto_error=False,
    scheme_name="ticket",
    description="In place of a key, for who can't set headers: to one stream, for 15 minutes (`POST /stream-tickets`)",
)


# Asynchronous, though nothing is awaited: FastAPI runs any other dependency in a thread.
async def get_deps(request: Request) -> ApiDeps:
    deps: ApiDeps = request.app.state.deps
    return deps


Deps = Annotated[ApiDeps, Depends(get_deps)]


async def identify(
    request: Request, deps: Deps, _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
) -> Principal:
    """Raises Unauthenticated, TooManyRequests and IssuerUnavailable."""
    return await deps.entrance.admit(_authorization(request), address=_address(request))


async def admit_follower(connection: HTTPConnection, deps: ApiDeps, scope: Scope) -> Caller:
    """Who opens a stream: with a key or a token in a header, or with a ticket to this stream in the query. Raises as
    ``identify``, MalformedRequest (``two_credentials``) and Forbidden."""
    text = _ticket_text(connection)
    if text is None:
        principal = await deps.entrance.admit(_authorization(connection), address=_address(connection))
    elif "authorization" in connection.headers:
        raise MalformedRequest("a ticket is shown in place of a key, not beside one", code="two_credentials")
    else:
        resource = connection.scope["path"]
        principal = await deps.entrance.admit_ticket(text, resource=resource, address=_address(connection))
    return Caller(principal=principal, tenant_id=principal.tenant_for(scope))


def _follows(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    async def admit(
        request: Request,
        deps: Deps,
        _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
        __: Annotated[str | None, Security(_ticket)],
    ) -> Caller:
        caller = await admit_follower(request, deps, scope)
        if TICKET in request.query_params and not wants_event_stream(request.headers):
            raise NotAcceptable("a ticket opens a stream; name it: Accept: text/event-stream")
        return caller

    return admit


async def _listens(
    request: Request,
    deps: Deps,
    _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    __: Annotated[str | None, Security(_ticket)],
) -> Caller:
    return await admit_follower(request, deps, Scope.RUNS_READ)


def _needs(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    # Not on identify: what depends on it is worked out anew for each request.
    async def admit(
        request: Request, deps: Deps, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
    ) -> Caller:
        principal = await identify(request, deps, credentials)
        return Caller(principal=principal, tenant_id=principal.tenant_for(scope))

    return admit


async def _admit_operator(principal: Annotated[Principal, Depends(identify)]) -> Principal:
    if Scope.OPERATOR not in principal.scopes:
        raise Forbidden(f"this key has no scope {Scope.OPERATOR}", code="missing_scope")
    return principal


AnyKey = Annotated[Principal, Depends(identify)]
OperatorCaller = Annotated[Principal, Depends(_admit_operator)]
RunsReader = Annotated[Caller, Depends(_needs(Scope.RUNS_READ))]
RunsWriter = Annotated[Caller, Depends(_needs(Scope.RUNS_WRITE))]
SessionsReader = Annotated[Caller, Depends(_needs(Scope.SESSIONS_READ))]
SessionsWriter = Annotated[Caller, Depends(_needs(Scope.SESSIONS_WRITE))]
ApprovalsReader = Annotated[Caller, Depends(_needs(Scope.APPROVALS_READ))]
ApprovalsDecider = Annotated[Caller, Depends(_needs(Scope.APPROVALS_DECIDE))]
RunsListener = Annotated[Caller, Depends(_listens)]
RunsFollower = Annotated[Caller, Depends(_follows(Scope.RUNS_READ))]
ApprovalsFollower = Annotated[Caller, Depends(_follows(Scope.APPROVALS_READ))]
AgentsReader = Annotated[Caller, Depends(_needs(Scope.AGENTS_READ))]
AgentsWriter = Annotated[Caller, Depends(_needs(Scope.AGENTS_WRITE))]


def keeps_scope(connection: HTTPConnection, deps: ApiDeps, scope: Scope) -> Callable[[], Awaitable[bool]]:
    """Asks again, for as long as a stream is open, whether its key or ticket is still good for it. Streams with the
    same one are told what one of them was told within the last second."""
    header, ticket, resource = _authorization(connection), _ticket_text(connection), connection.scope["path"]
    key = hash_secret(ticket or header or ""), scope

    async def look() -> bool:
        if ticket is not None:
            return await deps.entrance.ticket_holds(ticket, resource=resource)
        return await deps.entrance.still_holds(header, scope)

    async def ask() -> bool:
        return await deps.rights.ask(key, deps.clock, look)

    return ask


async def check_again(request: Request, deps: ApiDeps, scope: Scope) -> None:
    """To be asked by a handler that has waited. Raises Unauthenticated where the key is not good for it any more, or
    was not within the last second."""
    if not await keeps_scope(request, deps, scope)():
        raise Unauthenticated(REFUSAL)


def _authorization(connection: HTTPConnection) -> str | None:
    headers = connection.headers.getlist("authorization")
    return headers[0] if len(headers) == 1 else None


def _ticket_text(connection: HTTPConnection) -> str | None:
    """Raises InvalidRequest for more than one."""
    return one_value({TICKET: connection.query_params.getlist(TICKET)}, TICKET)


def _address(connection: HTTPConnection) -> str | None:
    return None if connection.client is None else connection.client.host
