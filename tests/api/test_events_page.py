"""GET /runs/{id}/events as JSON: pages of what was committed, oldest first."""

import re

import pytest

from app.events import ToolCalled, Warned
from app.ids import CallId
from app.policy import Effect
from tests.api.harness import Service, with_key


async def warn(service: Service, run_id: str, *details: str) -> None:
    await service.scribe.write(run_id, *(Warned(code="test", detail=detail) for detail in details))


async def test_events_are_read_oldest_first_with_their_place_in_the_log(service: Service) -> None:
    run_id = await service.submit()
    await warn(service, run_id, "one", "two")
    page = (await service.client.get(f"/runs/{run_id}/events")).json()
    assert [(item["seq"], item["kind"], item["detail"]) for item in page["items"]] == [
        (1, "run_queued", ""),
        (2, "warning", "one"),
        (3, "warning", "two"),
    ]
    assert page["next_cursor"] is None


async def test_an_event_has_the_members_that_the_contract_names(service: Service) -> None:
    run_id = await service.submit()
    call = ToolCalled(
        iteration=2, author="planner", call_id=CallId("call_2_1"), name="pay", arguments={"sum": 5}, effect=Effect.ONCE
    )
    await service.scribe.write(run_id, call)
    event = (await service.client.get(f"/runs/{run_id}/events?after=1")).json()["items"][0]
    at = event.pop("at")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", at)
    assert event == {
        "seq": 2,
        "run_id": run_id,
        "kind": "tool_call",
        "invocation_id": run_id,
        "v": 2,
        "iteration": 2,
        "author": "planner",
        "actions": {},
        "final": False,
        "detail": "",
        "call_id": "call_2_1",
        "name": "pay",
        "arguments": {"sum": 5},
        "effect": "once",
        "dispatch": 1,
        "child_run_id": None,
    }


async def test_pages_join_without_gap_or_repetition(service: Service) -> None:
    run_id = await service.submit()
    await warn(service, run_id, *map(str, range(6)))
    path = f"/runs/{run_id}/events"
    first = (await service.client.get(f"{path}?limit=3")).json()
    second = (await service.client.get(f"{path}?limit=3&cursor={first['next_cursor']}")).json()
    third = (await service.client.get(f"{path}?limit=3&cursor={second['next_cursor']}")).json()
    assert [item["seq"] for page in (first, second, third) for item in page["items"]] == [1, 2, 3, 4, 5, 6, 7]
    assert third["next_cursor"] is None


async def test_a_page_begins_after_the_event_that_is_named(service: Service) -> None:
    run_id = await service.submit()
    await warn(service, run_id, "one", "two")
    page = (await service.client.get(f"/runs/{run_id}/events?after=2")).json()
    assert [item["seq"] for item in page["items"]] == [3]


async def test_after_the_last_event_there_is_nothing_yet(service: Service) -> None:
    run_id = await service.submit()
    assert (await service.client.get(f"/runs/{run_id}/events?after=1")).json() == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("after", ["2", "-1", "x", "1.0", "99999999999999"])
async def test_an_event_id_that_the_run_never_had_is_refused(service: Service, after: str) -> None:
    run_id = await service.submit()
    response = await service.client.get(f"/runs/{run_id}/events?after={after}")
    assert (response.status_code, response.json()["code"]) == (400, "unknown_event_id")


async def test_a_cursor_of_another_run_is_refused(service: Service) -> None:
    one, other = await service.submit(), await service.submit()
    await warn(service, one, "x")
    cursor = (await service.client.get(f"/runs/{one}/events?limit=1")).json()["next_cursor"]
    response = await service.client.get(f"/runs/{other}/events?cursor={cursor}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


async def test_a_cursor_and_a_place_at_once_are_refused(service: Service) -> None:
    run_id = await service.submit()
    await warn(service, run_id, "x")
    cursor = (await service.client.get(f"/runs/{run_id}/events?limit=1")).json()["next_cursor"]
    assert (await service.client.get(f"/runs/{run_id}/events?cursor={cursor}&after=0")).status_code == 422


async def test_a_key_without_the_scope_reads_no_events(service: Service) -> None:
    run_id = await service.submit()
    response = await service.client.get(f"/runs/{run_id}/events", headers=with_key(service.keys.nobody))
    assert response.status_code == 403


async def test_any_text_of_an_event_comes_out_unharmed(service: Service) -> None:
    run_id = await service.submit()
    text = "\x00 \x1a0 \\u0000 \u2028 \N{GRINNING FACE} </script>"
    await warn(service, run_id, text)
    page = (await service.client.get(f"/runs/{run_id}/events?after=1")).json()
    assert page["items"][0]["detail"] == text
