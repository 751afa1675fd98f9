"""GET /runs and GET /runs/{id}: reading back, filtering, turning pages, waiting."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from app.api import ApiConfig
from app.events import RunState
from tests.api.harness import Service, eventually, with_key
from tests.api.questions import ask

UNKNOWN = "run_0123456789abcdefghjkmnpqrs"


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(poll_seconds=0.2, max_wait_seconds=30)


async def ids(client: httpx.AsyncClient, query: str = "", **headers: str) -> list[str]:
    response = await client.get(f"/runs{query}", headers=headers)
    assert response.status_code == 200, response.text
    return [item["id"] for item in response.json()["items"]]


async def test_a_run_that_has_ended_reads_with_its_answer_and_usage(service: Service) -> None:
    run_id = await service.submit()
    await service.scribe.answer(run_id, "In May.")
    await service.scribe.end(run_id, output_text="In May.", prompt_version="v", prompt_fingerprint="f")
    run = (await service.client.get(f"/runs/{run_id}")).json()
    assert (run["state"], run["output"], run["output_text"], run["last_seq"]) == ("completed", "In May.", "In May.", 3)
    assert (run["prompt_version"], run["prompt_fingerprint"]) == ("v", "f")
    assert run["created_at"] <= run["started_at"] <= run["ended_at"]
    assert run["usage"]["cost"] is None


async def test_a_run_that_failed_says_why(service: Service) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id, state=RunState.FAILED, error_code="provider_error", error_detail="It is gone.")
    run = (await service.client.get(f"/runs/{run_id}")).json()
    assert (run["state"], run["error"]) == ("failed", {"code": "provider_error", "detail": "It is gone."})


@pytest.mark.parametrize(
    "run_id",
    [
        UNKNOWN,
        "run_",
        "nonsense",
        "ses_0123456789abcdefghjkmnpqrs",
        UNKNOWN.upper(),
        UNKNOWN + "0",
        "run_%00123456789abcdefghjkmnpqr",
        "%F0%9F%98%80",
        "run_'; DROP TABLE runs;--",
    ],
)
@pytest.mark.parametrize("path", ["", "/events"])
async def test_a_run_that_is_not_there_is_not_found_whatever_its_id_looks_like(
    client: httpx.AsyncClient, run_id: str, path: str
) -> None:
    response = await client.get(f"/runs/{run_id}{path}")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("GET", "/events"), ("POST", "/cancel")],
)
async def test_another_tenants_run_looks_like_one_that_never_was(service: Service, method: str, path: str) -> None:
    run_id = await service.submit()
    headers = with_key(service.others_keys.service)
    theirs = await service.client.request(method, f"/runs/{run_id}{path}", headers=headers)
    nobodys = await service.client.request(method, f"/runs/{UNKNOWN}{path}", headers=headers)
    assert theirs.status_code == nobodys.status_code == 404
    assert {**theirs.json(), "instance": ""} == {**nobodys.json(), "instance": ""}


async def test_another_tenants_runs_are_in_no_list(service: Service) -> None:
    await service.submit()
    assert await ids(service.client, **with_key(service.others_keys.service)) == []


async def test_a_list_is_newest_first_and_its_pages_join_without_gap_or_repetition(service: Service) -> None:
    made = [await service.submit() for _ in range(7)]
    first = (await service.client.get("/runs", params={"limit": 3})).json()
    second = (await service.client.get("/runs", params={"limit": 3, "cursor": first["next_cursor"]})).json()
    third = (await service.client.get("/runs", params={"limit": 3, "cursor": second["next_cursor"]})).json()
    assert [item["id"] for page in (first, second, third) for item in page["items"]] == made[::-1]
    assert third["next_cursor"] is None


async def test_runs_that_come_in_between_do_not_move_a_page(service: Service) -> None:
    made = [await service.submit() for _ in range(4)]
    first = (await service.client.get("/runs", params={"limit": 2})).json()
    await service.submit()
    assert await ids(service.client, f"?limit=2&cursor={first['next_cursor']}") == [made[1], made[0]]


async def test_a_page_that_ends_with_the_last_run_has_no_next(service: Service) -> None:
    await service.submit()
    await service.submit()
    assert (await service.client.get("/runs", params={"limit": 2})).json()["next_cursor"] is None


async def test_a_cursor_of_another_filter_is_refused(service: Service) -> None:
    await service.submit()
    await service.submit()
    cursor = (await service.client.get("/runs?limit=1&state=queued")).json()["next_cursor"]
    response = await service.client.get(f"/runs?limit=1&cursor={cursor}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


async def test_a_cursor_of_another_tenant_is_refused(service: Service) -> None:
    await service.submit()
    await service.submit()
    cursor = (await service.client.get("/runs?limit=1")).json()["next_cursor"]
    response = await service.client.get(f"/runs?cursor={cursor}", headers=with_key(service.others_keys.service))
    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


async def test_filters_hold_together(service: Service) -> None:
    await service.put_agent("other")
    queued = await service.submit(user="ada", metadata={"ticket": "T-1", "team": "a"})
    ended = await service.submit(user="ada", metadata={"ticket": "T-1", "team": "b"})
    others = await service.submit(user="bob", agent="other", metadata={"ticket": "T-2", "team": "a"})
    await service.scribe.end(ended)
    client = service.client
    assert await ids(client, "?state=completed") == [ended]
    assert await ids(client, "?state=completed&state=running&state=queued&user=ada") == [ended, queued]
    assert await ids(client, "?agent=other") == [others]
    assert await ids(client, "?metadata.ticket=T-1") == [ended, queued]
    assert await ids(client, "?metadata.ticket=T-1&metadata.team=a") == [queued]
    assert await ids(client, "?user=ada&metadata.team=nobody") == []


@pytest.mark.parametrize(
    "query",
    ["agent=%00", "user=%00", "metadata.%00=%00", "agent=%FF", "user=%ED%A0%BD", "metadata.=x", "cursor=", "user="],
)
async def test_a_filter_may_be_any_text_and_finds_nothing(service: Service, query: str) -> None:
    await service.submit(user="ada")
    response = await service.client.get(f"/runs?{query}")
    assert response.status_code == 200


async def test_times_bound_a_list_on_both_sides(service: Service) -> None:
    run_id = await service.submit()
    assert await ids(service.client, "?created_after=2000-01-01T00:00:00Z&created_before=2100-01-01T00:00:00Z") == [
        run_id
    ]
    assert await ids(service.client, "?created_after=2100-01-01T00:00:00Z") == []
    assert await ids(service.client, "?created_before=2000-01-01T00:00:00%2B02:00") == []
    assert await ids(service.client, "?created_after=0001-01-01T00:00:00Z&created_before=9999-12-31T23:59:59Z") == [
        run_id
    ]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limt=1", "/query/limt"),
        ("limit=0", "/query/limit"),
        ("limit=201", "/query/limit"),
        ("limit=1&limit=2", "/query/limit"),
        ("state=done", "/query/state"),
        ("state=completed&state=", "/query/state"),
        ("created_after=yesterday", "/query/created_after"),
        ("created_after=9999-12-31T23:59:59-23:59", "/query/created_after"),
        ("created_after=0001-01-01T00:00:00%2B23:59", "/query/created_after"),
        ("created_before=9999-12-31T23:59:59.999999999Z", "/query/created_before"),
        ("&".join(f"metadata.k{n}=v" for n in range(17)), "/query/metadata"),
        ("metadata.a=1&metadata.a=2", "/query/metadata.a"),
        ("metadata=1", "/query/metadata"),
    ],
)
async def test_a_wrong_query_is_refused_with_a_pointer(client: httpx.AsyncClient, query: str, pointer: str) -> None:
    response = await client.get(f"/runs?{query}")
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


async def test_reading_with_a_parameter_that_is_not_known_is_refused(service: Service) -> None:
    run_id = await service.submit()
    assert (await service.client.get(f"/runs/{run_id}?wait=10")).status_code == 422


async def test_who_waits_with_a_key_that_is_revoked_meanwhile_is_told_nothing(
    service: Service, revoke: Callable[[str], Awaitable[None]]
) -> None:
    run_id = await service.submit()
    reader = with_key(service.keys.reader)
    key_id = (await service.client.get("/me", headers=reader)).json()["key_id"]
    waiting = asyncio.create_task(service.client.get(f"/runs/{run_id}", headers={**reader, "Prefer": "wait=25"}))
    await eventually(lambda: subscriptions(service) == 1)
    await revoke(key_id)
    await service.scribe.end(run_id, output_text="Done.")
    async with asyncio.timeout(5):
        response = await waiting
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")


async def test_waiting_ends_as_soon_as_the_run_has_ended(service: Service) -> None:
    run_id = await service.submit()
    waiting = asyncio.create_task(service.client.get(f"/runs/{run_id}", headers={"Prefer": "wait=25"}))
    await eventually(lambda: subscriptions(service) == 1)
    await service.scribe.end(run_id, output_text="Done.")
    async with asyncio.timeout(5):
        response = await waiting
    assert (response.status_code, response.json()["output_text"]) == (200, "Done.")
    assert response.headers["preference-applied"] == "wait=25"
    assert subscriptions(service) == 0


async def test_waiting_for_a_run_that_has_ended_does_not_wait(service: Service) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    async with asyncio.timeout(5):
        response = await service.client.get(f"/runs/{run_id}", headers={"Prefer": "wait=25"})
    assert response.status_code == 200


async def test_waiting_ends_at_its_limit_with_the_run_as_it_is(service: Service) -> None:
    run_id = await service.submit()
    response = await service.client.get(f"/runs/{run_id}", headers={"Prefer": "wait=0"})
    assert (response.status_code, response.json()["state"]) == (202, "queued")
    assert response.headers["preference-applied"] == "wait=0"


async def test_waiting_ends_when_the_run_is_suspended(service: Service) -> None:
    run_id = await service.submit()
    waiting = asyncio.create_task(service.client.get(f"/runs/{run_id}", headers={"Prefer": "wait=25"}))
    await eventually(lambda: subscriptions(service) == 1)
    approval_id = await ask(service, run_id)
    async with asyncio.timeout(5):
        response = await waiting
    assert (response.status_code, response.json()["state"]) == (202, "suspended")
    assert response.json()["waiting_for"] == [approval_id]


async def test_an_end_that_nobody_announced_is_found_by_the_slow_poll(service: Service) -> None:
    run_id = await service.submit()
    waiting = asyncio.create_task(service.client.get(f"/runs/{run_id}", headers={"Prefer": "wait=25"}))
    await eventually(lambda: subscriptions(service) == 1)
    await service.scribe.end_silently(run_id)
    async with asyncio.timeout(5):
        assert (await waiting).status_code == 200


async def test_a_wait_is_capped_by_what_the_deployment_allows(service: Service) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    response = await service.client.get(f"/runs/{run_id}", headers={"Prefer": "wait=3600"})
    assert response.headers["preference-applied"] == "wait=30"


async def test_submitting_with_a_wait_answers_the_run_at_its_end(service: Service) -> None:
    await service.put_agent()
    body = {"agent": "planner", "input": "x"}
    waiting = asyncio.create_task(service.client.post("/runs", json=body, headers={"Prefer": "wait=25"}))
    # Who waits listens before the run is stored.
    async with asyncio.timeout(10):
        while not (stored := await ids(service.client)):
            continue
    await service.scribe.end(stored[0], output_text="Done.")
    response = await waiting
    assert (response.status_code, response.json()["output_text"]) == (200, "Done.")
    assert response.headers["location"] == f"/runs/{stored[0]}"


async def test_whoever_waits_is_let_go_when_the_process_goes_away(service: Service) -> None:
    run_id = await service.submit()
    waiting = asyncio.create_task(service.client.get(f"/runs/{run_id}", headers={"Prefer": "wait=25"}))
    await eventually(lambda: subscriptions(service) == 1)
    service.deps.drain.begin()
    async with asyncio.timeout(5):
        assert (await waiting).status_code == 202


async def test_a_waiting_request_holds_no_transaction(service: Service) -> None:
    run_id = await service.submit()
    waits = [
        asyncio.create_task(service.client.get(f"/runs/{run_id}", headers={"Prefer": "wait=25"})) for _ in range(20)
    ]
    await eventually(lambda: subscriptions(service) == 20)
    async with asyncio.timeout(5):
        assert await ids(service.client) == [run_id]
    await service.scribe.end(run_id)
    assert {response.status_code for response in await asyncio.gather(*waits)} == {200}


def subscriptions(service: Service) -> int:
    return service.feed.readers
