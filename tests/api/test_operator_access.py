"""The operator's routes are an operator's alone, and an operator's key opens nothing else."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.api.openapi import describe
from tests.api.harness import Service, with_key

OPERATORS_ROUTES = [
    ("POST", "/tenants"),
    ("GET", "/tenants"),
    ("GET", "/tenants/ten_1"),
    ("PATCH", "/tenants/ten_1"),
    ("DELETE", "/tenants/ten_1"),
    ("POST", "/tenants/ten_1/keys"),
    ("GET", "/tenants/ten_1/keys"),
    ("DELETE", "/tenants/ten_1/keys/key_1"),
    ("POST", "/tenants/ten_1/keys/key_1/rotate"),
    ("POST", "/operators/keys"),
    ("GET", "/operators/keys"),
    ("DELETE", "/operators/keys/key_1"),
    ("POST", "/operators/keys/key_1/rotate"),
    ("POST", "/pauses"),
    ("GET", "/pauses"),
    ("DELETE", "/pauses/pau_1"),
    ("POST", "/cancellations"),
    ("GET", "/workers"),
    ("POST", "/workers/wor_1/drain"),
    ("GET", "/audit"),
]
ROUTES_WITH_BODIES = [
    (method, path) for method, path in OPERATORS_ROUTES if method in ("POST", "PATCH") and not path.endswith("/drain")
]
TENANTS_ROUTES = [
    ("POST", "/runs"),
    ("GET", "/runs"),
    ("GET", "/runs/run_1"),
    ("GET", "/runs/run_1/events"),
    ("GET", "/agents"),
    ("GET", "/sessions"),
    ("GET", "/approvals"),
    ("GET", "/webhooks"),
    ("GET", "/tools"),
    ("GET", "/models"),
]


Ask = Callable[..., Awaitable[list[tuple[int, str]]]]


@pytest.fixture
def ask(service: Service) -> Ask:
    """Asks each of some routes; their statuses and codes."""

    async def send(routes: list[tuple[str, str]], *, query: str = "", **more: Any) -> list[tuple[int, str]]:
        answers = [await service.client.request(method, path + query, **more) for method, path in routes]
        return [(answer.status_code, answer.json()["code"]) for answer in answers]

    return send


async def test_every_route_of_the_operator_is_here(service: Service) -> None:
    described = {
        (method.upper(), re.sub(r"{(\w\w\w).*?_id}", r"\1_1", path))
        for path, methods in describe(service.app)["paths"].items()
        for method, operation in methods.items()
        if operation["tags"] == ["operator"]
    }
    assert described == set(OPERATORS_ROUTES)


async def test_a_tenants_key_with_every_scope_is_refused(ask: Ask) -> None:
    assert await ask(OPERATORS_ROUTES) == [(403, "missing_scope")] * len(OPERATORS_ROUTES)


async def test_without_a_key_nothing_is_answered(ask: Ask) -> None:
    answers = await ask(OPERATORS_ROUTES, headers={"Authorization": ""})
    assert answers == [(401, "unauthenticated")] * len(OPERATORS_ROUTES)


async def test_an_operators_key_reads_nothing_of_tenants(ask: Ask, service: Service) -> None:
    answers = await ask(TENANTS_ROUTES, headers=with_key(service.keys.operator))
    assert answers == [(403, "missing_scope")] * len(TENANTS_ROUTES)


async def test_an_unknown_parameter_is_refused(ask: Ask, service: Service) -> None:
    answers = await ask(OPERATORS_ROUTES, query="?all=1", headers=with_key(service.keys.operator))
    assert answers == [(422, "invalid_request")] * len(OPERATORS_ROUTES)


async def test_a_body_that_is_no_json_is_refused(ask: Ask, service: Service) -> None:
    headers = {**with_key(service.keys.operator), "Content-Type": "application/json"}
    answers = await ask(ROUTES_WITH_BODIES, headers=headers, content=b"{")
    assert answers == [(400, "invalid_json")] * len(ROUTES_WITH_BODIES)


async def test_a_body_of_another_type_is_refused(ask: Ask, service: Service) -> None:
    headers = {**with_key(service.keys.operator), "Content-Type": "application/merge-patch+json"}
    answers = await ask(ROUTES_WITH_BODIES, headers=headers, content=b"{}")
    assert answers == [(415, "unsupported_media_type")] * len(ROUTES_WITH_BODIES)
