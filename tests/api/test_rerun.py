"""POST /runs/{id}/rerun: the same run once more, from its beginning."""

import asyncio
from typing import Any

import pytest

from app.events import RunState
from tests.api.harness import JSON_TYPE, Service, with_key
from tests.api.lost_runs import load, rerun
from tests.api.questions import pointers, told

KEPT = ("agent", "agent_version", "session_id", "user", "input", "model", "budget", "path", "metadata")
MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]


async def ended(service: Service, *, state: RunState = RunState.COMPLETED, **body: Any) -> str:
    run_id = await service.submit(**body)
    await service.scribe.end(run_id, state=state)
    return run_id


async def test_a_run_is_accepted_once_more(service: Service) -> None:
    run_id = await ended(service)
    response = await rerun(service, run_id)
    run = response.json()
    assert (response.status_code, run["state"], run["resumes"]) == (202, "queued", None)
    assert run["id"] != run_id
    assert response.headers["location"] == f"/runs/{run['id']}"


async def test_what_was_asked_for_is_kept(service: Service) -> None:
    session_id = await service.create_session(user="ada")
    run_id = await ended(
        service, session_id=session_id, input=MESSAGES, budget={"max_tool_calls": 3}, metadata={"ticket": "T-1"}
    )
    before = (await service.client.get(f"/runs/{run_id}")).json()
    after = (await rerun(service, run_id)).json()
    assert {name: after[name] for name in KEPT} == {name: before[name] for name in KEPT}


async def test_its_metadata_can_be_searched_for(service: Service) -> None:
    run_id = await ended(service, metadata={"ticket": "T-2"})
    again = (await rerun(service, run_id)).json()["id"]
    found = (await service.client.get("/runs?metadata.ticket=T-2")).json()["items"]
    assert [run["id"] for run in found] == [again, run_id]


async def test_the_versions_are_those_that_the_run_had(service: Service) -> None:
    await service.put_agent("billing")
    await service.put_agent(sub_agents=["billing"])
    response = await service.client.post("/runs", json={"agent": "planner", "input": "x"})
    run_id = response.json()["id"]
    await service.scribe.end(run_id)
    await service.put_agent("billing", instructions="Bill otherwise.")
    await service.put_agent(instructions="Plan otherwise.", sub_agents=["billing"])
    again = await load(service, (await rerun(service, run_id)).json()["id"])
    assert (again.agent_version, again.team) == (1, {"billing": 1})


async def test_the_model_is_the_first_agents_whoever_was_asked_last(service: Service) -> None:
    await service.put_agent("billing", model="scripted:dear")
    await service.put_agent(sub_agents=["billing"])
    run_id = (await service.client.post("/runs", json={"agent": "planner", "input": "x"})).json()["id"]
    await service.scribe.end(run_id, model="scripted:dear")
    assert (await rerun(service, run_id)).json()["model"] == "scripted:demo"


@pytest.mark.parametrize("state", [state for state in RunState if state.is_terminal])
async def test_a_run_may_have_ended_in_any_way(service: Service, state: RunState) -> None:
    assert (await rerun(service, await ended(service, state=state))).status_code == 202


async def test_a_run_can_be_run_again_many_times(service: Service) -> None:
    run_id = await ended(service)
    answers = [await rerun(service, run_id) for _ in range(3)]
    assert len({answer.json()["id"] for answer in answers}) == 3


async def test_a_run_that_has_not_ended_is_refused(service: Service) -> None:
    assert told(await rerun(service, await service.submit())) == (409, "run_not_terminal")


async def test_a_run_below_another_one_is_refused(service: Service) -> None:
    child_id = await service.scribe.open_child(await service.submit())
    await service.scribe.end(child_id)
    assert told(await rerun(service, child_id)) == (409, "run_has_parent")


async def test_a_retired_agent_takes_no_runs(service: Service) -> None:
    run_id = await ended(service)
    await service.client.delete("/agents/planner")
    assert told(await rerun(service, run_id)) == (409, "agent_retired")


async def test_nor_does_one_with_a_retired_member(service: Service) -> None:
    await service.put_agent("billing")
    await service.put_agent(sub_agents=["billing"])
    run_id = (await service.client.post("/runs", json={"agent": "planner", "input": "x"})).json()["id"]
    await service.scribe.end(run_id)
    await service.client.delete("/agents/billing")
    response = await rerun(service, run_id)
    assert told(response) == (409, "agent_retired")
    assert "billing" in response.json()["detail"]


async def test_the_same_key_is_answered_with_the_same_run(service: Service) -> None:
    run_id = await ended(service)
    headers = {"Idempotency-Key": "k-1"}
    first = await rerun(service, run_id, headers=headers)
    again = await rerun(service, run_id, headers=headers, json={})
    assert (again.json()["id"], again.headers["idempotency-replayed"]) == (first.json()["id"], "true")


async def test_it_can_be_waited_for(service: Service) -> None:
    response = await rerun(service, await ended(service), headers={"Prefer": "wait=0"})
    assert (response.status_code, response.headers["preference-applied"]) == (202, "wait=0")


async def test_nothing_can_be_said_about_it(service: Service) -> None:
    response = await rerun(service, await ended(service), json={"input": "other"})
    assert (told(response), pointers(response)) == ((422, "invalid_request"), ["/input"])
    text = await rerun(service, await ended(service), content=b"null", headers=JSON_TYPE)
    assert told(text) == (422, "invalid_request")


@pytest.mark.parametrize("name", ["run_0123456789abcdefghjkmnpqrs", "x", "%00"])
async def test_an_unknown_one_is_not_found(service: Service, name: str) -> None:
    assert told(await rerun(service, name)) == (404, "not_found")


async def test_another_tenants_is_not_found(service: Service) -> None:
    run_id = await ended(service)
    assert told(await rerun(service, run_id, headers=with_key(service.others_keys.service))) == (404, "not_found")


async def test_an_erased_session_and_reruns_at_once_leave_no_run_without_a_session(service: Service) -> None:
    session_id = await service.create_session()
    run_id = await ended(service, session_id=session_id)
    erase = service.client.delete(f"/sessions/{session_id}")
    erased, *again = await asyncio.gather(erase, *(rerun(service, run_id) for _ in range(5)))
    codes = {answer.status_code for answer in again}
    assert (erased.status_code, codes) in [(204, {404}), (409, {202})]


async def test_nothing_new_is_taken_while_the_process_goes_away(service: Service) -> None:
    run_id = await ended(service)
    service.deps.drain.begin()
    assert told(await rerun(service, run_id)) == (503, "draining")
