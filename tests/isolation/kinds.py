"""Which names in a request say what somebody has, and which say nothing of anybody's."""

from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What a tenant has and a request can name."""

    AGENT = "agent"
    API_KEY = "api key"
    APPROVAL = "approval"
    ARTIFACT = "artifact"
    CHANGE = "change"
    CURSOR = "cursor"
    IDEMPOTENCY_KEY = "idempotency key"
    METADATA = "metadata"
    PAUSE = "pause"
    RUN = "run"
    SESSION = "session"
    TENANT = "tenant"
    USER = "user"
    VERSION = "version"
    WEBHOOK = "webhook"
    WORKER = "worker"


_BY_NAME: Final = {
    "after": Kind.CHANGE,
    "agent": Kind.AGENT,
    "approval_id": Kind.APPROVAL,
    "cursor": Kind.CURSOR,
    "Idempotency-Key": Kind.IDEMPOTENCY_KEY,
    "key": Kind.API_KEY,
    "key_id": Kind.API_KEY,
    "Last-Event-ID": Kind.CHANGE,
    "parent_run_id": Kind.RUN,
    "pause_id": Kind.PAUSE,
    "run_id": Kind.RUN,
    "session_id": Kind.SESSION,
    "sub_agents": Kind.AGENT,
    "tenant_id": Kind.TENANT,
    "user": Kind.USER,
    "version": Kind.VERSION,
    "webhook_id": Kind.WEBHOOK,
    "worker_id": Kind.WORKER,
}
# Names that mean different things on different routes, by how those begin.
_BY_ROUTE: Final = {
    ("/agents/", "name"): Kind.AGENT,
    ("/sessions/", "name"): Kind.ARTIFACT,
    # A number that every log counts from one.
    ("/runs/", "after"): None,
    ("/runs/", "Last-Event-ID"): None,
    ("/operators/", "key"): Kind.API_KEY,
    # The answer is a stream without an end, which tests/store/test_tenant_events.py asks in its place.
    ("/events", "agent"): None,
}
# Values that are the same for every tenant: times, states, the operator's own tools and models, counts.
NOBODYS: Final = frozenset(
    {
        "action",
        "by",
        "created_after",
        "created_before",
        "include",
        "kind",
        "limit",
        "model",
        "Prefer",
        "since",
        "state",
        "status",
        "tool",
        "until",
    }
)


def kind_of(template: str, name: str) -> Kind | None:
    """What a parameter of a route names; None for what is nobody's, and for a name that this file has never heard
    of."""
    for (beginning, other), kind in _BY_ROUTE.items():
        if other == name and template.startswith(beginning):
            return kind
    return _BY_NAME.get(name)


def is_known(template: str, name: str) -> bool:
    named = any(other == name and template.startswith(beginning) for beginning, other in _BY_ROUTE)
    return named or name in _BY_NAME or name in NOBODYS
