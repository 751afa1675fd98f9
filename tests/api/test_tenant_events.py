"""GET /events: what happens in all of a tenant's runs, in the order of the commits and without a gap."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import httpx
import pytest

from app.api import ApiConfig
from app.events import Warned
from app.ids import TenantId
from app.ports.tenant_events import EventPlace
from app.service.tenant_stream import seal_event_place
from tests.api.harness import AS_STREAM, Service, SseFrame, eventually, read_frames, read_until, stored, with_key
from tests.api.questions import pointers, told

EVENTS = "/events"


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.3, poll_seconds=0.3)


@contextlib.asynccontextmanager
async def following(
    live: httpx.AsyncClient, query: str = "", **headers: str
) -> AsyncIterator[tuple[AsyncIterator[SseFrame], httpx.Response]]:
    async with live.stream("GET", f"{EVENTS}{query}", headers=AS_STREAM | headers) as response:
        assert response.status_code == 200, await response.aread()
        yield read_frames(response), response


async def take(frames: AsyncIterator[SseFrame], number: int) -> list[SseFrame]:
    """So many events; the pings between them are left out."""
    taken: list[SseFrame] = []
    async with asyncio.timeout(10):
        while len(taken) < number:
            taken += stored([await anext(frames)])
    return taken


def seen(frames: list[SseFrame]) -> list[tuple[str, int]]:
    return [(frame.json["run_id"], frame.json["seq"]) for frame in frames]


async def now(service: Service) -> str:
    """An id behind which everything comes that a test does."""
    frontier = await service.deps.store.event_frontier()
    return seal_event_place(service.deps.cursors, TenantId(service.keys.tenant_id), frontier.now)


async def some_events(service: Service) -> tuple[str, list[tuple[str, int]]]:
    """An id behind which they come, and nine events of three runs."""
    last = await now(service)
    runs = [await service.submit() for _ in range(3)]
    await service.scribe.write(runs[1], Warned(code="a", detail=""), Warned(code="b", detail=""))
    await service.scribe.write(runs[0], Warned(code="c", detail=""))
    await service.scribe.end(runs[1])
    await service.scribe.end(runs[0])
    await service.scribe.end(runs[2])
    queued = [(run_id, 1) for run_id in runs]
    ends = [(runs[1], 4), (runs[0], 3), (runs[2], 2)]
    return last, [*queued, (runs[1], 2), (runs[1], 3), (runs[0], 2), *ends]


async def test_each_event_is_a_frame_as_its_runs_own_stream_has_it(service: Service, live: httpx.AsyncClient) -> None:
    async with following(live) as (frames, _):
        run_id = await service.submit()
        await service.scribe.end(run_id)
        told_of_all = await take(frames, 2)
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        told_of_one = stored([frame async for frame in read_frames(response)])
    assert [(frame.event, frame.data) for frame in told_of_all] == [(frame.event, frame.data) for frame in told_of_one]
    assert [frame.event for frame in told_of_all] == ["run_queued", "terminated"]


async def test_it_begins_with_what_comes_from_now_on(service: Service, live: httpx.AsyncClient) -> None:
    await service.submit()
    async with following(live) as (frames, _):
        later = await service.submit()
        assert seen(await take(frames, 1)) == [(later, 1)]


async def test_the_first_frame_says_where_it_begins_so_that_who_is_cut_off_at_once_misses_nothing(
    service: Service, live: httpx.AsyncClient
) -> None:
    async with live.stream("GET", EVENTS, headers=AS_STREAM) as response:
        lines = response.aiter_lines()
        first = await anext(lines), await anext(lines)
    missed = await service.submit()
    async with following(live, **{"Last-Event-ID": first[1].removeprefix("id: ")}) as (frames, _):
        assert seen(await take(frames, 1)) == [(missed, 1)]
    assert first[0] == "retry: 3000"


async def test_coming_back_behind_each_id_shows_exactly_what_followed(
    service: Service, live: httpx.AsyncClient
) -> None:
    last, events = await some_events(service)
    async with following(live, **{"Last-Event-ID": last}) as (frames, _):
        whole = await take(frames, len(events))
    behind = [await rest_behind(live, str(frame.id), len(events) - place) for place, frame in enumerate(whole, 1)]
    assert seen(whole) == events
    assert behind == [[frame.raw for frame in whole[place:]] for place in range(1, len(whole) + 1)]


async def rest_behind(live: httpx.AsyncClient, place: str, number: int) -> list[str]:
    async with following(live, **{"Last-Event-ID": place}) as (frames, _):
        return [frame.raw for frame in await take(frames, number)]


async def test_the_place_may_stand_in_the_address_and_the_header_wins(
    service: Service, live: httpx.AsyncClient
) -> None:
    last, events = await some_events(service)
    async with following(live, f"?after={last}") as (frames, _):
        whole = await take(frames, len(events))
    async with following(live, f"?after={last}", **{"Last-Event-ID": str(whole[6].id)}) as (frames, _):
        assert seen(await take(frames, 2)) == events[7:]


async def test_only_events_of_the_named_kinds_are_told(service: Service, live: httpx.AsyncClient) -> None:
    last, events = await some_events(service)
    async with following(live, f"?kind=terminated&kind=run_queued&after={last}") as (frames, _):
        assert seen(await take(frames, 6)) == [*events[:3], *events[6:]]
        later = await service.submit()
        assert seen(await take(frames, 1)) == [(later, 1)]


async def test_only_events_of_the_named_agents_runs_are_told(service: Service, live: httpx.AsyncClient) -> None:
    await service.put_agent("writer")
    await service.put_agent("reader")
    async with following(live, "?agent=writer&agent=reader") as (frames, _):
        await service.submit()
        runs = [await service.submit(agent=name) for name in ("reader", "writer")]
        assert seen(await take(frames, 2)) == [(run_id, 1) for run_id in runs]


async def test_an_id_is_good_for_any_filter(service: Service, live: httpx.AsyncClient) -> None:
    last, events = await some_events(service)
    async with following(live, "?kind=terminated", **{"Last-Event-ID": last}) as (frames, _):
        [ended] = await take(frames, 1)
    async with following(live, **{"Last-Event-ID": str(ended.id)}) as (frames, _):
        assert seen(await take(frames, 2)) == events[7:]


async def test_more_than_a_page_of_events_is_told_whole(service: Service, live: httpx.AsyncClient) -> None:
    last = await now(service)
    run_id = await service.submit()
    await service.scribe.write(run_id, *(Warned(code="w", detail=str(number)) for number in range(250)))
    async with following(live, **{"Last-Event-ID": last}) as (frames, _):
        whole = await take(frames, 251)
    assert seen(whole) == [(run_id, seq) for seq in range(1, 252)]
    assert len({frame.id for frame in whole}) == 251


async def test_what_is_not_wanted_is_passed_over_page_by_page(service: Service, live: httpx.AsyncClient) -> None:
    last = await now(service)
    run_id = await service.submit()
    await service.scribe.write(run_id, *(Warned(code="w", detail="") for _ in range(1100)))
    await service.scribe.end(run_id)
    async with following(live, f"?kind=terminated&after={last}") as (frames, _):
        assert seen(await take(frames, 1)) == [(run_id, 1102)]


async def test_events_of_runs_that_are_written_at_once_are_told_once_each_to_all_and_in_one_order(
    service: Service, live: httpx.AsyncClient
) -> None:
    last = await now(service)
    runs = [await service.submit() for _ in range(8)]
    async with following(live, f"?after={last}") as (first, _), following(live, f"?after={last}") as (second, _):
        ending = [asyncio.create_task(service.scribe.end(run_id)) for run_id in runs]
        live_frames = await asyncio.gather(take(first, 16), take(second, 16))
        await asyncio.gather(*ending)
    async with following(live, **{"Last-Event-ID": last}) as (frames, _):
        again = [frame.raw for frame in await take(frames, 16)]
    assert [[frame.raw for frame in frames] for frames in live_frames] == [again, again]
    assert set(seen(live_frames[0])) == {(run_id, seq) for run_id in runs for seq in (1, 2)}


@pytest.mark.parametrize("text", ["x", "1", "0", "%00", "Zm9v", "é"])
async def test_an_id_that_was_never_given_out_is_refused(service: Service, live: httpx.AsyncClient, text: str) -> None:
    response = await live.get(f"{EVENTS}?after={text}", headers=AS_STREAM)
    assert told(response) == (400, "unknown_event_id")


async def test_an_id_that_was_changed_is_refused(service: Service, live: httpx.AsyncClient) -> None:
    last = await now(service)
    changed = last[:-4] + ("AAAA" if last[-4:] != "AAAA" else "BBBB")
    response = await live.get(EVENTS, headers=AS_STREAM | {"Last-Event-ID": changed})
    assert told(response) == (400, "unknown_event_id")


@pytest.mark.parametrize("change", [lambda place: replace(place, cluster=1), lambda place: replace(place, turn=2**60)])
async def test_an_id_of_a_database_that_was_restored_elsewhere_or_to_an_earlier_state_is_refused(
    service: Service, live: httpx.AsyncClient, change: Callable[[EventPlace], EventPlace]
) -> None:
    place = change((await service.deps.store.event_frontier()).now)
    sealed = seal_event_place(service.deps.cursors, TenantId(service.keys.tenant_id), place)
    response = await live.get(EVENTS, headers=AS_STREAM | {"Last-Event-ID": sealed})
    assert told(response) == (400, "unknown_event_id")


async def test_another_tenants_id_is_refused_and_its_events_are_not_told(
    service: Service, live: httpx.AsyncClient
) -> None:
    last = await now(service)
    others = with_key(service.others_keys.service)
    response = await live.get(EVENTS, headers=AS_STREAM | others | {"Last-Event-ID": last})
    async with following(live, **others) as (frames, _):
        await service.submit()
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
    [
        ("kind=deltas", "/query/kind"),
        ("kind=", "/query/kind"),
        ("agent=No%20name", "/query/agent"),
        ("agent=a%00", "/query/agent"),
        ("run_id=x", "/query/run_id"),
        ("after=a&after=b", "/query/after"),
    ],
)
async def test_a_parameter_that_is_wrong_is_pointed_to(live: httpx.AsyncClient, query: str, pointer: str) -> None:
    response = await live.get(f"{EVENTS}?{query}", headers=AS_STREAM)
    assert (response.status_code, pointers(response)) == (422, [pointer])


async def test_it_needs_the_right_to_read_runs(service: Service, live: httpx.AsyncClient) -> None:
    response = await live.get(EVENTS, headers=AS_STREAM | with_key(service.keys.approver))
    assert told(response) == (403, "missing_scope")


async def test_a_silent_stream_is_kept_alive_and_ends_with_its_key(
    service: Service, live: httpx.AsyncClient, revoke: Callable[[str], Awaitable[None]]
) -> None:
    reader = with_key(service.keys.reader)
    key_id = (await live.get("/me", headers=reader)).json()["key_id"]
    async with following(live, **reader) as (frames, _):
        assert (await anext(frames)).raw == ": ping"
        await revoke(key_id)
        async with asyncio.timeout(10):
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
        assert (service.deps.streams.count, service.feed.readers) == (1, 1)
    await eventually(lambda: service.deps.streams.count == 0)
    await eventually(lambda: service.feed.readers == 0)


async def test_its_headers_keep_it_out_of_caches(live: httpx.AsyncClient) -> None:
    async with following(live) as (_, response):
        expected = {"cache-control": "no-store", "x-accel-buffering": "no"}
        assert {name: response.headers[name] for name in expected} == expected
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"


@pytest.mark.parametrize("text", ["\n\n", "\r", "id: 99\nevent: terminated\ndata: {}\n\n", "\u2028\x00\x85"])
async def test_no_text_can_end_a_frame_or_begin_another(service: Service, live: httpx.AsyncClient, text: str) -> None:
    run_id = await service.submit()
    async with following(live) as (frames, _):
        await service.scribe.write(run_id, Warned(code="w", detail=text))
        [frame] = await take(frames, 1)
    assert frame.json["detail"] == text
    assert frame.raw.isascii()


async def test_what_nobody_announced_is_found_by_the_slow_poll(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    async with following(live) as (frames, _):
        await anext(frames)
        await service.scribe.end_silently(run_id)
        assert seen(await take(frames, 1)) == [(run_id, 2)]
