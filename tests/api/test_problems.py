"""Whatever goes wrong is answered as one kind of body, and tells nobody what is none of their business."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx
import pytest

from app.api import ApiDeps, create_app
from app.store.database import Database, DatabaseConfig
from app.store.keys import PostgresKeyStore
from app.store.tenant import PostgresTenantStore
from tests.api.contract import check_answer
from tests.api.harness import AS_STREAM, JSON_TYPE, Service, with_key

SOME_RUN = "/runs/run_0123456789abcdefghjkmnpqrs"
SOME_APPROVAL = "/approvals/apr_0123456789abcdefghjkmnpqrs"
ROUTES = [
    ("POST", "/runs"),
    ("GET", "/runs"),
    ("GET", SOME_RUN),
    ("GET", f"{SOME_RUN}/events"),
    ("POST", f"{SOME_RUN}/cancel"),
    ("PUT", "/agents/planner"),
    ("GET", "/agents"),
    ("GET", "/agents/planner"),
    ("GET", "/agents/planner/versions/1"),
    ("DELETE", "/agents/planner"),
    ("GET", "/tools"),
    ("GET", "/models"),
    ("DELETE", SOME_RUN),
    ("POST", f"{SOME_RUN}/resume"),
    ("POST", f"{SOME_RUN}/rerun"),
    ("GET", "/approvals"),
    ("GET", "/approvals/events"),
    ("GET", SOME_APPROVAL),
    ("POST", f"{SOME_APPROVAL}/decision"),
]


def client_of(deps: ApiDeps, secret: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(deps)),
        base_url="http://test",
        headers=with_key(secret),
        event_hooks={"response": [check_answer]},
    )


async def test_a_problem_has_every_member_that_the_contract_names(client: httpx.AsyncClient) -> None:
    response = await client.get(SOME_RUN, headers={"X-Request-Id": "my-request.1"})
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "type": "urn:runwright:problem:not_found",
        "title": "Not found",
        "status": 404,
        "detail": "there is no such run",
        "instance": "urn:runwright:request:my-request.1",
        "code": "not_found",
    }


@pytest.mark.parametrize(("method", "path"), [*ROUTES, ("GET", "/me")])
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer rw_" + "x" * 43}, {"Authorization": "Bearer \xff"}, {"Authorization": "Basic eDp5"}],
)
async def test_without_a_key_that_holds_nothing_is_answered_but_401(
    client: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]
) -> None:
    del client.headers["authorization"]
    response = await client.request(method, path, headers=httpx.Headers(headers, encoding="latin-1"))
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_key_in_the_query_is_no_key(service: Service) -> None:
    del service.client.headers["authorization"]
    response = await service.client.get(f"/runs?access_token={service.keys.service}")
    assert response.status_code == 401
    assert service.keys.service not in response.text


async def test_two_keys_at_once_are_none(service: Service) -> None:
    headers = [("Authorization", f"Bearer {secret}") for secret in (service.keys.service, service.others_keys.service)]
    del service.client.headers["authorization"]
    assert (await service.client.get("/me", headers=headers)).status_code == 401


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_an_operators_key_can_do_nothing_of_a_tenants(service: Service, method: str, path: str) -> None:
    response = await service.client.request(method, path, headers=with_key(service.keys.operator))
    assert (response.status_code, response.json()["code"]) == (403, "missing_scope")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/runs"),
        ("POST", f"{SOME_RUN}/cancel"),
        ("GET", "/agents"),
        ("PUT", "/agents/x"),
        ("GET", "/tools"),
        ("DELETE", SOME_RUN),
        ("POST", f"{SOME_RUN}/resume"),
        ("POST", f"{SOME_RUN}/rerun"),
        ("GET", "/approvals"),
        ("GET", "/approvals/events"),
        ("GET", SOME_APPROVAL),
        ("POST", f"{SOME_APPROVAL}/decision"),
    ],
)
async def test_a_key_without_the_scope_is_refused(service: Service, method: str, path: str) -> None:
    response = await service.client.request(method, path, headers=with_key(service.keys.reader))
    assert (response.status_code, response.json()["code"]) == (403, "missing_scope")


async def test_a_revoked_key_is_refused_at_once(service: Service, revoke: Callable[[str], Awaitable[None]]) -> None:
    before = await service.client.get("/me")
    await revoke(before.json()["key_id"])
    assert (before.status_code, (await service.client.get("/me")).status_code) == (200, 401)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("GET", "/runs/", 404, "not_found"),
        ("GET", "/nothing/here", 404, "not_found"),
        ("GET", "/%00", 404, "not_found"),
        ("PATCH", "/runs", 405, "method_not_allowed"),
        ("DELETE", "/livez", 405, "method_not_allowed"),
    ],
)
async def test_what_no_route_answers_is_a_problem_too(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    response = await client.request(method, path)
    assert (response.status_code, response.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/agents", "GET, HEAD"),
        ("/agents/planner", "DELETE, GET, PUT, HEAD"),
        ("/runs/run_1", "DELETE, GET, HEAD"),
        ("/runs/run_1/cancel", "POST"),
    ],
)
async def test_a_method_that_is_not_allowed_is_told_those_that_are(
    client: httpx.AsyncClient, path: str, allowed: str
) -> None:
    response = await client.patch(path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "a\tb", "<script>"])
async def test_a_request_id_that_is_not_sane_is_replaced(client: httpx.AsyncClient, given: str) -> None:
    response = await client.get("/livez", headers={"X-Request-Id": given})
    assert response.headers["x-request-id"].startswith("req_")


async def test_a_sane_request_id_is_echoed(client: httpx.AsyncClient) -> None:
    response = await client.get("/livez", headers={"X-Request-Id": "trace-0af7651916cd43dd.1_2"})
    assert response.headers["x-request-id"] == "trace-0af7651916cd43dd.1_2"


@pytest.mark.parametrize(("method", "path"), [*ROUTES, ("GET", "/me")])
async def test_with_the_database_away_every_request_is_asked_to_come_back(
    service: Service, method: str, path: str
) -> None:
    away = Database(DatabaseConfig(url="postgresql://app:secret@127.0.0.1:1/away"))
    deps = replace(service.deps, store=PostgresTenantStore(away), keys=PostgresKeyStore(away))
    async with client_of(deps, service.keys.service) as client:
        response = await client.request(method, path, content=b"{}", headers=JSON_TYPE)
    assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
    assert response.headers["retry-after"] == "1"
    # Fixed words: the cause may name hosts.
    assert response.json()["detail"] == "the database does not answer; nothing was done"


async def test_a_database_that_goes_away_after_the_key_was_checked_is_told_as_well(service: Service) -> None:
    away = Database(DatabaseConfig(url="postgresql://app:secret@127.0.0.1:1/away"))
    async with client_of(replace(service.deps, store=PostgresTenantStore(away)), service.keys.service) as client:
        response = await client.post("/runs", json={"agent": "planner", "input": "x"})
    assert response.status_code == 503


async def test_a_process_that_goes_away_takes_nothing_new_and_answers_what_it_can(service: Service) -> None:
    run_id = await service.submit()
    service.deps.drain.begin()
    submitted = await service.client.post("/runs", json={"agent": "planner", "input": "x"})
    streamed = await service.client.get(f"/runs/{run_id}/events", headers=AS_STREAM)
    assert (submitted.status_code, submitted.json()["code"], submitted.headers["retry-after"]) == (503, "draining", "1")
    assert streamed.status_code == 503
    assert (await service.client.get(f"/runs/{run_id}")).status_code == 200


async def test_an_unexpected_error_is_told_by_its_request_and_by_nothing_else(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> bytes:
        raise RuntimeError("password=hunter2")

    async with client_of(replace(service.deps, render_metrics=fail), service.keys.service) as client:
        response = await client.get("/metrics", headers={"X-Request-Id": "the-one"})
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert "hunter2" not in response.text
    assert [record.levelno for record in caplog.records if "the-one" in record.getMessage()] == [logging.ERROR]


async def test_no_answer_is_kept_by_a_cache_or_read_as_another_type(client: httpx.AsyncClient) -> None:
    response = await client.get("/livez")
    assert (response.headers["cache-control"], response.headers["x-content-type-options"]) == ("no-store", "nosniff")


@pytest.mark.parametrize("declared", ["-1", "abc", "1e3"])
async def test_a_length_that_is_no_number_is_refused(client: httpx.AsyncClient, declared: str) -> None:
    response = await client.post("/runs", content=b"", headers=JSON_TYPE | {"Content-Length": declared})
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")
