"""GET /approvals/events: every status that an approval takes, in the order of the commits and without a gap."""

import asyncio

import httpx
import pytest

from app.api import ApiConfig
from tests.api.harness import AS_STREAM, Service
from tests.api.questions import ask, decide, pointers, read
from tests.api.tenant_streams import APPROVALS, take


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(ping_seconds=0.3, poll_seconds=0.3)


async def test_each_change_is_a_frame_named_by_the_status_with_the_approval_as_it_became(
    service: Service, live: httpx.AsyncClient
) -> None:
    async with APPROVALS.follow(live) as (frames, _):
        approval_id = await ask(service, await service.submit())
        before = await read(service, approval_id)
        [pending] = await take(frames, 1)
        await decide(service, approval_id, reason="fine")
        [approved] = await take(frames, 1)
    after = await read(service, approval_id)
    assert (pending.event, pending.json) == ("pending", before | {"at": before["requested_at"]})
    assert (approved.event, approved.json) == ("approved", after | {"at": after["decision"]["decided_at"]})


async def test_a_change_that_was_told_as_pending_stays_so_when_it_is_read_again(
    service: Service, live: httpx.AsyncClient
) -> None:
    last = await APPROVALS.now(service)
    approval_id = await ask(service, await service.submit())
    await decide(service, approval_id)
    pending, approved = await APPROVALS.follow_behind(live, last, 2)
    assert (pending.json["status"], pending.json["decision"]) == ("pending", None)
    assert approved.json["decision"]["decision"] == "approve"


async def test_only_changes_to_the_named_statuses_are_told(service: Service, live: httpx.AsyncClient) -> None:
    last, changes = await APPROVALS.some(service)
    query = f"?status=denied&status=approved&after={last}"
    async with APPROVALS.follow(live, query) as (frames, _):
        assert APPROVALS.see_all(await take(frames, 2)) == changes[3:5]
        later = await ask(service, await service.submit())
        await decide(service, later)
        assert APPROVALS.see_all(await take(frames, 1)) == [("approved", later)]


async def test_changes_are_told_in_the_order_of_their_commits_whoever_makes_them(
    service: Service, live: httpx.AsyncClient
) -> None:
    last = await APPROVALS.now(service)
    run_ids = [await service.submit() for _ in range(8)]
    asked = [await ask(service, run_id) for run_id in run_ids]
    async with APPROVALS.follow(live, **{"Last-Event-ID": last}) as (frames, _):
        deciding = [asyncio.create_task(decide(service, approval_id)) for approval_id in asked]
        told_live = await take(frames, 16)
        await asyncio.gather(*deciding)
    told_again = await APPROVALS.follow_behind(live, last, 16)
    assert [frame.raw for frame in told_live] == [frame.raw for frame in told_again]
    assert {name for event, name in APPROVALS.see_all(told_live) if event == "approved"} == set(asked)


async def test_a_cursor_of_the_list_is_no_id_of_the_stream(service: Service, live: httpx.AsyncClient) -> None:
    await ask(service, await service.submit())
    await ask(service, await service.submit())
    cursor = (await live.get("/approvals?limit=1")).json()["next_cursor"]
    assert await APPROVALS.refuse(live, f"?after={cursor}") == (400, "unknown_event_id")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [("status=open", "/query/status"), ("run_id=x", "/query/run_id"), ("after=a&after=b", "/query/after")],
)
async def test_a_parameter_that_is_wrong_is_pointed_to(live: httpx.AsyncClient, query: str, pointer: str) -> None:
    response = await live.get(f"{APPROVALS.path}?{query}", headers=AS_STREAM)
    assert (response.status_code, pointers(response)) == (422, [pointer])


@pytest.mark.parametrize("text", ["\n\n", "\r", "id: 99\nevent: approved\ndata: {}\n\n", "\u2028\x00\x85"])
async def test_no_text_can_end_a_frame_or_begin_another(service: Service, live: httpx.AsyncClient, text: str) -> None:
    async with APPROVALS.follow(live) as (frames, _):
        approval_id = await ask(service, await service.submit(), reason=text, summary={text: {"value": text}})
        [frame] = await take(frames, 1)
    assert (frame.json["id"], frame.json["reason"], frame.json["summary"]) == (
        approval_id,
        text,
        {text: {"value": text}},
    )
    assert frame.raw.isascii()


async def test_what_nobody_announced_is_found_by_the_slow_poll(service: Service, live: httpx.AsyncClient) -> None:
    async with APPROVALS.follow(live) as (frames, _):
        await anext(frames)
        # The scribe announces events of runs and no questions.
        approval_id = await ask(service, await service.submit())
        assert APPROVALS.see_all(await take(frames, 1)) == [("pending", approval_id)]
