"""Runs that a run started: found, cancelled, and read with it as one log."""

import asyncio
from typing import Any

import httpx
import pytest

from app.events import RunState, Warned
from app.ports.store import TenantStore
from tests.api.harness import AS_STREAM, Service, SseFrame, eventually, read_frames, read_until, stored, with_key
from tests.api.questions import ask

CHILDREN = "include=children"


async def load(service: Service, run_id: str) -> Any:
    store: TenantStore = service.deps.store
    async with store.begin(service.keys.tenant_id) as tx:
        return await tx.get_run(run_id)  # type: ignore[arg-type]


async def warn(service: Service, run_id: str, *details: str) -> None:
    await service.scribe.write(run_id, *(Warned(code="test", detail=detail) for detail in details))


async def read_page(service: Service, run_id: str, query: str = "") -> dict[str, Any]:
    response = await service.client.get(f"/runs/{run_id}/events?{CHILDREN}{query}")
    assert response.status_code == 200, response.text
    return dict(response.json())


def ids(page: dict[str, Any]) -> list[str]:
    return [item["id"] for item in page["items"]]


async def read_pages(service: Service, run_id: str, limit: int) -> list[str]:
    """The ids of all pages, each of which has as many as it may or is the last one."""
    page = await read_page(service, run_id, f"&limit={limit}")
    seen = ids(page)
    while page["next_cursor"] is not None:
        assert len(page["items"]) == limit
        page = await read_page(service, run_id, f"&limit={limit}&cursor={page['next_cursor']}")
        seen += ids(page)
    return seen


async def write_family(service: Service) -> tuple[str, str]:
    """A run that called an agent at its third event, which has ended, and went on."""
    run_id = await service.submit()
    await warn(service, run_id, "before")
    child_id = await service.scribe.open_child(run_id)
    await warn(service, child_id, "within")
    await service.scribe.end(child_id)
    await service.scribe.close_call(run_id)
    await service.scribe.end(run_id)
    return run_id, child_id


WHOLE = ["1", "2", "3", "3.1", "3.2", "3.3", "4", "5"]


async def test_a_child_tells_who_started_it_and_is_found_by_that(service: Service) -> None:
    run_id, child_id = await write_family(service)
    child = (await service.client.get(f"/runs/{child_id}")).json()
    assert (child["parent_run_id"], child["depth"], child["path"]) == (run_id, 1, ["planner", "helper"])
    found = (await service.client.get(f"/runs?parent_run_id={run_id}")).json()["items"]
    assert [run["id"] for run in found] == [child_id]


async def test_a_child_is_read_behind_the_call_that_started_it(service: Service) -> None:
    run_id, child_id = await write_family(service)
    page = await read_page(service, run_id)
    assert (ids(page), page["next_cursor"]) == (WHOLE, None)
    assert [item["run_id"] for item in page["items"]] == [run_id] * 3 + [child_id] * 3 + [run_id] * 2
    assert [item["seq"] for item in page["items"]] == [1, 2, 3, 1, 2, 3, 4, 5]


async def test_without_being_asked_for_no_child_is_read(service: Service) -> None:
    run_id, _ = await write_family(service)
    page = (await service.client.get(f"/runs/{run_id}/events")).json()
    assert [item["seq"] for item in page["items"]] == [1, 2, 3, 4, 5]
    assert ["id" in item for item in page["items"]] == [False] * 5


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7])
async def test_pages_join_without_gap_or_repetition(service: Service, limit: int) -> None:
    run_id, _ = await write_family(service)
    assert await read_pages(service, run_id, limit) == WHOLE


@pytest.mark.parametrize("number", range(len(WHOLE)))
async def test_reading_goes_on_behind_any_event(service: Service, number: int) -> None:
    run_id, _ = await write_family(service)
    assert ids(await read_page(service, run_id, f"&after={WHOLE[number]}")) == WHOLE[number + 1 :]


async def test_a_child_of_a_child_is_read_inside_it(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    grandchild_id = await service.scribe.open_child(child_id)
    await service.scribe.end(grandchild_id)
    await service.scribe.end(child_id)
    await service.scribe.end(run_id)
    whole = ["1", "2", "2.1", "2.2", "2.2.1", "2.2.2", "2.3", "3"]
    assert ids(await read_page(service, run_id)) == whole
    assert ids(await read_page(service, run_id, "&after=2.2.1")) == whole[5:]
    assert ids(await read_page(service, child_id)) == ["1", "2", "2.1", "2.2", "3"]


async def test_two_children_at_once_are_read_one_after_the_other(service: Service) -> None:
    run_id = await service.submit()
    one, other = await service.scribe.open_child(run_id), await service.scribe.open_child(run_id, call=2)
    await service.scribe.end(other)
    await service.scribe.end(one)
    await service.scribe.end(run_id)
    assert ids(await read_page(service, run_id)) == ["1", "2", "2.1", "2.2", "3", "3.1", "3.2", "4"]


async def test_a_page_ends_where_a_child_goes_on_and_nothing_behind_it_is_lost(service: Service) -> None:
    run_id = await service.submit()
    one = await service.scribe.open_child(run_id)
    await service.scribe.open_child(run_id, call=2)
    page = await read_page(service, run_id)
    await service.scribe.end(one)
    rest = await read_page(service, run_id, "&after=2.1")
    assert (ids(page), page["next_cursor"]) == (["1", "2", "2.1"], None)
    assert ids(rest) == ["2.2", "3", "3.1"]


async def test_a_call_that_went_out_again_goes_on_with_the_child_that_is_there(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    await service.scribe.dispatch_again(run_id, child_id)
    await service.scribe.end(child_id)
    await service.scribe.end(run_id)
    whole = ["1", "2", "2.1", "2.2", "3", "4"]
    assert ids(await read_page(service, run_id)) == whole
    assert ids(await read_page(service, run_id, "&after=3")) == ["4"]


async def test_a_child_without_an_end_keeps_no_one_who_has_gone_on(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    await warn(service, child_id, "last words")
    await service.scribe.close_call(run_id)
    assert ids(await read_page(service, run_id)) == ["1", "2", "2.1", "2.2", "3"]


async def test_a_child_without_an_end_ends_with_its_root(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    await service.scribe.open_child(child_id)
    await service.scribe.end(run_id, state=RunState.FAILED, error_code="worker_lost", error_detail="")
    assert ids(await read_page(service, run_id)) == ["1", "2", "2.1", "2.2", "2.2.1", "3"]


@pytest.mark.parametrize(
    "after", ["6", "3.4", "4.1", "3.0", "0.1", "03", "3.", ".3", "3..1", "3.3.1", "x", "-1", "3.2147483648", "9" * 12]
)
async def test_a_position_that_never_was_is_refused(service: Service, after: str) -> None:
    run_id, _ = await write_family(service)
    path = f"/runs/{run_id}/events?{CHILDREN}&after={after}"
    page, stream = await service.client.get(path), await service.client.get(path, headers=AS_STREAM)
    assert (page.status_code, page.json()["code"]) == (400, "unknown_event_id")
    assert (stream.status_code, stream.json()["code"]) == (400, "unknown_event_id")


async def test_a_position_in_a_child_is_none_where_no_children_are_asked_for(service: Service) -> None:
    run_id, _ = await write_family(service)
    response = await service.client.get(f"/runs/{run_id}/events?after=3.1")
    assert (response.status_code, response.json()["code"]) == (400, "unknown_event_id")


async def test_a_cursor_is_good_for_the_same_reading_only(service: Service) -> None:
    run_id, _ = await write_family(service)
    cursor = (await read_page(service, run_id, "&limit=1"))["next_cursor"]
    response = await service.client.get(f"/runs/{run_id}/events?cursor={cursor}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


@pytest.mark.parametrize("headers", [{}, AS_STREAM], ids=["page", "stream"])
@pytest.mark.parametrize("value", ["parents", "", "children&include=children"])
async def test_nothing_else_can_be_included(service: Service, value: str, headers: dict[str, str]) -> None:
    run_id = await service.submit()
    response = await service.client.get(f"/runs/{run_id}/events?include={value}", headers=headers)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/query/include")


async def test_a_key_without_the_scope_reads_no_children(service: Service) -> None:
    run_id, child_id = await write_family(service)
    nobody, other = with_key(service.keys.nobody), with_key(service.others_keys.service)
    assert (await service.client.get(f"/runs/{run_id}/events?{CHILDREN}", headers=nobody)).status_code == 403
    assert (await service.client.get(f"/runs/{run_id}/events?{CHILDREN}", headers=other)).status_code == 404
    assert (await service.client.get(f"/runs/{child_id}", headers=other)).status_code == 404
    assert (await service.client.get(f"/runs?parent_run_id={run_id}", headers=other)).json()["items"] == []


async def read_stream(live: httpx.AsyncClient, run_id: str, **headers: str) -> list[SseFrame]:
    async with live.stream("GET", f"/runs/{run_id}/events?{CHILDREN}", headers=AS_STREAM | headers) as response:
        assert response.status_code == 200
        return [frame async for frame in read_frames(response)]


async def test_a_stream_is_the_same_log_with_the_same_ids(service: Service, live: httpx.AsyncClient) -> None:
    run_id, _ = await write_family(service)
    frames = stored(await read_stream(live, run_id))
    items = (await read_page(service, run_id))["items"]
    assert [frame.id for frame in frames] == WHOLE
    assert [{"id": frame.id, **frame.json} for frame in frames] == items


@pytest.mark.parametrize("number", range(len(WHOLE) - 1))
async def test_a_reader_comes_back_to_any_event_and_misses_nothing(
    service: Service, live: httpx.AsyncClient, number: int
) -> None:
    run_id, _ = await write_family(service)
    frames = await read_stream(live, run_id, **{"Last-Event-ID": WHOLE[number]})
    assert [frame.id for frame in stored(frames)] == WHOLE[number + 1 :]


async def test_a_reader_who_has_read_all_is_not_called_back(service: Service) -> None:
    run_id, _ = await write_family(service)
    response = await service.client.get(f"/runs/{run_id}/events?{CHILDREN}&after=5", headers=AS_STREAM)
    assert response.status_code == 204


async def test_a_childs_end_does_not_end_the_stream(service: Service) -> None:
    run_id, _ = await write_family(service)
    assert ids(await read_page(service, run_id, "&after=3.3")) == ["4", "5"]


async def test_a_live_stream_goes_into_a_child_and_back_with_everybodys_text(
    service: Service, live: httpx.AsyncClient
) -> None:
    run_id = await service.submit()
    async with live.stream("GET", f"/runs/{run_id}/events?{CHILDREN}", headers=AS_STREAM) as response:
        frames = read_frames(response)
        child_id = await service.scribe.open_child(run_id)
        opened = await read_until(frames, lambda frame: frame.id == "2.1")
        await service.scribe.say(child_id, "Help", "ed.")
        text = await read_until(frames, lambda frame: "ed." in str(frame.data))
        await service.scribe.answer(child_id, "Helped.")
        await service.scribe.end(child_id)
        await service.scribe.close_call(run_id)
        back = await read_until(frames, lambda frame: frame.id == "3")
        await service.scribe.say(run_id, "Done.", iteration=2)
        last = await read_until(frames, lambda frame: "Done." in str(frame.data))
        await service.scribe.answer(run_id, "Done.", iteration=2)
        await service.scribe.end(run_id)
        rest = [frame async for frame in frames]
    everything = [*opened, *text, *back, *last, *rest]
    deltas = [frame.json for frame in everything if frame.event == "answer_delta"]
    assert [frame.id for frame in stored(everything)] == ["1", "2", "2.1", "2.2", "2.3", "2.4", "3", "4", "5", "6"]
    assert [(delta["run_id"], delta["text"]) for delta in deltas] == [
        (child_id, "Help"),
        (child_id, "ed."),
        (run_id, "Done."),
    ]
    await eventually(lambda: service.feed.readers == 0)


async def test_a_child_that_is_cancelled_is_told_to_its_holder_and_its_parent_goes_on(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    response = await service.client.post(f"/runs/{child_id}/cancel", json={"reason": "enough"})
    assert (response.status_code, response.json()["state"]) == (202, "running")
    child = await load(service, child_id)
    assert (child.cancel_reason, service.feed.cancels_heard()) == ("enough", (child_id,))
    assert (await load(service, run_id)).cancel_requested_at is None


async def test_the_suspended_root_of_a_cancelled_child_is_queued_and_a_worker_is_told(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    await ask(service, child_id)
    await service.scribe.suspend(run_id)
    await service.feed.wait_for_work(0)
    await service.client.post(f"/runs/{child_id}/cancel")
    assert (await load(service, run_id)).state is RunState.QUEUED
    async with asyncio.timeout(5):
        await service.feed.wait_for_work(60)
