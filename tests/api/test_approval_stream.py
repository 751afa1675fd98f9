"""GET /approvals/events: every status that an approval takes, in the order of the commits and without a gap."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from app.api import ApiConfig
from app.ids import TenantId
from app.service.approval_stream import seal_place
from tests.api.harness import AS_STREAM, Service, SseFrame, eventually, read_frames, read_until, serve, stored, with_key
from tests.api.questions import ask, decide, new_question, pointers, put_question, read, told

EVENTS = "/approvals/events"


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.3, poll_seconds=0.3)


@contextlib.asynccontextmanager
async def following(
    live: httpx.AsyncClient, query: str = "", **headers: str
) -> AsyncIterator[tuple[AsyncIterator[SseFrame], httpx.Response]]:
    async with live.stream("GET", f"{EVENTS}{query}", headers=AS_STREAM | headers) as response:
        assert response.status_code == 200
        yield read_frames(response), response


async def take(frames: AsyncIterator[SseFrame], number: int) -> list[SseFrame]:
    """So many changes; the pings between them are left out."""
    taken: list[SseFrame] = []
    async with asyncio.timeout(10):
        while len(taken) < number:
            taken += stored([await anext(frames)])
    return taken


def seen(frames: list[SseFrame]) -> list[tuple[str | None, str]]:
    return [(frame.event, frame.json["id"]) for frame in frames]


async def some_changes(service: Service) -> tuple[str, list[tuple[str, str]]]:
    """An id behind which they come, and seven changes of three approvals."""
    last = await now(service)
    run_ids = [await service.submit() for _ in range(3)]
    first, second, third = [await ask(service, run_id) for run_id in run_ids]
    await decide(service, first)
    await decide(service, second, "deny")
    await service.client.post(f"/runs/{run_ids[2]}/cancel")
    fourth = await ask(service, await service.submit())
    pending = [("pending", name) for name in (first, second, third)]
    return last, [*pending, ("approved", first), ("denied", second), ("cancelled", third), ("pending", fourth)]


async def now(service: Service) -> str:
    """The id of a change, behind which everything comes that a test does."""
    async with (
        serve(service.app) as (address, _),
        httpx.AsyncClient(base_url=address, headers=with_key(service.keys.service)) as client,
        following(client) as (frames, _),
    ):
        await ask(service, await service.submit())
        [frame] = await take(frames, 1)
    assert frame.id is not None
    return frame.id


async def test_each_change_is_a_frame_named_by_the_status_with_the_approval_as_it_became(
    service: Service, live: httpx.AsyncClient
) -> None:
    async with following(live) as (frames, _):
        approval_id = await ask(service, await service.submit())
        before = await read(service, approval_id)
        [pending] = await take(frames, 1)
        await decide(service, approval_id, reason="fine")
        [approved] = await take(frames, 1)
    after = await read(service, approval_id)
    assert (pending.event, pending.json) == ("pending", before | {"at": before["requested_at"]})
    assert (approved.event, approved.json) == ("approved", after | {"at": after["decision"]["decided_at"]})


async def test_it_begins_with_what_comes_from_now_on(service: Service, live: httpx.AsyncClient) -> None:
    await ask(service, await service.submit())
    async with following(live) as (frames, _):
        later = await ask(service, await service.submit())
        assert seen(await take(frames, 1)) == [("pending", later)]


async def test_the_first_frame_says_where_it_begins_so_that_who_is_cut_off_at_once_misses_nothing(
    service: Service, live: httpx.AsyncClient
) -> None:
    async with live.stream("GET", EVENTS, headers=AS_STREAM) as response:
        lines = response.aiter_lines()
        first = await anext(lines), await anext(lines)
    missed = await ask(service, await service.submit())
    async with following(live, **{"Last-Event-ID": first[1].removeprefix("id: ")}) as (frames, _):
        assert seen(await take(frames, 1)) == [("pending", missed)]
    assert first[0] == "retry: 3000"


async def test_coming_back_behind_each_id_shows_exactly_what_followed(
    service: Service, live: httpx.AsyncClient
) -> None:
    last, changes = await some_changes(service)
    async with following(live, **{"Last-Event-ID": last}) as (frames, _):
        whole = await take(frames, len(changes))
    behind = [await rest_behind(live, str(frame.id), len(changes) - place) for place, frame in enumerate(whole, 1)]
    assert seen(whole) == changes
    assert behind == [[frame.raw for frame in whole[place:]] for place in range(1, len(whole) + 1)]


async def rest_behind(live: httpx.AsyncClient, place: str, number: int) -> list[str]:
    async with following(live, **{"Last-Event-ID": place}) as (frames, _):
        return [frame.raw for frame in await take(frames, number)]


async def test_a_change_that_was_told_as_pending_stays_so_when_it_is_read_again(
    service: Service, live: httpx.AsyncClient
) -> None:
    last = await now(service)
    approval_id = await ask(service, await service.submit())
    await decide(service, approval_id)
    async with following(live, **{"Last-Event-ID": last}) as (frames, _):
        pending, approved = await take(frames, 2)
    assert (pending.json["status"], pending.json["decision"]) == ("pending", None)
    assert approved.json["decision"]["decision"] == "approve"


async def test_the_place_may_stand_in_the_address_and_the_header_wins(
    service: Service, live: httpx.AsyncClient
) -> None:
    last, changes = await some_changes(service)
    async with following(live, f"?after={last}") as (frames, _):
        whole = await take(frames, len(changes))
    async with following(live, f"?after={last}", **{"Last-Event-ID": str(whole[4].id)}) as (frames, _):
        assert seen(await take(frames, 2)) == changes[5:]


async def test_only_changes_to_the_named_statuses_are_told(service: Service, live: httpx.AsyncClient) -> None:
    last, changes = await some_changes(service)
    query = f"?status=denied&status=approved&after={last}"
    async with following(live, query) as (frames, _):
        assert seen(await take(frames, 2)) == changes[3:5]
        later = await ask(service, await service.submit())
        await decide(service, later)
        assert seen(await take(frames, 1)) == [("approved", later)]


async def test_an_id_is_good_for_any_filter(service: Service, live: httpx.AsyncClient) -> None:
    last, changes = await some_changes(service)
    async with following(live, "?status=cancelled", **{"Last-Event-ID": last}) as (frames, _):
        [cancelled] = await take(frames, 1)
    async with following(live, **{"Last-Event-ID": str(cancelled.id)}) as (frames, _):
        assert seen(await take(frames, 1)) == changes[6:]


async def test_more_than_a_page_of_changes_is_told_whole(service: Service, live: httpx.AsyncClient) -> None:
    last = await now(service)
    run_id = await service.submit()
    asked = [new_question(call=call) for call in range(250)]
    await put_question(service, run_id, *asked)
    async with following(live, **{"Last-Event-ID": last}) as (frames, _):
        whole = await take(frames, 250)
    assert [frame.json["id"] for frame in whole] == [new.approval_id for new in asked]
    assert len({frame.id for frame in whole}) == 250


async def test_changes_are_told_in_the_order_of_their_commits_whoever_makes_them(
    service: Service, live: httpx.AsyncClient
) -> None:
    last = await now(service)
    run_ids = [await service.submit() for _ in range(8)]
    asked = [await ask(service, run_id) for run_id in run_ids]
    async with following(live, **{"Last-Event-ID": last}) as (frames, _):
        deciding = [asyncio.create_task(decide(service, approval_id)) for approval_id in asked]
        told_live = await take(frames, 16)
        await asyncio.gather(*deciding)
    async with following(live, **{"Last-Event-ID": last}) as (frames, _):
        told_again = await take(frames, 16)
    assert [frame.raw for frame in told_live] == [frame.raw for frame in told_again]
    assert {name for event, name in seen(told_live) if event == "approved"} == set(asked)


@pytest.mark.parametrize("text", ["x", "1", "0", "%00", "Zm9v", "é"])
async def test_an_id_that_was_never_given_out_is_refused(service: Service, live: httpx.AsyncClient, text: str) -> None:
    response = await live.get(f"{EVENTS}?after={text}", headers=AS_STREAM)
    assert told(response) == (400, "unknown_event_id")


async def test_an_id_that_was_changed_is_refused(service: Service, live: httpx.AsyncClient) -> None:
    last = await now(service)
    changed = last[:-1] + ("A" if last[-1] != "A" else "B")
    response = await live.get(EVENTS, headers=AS_STREAM | {"Last-Event-ID": changed})
    assert told(response) == (400, "unknown_event_id")


async def test_an_id_of_a_database_that_was_restored_elsewhere_is_refused(
    service: Service, live: httpx.AsyncClient
) -> None:
    tenant_id = TenantId(service.keys.tenant_id)
    async with service.deps.store.begin(tenant_id) as tx:
        incarnation, place, change_id = await tx.last_approval_change()
    elsewhere = seal_place(service.deps.cursors, tenant_id, (incarnation + 1, place, change_id))
    response = await live.get(EVENTS, headers=AS_STREAM | {"Last-Event-ID": elsewhere})
    assert told(response) == (400, "unknown_event_id")


async def test_an_id_of_a_database_that_was_restored_to_an_earlier_state_is_refused(
    service: Service, live: httpx.AsyncClient
) -> None:
    tenant_id = TenantId(service.keys.tenant_id)
    async with service.deps.store.begin(tenant_id) as tx:
        incarnation, _, change_id = await tx.last_approval_change()
    later = seal_place(service.deps.cursors, tenant_id, (incarnation, 2**60, change_id))
    response = await live.get(EVENTS, headers=AS_STREAM | {"Last-Event-ID": later})
    assert told(response) == (400, "unknown_event_id")


async def test_a_cursor_of_the_list_is_no_id_of_the_stream(service: Service, live: httpx.AsyncClient) -> None:
    await ask(service, await service.submit())
    await ask(service, await service.submit())
    cursor = (await live.get("/approvals?limit=1")).json()["next_cursor"]
    assert told(await live.get(f"{EVENTS}?after={cursor}", headers=AS_STREAM)) == (400, "unknown_event_id")


async def test_another_tenants_id_is_refused_and_its_changes_are_not_told(
    service: Service, live: httpx.AsyncClient
) -> None:
    last = await now(service)
    others = with_key(service.others_keys.service)
    response = await live.get(EVENTS, headers=AS_STREAM | others | {"Last-Event-ID": last})
    async with following(live, **others) as (frames, _):
        await ask(service, await service.submit())
        rest = await read_until(frames, lambda frame: frame.comment == "ping")
    assert told(response) == (400, "unknown_event_id")
    assert stored(rest) == []


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/*", "application/json, text/event-stream;q=0.1"])
async def test_it_has_to_be_named_as_a_stream(live: httpx.AsyncClient, accept: str) -> None:
    assert told(await live.get(EVENTS, headers={"Accept": accept})) == (406, "not_acceptable")


async def test_who_asks_for_the_head_alone_is_not_kept(live: httpx.AsyncClient) -> None:
    assert (await live.head(EVENTS, headers=AS_STREAM)).status_code == 406


@pytest.mark.parametrize(
    ("query", "pointer"),
    [("status=open", "/query/status"), ("run_id=x", "/query/run_id"), ("after=a&after=b", "/query/after")],
)
async def test_a_parameter_that_is_wrong_is_pointed_to(live: httpx.AsyncClient, query: str, pointer: str) -> None:
    response = await live.get(f"{EVENTS}?{query}", headers=AS_STREAM)
    assert (response.status_code, pointers(response)) == (422, [pointer])


async def test_a_silent_stream_is_kept_alive_and_ends_with_its_key(
    service: Service, live: httpx.AsyncClient, revoke: Callable[[str], Awaitable[None]]
) -> None:
    approver = with_key(service.keys.approver)
    key_id = (await live.get("/me", headers=approver)).json()["key_id"]
    async with following(live, **approver) as (frames, _):
        assert (await anext(frames)).raw == ": ping"
        await revoke(key_id)
        rest = [frame.comment async for frame in frames]
    assert rest[-1] == "key no longer valid"


async def test_it_says_farewell_when_the_process_goes_away(service: Service, live: httpx.AsyncClient) -> None:
    async with following(live) as (frames, _):
        await anext(frames)
        service.deps.drain.begin()
        rest = [frame.comment async for frame in frames]
    assert rest[-1] == "server going away, reconnect"
    assert told(await live.get(EVENTS, headers=AS_STREAM)) == (503, "draining")


async def test_a_reader_that_leaves_leaves_nothing_behind(service: Service, live: httpx.AsyncClient) -> None:
    async with following(live) as (frames, _):
        await anext(frames)
        assert service.deps.streams.count == 1
    await eventually(lambda: service.deps.streams.count == 0)
    await eventually(lambda: service.feed.readers == 0)


async def test_its_headers_keep_it_out_of_caches(live: httpx.AsyncClient) -> None:
    async with following(live) as (_, response):
        expected = {"cache-control": "no-store", "x-accel-buffering": "no"}
        assert {name: response.headers[name] for name in expected} == expected
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("text", ["\n\n", "\r", "id: 99\nevent: approved\ndata: {}\n\n", "\u2028\x00\x85"])
async def test_no_text_can_end_a_frame_or_begin_another(service: Service, live: httpx.AsyncClient, text: str) -> None:
    async with following(live) as (frames, _):
        approval_id = await ask(service, await service.submit(), reason=text, summary={text: {"value": text}})
        [frame] = await take(frames, 1)
    assert (frame.json["id"], frame.json["reason"], frame.json["summary"]) == (
        approval_id,
        text,
        {text: {"value": text}},
    )
    assert frame.raw.isascii()


async def test_what_nobody_announced_is_found_by_the_slow_poll(service: Service, live: httpx.AsyncClient) -> None:
    async with following(live) as (frames, _):
        await anext(frames)
        # The scribe announces events of runs and no questions.
        approval_id = await ask(service, await service.submit())
        assert seen(await take(frames, 1)) == [("pending", approval_id)]
