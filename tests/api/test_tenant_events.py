"""GET /events: what happens in all of a tenant's runs, in the order of the commits and without a gap."""

import asyncio

import httpx
import pytest

from app.api import ApiConfig
from app.events import Warned
from tests.api.harness import AS_STREAM, Service, read_frames, stored, with_key
from tests.api.questions import pointers
from tests.api.tenant_streams import EVENTS, take


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.3, poll_seconds=0.3)


async def test_each_event_is_a_frame_as_its_runs_own_stream_has_it(service: Service, live: httpx.AsyncClient) -> None:
    async with EVENTS.follow(live) as (frames, _):
        run_id = await service.submit()
        await service.scribe.end(run_id)
        told_of_all = await take(frames, 2)
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        told_of_one = stored([frame async for frame in read_frames(response)])
    assert [(frame.event, frame.data) for frame in told_of_all] == [(frame.event, frame.data) for frame in told_of_one]
    assert [frame.event for frame in told_of_all] == ["run_queued", "terminated"]


async def test_only_events_of_the_named_kinds_are_told(service: Service, live: httpx.AsyncClient) -> None:
    last, events = await EVENTS.some(service)
    async with EVENTS.follow(live, f"?kind=terminated&kind=run_queued&after={last}") as (frames, _):
        assert EVENTS.see_all(await take(frames, 6)) == [*events[:3], *events[6:]]
        later = await service.submit()
        assert EVENTS.see_all(await take(frames, 1)) == [(later, 1)]


async def test_only_events_of_the_named_agents_runs_are_told(service: Service, live: httpx.AsyncClient) -> None:
    await service.put_agent("writer")
    await service.put_agent("reader")
    async with EVENTS.follow(live, "?agent=writer&agent=reader") as (frames, _):
        await service.submit()
        runs = [await service.submit(agent=name) for name in ("reader", "writer")]
        assert EVENTS.see_all(await take(frames, 2)) == [(run_id, 1) for run_id in runs]


async def test_what_is_not_wanted_is_passed_over_page_by_page(service: Service, live: httpx.AsyncClient) -> None:
    last = await EVENTS.now(service)
    run_id = await service.submit()
    await service.scribe.write(run_id, *(Warned(code="w", detail="") for _ in range(1100)))
    await service.scribe.end(run_id)
    async with EVENTS.follow(live, f"?kind=terminated&after={last}") as (frames, _):
        assert EVENTS.see_all(await take(frames, 1)) == [(run_id, 1102)]


async def test_events_of_runs_that_are_written_at_once_are_told_once_each_to_all_and_in_one_order(
    service: Service, live: httpx.AsyncClient
) -> None:
    last = await EVENTS.now(service)
    runs = [await service.submit() for _ in range(8)]
    query = f"?after={last}"
    async with EVENTS.follow(live, query) as (first, _), EVENTS.follow(live, query) as (second, _):
        ending = [asyncio.create_task(service.scribe.end(run_id)) for run_id in runs]
        live_frames = await asyncio.gather(take(first, 16), take(second, 16))
        await asyncio.gather(*ending)
    again = await EVENTS.follow_behind(live, last, 16)
    assert list(live_frames) == [again, again]
    assert set(EVENTS.see_all(live_frames[0])) == {(run_id, seq) for run_id in runs for seq in (1, 2)}


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
    response = await live.get(f"{EVENTS.path}?{query}", headers=AS_STREAM)
    assert (response.status_code, pointers(response)) == (422, [pointer])


async def test_it_needs_the_right_to_read_runs(service: Service, live: httpx.AsyncClient) -> None:
    assert await EVENTS.refuse(live, **with_key(service.keys.approver)) == (403, "missing_scope")


@pytest.mark.parametrize("text", ["\n\n", "\r", "id: 99\nevent: terminated\ndata: {}\n\n", "\u2028\x00\x85"])
async def test_no_text_can_end_a_frame_or_begin_another(service: Service, live: httpx.AsyncClient, text: str) -> None:
    run_id = await service.submit()
    async with EVENTS.follow(live) as (frames, _):
        await service.scribe.write(run_id, Warned(code="w", detail=text))
        [frame] = await take(frames, 1)
    assert frame.json["detail"] == text
    assert frame.raw.isascii()


async def test_what_nobody_announced_is_found_by_the_slow_poll(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    async with EVENTS.follow(live) as (frames, _):
        await anext(frames)
        await service.scribe.end_silently(run_id)
        assert EVENTS.see_all(await take(frames, 1)) == [(run_id, 2)]
