"""GET /events and GET /approvals/events: where a stream over all of a tenant begins, goes on and ends."""

from collections.abc import Awaitable, Callable

import httpx
import pytest

from app.api import ApiConfig
from tests.api.harness import AS_STREAM, Service, eventually, read_until, stored, with_key
from tests.api.tenant_streams import APPROVALS, EVENTS, TenantStream, take


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.3, poll_seconds=0.3)


@pytest.fixture(params=[APPROVALS, EVENTS], ids=["approvals", "events"])
def stream(request: pytest.FixtureRequest) -> TenantStream:
    found: TenantStream = request.param
    return found


async def test_it_begins_with_what_comes_from_now_on(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    await stream.happen(service)
    async with stream.follow(live) as (frames, _):
        later = await stream.happen(service)
        assert stream.see_all(await take(frames, 1)) == [later]


async def test_the_first_frame_says_where_it_begins_so_that_who_is_cut_off_at_once_misses_nothing(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    async with live.stream("GET", stream.path, headers=AS_STREAM) as response:
        lines = response.aiter_lines()
        first = await anext(lines), await anext(lines)
    missed = await stream.happen(service)
    rest = await stream.follow_behind(live, first[1].removeprefix("id: "), 1)
    assert stream.see_all(rest) == [missed]
    assert first[0] == "retry: 3000"


async def test_coming_back_behind_each_id_shows_exactly_what_followed(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    last, happened = await stream.some(service)
    whole = await stream.follow_behind(live, last, len(happened))
    rests = [
        await stream.follow_behind(live, frame.id, len(happened) - place) for place, frame in enumerate(whole, start=1)
    ]
    assert stream.see_all(whole) == happened
    assert rests == [whole[place:] for place in range(1, len(whole) + 1)]


async def test_the_place_may_stand_in_the_address_and_the_header_wins(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    last, happened = await stream.some(service)
    async with stream.follow(live, f"?after={last}") as (frames, _):
        whole = await take(frames, len(happened))
    async with stream.follow(live, f"?after={last}", **{"Last-Event-ID": str(whole[-3].id)}) as (frames, _):
        assert stream.see_all(await take(frames, 2)) == happened[-2:]


async def test_an_id_is_good_for_any_filter(service: Service, live: httpx.AsyncClient, stream: TenantStream) -> None:
    last, happened = await stream.some(service)
    async with stream.follow(live, stream.narrowed, **{"Last-Event-ID": last}) as (frames, _):
        [found] = await take(frames, 1)
    rest = happened[stream.narrowed_to + 1 :]
    assert stream.see(found) == happened[stream.narrowed_to]
    assert stream.see_all(await stream.follow_behind(live, found.id, len(rest))) == rest


async def test_more_than_a_page_is_told_whole(service: Service, live: httpx.AsyncClient, stream: TenantStream) -> None:
    last = await stream.now(service)
    happened = await stream.happen_often(service)
    whole = await stream.follow_behind(live, last, len(happened))
    assert stream.see_all(whole) == happened
    assert len({frame.id for frame in whole}) == len(happened)


@pytest.mark.parametrize("text", ["x", "1", "0", "%00", "Zm9v", "é"])
async def test_an_id_that_was_never_given_out_is_refused(
    live: httpx.AsyncClient, stream: TenantStream, text: str
) -> None:
    assert await stream.refuse(live, f"?after={text}") == (400, "unknown_event_id")


async def test_an_id_that_was_changed_is_refused(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    last = await stream.now(service)
    changed = last[:-4] + ("AAAA" if last[-4:] != "AAAA" else "BBBB")
    assert await stream.refuse(live, **{"Last-Event-ID": changed}) == (400, "unknown_event_id")


async def test_an_id_of_a_database_that_was_restored_elsewhere_is_refused(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    here = (await service.deps.store.event_frontier()).now
    elsewhere = stream.seal(service, here.cluster + 1, here.turn)
    assert await stream.refuse(live, **{"Last-Event-ID": elsewhere}) == (400, "unknown_event_id")


async def test_an_id_of_a_database_that_was_restored_to_an_earlier_state_is_refused(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    here = (await service.deps.store.event_frontier()).now
    later = stream.seal(service, here.cluster, 2**60)
    assert await stream.refuse(live, **{"Last-Event-ID": later}) == (400, "unknown_event_id")


async def test_another_tenants_id_is_refused_and_what_happens_there_is_not_told(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    last = await stream.now(service)
    others = with_key(service.others_keys.service)
    refused = await stream.refuse(live, **others, **{"Last-Event-ID": last})
    async with stream.follow(live, **others) as (frames, _):
        await stream.happen(service)
        rest = await read_until(frames, lambda frame: frame.comment == "ping")
    assert refused == (400, "unknown_event_id")
    assert stored(rest) == []


async def test_an_id_of_the_other_stream_is_refused(service: Service, live: httpx.AsyncClient) -> None:
    ids = [(APPROVALS, await EVENTS.now(service)), (EVENTS, await APPROVALS.now(service))]
    answers = [await stream.refuse(live, f"?after={other}") for stream, other in ids]
    assert answers == [(400, "unknown_event_id")] * 2


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/*", "application/json, text/event-stream;q=0.1"])
async def test_it_has_to_be_named_as_a_stream(live: httpx.AsyncClient, stream: TenantStream, accept: str) -> None:
    assert await stream.refuse(live, Accept=accept) == (406, "not_acceptable")


async def test_who_asks_for_the_head_alone_is_not_kept(live: httpx.AsyncClient, stream: TenantStream) -> None:
    assert (await live.head(stream.path, headers=AS_STREAM)).status_code == 406


async def test_a_silent_stream_is_kept_alive_and_ends_with_its_key(
    service: Service, live: httpx.AsyncClient, revoke: Callable[[str], Awaitable[None]], stream: TenantStream
) -> None:
    key = with_key(service.keys.colleague)
    key_id = (await live.get("/me", headers=key)).json()["key_id"]
    async with stream.follow(live, **key) as (frames, _):
        assert (await anext(frames)).raw == ": ping"
        await revoke(key_id)
        rest = [frame.comment async for frame in frames]
    assert rest[-1] == "key no longer valid"


async def test_it_says_farewell_when_the_process_goes_away(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    async with stream.follow(live) as (frames, _):
        await anext(frames)
        service.deps.drain.begin()
        rest = [frame.comment async for frame in frames]
    assert rest[-1] == "server going away, reconnect"
    assert await stream.refuse(live) == (503, "draining")


async def test_a_reader_that_leaves_leaves_nothing_behind(
    service: Service, live: httpx.AsyncClient, stream: TenantStream
) -> None:
    async with stream.follow(live) as (frames, _):
        await anext(frames)
        assert (service.deps.streams.count, service.feed.readers) == (1, 1)
    await eventually(lambda: (service.deps.streams.count, service.feed.readers) == (0, 0))


async def test_its_headers_keep_it_out_of_caches(live: httpx.AsyncClient, stream: TenantStream) -> None:
    async with stream.follow(live) as (_, response):
        expected = {"cache-control": "no-store", "x-accel-buffering": "no"}
        assert {name: response.headers[name] for name in expected} == expected
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
