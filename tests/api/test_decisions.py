"""POST /approvals/{id}/decision: applied once, to the call that was asked about, or refused and nothing moves."""

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import httpx
import pytest

from app.policy import ApprovalKind
from tests.api.harness import JSON_TYPE, Service, with_key
from tests.api.questions import ARGUMENTS, DIGEST, ask, decide, pointers, read, state_of, told
from tests.conftest import DatabaseUrls

OTHER_DIGEST = "0" * 64


async def asked(service: Service, **about: Any) -> str:
    return await ask(service, await service.submit(), **about)


async def test_a_decision_is_the_keys_subjects_and_answers_the_approval(service: Service) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, reason="the customer called")
    approval = response.json()
    me = (await service.client.get("/me", headers=with_key(service.keys.colleague))).json()
    assert (response.status_code, approval["status"]) == (200, "approved")
    assert {name: approval["decision"][name] for name in approval["decision"] if name != "decided_at"} == {
        "decision": "approve",
        "decided_by": me["subject"],
        "reason": "the customer called",
        "edited_digest": None,
    }
    assert approval == await read(service, approval_id)


async def test_a_denial_is_one_too(service: Service) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, "deny")
    assert (response.json()["status"], response.json()["decision"]["decision"]) == ("denied", "deny")


async def test_the_decision_queues_the_run_and_a_worker_is_told(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    await service.feed.wait_for_work(0)
    await decide(service, approval_id)
    assert await state_of(service, run_id) == "queued"
    async with asyncio.timeout(5):
        await service.feed.wait_for_work(60)


async def test_the_run_waits_until_its_last_question_is_decided(service: Service) -> None:
    run_id = await service.submit()
    first = await ask(service, run_id, waits=False, call=1)
    second = await ask(service, run_id, call=2)
    await decide(service, first)
    after_one = (await service.client.get(f"/runs/{run_id}")).json()
    await decide(service, second, "deny")
    assert (after_one["state"], after_one["waiting_for"]) == ("suspended", [second])
    assert await state_of(service, run_id) == "queued"


async def test_the_root_waits_for_the_questions_of_the_runs_below_it(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    below = await ask(service, child_id, agent="helper")
    own = await ask(service, run_id, call=2)
    await decide(service, own)
    after_one = await state_of(service, run_id)
    await decide(service, below)
    assert (after_one, await state_of(service, run_id), await state_of(service, child_id)) == (
        "suspended",
        "queued",
        "suspended",
    )


async def test_a_decision_before_the_run_was_suspended_is_not_lost(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id, waits=False)
    await decide(service, approval_id)
    await service.scribe.suspend(run_id)
    assert await state_of(service, run_id) == "queued"


async def test_the_same_decision_by_the_same_subject_again_changes_nothing(service: Service) -> None:
    approval_id = await asked(service)
    first = await decide(service, approval_id, reason="first")
    await service.feed.wait_for_work(0)
    again = await decide(service, approval_id, reason="second")
    assert (again.status_code, again.json()) == (200, first.json())


@pytest.mark.parametrize("other", [{"decision": "deny"}, {"by": "approver"}, {"arguments": {"amount": 11}}])
async def test_any_other_decision_on_a_decided_one_says_who_was_first_and_when(
    service: Service, other: dict[str, Any]
) -> None:
    approval_id = await asked(service)
    first = (await decide(service, approval_id)).json()
    by = getattr(service.keys, other.pop("by", "colleague"))
    response = await decide(service, approval_id, **other, by=by)
    assert told(response) == (409, "approval_already_decided")
    assert response.json()["decided_by"] == first["decision"]["decided_by"]
    assert response.json()["decided_at"] == first["decision"]["decided_at"]
    assert await read(service, approval_id) == first


async def test_of_twenty_clients_at_once_one_is_applied_and_the_others_are_told_which(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    keys = (service.keys.colleague, service.keys.approver)
    words = ("approve", "deny")
    answers = await asyncio.gather(
        *(decide(service, approval_id, words[n // 2 % 2], by=keys[n % 2]) for n in range(20))
    )
    approval = await read(service, approval_id)
    won = [answer for answer in answers if answer.status_code == 200]
    lost = [answer for answer in answers if answer.status_code != 200]
    assert all(answer.json() == approval for answer in won)
    assert len(won) == 5
    assert {(told(answer), answer.json()["decided_by"]) for answer in lost} == {
        ((409, "approval_already_decided"), approval["decision"]["decided_by"])
    }


async def test_twenty_equal_decisions_at_once_are_one(service: Service, api_urls: DatabaseUrls) -> None:
    approval_id = await asked(service)
    answers = await asyncio.gather(*(decide(service, approval_id) for _ in range(20)))
    assert Counter(answer.status_code for answer in answers) == {200: 20}
    assert await changes(api_urls, approval_id) == ["pending", "approved"]


async def changes(urls: DatabaseUrls, approval_id: str) -> list[str]:
    connection = await asyncpg.connect(urls.superuser_url)
    rows = await connection.fetch(
        "SELECT status FROM approval_changes WHERE approval_id = $1 ORDER BY xid, change_id", approval_id
    )
    await connection.close()
    return [row["status"] for row in rows]


async def test_decisions_on_all_questions_of_a_run_at_once_queue_it_once(service: Service) -> None:
    run_id = await service.submit()
    first = [await ask(service, run_id, waits=False, call=call) for call in range(1, 10)]
    last = await ask(service, run_id, call=10)
    answers = await asyncio.gather(*(decide(service, approval_id) for approval_id in [*first, last]))
    assert {answer.status_code for answer in answers} == {200}
    assert await state_of(service, run_id) == "queued"


async def test_a_cancel_and_decisions_at_once_leave_one_of_the_two(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    cancel = service.client.post(f"/runs/{run_id}/cancel")
    cancelled, *decided = await asyncio.gather(cancel, *(decide(service, approval_id) for _ in range(10)))
    status = (await read(service, approval_id))["status"]
    codes = {answer.status_code for answer in decided}
    assert (cancelled.status_code, await state_of(service, run_id)) == (202, "queued")
    assert (status, codes) in [("approved", {200}), ("cancelled", {409})]


async def test_who_asked_for_the_run_does_not_decide(service: Service) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, by=service.keys.service)
    assert told(response) == (403, "self_approval")
    assert (await read(service, approval_id))["status"] == "pending"


async def test_who_asked_for_the_root_does_not_decide_for_the_runs_below_it(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    approval_id = await ask(service, child_id, agent="helper")
    assert told(await decide(service, approval_id, by=service.keys.service)) == (403, "self_approval")


async def test_a_tenant_may_allow_it(service: Service, api_urls: DatabaseUrls) -> None:
    approval_id = await asked(service)
    connection = await asyncpg.connect(api_urls.superuser_url)
    await connection.execute(
        "UPDATE tenants SET allow_self_approval = true WHERE tenant_id = $1", service.keys.tenant_id
    )
    await connection.close()
    response = await decide(service, approval_id, by=service.keys.service)
    assert (response.status_code, response.json()["status"]) == (200, "approved")


async def test_a_key_without_a_subject_does_not_decide(service: Service) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, by=service.keys.anonymous)
    assert told(response) == (403, "no_subject")
    assert (await read(service, approval_id))["status"] == "pending"


async def test_a_digest_of_another_call_is_refused(service: Service) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, arguments_digest=OTHER_DIGEST)
    assert (told(response), pointers(response)) == ((422, "approval_digest_mismatch"), ["/arguments_digest"])
    assert (await read(service, approval_id))["status"] == "pending"


@pytest.mark.parametrize("digest", ["", "x", DIGEST.upper(), DIGEST[:-1], "\x00", "\N{GRINNING FACE}"])
async def test_what_is_no_digest_is_another_calls(service: Service, digest: str) -> None:
    response = await decide(service, await asked(service), arguments_digest=digest)
    assert told(response) == (422, "approval_digest_mismatch")


async def test_a_cancelled_one_is_not_decided(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    await service.client.post(f"/runs/{run_id}/cancel")
    assert told(await decide(service, approval_id)) == (409, "approval_cancelled")


async def test_one_whose_time_is_over_is_gone(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id, ttl_seconds=-1)
    assert told(await decide(service, approval_id)) == (410, "approval_expired")
    assert (await read(service, approval_id))["decision"] is None


@pytest.mark.parametrize("decision", ["succeeded", "failed", "retry"])
async def test_an_outcome_is_told_in_its_own_words(service: Service, decision: str) -> None:
    approval_id = await asked(service, kind=ApprovalKind.OUTCOME)
    response = await decide(service, approval_id, decision)
    assert (response.status_code, response.json()["status"]) == (200, "approved")
    assert response.json()["decision"]["decision"] == decision


@pytest.mark.parametrize(
    ("kind", "decision"), [("call", "succeeded"), ("call", "retry"), ("outcome", "approve"), ("outcome", "deny")]
)
async def test_a_decision_of_the_other_kind_is_refused(service: Service, kind: str, decision: str) -> None:
    approval_id = await asked(service, kind=ApprovalKind(kind))
    response = await decide(service, approval_id, decision)
    assert (told(response), pointers(response)) == ((422, "decision_not_of_kind"), ["/decision"])
    assert (await read(service, approval_id))["status"] == "pending"


@pytest.mark.parametrize("name", ["apr_0123456789abcdefghjkmnpqrs", "x", "%00", "run_0123456789abcdefghjkmnpqrs"])
async def test_an_unknown_one_is_not_found(service: Service, name: str) -> None:
    assert told(await decide(service, name)) == (404, "not_found")


@pytest.mark.parametrize("body", [{}, {"arguments": ARGUMENTS}])
async def test_another_tenants_is_not_found(service: Service, body: dict[str, Any]) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, by=service.others_keys.colleague, **body)
    assert told(response) == (404, "not_found")
    assert (await read(service, approval_id))["status"] == "pending"


async def test_each_refusal_is_told_before_the_next(service: Service) -> None:
    """Everything is wrong at once, and is put right from the front."""
    run_id = await service.submit()
    approval_id = await ask(service, run_id, ttl_seconds=-1)
    wrong: dict[str, Any] = {"decision": "retry", "arguments_digest": OTHER_DIGEST, "arguments": {"amount": "x"}}
    codes = [
        told(await decide(service, approval_id, by=service.others_keys.colleague, **wrong)),
        told(await decide(service, approval_id, by=service.keys.anonymous, **wrong)),
        told(await decide(service, approval_id, by=service.keys.service, **wrong)),
        told(await decide(service, approval_id, by=service.keys.approver, **wrong)),
        told(await decide(service, approval_id, by=service.keys.approver, **wrong | {"arguments_digest": DIGEST})),
    ]
    assert codes == [
        (404, "not_found"),
        (403, "no_subject"),
        (403, "self_approval"),
        (422, "approval_digest_mismatch"),
        (410, "approval_expired"),
    ]


async def test_the_kind_is_told_before_the_arguments_and_the_scope_before_their_fit(service: Service) -> None:
    approval_id = await asked(service)
    arguments = {"amount": "x"}
    codes = [
        told(await decide(service, approval_id, "retry", by=service.keys.approver, arguments=arguments)),
        told(await decide(service, approval_id, "deny", by=service.keys.approver, arguments=arguments)),
        told(await decide(service, approval_id, "deny", arguments=arguments)),
        told(await decide(service, approval_id, "approve", arguments=arguments)),
    ]
    assert codes == [
        (422, "decision_not_of_kind"),
        (403, "missing_scope"),
        (422, "arguments_not_editable"),
        (422, "invalid_arguments"),
    ]


@pytest.mark.parametrize("reason", ["", "\x00", "a\x00b \x1a0", "\N{GRINNING FACE}", "x" * 1000, "\u202e\n"])
async def test_a_reason_may_be_any_text(service: Service, reason: str) -> None:
    approval_id = await asked(service)
    response = await decide(service, approval_id, reason=reason)
    assert (response.status_code, (await read(service, approval_id))["decision"]["reason"]) == (200, reason)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"arguments_digest": DIGEST}, "/decision"),
        ({"decision": "approve"}, "/arguments_digest"),
        ({"decision": "yes", "arguments_digest": DIGEST}, "/decision"),
        ({"decision": "Approve", "arguments_digest": DIGEST}, "/decision"),
        ({"decision": None, "arguments_digest": DIGEST}, "/decision"),
        ({"decision": "approve", "arguments_digest": 5}, "/arguments_digest"),
        ({"decision": "approve", "arguments_digest": "x" * 129}, "/arguments_digest"),
        ({"decision": "approve", "arguments_digest": DIGEST, "arguments": []}, "/arguments"),
        ({"decision": "approve", "arguments_digest": DIGEST, "arguments": "{}"}, "/arguments"),
        ({"decision": "approve", "arguments_digest": DIGEST, "reason": "x" * 1001}, "/reason"),
        ({"decision": "approve", "arguments_digest": DIGEST, "reason": 5}, "/reason"),
        ({"decision": "approve", "arguments_digest": DIGEST, "decided_by": "ada"}, "/decided_by"),
        ({"decision": "approve", "arguments_digest": DIGEST, "outcome": "succeeded"}, "/outcome"),
        ([], ""),
    ],
)
async def test_a_body_that_is_wrong_is_pointed_to(service: Service, body: Any, pointer: str) -> None:
    approval_id = await asked(service)
    response = await service.client.post(
        f"/approvals/{approval_id}/decision", json=body, headers=with_key(service.keys.colleague)
    )
    assert (told(response), pointers(response)) == ((422, "invalid_request"), [pointer])


@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [
        (b"", {}, (415, "unsupported_media_type")),
        (b"", JSON_TYPE, (400, "invalid_json")),
        (b'{"decision":"approve","decision":"deny"}', JSON_TYPE, (400, "invalid_json")),
        (b'{"decision":"\\ud800"}', JSON_TYPE, (422, "invalid_text")),
        (b"x" * 1_100_000, JSON_TYPE, (413, "request_too_large")),
    ],
)
async def test_what_is_no_body_is_refused(
    service: Service, content: bytes, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    approval_id = await asked(service)
    response: httpx.Response = await service.client.post(
        f"/approvals/{approval_id}/decision", content=content, headers=headers
    )
    assert told(response) == expected


async def test_parameters_are_refused(service: Service) -> None:
    approval_id = await asked(service)
    response = await service.client.post(f"/approvals/{approval_id}/decision?decision=approve", json={})
    assert told(response) == (422, "invalid_request")
