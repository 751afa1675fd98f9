"""GET /runs/{id}/ws: the stream of a run over a WebSocket, frame for frame, and who may open it."""

from typing import Any

import httpx
import pytest

from app.api import ApiConfig, Surface, create_app
from tests.api.harness import AS_STREAM, Service, eventually, read_frames, stored
from tests.api.sockets import opened, read_all, read_one, refused, serve_sockets, ticket_to

PAGE = "https://dashboard.example"


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.1, poll_seconds=0.3, send_seconds=0.5, allowed_origins=(PAGE,))


async def ended_run(service: Service) -> str:
    run_id = await service.submit()
    await service.scribe.say(run_id, "Four ", "nights.")
    await service.scribe.answer(run_id, "Four nights.")
    await service.scribe.end(run_id)
    return run_id


async def frames_of(address: str, path: str, key: str) -> list[dict[str, Any]]:
    """What the stream of server-sent events has, as messages."""
    headers = {"Authorization": key, **AS_STREAM}
    async with (
        httpx.AsyncClient(base_url=f"http://{address}", headers=headers) as client,
        client.stream("GET", path) as response,
    ):
        frames = stored([frame async for frame in read_frames(response)])
    return [{"id": frame.id, "event": frame.event, "data": frame.json} for frame in frames]


async def test_it_has_the_events_of_the_stream_and_is_closed_behind_the_last(
    service: Service, address: str, key: str
) -> None:
    run_id = await ended_run(service)
    async with opened(address, f"/runs/{run_id}/ws", Authorization=key) as reader:
        messages, close = await read_all(reader)
    assert messages == await frames_of(address, f"/runs/{run_id}/events", key)
    assert (messages[-1]["event"], close) == ("terminated", (1000, ""))


async def test_it_goes_on_behind_each_id(service: Service, address: str, key: str) -> None:
    run_id = await ended_run(service)
    whole = await frames_of(address, f"/runs/{run_id}/events", key)
    rests = []
    for place in range(len(whole) + 1):
        async with opened(address, f"/runs/{run_id}/ws?after={place}", Authorization=key) as reader:
            rests.append(await read_all(reader))
    assert rests == [(whole[place:], (1000, "")) for place in range(len(whole) + 1)]


async def test_children_are_read_with_their_ids(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    await service.scribe.end(child_id)
    await service.scribe.close_call(run_id)
    await service.scribe.end(run_id)
    query = "?include=children"
    async with opened(address, f"/runs/{run_id}/ws{query}", Authorization=key) as reader:
        messages, _ = await read_all(reader)
    whole = await frames_of(address, f"/runs/{run_id}/events{query}", key)
    async with opened(address, f"/runs/{run_id}/ws{query}&after={whole[2]['id']}", Authorization=key) as reader:
        rest, _ = await read_all(reader)
    assert messages == whole
    assert rest == whole[3:]
    assert any("." in message["id"] for message in messages)


async def test_text_comes_as_it_is_generated_without_an_id(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    async with opened(address, f"/runs/{run_id}/ws?after=1", Authorization=key) as reader:
        await eventually(lambda: service.feed.readers == 1)
        await service.scribe.say(run_id, "Four ")
        heard = [await read_one(reader) for _ in range(3)]
    assert [message["event"] for message in heard if "id" in message] == ["model_call"]
    assert [message["event"] for message in heard if "id" not in message] == ["answer_snapshot", "answer_delta"]
    assert heard[-1]["data"] == {"iteration": 1, "attempt": 1, "offset": 0, "text": "Four "}


@pytest.mark.parametrize("text", ['"}\n', "\u2028\u2029\x85", "\x00", "😀", "\ufeff"])
async def test_any_text_is_told_as_it_is(service: Service, address: str, key: str, text: str) -> None:
    run_id = await service.submit()
    await service.scribe.answer(run_id, f"a{text}")
    async with opened(address, f"/runs/{run_id}/ws?after=1", Authorization=key) as reader:
        message = await read_one(reader)
    assert message["data"]["text"] == f"a{text}"


async def test_an_event_of_a_megabyte_is_one_message(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    await service.scribe.answer(run_id, "x" * 1_000_000)
    async with opened(address, f"/runs/{run_id}/ws?after=1", Authorization=key) as reader:
        message = await read_one(reader)
    assert message["data"]["text"] == "x" * 1_000_000


async def test_a_ticket_opens_it(service: Service, address: str) -> None:
    path = f"/runs/{await ended_run(service)}/ws"
    ticket = await ticket_to(service, path, service.keys.reader)
    async with opened(address, f"{path}?ticket={ticket}&after=1", Origin=f"http://{address}") as reader:
        _, close = await read_all(reader)
    assert close == (1000, "")


async def test_a_ticket_to_the_other_stream_does_not(service: Service, address: str) -> None:
    run_id = await ended_run(service)
    ticket = await ticket_to(service, f"/runs/{run_id}/events", service.keys.reader)
    status, problem, _ = await refused(address, f"/runs/{run_id}/ws?ticket={ticket}")
    assert (status, problem["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize("origin", [PAGE, PAGE.upper()])
async def test_a_listed_page_may_connect(service: Service, address: str, key: str, origin: str) -> None:
    run_id = await ended_run(service)
    async with opened(address, f"/runs/{run_id}/ws", Authorization=key, Origin=origin) as reader:
        assert (await read_all(reader))[1] == (1000, "")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1", f"{PAGE}.evil.example", ""])
async def test_no_other_page_may_whatever_it_shows(service: Service, address: str, key: str, origin: str) -> None:
    run_id = await ended_run(service)
    status, problem, _ = await refused(address, f"/runs/{run_id}/ws", Authorization=key, Origin=origin)
    assert (status, problem["code"]) == (403, "origin_not_allowed")


async def test_a_page_behind_a_proxy_that_speaks_tls_is_of_another_scheme(
    service: Service, address: str, key: str
) -> None:
    status, _, _ = await refused(address, "/runs/run_1/ws", Authorization=key, Origin=f"https://{address}")
    assert status == 403


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ("", {}, 401, "unauthenticated"),
        ("", {"Authorization": f"Bearer rw_{'k' * 43}"}, 401, "unauthenticated"),
        ("?after=99", None, 400, "unknown_event_id"),
        ("?after=x", None, 400, "unknown_event_id"),
        ("?include=parents", None, 422, "invalid_request"),
        ("?limit=5", None, 422, "invalid_request"),
        ("?ticket=tkt_x", None, 400, "two_credentials"),
    ],
)
async def test_a_handshake_is_refused_by_a_problem(
    service: Service, address: str, key: str, query: str, headers: dict[str, str] | None, status: int, code: str
) -> None:
    run_id = await ended_run(service)
    given = {"Authorization": key} if headers is None else headers
    told, problem, answered = await refused(address, f"/runs/{run_id}/ws{query}", **given)
    assert (told, problem["code"], problem["status"]) == (status, code, status)
    assert answered["Content-Type"] == "application/problem+json"
    assert problem["instance"].endswith(answered["X-Request-Id"])


async def test_a_key_without_the_scope_is_refused(service: Service, address: str) -> None:
    key = f"Bearer {service.keys.approver}"
    status, problem, _ = await refused(address, "/runs/run_1/ws", Authorization=key)
    assert (status, problem["code"]) == (403, "missing_scope")


async def test_another_tenants_run_is_not_there(service: Service, address: str) -> None:
    run_id = await ended_run(service)
    key = f"Bearer {service.others_keys.service}"
    answers = [await refused(address, f"/runs/{name}/ws", Authorization=key) for name in (run_id, "run_nobodys")]
    assert [(status, problem["code"]) for status, problem, _ in answers] == [(404, "not_found")] * 2


async def test_a_handshake_says_what_every_answer_says(service: Service, address: str, key: str) -> None:
    run_id = await ended_run(service)
    async with opened(address, f"/runs/{run_id}/ws", Authorization=key, X_Request_Id="mine") as reader:
        assert reader.response is not None
        assert reader.response.headers["X-Request-Id"] == "mine"


async def test_who_asks_for_no_websocket_is_told_to(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    async with httpx.AsyncClient(base_url=f"http://{address}", headers={"Authorization": key}) as client:
        answers = [await client.get(f"/runs/{name}/ws") for name in (run_id, "run_nobodys")]
    assert [answer.status_code for answer in answers] == [426, 404]
    assert (answers[0].json()["code"], answers[0].headers["upgrade"]) == ("upgrade_required", "websocket")


async def test_a_draining_process_takes_no_reader(service: Service, address: str, key: str) -> None:
    run_id = await service.submit()
    service.deps.drain.begin()
    status, problem, headers = await refused(address, f"/runs/{run_id}/ws", Authorization=key)
    assert (status, problem["code"], headers["Retry-After"]) == (503, "draining", "1")


async def test_a_process_that_serves_no_runs_answers_that_there_is_nothing(service: Service, key: str) -> None:
    async with serve_sockets(create_app(service.deps, Surface.OPERATIONS)) as address:
        status, problem, _ = await refused(address, "/runs/run_1/ws", Authorization=key)
    assert (status, problem["code"]) == (404, "not_found")
