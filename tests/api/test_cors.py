"""Pages of the listed origins may read the service, and pages of no other one."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.api import ApiConfig
from tests.api.contract import check_answer, load_description
from tests.api.harness import AS_STREAM, Service, serve, with_key

PAGE = "https://dashboard.example"
OTHER = "https://evil.example"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, prefer"}


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(max_request_bytes=1024, allowed_origins=(PAGE, "http://localhost:3000"))


@pytest.fixture
async def anybody(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """Sends no key."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service.app), base_url="http://test") as client:
        yield client


def readers_of(response: httpx.Response) -> str | None:
    """The origin whose pages may read it."""
    value: str | None = response.headers.get("access-control-allow-origin")
    return value


@pytest.mark.parametrize("origin", [PAGE, "http://localhost:3000"])
async def test_a_listed_page_may_read_an_answer_and_the_headers_that_tell_something(
    client: httpx.AsyncClient, origin: str
) -> None:
    response = await client.get("/me", headers={"Origin": origin})
    told = set(response.headers["access-control-expose-headers"].split(", "))
    assert readers_of(response) == origin
    assert {"Location", "Retry-After", "X-Request-Id", "Idempotency-Replayed"} <= told


def described_headers() -> set[str]:
    """Those of any answer that openapi.yaml describes."""
    described = load_description()
    operations = [operation for methods in described["paths"].values() for operation in methods.values()]
    answers = [answer for operation in operations for answer in operation["responses"].values()]
    answers += described["components"]["responses"].values()
    return {name for answer in answers for name in answer.get("headers", {})}


async def test_a_listed_page_may_read_every_header_that_is_described(client: httpx.AsyncClient) -> None:
    response = await client.get("/me", headers={"Origin": PAGE})
    told = set(response.headers["access-control-expose-headers"].split(", "))
    # What the Fetch standard lets any page read.
    assert described_headers() - {"Cache-Control"} == told - {"X-Request-Id"}


@pytest.mark.parametrize(
    "origin",
    [OTHER, "null", "https://dashboard.example.evil.example", "http://dashboard.example", f"{PAGE}:8443", "*", ""],
)
async def test_no_other_page_may(client: httpx.AsyncClient, origin: str) -> None:
    response = await client.get("/me", headers={"Origin": origin})
    assert (response.status_code, readers_of(response)) == (200, None)


async def test_what_is_kept_for_one_origin_is_not_given_to_another(client: httpx.AsyncClient) -> None:
    answers = [await client.get("/me", headers=headers) for headers in ({}, {"Origin": PAGE}, {"Origin": OTHER})]
    assert ["Origin" in answer.headers["vary"] for answer in answers] == [True] * 3


async def test_no_answer_lets_a_page_use_anybodys_cookies(
    client: httpx.AsyncClient, anybody: httpx.AsyncClient
) -> None:
    response = await client.get("/me", headers={"Origin": PAGE})
    preflight = await anybody.options("/runs", headers={"Origin": PAGE, **PREFLIGHT})
    name = "access-control-allow-credentials"
    assert [name in answer.headers for answer in (response, preflight)] == [False, False]


async def test_a_preflight_is_told_what_may_be_sent(anybody: httpx.AsyncClient) -> None:
    response = await anybody.options("/runs", headers={"Origin": PAGE, **PREFLIGHT})
    headers = {name.lower() for name in response.headers["access-control-allow-headers"].split(", ")}
    methods = set(response.headers["access-control-allow-methods"].split(", "))
    assert (response.status_code, response.content, readers_of(response)) == (204, b"", PAGE)
    assert {"authorization", "content-type", "idempotency-key", "last-event-id", "prefer"} <= headers
    assert {"GET", "POST", "PUT", "PATCH", "DELETE"} <= methods
    assert response.headers["x-request-id"].startswith("req_")


async def test_a_preflight_of_another_page_is_a_problem(anybody: httpx.AsyncClient) -> None:
    response = await anybody.options("/runs", headers={"Origin": OTHER, **PREFLIGHT})
    assert (response.status_code, response.json()["code"], readers_of(response)) == (403, "origin_not_allowed", None)
    assert response.json()["instance"].endswith(response.headers["x-request-id"])


async def test_options_that_is_no_preflight_is_answered_as_ever(anybody: httpx.AsyncClient) -> None:
    assert (await anybody.options("/runs", headers={"Origin": PAGE})).status_code == 405


@pytest.mark.parametrize("body", [b"{", b"x" * 2000])
async def test_a_listed_page_may_read_problems_of_every_layer(client: httpx.AsyncClient, body: bytes) -> None:
    headers = {"Origin": PAGE, "Content-Type": "application/json"}
    response = await client.post("/runs", content=body, headers=headers)
    assert (response.status_code, readers_of(response)) == ({b"{": 400}.get(body, 413), PAGE)


async def test_a_listed_page_may_read_refusals_and_what_is_not_there(anybody: httpx.AsyncClient) -> None:
    answers = [await anybody.get(path, headers={"Origin": PAGE}) for path in ("/me", "/nowhere")]
    assert [(answer.status_code, readers_of(answer)) for answer in answers] == [(401, PAGE), (404, PAGE)]


async def test_a_listed_page_may_read_streams(service: Service) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    headers = {"Origin": PAGE, **AS_STREAM, **with_key(service.keys.service)}
    async with (
        serve(service.app) as (address, _),
        httpx.AsyncClient(base_url=address) as client,
        client.stream("GET", f"/runs/{run_id}/events", headers=headers) as response,
    ):
        assert (response.status_code, readers_of(response)) == (200, PAGE)


class TestWithoutOrigins:
    """As it is unless the operator lists any."""

    @pytest.fixture
    def config(self) -> ApiConfig:
        return ApiConfig()

    async def test_no_page_may_read_anything(self, client: httpx.AsyncClient) -> None:
        response = await client.get("/me", headers={"Origin": PAGE})
        preflight = await client.options("/runs", headers={"Origin": PAGE, **PREFLIGHT})
        await check_answer(response)
        assert [readers_of(answer) for answer in (response, preflight)] == [None, None]
        assert preflight.status_code == 405
