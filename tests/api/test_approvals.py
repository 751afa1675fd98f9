"""GET /approvals and GET /approvals/{id}: what people are asked, and never the arguments."""

import json
from typing import Any

import pytest

from app.events import RunState
from app.ids import RunId
from app.policy import ApprovalKind
from tests.api.harness import Service, with_key
from tests.api.questions import ARGUMENTS, DIGEST, SUMMARY, ask, decide, new_question, pointers, put_question, read


async def listed(service: Service, query: str = "", *, by: str | None = None) -> list[str]:
    headers = {} if by is None else with_key(by)
    response = await service.client.get(f"/approvals{query}", headers=headers)
    assert response.status_code == 200, response.text
    return [item["id"] for item in response.json()["items"]]


async def three(service: Service) -> list[str]:
    """Questions of three runs, the oldest first."""
    return [await ask(service, await service.submit()) for _ in range(3)]


async def test_an_approval_tells_what_is_asked_and_nothing_of_the_arguments(service: Service) -> None:
    run_id = await service.submit(user="ada")
    approval_id = await ask(service, run_id, flagged=True)
    approval = await read(service, approval_id)
    assert {name: approval[name] for name in approval if name not in ("requested_at", "expires_at")} == {
        "id": approval_id,
        "run_id": run_id,
        "root_run_id": run_id,
        "agent": "planner",
        "tool": "wire",
        "call_id": "call_1_1",
        "kind": "call",
        "dispatch": 1,
        "status": "pending",
        "arguments_digest": DIGEST,
        "summary": SUMMARY,
        "reason": "money moves",
        "flagged": True,
        "user": "ada",
        "approvals_needed": 1,
        "approved_by": [],
        "decision": None,
    }
    assert str(ARGUMENTS["iban"]) not in json.dumps(approval)


async def test_its_times_are_instants_and_it_may_have_no_end(service: Service) -> None:
    for_ever = await read(service, await ask(service, await service.submit(), ttl_seconds=None))
    an_hour = await read(service, await ask(service, await service.submit(), ttl_seconds=3600))
    assert for_ever["expires_at"] is None
    assert an_hour["requested_at"] < an_hour["expires_at"]
    assert an_hour["requested_at"].endswith("Z")


async def test_a_question_of_a_run_below_another_one_names_both(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    approval = await read(service, await ask(service, child_id, agent="helper"))
    assert (approval["run_id"], approval["root_run_id"], approval["agent"]) == (child_id, run_id, "helper")


async def test_the_newest_comes_first(service: Service) -> None:
    asked = await three(service)
    assert await listed(service) == asked[::-1]


async def test_pages_lead_through_all_of_them_once(service: Service) -> None:
    asked = await three(service)
    first = (await service.client.get("/approvals?limit=2")).json()
    second = (await service.client.get(f"/approvals?limit=2&cursor={first['next_cursor']}")).json()
    assert [item["id"] for item in first["items"] + second["items"]] == asked[::-1]
    assert second["next_cursor"] is None


async def test_questions_of_one_instant_are_all_listed(service: Service) -> None:
    run_id = await service.submit()
    asked = [new_question(call=call) for call in (1, 2, 3)]
    await put_question(service, run_id, *asked)
    first = (await service.client.get("/approvals?limit=2")).json()
    second = (await service.client.get(f"/approvals?limit=2&cursor={first['next_cursor']}")).json()
    assert {item["id"] for item in first["items"] + second["items"]} == {new.approval_id for new in asked}


async def test_a_cursor_is_good_for_its_filter_and_tenant_only(service: Service) -> None:
    await three(service)
    cursor = (await service.client.get("/approvals?limit=1&tool=wire")).json()["next_cursor"]
    other_filter = await service.client.get(f"/approvals?limit=1&tool=pay&cursor={cursor}")
    headers = with_key(service.others_keys.service)
    other_tenant = await service.client.get(f"/approvals?limit=1&tool=wire&cursor={cursor}", headers=headers)
    assert [answer.status_code for answer in (other_filter, other_tenant)] == [400, 400]
    assert other_filter.json()["code"] == "invalid_cursor"


async def test_conditions_hold_together(service: Service) -> None:
    first, second, _ = await three(service)
    run_id = (await read(service, second))["run_id"]
    await decide(service, first)
    assert await listed(service, f"?run_id={run_id}&status=pending&agent=planner&tool=wire") == [second]
    assert await listed(service, f"?run_id={run_id}&status=approved") == []


async def test_a_status_may_be_asked_for_together_with_others(service: Service) -> None:
    first, second, third = await three(service)
    await decide(service, first)
    await decide(service, second, "deny")
    assert await listed(service, "?status=approved&status=denied") == [second, first]
    assert await listed(service, "?status=pending") == [third]


async def test_a_root_finds_the_questions_of_the_runs_below_it(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    below = await ask(service, child_id, agent="helper")
    assert await listed(service, f"?run_id={run_id}") == [below]
    assert await listed(service, f"?run_id={child_id}") == [below]


@pytest.mark.parametrize(
    "query",
    ["run_id=x", "run_id=%00", "agent=No%20Name", "agent=%00", "tool=%00", "tool=%F0%9F%98%80", "tool=fly", "agent="],
)
async def test_what_no_approval_can_have_finds_none(service: Service, query: str) -> None:
    await three(service)
    assert await listed(service, f"?{query}") == []


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("status=open", "/query/status"),
        ("status=", "/query/status"),
        ("limit=0", "/query/limit"),
        ("limit=201", "/query/limit"),
        ("tool=a&tool=b", "/query/tool"),
        ("subject=ada", "/query/subject"),
    ],
)
async def test_a_parameter_that_is_wrong_is_pointed_to(service: Service, query: str, pointer: str) -> None:
    response = await service.client.get(f"/approvals?{query}")
    assert (response.status_code, pointers(response)) == (422, [pointer])


async def test_one_whose_time_is_over_is_expired_before_anybody_wrote_it_down(service: Service) -> None:
    approval_id = await ask(service, await service.submit(), ttl_seconds=-1)
    approval = await read(service, approval_id)
    assert (approval["status"], approval["decision"]) == ("expired", None)
    assert await listed(service, "?status=expired") == [approval_id]
    assert await listed(service, "?status=pending") == []


async def test_an_outcome_is_asked_about_as_such(service: Service) -> None:
    approval = await read(service, await ask(service, await service.submit(), kind=ApprovalKind.OUTCOME, dispatch=2))
    assert (approval["kind"], approval["dispatch"]) == ("outcome", 2)


async def test_another_tenants_approvals_are_not_there(service: Service) -> None:
    approval_id = await ask(service, await service.submit())
    others = service.others_keys.service
    assert await listed(service, by=others) == []
    assert (await service.client.get(f"/approvals/{approval_id}", headers=with_key(others))).status_code == 404


@pytest.mark.parametrize(
    "name", ["apr_0123456789abcdefghjkmnpqrs", "x", "%00", "run_0123456789abcdefghjkmnpqrs", "%2e"]
)
async def test_what_is_no_approvals_id_is_not_found(service: Service, name: str) -> None:
    response = await service.client.get(f"/approvals/{name}")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_who_may_read_approvals_need_not_read_runs(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    approver = with_key(service.keys.approver)
    assert (await service.client.get(f"/approvals/{approval_id}", headers=approver)).status_code == 200
    assert (await service.client.get(f"/runs/{run_id}", headers=approver)).status_code == 403


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\N{GRINNING FACE}", "\u202e", "line\nline", "x" * 5000])
async def test_whatever_text_a_question_has_is_read_back(service: Service, text: str) -> None:
    summary: dict[str, Any] = {text: {"value": text}}
    approval_id = await ask(service, await service.submit(), reason=text, summary=summary)
    approval = await read(service, approval_id)
    assert (approval["reason"], approval["summary"]) == (text, summary)


async def test_a_run_that_ends_leaves_no_open_question(service: Service) -> None:
    run_id = await service.submit()
    asked = new_question()
    await put_question(service, run_id, asked)
    await service.scribe.end(run_id, state=RunState.FAILED)
    assert (await read(service, asked.approval_id))["status"] == "cancelled"


async def test_the_run_names_what_it_waits_for_the_oldest_first(service: Service) -> None:
    run_id = await service.submit()
    first = await ask(service, run_id, waits=False, call=1)
    second = await ask(service, run_id, call=2)
    run = (await service.client.get(f"/runs/{run_id}")).json()
    assert (run["state"], run["waiting_for"]) == ("suspended", [first, second])
    (in_list,) = (await service.client.get("/runs?state=suspended")).json()["items"]
    assert in_list["waiting_for"] == [first, second]


async def test_a_run_waits_for_the_questions_of_those_below_it_and_they_for_their_own(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    below = await ask(service, child_id, agent="helper")
    own = await ask(service, run_id, call=2)
    root = (await service.client.get(f"/runs/{run_id}")).json()
    child = (await service.client.get(f"/runs/{child_id}")).json()
    assert (root["waiting_for"], child["waiting_for"]) == ([below, own], [below])


async def test_a_run_that_goes_on_waits_for_nothing(service: Service) -> None:
    run_id = await service.submit()
    await ask(service, run_id, waits=False)
    assert (await service.client.get(f"/runs/{run_id}")).json()["waiting_for"] == []


async def test_a_cancel_withdraws_the_questions(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    run = (await service.client.post(f"/runs/{run_id}/cancel")).json()
    assert (run["state"], run["waiting_for"]) == ("queued", [])
    assert (await read(service, approval_id))["status"] == "cancelled"


async def test_submitting_again_with_the_key_of_a_suspended_run_tells_what_it_waits_for(service: Service) -> None:
    await service.put_agent()
    body, headers = {"agent": "planner", "input": "x"}, {"Idempotency-Key": "k-1"}
    run_id = (await service.client.post("/runs", json=body, headers=headers)).json()["id"]
    approval_id = await ask(service, RunId(run_id))
    again = await service.client.post("/runs", json=body, headers=headers)
    assert (again.json()["id"], again.json()["waiting_for"]) == (run_id, [approval_id])
