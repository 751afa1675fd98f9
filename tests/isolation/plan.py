"""What is asked of every route: a list made from the app's own table of routes, so that a new one is asked too.

A probe puts something of another tenant into one place of a request; everything else in it is the asker's own. It is
sent twice: with what the other tenant has, and with what nobody has.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from app.api.openapi import describe
from tests.api.contract import first_example
from tests.isolation.kinds import Kind, kind_of

# Of a run there is one in each state that routes tell apart, of the rest one that is like new and one that is not.
HOW_MANY: Final[Mapping[Kind, int]] = {Kind.RUN: 7, Kind.SESSION: 2, Kind.APPROVAL: 2, Kind.WEBHOOK: 2, Kind.AGENT: 2}
STREAM: Final = "text/event-stream"
# Members of a body that lead another way through a route than its example.
DETOURS: Final[Mapping[str, Mapping[str, Any]]] = {
    "POST /approvals/{approval_id}/decision": {"arguments": {"amount": 1, "iban": "DE02120300000000202051"}},
}
# Names that tenants choose: what another one calls so is made, or found to be nothing, of one's own.
_CHOSEN: Final = frozenset(
    {
        ("PUT /agents/{name}", "name"),
        ("PUT /sessions/{session_id}/artifacts/{name}", "name"),
        ("DELETE /users/{user}", "user"),
    }
)


@dataclass(frozen=True, kw_only=True)
class RouteFacts:
    """One method of one path. ``fields`` are the names that its JSON body may have."""

    method: str
    template: str
    parameters: tuple[tuple[str, str], ...]
    streams: bool
    example: Any
    fields: tuple[str, ...]
    has_body: bool

    @property
    def name(self) -> str:
        return f"{self.method} {self.template}"

    @property
    def path_names(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{(\w+)\}", self.template))

    def takes(self, place: str, name: str) -> bool:
        return (place, name) in self.parameters


@dataclass(frozen=True, kw_only=True)
class Probe:
    """``place`` is ``path``, ``query``, ``header`` or ``body``, ``name`` the name there; ``which`` of what the other
    tenant has. ``method`` may be HEAD. ``headers`` and ``query`` come beside it."""

    route: RouteFacts
    method: str
    place: str
    name: str
    kind: Kind
    which: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    with_cursor: bool = False

    @property
    def label(self) -> str:
        more = [f"{name}={value}" for name, value in {**self.headers, **self.query}.items()]
        more += [*self.body, *["their cursor"] * self.with_cursor]
        about = f"{self.method} {self.route.template} {self.place}.{self.name} {self.kind.value}-{self.which}"
        return " ".join([about, *more])

    @property
    def is_of_a_chosen_name(self) -> bool:
        """It is answered well, with something of the asker's own or with nothing."""
        return (self.route.name, self.name) in _CHOSEN


def list_routes(app: FastAPI) -> list[RouteFacts]:
    """Every method of every path that the app answers, as its own table has them."""
    schemas = describe(app)["components"]["schemas"]
    facts = []
    for context in iter_route_contexts(app.routes):
        extra: dict[str, Any] = getattr(context, "openapi_extra", None) or {}
        content = extra.get("requestBody", {}).get("content", {})
        body = content.get("application/json", {})
        schema = schemas.get(body.get("schema", {}).get("$ref", "").rpartition("/")[2], {})
        answers: dict[int, Any] = getattr(context, "responses", None) or {}
        facts += [
            RouteFacts(
                method=method,
                template=context.path_format or "",
                parameters=tuple((taken["in"], taken["name"]) for taken in extra.get("parameters", [])),
                streams=any(STREAM in answer.get("content", {}) for answer in answers.values()),
                example=first_example(body),
                fields=tuple(schema.get("properties", {})),
                has_body=bool(content),
            )
            for method in sorted(context.methods or ())
        ]
    return sorted(facts, key=lambda route: (route.template, route.method))


def plan(routes: list[RouteFacts]) -> list[Probe]:
    """Every probe, each under a label of its own."""
    return [probe for route in routes for probe in _probes_of(route)]


def _probes_of(route: RouteFacts) -> Iterator[Probe]:
    for name in route.path_names:
        kind = kind_of(route.template, name)
        if kind is None or kind is Kind.VERSION:
            continue
        for which in range(HOW_MANY.get(kind, 1)):
            plain = Probe(route=route, method=route.method, place="path", name=name, kind=kind, which=which)
            yield from _in_every_manner(plain)
    for place, name in route.parameters:
        kind = kind_of(route.template, name)
        if kind is not None and place != "path":
            probe = Probe(route=route, method=route.method, place=place, name=name, kind=kind)
            yield replace(probe, headers={"Accept": STREAM}) if _only_streams(route) else probe
    if route.template == "/runs" and route.method == "GET":
        yield Probe(route=route, method="GET", place="query", name="metadata.kept", kind=Kind.METADATA)
    for name in route.fields:
        kind = kind_of(route.template, name)
        if kind is not None:
            yield Probe(route=route, method=route.method, place="body", name=name, kind=kind)


def _in_every_manner(plain: Probe) -> Iterator[Probe]:
    """The same id in requests that go other ways through the route."""
    route = plain.route
    yield plain
    if route.method == "GET":
        yield replace(plain, method="HEAD")
        yield replace(plain, headers={"Accept": STREAM})
    if detour := DETOURS.get(route.name):
        yield replace(plain, body=detour)
    if route.takes("header", "Prefer"):
        yield replace(plain, headers={"Prefer": "wait=0"})
    if route.takes("header", "Idempotency-Key"):
        yield replace(plain, headers={"Idempotency-Key": "a-key-of-my-own"})
    if route.takes("header", "Last-Event-ID"):
        yield replace(plain, headers={"Accept": STREAM, "Last-Event-ID": "1"})
        yield replace(plain, headers={"Last-Event-ID": "999999999"})
    if route.takes("query", "include"):
        yield replace(plain, query={"include": "children"})
        yield replace(plain, query={"include": "children", "after": "2.1"}, headers={"Accept": STREAM})
    if route.takes("query", "cursor"):
        yield replace(plain, query={"limit": "1"})
        yield replace(plain, with_cursor=True)


def _only_streams(route: RouteFacts) -> bool:
    return route.streams and not route.takes("query", "limit") and not route.has_body
