"""The routes as the contract lists them, and who may ask each of them: written down here by hand, so that a route which
asks for another scope, or one that nobody has agreed on, is seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.api.app import describe_only
from app.auth import Scope
from tests.isolation.plan import RouteFacts, list_routes

# Any good key is enough, a tenant's or an operator's.
ANYBODY: Final[tuple[Scope, ...]] = ()

SCOPES: Final[Mapping[str, tuple[Scope, ...]]] = {
    "POST /runs": (Scope.RUNS_WRITE,),
    "GET /runs": (Scope.RUNS_READ,),
    "GET /runs/{run_id}": (Scope.RUNS_READ,),
    "DELETE /runs/{run_id}": (Scope.RUNS_WRITE,),
    "GET /runs/{run_id}/events": (Scope.RUNS_READ,),
    "GET /runs/{run_id}/messages": (Scope.RUNS_READ,),
    "GET /runs/{run_id}/ws": (Scope.RUNS_READ,),
    "POST /runs/{run_id}/cancel": (Scope.RUNS_WRITE,),
    "POST /runs/{run_id}/resume": (Scope.RUNS_WRITE,),
    "POST /runs/{run_id}/rerun": (Scope.RUNS_WRITE,),
    "GET /approvals": (Scope.APPROVALS_READ,),
    "GET /approvals/{approval_id}": (Scope.APPROVALS_READ,),
    "POST /approvals/{approval_id}/decision": (Scope.APPROVALS_DECIDE,),
    "GET /approvals/events": (Scope.APPROVALS_READ,),
    "GET /events": (Scope.RUNS_READ,),
    "PUT /agents/{name}": (Scope.AGENTS_WRITE,),
    "GET /agents": (Scope.AGENTS_READ,),
    "GET /agents/{name}": (Scope.AGENTS_READ,),
    "GET /agents/{name}/versions/{version}": (Scope.AGENTS_READ,),
    "DELETE /agents/{name}": (Scope.AGENTS_WRITE,),
    "GET /tools": (Scope.AGENTS_READ,),
    "GET /models": (Scope.AGENTS_READ,),
    "POST /sessions": (Scope.SESSIONS_WRITE,),
    "GET /sessions": (Scope.SESSIONS_READ,),
    "GET /sessions/{session_id}": (Scope.SESSIONS_READ,),
    "DELETE /sessions/{session_id}": (Scope.SESSIONS_WRITE,),
    "GET /sessions/{session_id}/messages": (Scope.SESSIONS_READ,),
    "GET /sessions/{session_id}/artifacts": (Scope.SESSIONS_READ,),
    "GET /sessions/{session_id}/artifacts/{name}": (Scope.SESSIONS_READ,),
    "PUT /sessions/{session_id}/artifacts/{name}": (Scope.SESSIONS_WRITE,),
    "GET /sessions/{session_id}/artifacts/{name}/versions/{version}": (Scope.SESSIONS_READ,),
    "DELETE /users/{user}": (Scope.RUNS_WRITE, Scope.SESSIONS_WRITE),
    "GET /usage": (Scope.RUNS_READ,),
    "POST /webhooks": (Scope.RUNS_WRITE,),
    "GET /webhooks": (Scope.RUNS_WRITE,),
    "GET /webhooks/{webhook_id}": (Scope.RUNS_WRITE,),
    "DELETE /webhooks/{webhook_id}": (Scope.RUNS_WRITE,),
    "POST /webhooks/{webhook_id}/test": (Scope.RUNS_WRITE,),
    "GET /webhooks/{webhook_id}/deliveries": (Scope.RUNS_WRITE,),
    "POST /tenants": (Scope.OPERATOR,),
    "GET /tenants": (Scope.OPERATOR,),
    "GET /tenants/{tenant_id}": (Scope.OPERATOR,),
    "PATCH /tenants/{tenant_id}": (Scope.OPERATOR,),
    "DELETE /tenants/{tenant_id}": (Scope.OPERATOR,),
    "POST /tenants/{tenant_id}/keys": (Scope.OPERATOR,),
    "GET /tenants/{tenant_id}/keys": (Scope.OPERATOR,),
    "POST /tenants/{tenant_id}/keys/{key_id}/rotate": (Scope.OPERATOR,),
    "DELETE /tenants/{tenant_id}/keys/{key_id}": (Scope.OPERATOR,),
    "GET /operators/keys": (Scope.OPERATOR,),
    "POST /operators/keys": (Scope.OPERATOR,),
    "POST /operators/keys/{key_id}/rotate": (Scope.OPERATOR,),
    "DELETE /operators/keys/{key_id}": (Scope.OPERATOR,),
    "GET /pauses": (Scope.OPERATOR,),
    "POST /pauses": (Scope.OPERATOR,),
    "DELETE /pauses/{pause_id}": (Scope.OPERATOR,),
    "POST /cancellations": (Scope.OPERATOR,),
    "GET /workers": (Scope.OPERATOR,),
    "POST /workers/{worker_id}/drain": (Scope.OPERATOR,),
    "GET /audit": (Scope.OPERATOR,),
    "GET /me": ANYBODY,
    # Of whatever stream the ticket shall open.
    "POST /stream-tickets": ANYBODY,
}
OPEN: Final = frozenset({"GET /livez", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /docs"})

# Answered to whoever changes the protocol; a plain request is told to.
UPGRADES: Final = frozenset({"GET /runs/{run_id}/ws"})

ROUTES: Final = list_routes(describe_only())
KEYED: Final = [route for route in ROUTES if route.name not in OPEN]
SCOPED: Final = [route for route in KEYED if SCOPES.get(route.name)]
PLAIN: Final = [route for route in KEYED if route.name not in UPGRADES]
READ: Final = [route for route in PLAIN if route.method == "GET"]


@dataclass(frozen=True, kw_only=True)
class Lack:
    """A route, and one of the scopes that it needs."""

    route: RouteFacts
    scope: Scope


LACKS: Final = [Lack(route=route, scope=scope) for route in SCOPED for scope in SCOPES[route.name]]
