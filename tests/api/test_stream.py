"""The event stream: what is stored, in order and without a gap, and between it the text as it is written."""

import random
from typing import Any

import httpx
import pytest

from app.events import Warned
from app.ids import RunId
from tests.api.harness import (
    AS_STREAM,
    Service,
    SseFrame,
    answer,
    eventually,
    read_frames,
    read_until,
    stored,
    with_key,
)

SEED = 20260131


async def read_all(live: httpx.AsyncClient, run_id: str, *, after: str | None = None) -> list[SseFrame]:
    headers = AS_STREAM | ({} if after is None else {"Last-Event-ID": after})
    async with live.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
        assert response.status_code == 200
        return [frame async for frame in read_frames(response)]


async def write_long_run(service: Service, run_id: str, turns: int) -> None:
    for iteration in range(1, turns + 1):
        await service.scribe.say(run_id, *"text ", iteration=iteration)
        await service.scribe.write(run_id, answer("text ", iteration=iteration), Warned(code="test"))
    await service.scribe.end(run_id)


def raw(frames: list[SseFrame]) -> list[str]:
    return [frame.raw for frame in stored(frames)]


async def test_a_stream_replays_goes_on_live_and_closes_after_the_end(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        first = await anext(frames)
        await service.scribe.say(run_id, "In ", "May.")
        live_text = await read_until(frames, lambda frame: frame.event == "answer_delta" and "May" in str(frame.data))
        await service.scribe.answer(run_id, "In May.")
        await service.scribe.end(run_id)
        rest = [frame async for frame in frames]
    assert (first.id, first.event) == ("1", "run_queued")
    assert [(frame.id, frame.event) for frame in stored([*live_text, *rest])] == [
        ("2", "model_call"),
        ("3", "model_response"),
        ("4", "terminated"),
    ]
    assert "".join(frame.json["text"] for frame in live_text if frame.event == "answer_delta") == "In May."


async def test_a_stream_begins_with_its_headers_and_when_to_come_back(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    response = await live.get(f"/runs/{run_id}/events", headers=AS_STREAM)
    assert response.text.startswith("retry: 3000\n\nid: 1\nevent: run_queued\ndata: {")
    assert response.text.count("retry:") == 1
    expected = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
    assert {name: response.headers[name] for name in expected} == expected
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_a_stored_frame_is_the_event_as_the_page_has_it(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    await write_long_run(service, run_id, turns=2)
    frames = await read_all(live, run_id)
    page = (await live.get(f"/runs/{run_id}/events")).json()["items"]
    assert [frame.json for frame in frames] == page
    assert [(frame.id, frame.event) for frame in frames] == [(str(item["seq"]), item["kind"]) for item in page]


async def test_ids_increase_without_a_gap_and_each_one_leads_to_exactly_what_follows(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    await write_long_run(service, run_id, turns=100)
    whole = raw(await read_all(live, run_id))
    assert [frame.partition("\n")[0] for frame in whole] == [f"id: {seq}" for seq in range(1, 303)]
    places = random.Random(SEED).sample(range(1, 302), 20)
    resumed = [raw(await read_all(live, run_id, after=str(place))) for place in places]
    assert resumed == [whole[place:] for place in places]


async def test_a_stream_that_is_dropped_ten_times_shows_what_an_uninterrupted_one_shows(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    await write_long_run(service, run_id, turns=20)
    whole = raw(await read_all(live, run_id))
    seen = await read_with_drops(live, run_id, drops=10)
    assert seen == whole
    assert sum("event: terminated" in frame for frame in seen) == 1


async def read_with_drops(live: httpx.AsyncClient, run_id: str, *, drops: int) -> list[str]:
    """Drops the stream at a random stored event, so many times, and each time comes back with the last id."""
    seen: list[str] = []
    for stop_after in random.Random(SEED).choices(range(1, 6), k=drops):
        seen += raw(await read_part(live, run_id, after=len(seen), stop_after=stop_after))
    return seen + raw(await read_all(live, run_id, after=str(len(seen))))


async def read_part(live: httpx.AsyncClient, run_id: str, *, after: int, stop_after: int) -> list[SseFrame]:
    path = f"/runs/{run_id}/events?after={after}"
    async with live.stream("GET", path, headers=AS_STREAM) as response:
        return await read_until(read_frames(response), lambda frame: frame.id == str(after + stop_after))


async def test_a_stream_can_be_opened_closed_and_opened_again_and_the_run_goes_on(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    opened = [await read_part(live, run_id, after=0, stop_after=1) for _ in range(5)]
    await eventually(lambda: service.feed.readers == 0)
    run = (await live.get(f"/runs/{run_id}")).json()
    assert [len(frames) for frames in opened] == [1] * 5
    assert (run["state"], run["cancel_requested_at"]) == ("queued", None)


async def test_coming_back_after_the_end_is_told_to_stay_away(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    response = await live.get(f"/runs/{run_id}/events", headers=AS_STREAM | {"Last-Event-ID": "2"})
    assert (response.status_code, response.content) == (204, b"")


@pytest.mark.parametrize("place", ["3", "-1", "x"])
async def test_coming_back_with_an_id_that_the_run_never_had_is_refused(
    service: Service, live: httpx.AsyncClient, place: str
) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    response = await live.get(f"/runs/{run_id}/events", headers=AS_STREAM | {"Last-Event-ID": place})
    assert (response.status_code, response.json()["code"]) == (400, "unknown_event_id")


async def test_the_header_wins_over_the_address_which_an_event_source_keeps(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    await service.scribe.write(run_id, Warned(code="test"), Warned(code="test"))
    await service.scribe.end(run_id)
    response = await live.get(f"/runs/{run_id}/events?after=1", headers=AS_STREAM | {"Last-Event-ID": "3"})
    assert "id: 4\n" in response.text
    assert "id: 3\n" not in response.text


async def test_who_joins_in_the_middle_first_gets_the_text_so_far(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    await service.scribe.say(run_id, "In ", "May")
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        joined = await read_until(frames, lambda frame: frame.event == "answer_snapshot")
        service.feed.announce_text(RunId(run_id), iteration=1, attempt=1, text=", or June")
        delta = await anext(frames)
    assert joined[-1].json == {"iteration": 1, "attempt": 1, "text": "In May"}
    assert (delta.event, delta.json) == (
        "answer_delta",
        {"iteration": 1, "attempt": 1, "offset": 6, "text": ", or June"},
    )
    assert (joined[-1].id, delta.id) == (None, None)


async def test_a_new_attempt_begins_with_an_empty_text(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    await service.scribe.say(run_id, "In ")
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        await read_until(frames, lambda frame: frame.event == "answer_snapshot")
        service.feed.announce_text(RunId(run_id), iteration=1, attempt=2, text="On ")
        again = [await anext(frames), await anext(frames)]
    assert [(frame.event, frame.json["attempt"], frame.json["text"]) for frame in again] == [
        ("answer_snapshot", 2, ""),
        ("answer_delta", 2, "On "),
    ]


async def test_text_that_a_stored_answer_has_overtaken_is_not_shown_again(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    await service.scribe.say(run_id, "In May.")
    await service.scribe.answer(run_id, "In May.")
    # The feed still has the text, and tells it to whoever joins.
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        replayed = await read_until(frames, lambda frame: frame.event == "model_response")
        await service.scribe.end(run_id)
        rest = [frame async for frame in frames]
    assert [frame.event for frame in replayed] == ["run_queued", "model_call", "model_response"]
    assert [frame.event for frame in rest] == ["terminated"]


@pytest.mark.parametrize(
    "text", ["\n\n", "\r", "id: 99\nevent: terminated\ndata: {}\n\n", "\u2028\x00\x85", "\N{GRINNING FACE}"]
)
async def test_no_text_can_end_a_frame_or_begin_another(service: Service, live: httpx.AsyncClient, text: str) -> None:
    run_id = await service.submit()
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        await anext(frames)
        await service.scribe.say(run_id, text)
        said = await read_until(frames, lambda frame: frame.event == "answer_delta")
        await service.scribe.write(run_id, Warned(code="test", detail=text))
        await service.scribe.end(run_id)
        rest = [frame async for frame in frames]
    assert said[-1].json["text"] == text
    assert [frame.event for frame in rest] == ["warning", "terminated"]
    assert rest[0].json["detail"] == text
    assert all(frame.raw.isascii() for frame in [*said, *rest])


async def test_submitting_with_a_stream_as_the_answer_follows_the_new_run(
    service: Service, live: httpx.AsyncClient
) -> None:
    await service.put_agent()
    body = {"agent": "planner", "input": "x"}
    async with live.stream("POST", "/runs", json=body, headers=AS_STREAM) as response:
        frames = read_frames(response)
        run_id = (await anext(frames)).json["run_id"]
        await service.scribe.end(run_id)
        rest = [frame async for frame in frames]
    assert response.status_code == 200
    assert response.headers["location"] == f"/runs/{run_id}"
    assert response.headers["content-location"] == f"/runs/{run_id}/events"
    assert [frame.event for frame in rest] == ["terminated"]


@pytest.mark.parametrize("accept", ["*/*", "text/*", "application/json", "application/json, text/event-stream;q=0.1"])
async def test_json_is_answered_where_no_stream_is_named(
    service: Service, live: httpx.AsyncClient, accept: str
) -> None:
    run_id = await service.submit()
    response = await live.get(f"/runs/{run_id}/events", headers={"Accept": accept})
    assert response.headers["content-type"] == "application/json"


async def test_what_nobody_announced_is_found_by_the_slow_poll(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    async with live.stream("GET", f"/runs/{run_id}/events", headers=AS_STREAM) as response:
        frames = read_frames(response)
        await anext(frames)
        await service.scribe.end_silently(run_id)
        rest: list[Any] = [frame async for frame in frames]
    assert [frame.event for frame in rest] == ["terminated"]


async def test_another_tenants_stream_is_not_found(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    headers = AS_STREAM | with_key(service.others_keys.service)
    assert (await live.get(f"/runs/{run_id}/events", headers=headers)).status_code == 404


async def test_a_stream_takes_no_parameters_but_its_place(service: Service, live: httpx.AsyncClient) -> None:
    run_id = await service.submit()
    assert (await live.get(f"/runs/{run_id}/events?limit=5", headers=AS_STREAM)).status_code == 422
