"""The rule of two: different persons, one call, one word; and one denial is enough."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.policy import ApprovalKind, ApproverRule
from app.ports.tenancy import OperatorStore
from tests.api.harness import AS_STREAM, Service, read_frames, read_until, stored, with_key
from tests.api.questions import ask, decide, pointers, read, state_of, told
from tests.api.terms import add_person, set_terms
from tests.conftest import DatabaseUrls
from tests.store.support import query

TWO = ApproverRule(approvals=2)


@pytest.fixture
async def people(service: Service, admin: OperatorStore) -> list[str]:
    """Keys of ada, bob and eve, in a tenant in which two have to approve."""
    await set_terms(admin, service, approvers=[TWO])
    return [await add_person(admin, service, name, "staff") for name in ("ada", "bob", "eve")]


async def asked(service: Service, **about: Any) -> str:
    return await ask(service, await service.submit(), **about)


async def test_the_first_who_approves_leaves_it_open(service: Service, people: list[str]) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    response = await decide(service, approval_id, by=people[0])
    told_now = response.json()
    assert (response.status_code, told_now["status"], told_now["decision"]) == (202, "pending", None)
    assert (told_now["approvals_needed"], told_now["approved_by"]) == (2, ["ada"])
    assert told_now == await read(service, approval_id)
    assert await state_of(service, run_id) == "suspended"


async def test_the_second_one_decides(service: Service, people: list[str]) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    await decide(service, approval_id, by=people[1], reason="looks right")
    response = await decide(service, approval_id, by=people[0], reason="checked")
    approval = response.json()
    assert (response.status_code, approval["status"], approval["approved_by"]) == (200, "approved", ["bob", "ada"])
    assert (approval["decision"]["decided_by"], approval["decision"]["reason"]) == ("ada", "checked")
    assert approval == await read(service, approval_id)
    assert await state_of(service, run_id) == "queued"


async def test_a_list_tells_who_has_approved(service: Service, people: list[str]) -> None:
    first, second = await asked(service), await asked(service)
    await decide(service, first, by=people[0])
    items = (await service.client.get("/approvals")).json()["items"]
    assert [(item["id"], item["approvals_needed"], item["approved_by"]) for item in items] == [
        (second, 2, []),
        (first, 2, ["ada"]),
    ]


async def test_the_same_person_again_changes_nothing(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    first = await decide(service, approval_id, by=people[0])
    again = await decide(service, approval_id, by=people[0])
    assert (again.status_code, again.json()) == (202, first.json())


async def test_the_same_person_with_another_key_is_no_second_one(
    service: Service, admin: OperatorStore, people: list[str]
) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    other_key = await add_person(admin, service, "ada", "board")
    assert (await decide(service, approval_id, by=other_key)).status_code == 202
    assert (await read(service, approval_id))["approved_by"] == ["ada"]


async def test_who_asked_for_the_run_is_no_second_one(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    assert told(await decide(service, approval_id, by=service.keys.service)) == (403, "self_approval")


async def test_each_of_the_two_may_say_it_again_afterwards(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    decided = (await decide(service, approval_id, by=people[1])).json()
    again = [await decide(service, approval_id, by=key) for key in people[:2]]
    assert [(answer.status_code, answer.json()) for answer in again] == [(200, decided)] * 2


async def test_a_third_one_is_too_late(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    await decide(service, approval_id, by=people[1])
    response = await decide(service, approval_id, by=people[2])
    assert told(response) == (409, "approval_already_decided")
    assert response.json()["decided_by"] == "bob"


async def test_one_denial_decides_though_somebody_has_approved(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    approval = (await decide(service, approval_id, "deny", by=people[1])).json()
    assert (approval["status"], approval["decision"]["decided_by"]) == ("denied", "bob")
    assert (approval["approvals_needed"], approval["approved_by"]) == (2, ["ada"])


async def test_who_has_approved_may_still_deny(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    approval = (await decide(service, approval_id, "deny", by=people[0])).json()
    assert (approval["status"], approval["approved_by"]) == ("denied", [])


async def test_who_had_approved_what_was_denied_is_told_that_it_was(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    await decide(service, approval_id, "deny", by=people[1])
    assert told(await decide(service, approval_id, by=people[0])) == (409, "approval_already_decided")
    assert told(await decide(service, approval_id, "deny", by=people[0])) == (409, "approval_already_decided")


async def test_arguments_are_not_changed_where_two_have_to_approve(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, by=people[0], arguments={"amount": 5})
    assert (told(response), pointers(response)) == ((422, "arguments_not_editable"), ["/arguments"])
    assert (await read(service, approval_id))["approved_by"] == []


async def test_an_outcome_needs_two_who_tell_the_same(service: Service, people: list[str]) -> None:
    approval_id = await asked(service, kind=ApprovalKind.OUTCOME)
    first = await decide(service, approval_id, "succeeded", by=people[0])
    second = await decide(service, approval_id, "succeeded", by=people[1])
    assert (first.status_code, second.status_code) == (202, 200)
    assert second.json()["approved_by"] == ["ada", "bob"]
    assert second.json()["decision"]["decision"] == "succeeded"


async def test_another_outcome_than_the_first_ones_is_refused_and_he_is_named(
    service: Service, people: list[str]
) -> None:
    approval_id = await asked(service, kind=ApprovalKind.OUTCOME)
    await decide(service, approval_id, "succeeded", by=people[0])
    response = await decide(service, approval_id, "failed", by=people[1])
    assert told(response) == (409, "approvals_differ")
    assert "ada has said: succeeded" in response.json()["detail"]
    assert (await read(service, approval_id))["approved_by"] == ["ada"]


async def test_who_was_first_may_think_again(service: Service, people: list[str]) -> None:
    approval_id = await asked(service, kind=ApprovalKind.OUTCOME)
    await decide(service, approval_id, "succeeded", by=people[0])
    again = await decide(service, approval_id, "failed", by=people[0])
    decided = await decide(service, approval_id, "failed", by=people[1])
    assert (again.status_code, again.json()["approved_by"]) == (202, ["ada"])
    assert (decided.status_code, decided.json()["decision"]["decision"]) == (200, "failed")


async def test_a_rule_about_one_tool_leaves_the_others_to_one_person(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, approvers=[ApproverRule(tools=("pay",), approvals=2)])
    run_id = await service.submit()
    wire = await ask(service, run_id, waits=False, tool="wire")
    pay = await ask(service, run_id, call=2, tool="pay")
    answers = [await decide(service, approval_id) for approval_id in (wire, pay)]
    assert [answer.status_code for answer in answers] == [200, 202]


async def test_both_have_to_be_of_the_group_that_the_rule_names(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, approvers=[ApproverRule(groups=("finance",), approvals=2)])
    one, two = [await add_person(admin, service, name, "finance") for name in ("one", "two")]
    approval_id = await asked(service)
    await decide(service, approval_id, by=one)
    assert told(await decide(service, approval_id)) == (403, "not_an_approver")
    assert (await decide(service, approval_id, by=two)).json()["approved_by"] == ["one", "two"]


async def test_names_may_be_any_text(service: Service, admin: OperatorStore, people: list[str]) -> None:
    odd = await add_person(admin, service, "o\x00d \x1a0d \N{GRINNING FACE}", "g\x00 \x1a")
    await set_terms(admin, service, approvers=[ApproverRule(groups=("g\x00 \x1a", "staff"), approvals=2)])
    approval_id = await asked(service)
    first = (await decide(service, approval_id, by=odd)).json()
    second = (await decide(service, approval_id, by=people[0])).json()
    assert first["approved_by"] == ["o\x00d \x1a0d \N{GRINNING FACE}"]
    assert second["approved_by"] == [*first["approved_by"], "ada"]


# --- what happens between the two ------------------------------------------------------------------------------------


async def test_the_time_may_run_out_between_the_two(
    service: Service, people: list[str], api_urls: DatabaseUrls
) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    await expire(api_urls, approval_id)
    assert told(await decide(service, approval_id, by=people[1])) == (410, "approval_expired")
    approval = await read(service, approval_id)
    assert (approval["status"], approval["decision"], approval["approved_by"]) == ("expired", None, ["ada"])


async def expire(urls: DatabaseUrls, approval_id: str) -> None:
    statement = "UPDATE approvals SET expires_at = clock_timestamp() WHERE approval_id = $1"
    await query(urls.superuser_url, statement, approval_id)


async def test_the_run_may_be_cancelled_between_the_two(service: Service, people: list[str]) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    await decide(service, approval_id, by=people[0])
    await service.client.post(f"/runs/{run_id}/cancel")
    assert told(await decide(service, approval_id, by=people[1])) == (409, "approval_cancelled")


async def test_where_one_is_enough_by_now_the_next_one_decides(
    service: Service, admin: OperatorStore, people: list[str]
) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    await set_terms(admin, service, approvers=[])
    approval = (await decide(service, approval_id, by=people[1])).json()
    assert (approval["approvals_needed"], approval["approved_by"]) == (1, ["ada", "bob"])


async def test_where_one_is_enough_by_now_the_first_one_may_decide(
    service: Service, admin: OperatorStore, people: list[str]
) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    await set_terms(admin, service, approvers=[])
    response = await decide(service, approval_id, by=people[0])
    assert (response.status_code, response.json()["approved_by"]) == (200, ["ada"])


async def test_where_one_is_enough_by_now_he_may_change_the_arguments_and_approves_alone(
    service: Service, admin: OperatorStore, people: list[str]
) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    await set_terms(admin, service, approvers=[])
    approval = (await decide(service, approval_id, by=people[1], arguments={"amount": 5})).json()
    assert (approval["status"], approval["approved_by"]) == ("approved", ["bob"])


async def test_whom_the_rules_do_not_name_any_more_does_not_count(
    service: Service, admin: OperatorStore, people: list[str]
) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    await set_terms(admin, service, approvers=[ApproverRule(subjects=("bob", "eve"), approvals=2)])
    between = await read(service, approval_id)
    first = await decide(service, approval_id, by=people[1])
    second = await decide(service, approval_id, by=people[2])
    assert between["approved_by"] == []
    assert (first.status_code, first.json()["approved_by"]) == (202, ["bob"])
    assert (second.status_code, second.json()["approved_by"]) == (200, ["bob", "eve"])


async def test_the_requester_does_not_count_once_nobody_may_approve_his_own(
    service: Service, admin: OperatorStore, people: list[str]
) -> None:
    await set_terms(admin, service, allow_self_approval=True)
    approval_id = await asked(service)
    await decide(service, approval_id, by=service.keys.service)
    await set_terms(admin, service, allow_self_approval=False)
    response = await decide(service, approval_id, by=people[0])
    assert (response.status_code, response.json()["approved_by"]) == (202, ["ada"])


async def test_another_outcome_of_one_who_does_not_count_is_in_nobodys_way(
    service: Service, admin: OperatorStore, people: list[str]
) -> None:
    approval_id = await asked(service, kind=ApprovalKind.OUTCOME)
    await decide(service, approval_id, "succeeded", by=people[0])
    await set_terms(admin, service, approvers=[ApproverRule(subjects=("bob", "eve"), approvals=2)])
    answers = [await decide(service, approval_id, "failed", by=key) for key in people[1:]]
    assert [answer.status_code for answer in answers] == [202, 200]


async def test_a_stream_tells_of_the_decision_and_who_made_it(
    service: Service, live: httpx.AsyncClient, people: list[str]
) -> None:
    async with live.stream("GET", "/approvals/events", headers=AS_STREAM) as response:
        approval_id = await asked(service)
        await decide(service, approval_id, by=people[0])
        await decide(service, approval_id, by=people[1])
        async with asyncio.timeout(10):
            frames = stored(await read_until(read_frames(response), lambda frame: frame.event == "approved"))
    assert [(frame.event, frame.json["approvals_needed"], frame.json["approved_by"]) for frame in frames] == [
        ("pending", 2, []),
        ("approved", 2, ["ada", "bob"]),
    ]


# --- what is kept of it ----------------------------------------------------------------------------------------------


async def test_no_other_tenant_learns_that_somebody_has_approved(service: Service, people: list[str]) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    other = with_key(service.others_keys.colleague)
    known = await service.client.get(f"/approvals/{approval_id}", headers=other)
    listed = await service.client.get("/approvals", headers=other)
    assert (told(known), listed.json()["items"]) == ((404, "not_found"), [])
    assert told(await decide(service, approval_id, by=service.others_keys.colleague)) == (404, "not_found")


async def test_what_was_said_goes_with_the_run(service: Service, people: list[str], api_urls: DatabaseUrls) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    await decide(service, approval_id, by=people[0])
    before = await query(api_urls.superuser_url, "SELECT FROM approval_votes WHERE approval_id = $1", approval_id)
    await service.client.post(f"/runs/{run_id}/cancel")
    service.scribe.claims.clear()
    await service.scribe.end(run_id)
    erased = await service.client.delete(f"/runs/{run_id}")
    after = await query(api_urls.superuser_url, "SELECT FROM approval_votes WHERE approval_id = $1", approval_id)
    assert (len(before), erased.status_code, len(after)) == (1, 204, 0)


async def test_the_audit_trail_tells_who_said_what(service: Service, people: list[str], api_urls: DatabaseUrls) -> None:
    approval_id = await asked(service)
    await decide(service, approval_id, by=people[0])
    await decide(service, approval_id, by=people[1])
    rows = await query(
        api_urls.superuser_url,
        "SELECT action, actor, details FROM audit WHERE target = $1 ORDER BY audit_id",
        approval_id,
    )
    told_of = [(row["action"], row["actor"], json.loads(row["details"])["decision"]) for row in rows]
    assert told_of == [("approval.voted", "ada", "approve"), ("approval.decided", "bob", "approve")]
