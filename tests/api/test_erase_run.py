"""DELETE /runs/{id}: the run and everything of it are gone, for good, and nothing else is."""

import asyncio

import pytest

from app.events import RunState
from tests.api.harness import AS_STREAM, Service, with_key
from tests.api.lost_runs import lose, resume
from tests.api.questions import ask, decide, told


async def ended(service: Service, **body: object) -> str:
    run_id = await service.submit(**body)
    await service.scribe.end(run_id)
    return run_id


async def test_a_run_and_all_of_it_are_gone(service: Service) -> None:
    run_id = await ended(service, metadata={"ticket": "T-3"})
    response = await service.client.delete(f"/runs/{run_id}")
    paths = ("", "/events")
    gone = [(await service.client.get(f"/runs/{run_id}{path}")).status_code for path in paths]
    found = (await service.client.get("/runs?metadata.ticket=T-3")).json()["items"]
    assert (response.status_code, response.content, gone, found) == (204, b"", [404, 404], [])


async def test_a_stream_of_it_is_not_found(service: Service) -> None:
    run_id = await ended(service)
    await service.client.delete(f"/runs/{run_id}")
    assert told(await service.client.get(f"/runs/{run_id}/events", headers=AS_STREAM)) == (404, "not_found")


async def test_its_approvals_go_with_it(service: Service) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id, waits=False)
    other = await ask(service, await service.submit())
    await decide(service, approval_id)
    await service.scribe.end(run_id)
    await service.client.delete(f"/runs/{run_id}")
    assert told(await service.client.get(f"/approvals/{approval_id}")) == (404, "not_found")
    assert [item["id"] for item in (await service.client.get("/approvals")).json()["items"]] == [other]


async def test_the_runs_below_it_go_with_it(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    approval_id = await ask(service, child_id, waits=False, agent="helper")
    await service.scribe.end(child_id)
    await service.scribe.end(run_id)
    assert (await service.client.delete(f"/runs/{run_id}")).status_code == 204
    assert (await service.client.get(f"/runs/{child_id}")).status_code == 404
    assert (await service.client.get(f"/approvals/{approval_id}")).status_code == 404


async def test_erasing_it_again_finds_nothing(service: Service) -> None:
    run_id = await ended(service)
    await service.client.delete(f"/runs/{run_id}")
    assert told(await service.client.delete(f"/runs/{run_id}")) == (404, "not_found")


async def test_twenty_erasures_at_once_are_one(service: Service) -> None:
    run_id = await ended(service)
    answers = await asyncio.gather(*(service.client.delete(f"/runs/{run_id}") for _ in range(20)))
    assert {answer.status_code for answer in answers} <= {204, 404}
    assert (await service.client.get(f"/runs/{run_id}")).status_code == 404


async def test_a_key_that_led_to_it_is_free(service: Service) -> None:
    await service.put_agent()
    body, headers = {"agent": "planner", "input": "x"}, {"Idempotency-Key": "k-1"}
    first = (await service.client.post("/runs", json=body, headers=headers)).json()["id"]
    await service.scribe.end(first)
    await service.client.delete(f"/runs/{first}")
    again = await service.client.post("/runs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"] != first) == (202, True)


async def test_the_others_of_its_session_stay(service: Service) -> None:
    session_id = await service.create_session()
    first = await ended(service, session_id=session_id)
    second = await ended(service, session_id=session_id)
    assert (await service.client.delete(f"/runs/{first}")).status_code == 204
    listed = (await service.client.get(f"/runs?session_id={session_id}")).json()["items"]
    assert [run["id"] for run in listed] == [second]


async def test_a_run_that_has_not_ended_is_kept(service: Service) -> None:
    queued = await service.submit()
    suspended = await service.submit()
    await ask(service, suspended)
    codes = [told(await service.client.delete(f"/runs/{run_id}")) for run_id in (queued, suspended)]
    assert codes == [(409, "run_not_terminal")] * 2
    assert (await service.client.get(f"/runs/{queued}")).status_code == 200


async def test_a_run_below_another_one_goes_with_that_only(service: Service) -> None:
    run_id = await service.submit()
    child_id = await service.scribe.open_child(run_id)
    await service.scribe.end(child_id)
    response = await service.client.delete(f"/runs/{child_id}")
    assert told(response) == (409, "run_has_parent")
    assert run_id in response.json()["detail"]


async def test_a_run_is_kept_while_one_that_goes_on_from_it_has_not_ended(service: Service) -> None:
    first = await lose(service, await service.submit())
    second = (await resume(service, first)).json()["id"]
    refused = await service.client.delete(f"/runs/{first}")
    await service.scribe.end(second, state=RunState.COMPLETED)
    assert (told(refused), second in refused.json()["detail"]) == ((409, "run_not_terminal"), True)
    assert (await service.client.delete(f"/runs/{first}")).status_code == 204
    assert (await service.client.get(f"/runs/{second}")).json()["resumes"] == first


@pytest.mark.parametrize("name", ["run_0123456789abcdefghjkmnpqrs", "x", "%00"])
async def test_an_unknown_one_is_not_found(service: Service, name: str) -> None:
    assert told(await service.client.delete(f"/runs/{name}")) == (404, "not_found")


async def test_another_tenants_is_not_found_and_stays(service: Service) -> None:
    run_id = await ended(service)
    others = with_key(service.others_keys.service)
    assert told(await service.client.delete(f"/runs/{run_id}", headers=others)) == (404, "not_found")
    assert (await service.client.get(f"/runs/{run_id}")).status_code == 200


async def test_parameters_are_refused(service: Service) -> None:
    run_id = await ended(service)
    assert told(await service.client.delete(f"/runs/{run_id}?force=true")) == (422, "invalid_request")
