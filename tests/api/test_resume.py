"""POST /runs/{id}/resume: a run that was lost goes on, once, with what people know of its calls."""

import asyncio
from typing import Any

import pytest

from app.events import RunState
from app.policy import Outcome
from tests.api.harness import JSON_TYPE, Service, with_key
from tests.api.lost_runs import LOOK, PAY, load, lose, lose_outcome, resume
from tests.api.questions import ask, decide, pointers, state_of, told
from tests.builders import build_call

KEPT = (
    "agent", "agent_version", "session_id", "user", "input", "model", "budget", "depth", "path", "metadata",
)  # fmt: skip
ANSWERED = {"type": "object", "properties": {"answer": {"type": "string"}}}


async def lost(service: Service, **body: Any) -> str:
    return await lose(service, await service.submit(**body))


async def test_a_lost_run_goes_on_as_a_new_one(service: Service) -> None:
    run_id = await lost(service)
    response = await resume(service, run_id)
    run = response.json()
    assert (response.status_code, run["state"], run["resumes"]) == (202, "queued", run_id)
    assert response.headers["location"] == f"/runs/{run['id']}"
    assert (await service.client.get(f"/runs/{run['id']}")).json() == run
    assert (await load(service, run["id"])).first_run_id == run_id


async def test_a_worker_is_told(service: Service) -> None:
    run_id = await lost(service)
    await service.feed.wait_for_work(0)
    await resume(service, run_id)
    async with asyncio.timeout(5):
        await service.feed.wait_for_work(60)


async def test_it_needs_no_body_where_nothing_is_open(service: Service) -> None:
    run_id = await lost(service)
    assert (await service.client.post(f"/runs/{run_id}/resume")).status_code == 202


async def test_what_was_asked_for_is_kept(service: Service) -> None:
    session_id = await service.create_session(user="ada")
    run_id = await lost(
        service,
        session_id=session_id,
        budget={"max_tool_calls": 3},
        max_llm_calls=7,
        priority=5,
        metadata={"ticket": "T-1"},
        output_schema=ANSWERED,
        context={"pinned": ["case"], "retrieved": ["note"]},
    )
    before = (await service.client.get(f"/runs/{run_id}")).json()
    after = (await resume(service, run_id)).json()
    assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}
    old, new = await load(service, run_id), await load(service, after["id"])
    assert (new.context, new.output_schema, new.max_llm_calls, new.priority) == (
        old.context,
        old.output_schema,
        old.max_llm_calls,
        old.priority,
    )


async def test_it_has_as_much_time_as_the_first_one_had(service: Service) -> None:
    run_id = await lost(service, timeout_seconds=1000)
    new = await load(service, (await resume(service, run_id)).json()["id"])
    assert new.deadline_at is not None
    assert 999 < new.deadline_at - new.created_at < 1001


async def test_without_a_deadline_it_gets_none(service: Service) -> None:
    new = await load(service, (await resume(service, await lost(service))).json()["id"])
    assert new.deadline_at is None


async def test_a_time_that_was_none_at_all_is_none_again(service: Service) -> None:
    response = await resume(service, await lost(service, timeout_seconds=1e-9))
    assert response.status_code == 202


async def test_a_newer_version_of_the_agent_changes_nothing(service: Service) -> None:
    run_id = await lost(service)
    await service.put_agent(instructions="Plan otherwise.")
    assert (await resume(service, run_id)).json()["agent_version"] == 1


async def test_also_where_the_agent_is_retired(service: Service) -> None:
    run_id = await lost(service)
    await service.client.delete("/agents/planner")
    assert (await resume(service, run_id)).status_code == 202


async def test_the_new_runs_subject_is_who_resumed_it(service: Service) -> None:
    run_id = await lost(service)
    run = (await resume(service, run_id, headers=with_key(service.keys.colleague))).json()
    assert (
        run["subject"] == (await service.client.get("/me", headers=with_key(service.keys.colleague))).json()["subject"]
    )


async def test_who_asked_for_the_first_run_does_not_decide_about_the_calls_of_the_last(service: Service) -> None:
    run_id = await lost(service)
    second = (await resume(service, run_id, headers=with_key(service.keys.colleague))).json()["id"]
    approval_id = await ask(service, second)
    by_first = await decide(service, approval_id, by=service.keys.service)
    by_second = await decide(service, approval_id, by=service.keys.colleague)
    by_another = await decide(service, approval_id, by=service.keys.approver)
    assert (told(by_first), told(by_second)) == ((403, "self_approval"), (403, "self_approval"))
    assert by_another.status_code == 200


async def test_a_chain_keeps_its_first_run(service: Service) -> None:
    first = await lost(service)
    second = (await resume(service, first)).json()["id"]
    await lose(service, second)
    third = (await resume(service, second)).json()["id"]
    record = await load(service, third)
    assert (record.resumes, record.first_run_id) == (second, first)


async def test_the_outcome_of_a_call_has_to_be_told(service: Service) -> None:
    run_id = await lose_outcome(service, await service.submit())
    response = await resume(service, run_id)
    assert (told(response), pointers(response)) == ((422, "resolution_missing"), ["/resolutions/call_1_1"])


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "retry"])
async def test_the_outcome_goes_along(service: Service, outcome: str) -> None:
    run_id = await lose_outcome(service, await service.submit())
    response = await resume(service, run_id, call_1_1=outcome)
    record = await load(service, response.json()["id"])
    assert (response.status_code, record.resolutions) == (202, {"call_1_1": Outcome(outcome)})


async def test_calls_of_a_lost_run_are_told_one_by_one_and_those_that_may_be_repeated_are_not(service: Service) -> None:
    second = build_call("pay", number=3)
    run_id = await lose(service, await service.submit(), PAY, LOOK, second)
    response = await resume(service, run_id)
    assert pointers(response) == ["/resolutions/call_1_1", "/resolutions/call_1_3"]
    assert (await resume(service, run_id, call_1_1="failed", call_1_3="succeeded")).status_code == 202


async def test_a_call_that_was_not_out_has_no_outcome(service: Service) -> None:
    run_id = await lose(service, await service.submit(), PAY, out=())
    response = await resume(service, run_id, call_1_1="succeeded")
    assert (told(response), pointers(response)) == ((422, "unknown_call"), ["/resolutions/call_1_1"])
    assert (await resume(service, run_id)).status_code == 202


@pytest.mark.parametrize("name", ["call_9_9", "", "a/b~c", "\x00", "\N{GRINNING FACE}"])
async def test_an_outcome_of_no_call_is_refused(service: Service, name: str) -> None:
    run_id = await lose_outcome(service, await service.submit())
    body = {"resolutions": {"call_1_1": "failed", name: "failed"}}
    response = await service.client.post(f"/runs/{run_id}/resume", json=body)
    escaped = name.replace("~", "~0").replace("/", "~1")
    assert (told(response), pointers(response)) == ((422, "unknown_call"), [f"/resolutions/{escaped}"])


async def test_a_run_is_resumed_once(service: Service) -> None:
    run_id = await lost(service)
    second = (await resume(service, run_id)).json()["id"]
    response = await resume(service, run_id)
    assert (told(response), response.json()["resumed_by_run_id"]) == ((409, "run_already_resumed"), second)


async def test_of_twenty_clients_at_once_one_resumes_it(service: Service) -> None:
    run_id = await lost(service)
    answers = await asyncio.gather(*(resume(service, run_id) for _ in range(20)))
    [won] = [answer for answer in answers if answer.status_code == 202]
    lost_by = [answer for answer in answers if answer.status_code != 202]
    assert {(told(answer), answer.json()["resumed_by_run_id"]) for answer in lost_by} == {
        ((409, "run_already_resumed"), won.json()["id"])
    }


async def test_of_twenty_in_a_session_too(service: Service) -> None:
    session_id = await service.create_session()
    run_id = await lost(service, session_id=session_id)
    answers = await asyncio.gather(*(resume(service, run_id) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 19]


async def test_an_erase_and_resumes_at_once_leave_one_of_the_two(service: Service) -> None:
    run_id = await lost(service)
    erase = service.client.delete(f"/runs/{run_id}")
    erased, *resumed = await asyncio.gather(erase, *(resume(service, run_id) for _ in range(5)))
    codes = sorted(answer.status_code for answer in resumed)
    assert (erased.status_code, codes) in [(204, [404] * 5), (409, [202, 409, 409, 409, 409])]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (RunState.COMPLETED, None),
        (RunState.CANCELLED, "cancelled"),
        (RunState.FAILED, "provider_error"),
        (RunState.FAILED, "deadline_exceeded"),
        (RunState.BUDGET_EXHAUSTED, "budget_exhausted"),
    ],
)
async def test_a_run_that_ended_otherwise_is_not_resumed(service: Service, state: RunState, code: str | None) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id, state=state, error_code=code)
    assert told(await resume(service, run_id)) == (409, "run_not_resumable")


async def test_a_run_that_goes_on_is_not_resumed(service: Service) -> None:
    run_id = await service.submit()
    assert told(await resume(service, run_id)) == (409, "run_not_resumable")
    assert await state_of(service, run_id) == "queued"


async def test_a_run_below_another_one_is_not_resumed(service: Service) -> None:
    child_id = await service.scribe.open_child(await service.submit())
    await service.scribe.end(child_id, state=RunState.FAILED, error_code="worker_lost")
    assert told(await resume(service, child_id)) == (409, "run_not_resumable")


async def test_in_its_session_it_comes_behind_the_runs_that_wait(service: Service) -> None:
    session_id = await service.create_session()
    run_id = await lost(service, session_id=session_id)
    waiting = await service.submit(session_id=session_id)
    resumed = (await resume(service, run_id)).json()
    listed = (await service.client.get(f"/runs?session_id={session_id}")).json()["items"]
    assert [run["id"] for run in listed] == [resumed["id"], waiting, run_id]


async def test_the_same_key_is_answered_with_the_same_run(service: Service) -> None:
    run_id = await lost(service)
    headers = {"Idempotency-Key": "k-1"}
    first = await resume(service, run_id, headers=headers)
    again = await resume(service, run_id, headers=headers)
    assert (again.status_code, again.json()) == (202, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]


async def test_the_same_key_with_another_body_or_for_another_run_is_another_request(service: Service) -> None:
    run_id, other_id = await lose_outcome(service, await service.submit()), await lost(service)
    headers = {"Idempotency-Key": "k-1"}
    await resume(service, run_id, headers=headers, call_1_1="failed")
    other_body = await resume(service, run_id, headers=headers, call_1_1="retry")
    assert told(other_body) == (422, "idempotency_key_reused")
    assert (await resume(service, other_id, headers=headers)).status_code == 202


async def test_after_a_refusal_the_key_is_free(service: Service) -> None:
    run_id = await lose_outcome(service, await service.submit())
    headers = {"Idempotency-Key": "k-1"}
    assert (await resume(service, run_id, headers=headers)).status_code == 422
    assert (await resume(service, run_id, headers=headers, call_1_1="failed")).status_code == 202


async def test_it_can_be_waited_for(service: Service) -> None:
    response = await resume(service, await lost(service), headers={"Prefer": "wait=0"})
    assert (response.status_code, response.headers["preference-applied"]) == (202, "wait=0")


@pytest.mark.parametrize("name", ["run_0123456789abcdefghjkmnpqrs", "x", "%00", "ses_0123456789abcdefghjkmnpqrs"])
async def test_an_unknown_one_is_not_found(service: Service, name: str) -> None:
    assert told(await resume(service, name)) == (404, "not_found")


async def test_another_tenants_is_not_found(service: Service) -> None:
    run_id = await lost(service)
    assert told(await resume(service, run_id, headers=with_key(service.others_keys.service))) == (404, "not_found")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"resolutions": {"call_1_1": "done"}}, "/resolutions/call_1_1"),
        ({"resolutions": {"call_1_1": None}}, "/resolutions/call_1_1"),
        ({"resolutions": []}, "/resolutions"),
        ({"resolutions": None}, "/resolutions"),
        ({"input": "x"}, "/input"),
        ([], ""),
    ],
)
async def test_a_body_that_is_wrong_is_pointed_to(service: Service, body: Any, pointer: str) -> None:
    response = await service.client.post(f"/runs/{await lost(service)}/resume", json=body)
    assert (told(response), pointers(response)) == ((422, "invalid_request"), [pointer])


async def test_what_is_no_json_is_refused(service: Service) -> None:
    path = f"/runs/{await lost(service)}/resume"
    assert told(await service.client.post(path, content=b"{", headers=JSON_TYPE)) == (400, "invalid_json")
    assert told(await service.client.post(path, content=b"x" * 1_100_000, headers=JSON_TYPE)) == (
        413,
        "request_too_large",
    )
    assert told(await service.client.post(path, content=b"{}")) == (415, "unsupported_media_type")


async def test_a_run_whose_earlier_one_was_erased_is_not_resumed(service: Service) -> None:
    first = await lost(service)
    second = (await resume(service, first)).json()["id"]
    await lose(service, second)
    assert (await service.client.delete(f"/runs/{first}")).status_code == 204
    assert told(await resume(service, second)) == (409, "run_not_resumable")


async def test_nothing_new_is_taken_while_the_process_goes_away(service: Service) -> None:
    run_id = await lost(service)
    service.deps.drain.begin()
    assert told(await resume(service, run_id)) == (503, "draining")
