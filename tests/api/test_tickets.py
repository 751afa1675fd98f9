"""POST /stream-tickets: a ticket opens one stream, with its key's rights, for a while, and nothing else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api import ApiConfig, ApiDeps
from app.auth import Principal, Scope, Tickets
from app.ids import KeyId, TenantId
from app.service.tickets import give
from tests.api.contract import check_answer
from tests.api.harness import AS_STREAM, Service, SseFrame, read_frames, stored, with_key
from tests.api.questions import ask, pointers, told

TICKETS = "/stream-tickets"


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.05, poll_seconds=0.3)


@pytest.fixture
async def browser(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """Sends no header that an EventSource can't, over the app itself: for what is answered at once."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(service.app),
        base_url="http://test",
        headers=AS_STREAM,
        event_hooks={"response": [check_answer]},
    ) as client:
        yield client


@contextlib.asynccontextmanager
async def opened(live: httpx.AsyncClient, path: str, **query: str) -> AsyncIterator[AsyncIterator[SseFrame]]:
    """The stream as a browser opens it at a real server."""
    async with (
        httpx.AsyncClient(base_url=live.base_url, headers=AS_STREAM) as client,
        client.stream("GET", path, params=query) as response,
    ):
        assert response.status_code == 200
        yield read_frames(response)


async def get_ticket(service: Service, resource: str, *, secret: str | None = None) -> str:
    response = await service.client.post(
        TICKETS, json={"resource": resource}, headers=with_key(secret or service.keys.service)
    )
    assert response.status_code == 201, response.text
    return str(response.json()["ticket"])


async def ended_run(service: Service) -> str:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    return run_id


async def key_id_of(client: httpx.AsyncClient, secret: str) -> str:
    return str((await client.get("/me", headers=with_key(secret))).json()["key_id"])


async def test_a_ticket_is_good_for_15_minutes(service: Service) -> None:
    response = await service.client.post(TICKETS, json={"resource": "/events"})
    assert (response.status_code, response.headers["cache-control"]) == (201, "no-store")
    async with service.deps.store.begin(service.keys.tenant_id) as tx:
        now = await tx.now()
    ticket = service.deps.tickets.open(response.json()["ticket"])
    assert ticket is not None
    assert 890 < ticket.until_ms / 1000 - now <= 900
    assert response.json()["expires_at"].endswith("Z")


async def test_a_ticket_holds_neither_a_secret_nor_who_asked_by_name(service: Service) -> None:
    ticket = service.deps.tickets.open(await get_ticket(service, "/events"))
    assert ticket is not None
    assert ticket == replace(
        ticket,
        tenant_id=service.keys.tenant_id,
        key_id=KeyId(await key_id_of(service.client, service.keys.service)),
        scope=Scope.RUNS_READ,
        resource="/events",
    )


async def test_it_opens_its_stream_as_often_as_the_reader_comes(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await ended_run(service)
    path = f"/runs/{run_id}/events"
    ticket = await get_ticket(service, path)
    async with opened(live, path, ticket=ticket) as frames:
        whole = [frame.id async for frame in frames]
    async with opened(live, path, ticket=ticket, after="1", include="children") as frames:
        rest = [frame.id async for frame in frames]
    assert (whole, rest) == (["1", "2"], ["2"])


async def test_reading_on_behind_the_end_stops_an_event_source(service: Service, browser: httpx.AsyncClient) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = await get_ticket(service, path)
    response = await browser.get(path, params={"ticket": ticket}, headers={"Last-Event-ID": "2"})
    assert response.status_code == 204


async def test_the_approvals_have_a_stream_too(service: Service, live: httpx.AsyncClient) -> None:
    ticket = await get_ticket(service, "/approvals/events", secret=service.keys.approver)
    async with opened(live, "/approvals/events", ticket=ticket) as frames:
        await anext(frames)
        approval_id = await ask(service, await service.submit())
        [frame] = [frame async for frame in first(frames)]
    assert frame.json["id"] == approval_id


async def first(frames: AsyncIterator[SseFrame]) -> AsyncIterator[SseFrame]:
    async with asyncio.timeout(10):
        async for frame in frames:
            if stored([frame]):
                yield frame
                return


@pytest.mark.parametrize(
    "resource",
    [
        "",
        "/",
        "/runs",
        "/runs/",
        "/runs//events",
        "/runs/run_1",
        "/runs/run_1/messages",
        "/runs/run_1/events/",
        "/runs/run_1/events?after=1",
        "/runs/../events",
        "/runs/run_%31/events",
        "/runs/run_1/events\n",
        "runs/run_1/events",
        "https://test/runs/run_1/events",
        "//events",
        "/EVENTS",
        "/approvals",
        "/me",
        "x" * 201,
    ],
)
async def test_what_is_no_stream_is_refused_with_a_pointer(service: Service, resource: str) -> None:
    response = await service.client.post(TICKETS, json={"resource": resource})
    assert told(response) == (422, "invalid_request")
    assert pointers(response) == ["/resource"]


@pytest.mark.parametrize("body", [{}, {"resource": None}, {"resource": 1}, {"resource": "/events", "ttl": 60}])
async def test_another_body_is_refused(service: Service, body: dict[str, Any]) -> None:
    assert told(await service.client.post(TICKETS, json=body)) == (422, "invalid_request")


@pytest.mark.parametrize(
    ("key", "resource"),
    [
        ("approver", "/events"),
        ("approver", "/runs/run_1/events"),
        ("reader", "/approvals/events"),
        ("conversationalist", "/events"),
        ("operator", "/events"),
    ],
)
async def test_it_takes_the_scope_that_the_stream_takes(service: Service, key: str, resource: str) -> None:
    response = await service.client.post(
        TICKETS, json={"resource": resource}, headers=with_key(getattr(service.keys, key))
    )
    assert told(response) == (403, "missing_scope")


async def test_another_tenants_run_and_an_unknown_one_are_not_found_alike(service: Service) -> None:
    run_id = await service.submit()
    theirs = {"resource": f"/runs/{run_id}/events"}
    nobodys = {"resource": f"/runs/{service.deps.ids.new('run')}/events"}
    others = with_key(service.others_keys.service)
    answers = [await service.client.post(TICKETS, json=body, headers=others) for body in (theirs, nobodys)]
    assert [told(answer) for answer in answers] == [(404, "not_found")] * 2


async def test_without_a_key_there_is_no_ticket(browser: httpx.AsyncClient) -> None:
    assert (await browser.post(TICKETS, json={"resource": "/events"})).status_code == 401


async def test_a_ticket_gets_no_other_ticket(service: Service, browser: httpx.AsyncClient) -> None:
    ticket = await get_ticket(service, "/events")
    response = await browser.post(TICKETS, params={"ticket": ticket}, json={"resource": "/events"})
    assert response.status_code == 401


async def test_a_ticket_opens_nothing_but_its_stream(service: Service, browser: httpx.AsyncClient) -> None:
    run_id, other = await ended_run(service), await ended_run(service)
    ticket = await get_ticket(service, f"/runs/{run_id}/events")
    paths = [f"/runs/{other}/events", "/approvals/events", f"/runs/{run_id}", "/runs", "/me"]
    answers = [await browser.get(path, params={"ticket": ticket}) for path in paths]
    assert [told(answer) for answer in answers] == [(401, "unauthenticated")] * len(paths)


@pytest.mark.parametrize("accept", ["application/json", "*/*", "text/html"])
async def test_it_opens_the_stream_and_not_the_pages(service: Service, browser: httpx.AsyncClient, accept: str) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = await get_ticket(service, path)
    response = await browser.get(path, params={"ticket": ticket}, headers={"Accept": accept})
    assert told(response) == (406, "not_acceptable")


async def test_a_ticket_beside_a_key_is_refused(service: Service) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = await get_ticket(service, path)
    response = await service.client.get(path, params={"ticket": ticket}, headers=AS_STREAM)
    assert told(response) == (400, "two_credentials")


async def test_two_tickets_are_refused(service: Service, browser: httpx.AsyncClient) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = await get_ticket(service, path)
    response = await browser.get(path, params={"ticket": [ticket, ticket]})
    assert (told(response), pointers(response)) == ((422, "invalid_request"), ["/query/ticket"])


@pytest.mark.parametrize(
    "text", ["", "x", "tkt_", "tkt_" + "A" * 200, "tkt_" + "A" * 5000, "rw_" + "k" * 43, "é", "\0"]
)
async def test_what_is_no_ticket_is_refused(service: Service, browser: httpx.AsyncClient, text: str) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    response = await browser.get(path, params={"ticket": text})
    assert told(response) == (401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_ticket_that_another_deployment_sealed_is_refused(service: Service, browser: httpx.AsyncClient) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = service.deps.tickets.open(await get_ticket(service, path))
    assert ticket is not None
    forged = Tickets(b"not the key of this deployment..").seal(ticket)
    assert (await browser.get(path, params={"ticket": forged})).status_code == 401


async def test_a_ticket_whose_time_is_over_is_refused(service: Service, browser: httpx.AsyncClient) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = service.deps.tickets.open(await get_ticket(service, path))
    assert ticket is not None
    over = service.deps.tickets.seal(replace(ticket, until_ms=ticket.until_ms - 900_000))
    response = await browser.get(path, params={"ticket": over})
    assert told(response) == (401, "unauthenticated")


async def test_a_ticket_of_a_revoked_key_is_refused(
    service: Service, browser: httpx.AsyncClient, revoke: Callable[[str], Awaitable[None]]
) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = await get_ticket(service, path, secret=service.keys.reader)
    await revoke(await key_id_of(service.client, service.keys.reader))
    assert (await browser.get(path, params={"ticket": ticket})).status_code == 401


async def test_an_open_stream_ends_with_the_key_of_its_ticket(
    service: Service, live: httpx.AsyncClient, revoke: Callable[[str], Awaitable[None]]
) -> None:
    path = f"/runs/{await service.submit()}/events"
    ticket = await get_ticket(service, path, secret=service.keys.reader)
    async with opened(live, path, ticket=ticket) as frames:
        await anext(frames)
        await revoke(await key_id_of(live, service.keys.reader))
        rest = [frame.comment async for frame in frames]
    assert rest[-1] == "key no longer valid"


async def test_an_open_stream_ends_with_its_ticket(service: Service, live: httpx.AsyncClient) -> None:
    path = f"/runs/{await service.submit()}/events"
    ticket = service.deps.tickets.open(await get_ticket(service, path))
    assert ticket is not None
    short = service.deps.tickets.seal(replace(ticket, until_ms=ticket.until_ms - 900_000 + 1500))
    async with opened(live, path, ticket=short) as frames:
        comments = [frame.comment async for frame in frames]
    assert comments[-1] == "key no longer valid"


async def test_a_ticket_is_good_no_longer_than_what_its_owner_showed(deps: ApiDeps, service: Service) -> None:
    async with deps.store.begin(service.keys.tenant_id) as tx:
        now = await tx.now()
    person = Principal(
        tenant_id=TenantId(service.keys.tenant_id),
        key_id=KeyId("oidc:0"),
        subject="ada",
        scopes=frozenset({Scope.RUNS_READ}),
        good_until=now + 60.0004,
    )
    issued = await give(deps.store, deps.tickets, person, "/events")
    assert 0 <= now + 60.0004 - issued.expires_at < 0.001


async def test_guesses_at_tickets_are_slowed_and_a_ticket_that_was_good_is_not(
    service: Service, browser: httpx.AsyncClient
) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = await get_ticket(service, path)
    headers = {"Last-Event-ID": "2"}
    await browser.get(path, params={"ticket": ticket}, headers=headers)
    guesses = [await browser.get(path, params={"ticket": f"tkt_{place:0200}"}) for place in range(11)]
    again = await browser.get(path, params={"ticket": ticket}, headers=headers)
    assert [guess.status_code for guess in guesses] == [401] * 10 + [429]
    assert again.status_code == 204


async def test_each_use_counts_against_the_tenants_requests_per_minute(
    service: Service, browser: httpx.AsyncClient
) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = await get_ticket(service, path)
    await service.deps.operator.set_tenant(service.keys.tenant_id, {"requests_per_minute": 1}, actor="tests")
    answers = [await browser.get(path, params={"ticket": ticket, "after": "2"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [204, 429]


async def test_its_use_is_a_use_of_its_key(service: Service, browser: httpx.AsyncClient) -> None:
    path = f"/runs/{await ended_run(service)}/events"
    ticket = await get_ticket(service, path)
    key_id = await key_id_of(service.client, service.keys.service)
    service.deps.uses.take()
    await browser.get(path, params={"ticket": ticket, "after": "2"})
    assert list(service.deps.uses.take()) == [key_id]
