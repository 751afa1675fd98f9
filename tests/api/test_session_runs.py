"""POST /runs within a session: whose it is, where it starts, and what becomes of a session that is busy."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api import ApiConfig
from app.execution.drive import drive as drive_run
from app.execution.lease import Lease
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import RunId
from app.ports.cancellation import CancellationToken
from app.ports.store import TenantStore
from app.providers import ScriptedProvider, ScriptedStep
from app.service.runs import RunRules
from tests.api.harness import MODEL, Service, with_key
from tests.api.questions import ask
from tests.execution.fakes import call, say
from tests.execution.support import Bench

UNKNOWN = "ses_00000000000000000000000000"


def pointers(response: httpx.Response) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


async def post(service: Service, **body: Any) -> httpx.Response:
    await service.put_agent()
    return await service.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})


async def load(service: Service, run_id: str) -> Any:
    store: TenantStore = service.deps.store
    async with store.begin(service.keys.tenant_id) as tx:
        return await tx.get_run(run_id)  # type: ignore[arg-type]


async def test_a_run_of_a_session_says_so_and_is_found_by_it(service: Service) -> None:
    session_id = await service.create_session()
    run_id = await service.submit(session_id=session_id)
    await service.submit()
    assert (await service.client.get(f"/runs/{run_id}")).json()["session_id"] == session_id
    found = (await service.client.get(f"/runs?session_id={session_id}")).json()["items"]
    assert [run["id"] for run in found] == [run_id]


@pytest.mark.parametrize("filter_", ["session_id=x", "session_id=%00", f"session_id={UNKNOWN}", "parent_run_id=%00"])
async def test_an_id_that_no_run_has_finds_none(service: Service, filter_: str) -> None:
    await service.submit()
    assert (await service.client.get(f"/runs?{filter_}")).json()["items"] == []


@pytest.mark.parametrize("session_id", [UNKNOWN, "x", "ses_\x00", "run_00000000000000000000000000"])
async def test_no_session_is_made_by_naming_it(service: Service, session_id: str) -> None:
    response = await post(service, session_id=session_id)
    assert (response.status_code, response.json()["code"]) == (422, "unknown_session")
    assert pointers(response) == ["/session_id"]
    assert (await service.client.get("/runs")).json()["items"] == []


async def test_another_tenants_session_is_as_unknown_as_any(service: Service) -> None:
    session_id = await service.create_session()
    other = with_key(service.others_keys.service)
    await service.client.put("/agents/planner", json={"instructions": "x"}, headers=other)
    body = {"agent": "planner", "input": "x", "session_id": session_id}
    response = await service.client.post("/runs", json=body, headers=other)
    assert (response.status_code, response.json()["code"]) == (422, "unknown_session")


async def test_a_session_takes_runs_of_its_own_agent_and_user_only(service: Service) -> None:
    await service.put_agent()
    await service.put_agent("other")
    session_id = await service.create_session(agent="planner", user="ada")
    response = await post(service, session_id=session_id, agent="other", user="bob")
    assert (response.status_code, response.json()["code"]) == (422, "session_mismatch")
    assert pointers(response) == ["/agent", "/user"]


async def test_a_run_without_a_user_has_its_sessions(service: Service) -> None:
    session_id = await service.create_session(user="ada")
    assert (await post(service, session_id=session_id)).json()["user"] == "ada"


async def test_a_session_of_nobody_takes_runs_of_anybody(service: Service) -> None:
    session_id = await service.create_session()
    assert (await post(service, session_id=session_id, user="bob")).json()["user"] == "bob"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        pytest.param({"on_session_busy": "reject"}, "/on_session_busy", id="without a session"),
        pytest.param({"on_session_busy": "enqueue", "session_id": None}, "/on_session_busy", id="with none"),
        pytest.param({"on_session_busy": "wait", "session_id": UNKNOWN}, "/on_session_busy", id="an unknown word"),
        pytest.param({"on_session_busy": "reject", "session_id": 5}, "/session_id", id="with what is no id"),
        pytest.param({"session_id": 5}, "/session_id", id="a number"),
        pytest.param({"session_id": ""}, "/session_id", id="nothing"),
    ],
)
async def test_what_is_said_of_no_session_is_refused(service: Service, body: dict[str, Any], pointer: str) -> None:
    response = await post(service, **body)
    assert (response.status_code, pointers(response)) == (422, [pointer])


async def test_a_run_waits_for_those_before_it(service: Service) -> None:
    session_id = await service.create_session()
    first = await service.submit(session_id=session_id)
    second = (await post(service, session_id=session_id)).json()
    assert second["state"] == "queued"
    session = (await service.client.get(f"/sessions/{session_id}")).json()
    assert (session["active_run_id"], session["runs"]) == (first, 2)


async def test_a_busy_session_refuses_where_it_is_asked_to_and_names_the_run(service: Service) -> None:
    session_id = await service.create_session()
    first = await service.submit(session_id=session_id)
    await service.submit(session_id=session_id)
    response = await post(service, session_id=session_id, on_session_busy="reject")
    problem = response.json()
    assert (response.status_code, problem["code"], problem["active_run_id"]) == (409, "session_busy", first)
    assert (await service.client.get(f"/sessions/{session_id}")).json()["runs"] == 2


async def test_of_many_runs_at_once_that_will_not_wait_one_is_accepted(service: Service) -> None:
    session_id = await service.create_session()
    await service.put_agent()
    body = {"agent": "planner", "input": "x", "session_id": session_id, "on_session_busy": "reject"}
    answers = await asyncio.gather(*(service.client.post("/runs", json=body) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 7]


async def test_a_session_at_rest_refuses_nothing(service: Service) -> None:
    session_id = await service.create_session()
    await service.scribe.end(await service.submit(session_id=session_id))
    assert (await post(service, session_id=session_id, on_session_busy="reject")).status_code == 202


async def test_a_suspended_run_keeps_its_session_busy(service: Service) -> None:
    session_id = await service.create_session()
    await ask(service, await service.submit(session_id=session_id))
    assert (await post(service, session_id=session_id, on_session_busy="reject")).status_code == 409


async def test_an_interrupt_asks_every_run_before_it_to_end_and_tells_their_holders(service: Service) -> None:
    session_id = await service.create_session()
    before = [await service.submit(session_id=session_id) for _ in range(2)]
    elsewhere = await service.submit()
    response = await post(service, session_id=session_id, on_session_busy="interrupt")
    assert response.status_code == 202
    assert [bool((await load(service, run_id)).cancel_requested_at) for run_id in before] == [True, True]
    assert service.feed.cancels_heard() == tuple(before)
    assert (await load(service, elsewhere)).cancel_requested_at is None
    assert (await load(service, response.json()["id"])).cancel_requested_at is None


class TestFullQueue:
    @pytest.fixture
    def config(self) -> ApiConfig:
        return ApiConfig(rules=RunRules(max_queued_runs=1))

    async def test_nothing_is_interrupted_for_a_run_that_is_not_accepted(self, service: Service) -> None:
        session_id = await service.create_session()
        before = await service.submit(session_id=session_id)
        response = await post(service, session_id=session_id, on_session_busy="interrupt")
        assert response.status_code == 429
        assert (await load(service, before)).cancel_requested_at is None
        assert service.feed.cancels_heard() == ()


async def test_a_replayed_interrupt_interrupts_nothing(service: Service) -> None:
    session_id = await service.create_session()
    key = {"Idempotency-Key": "one"}
    await service.put_agent()
    body = {"agent": "planner", "input": "x", "session_id": session_id, "on_session_busy": "interrupt"}
    first = await service.client.post("/runs", json=body, headers=key)
    again = await service.client.post("/runs", json=body, headers=key)
    assert again.json() == first.json()
    assert (await load(service, first.json()["id"])).cancel_requested_at is None


async def put_team(service: Service) -> None:
    await service.put_agent("billing")
    await service.put_agent("planner", sub_agents=["billing"])


async def submit_in(service: Service, session_id: str) -> str:
    body = {"agent": "planner", "input": "x", "session_id": session_id}
    return str((await service.client.post("/runs", json=body)).json()["id"])


async def drive(service: Service, run_id: str, *script: ScriptedStep) -> None:
    """The loop's own drive of a run whose turn it is, with a model that plays a script."""
    parts = Bench(ScriptedProvider({MODEL.removeprefix("scripted:"): script})).runtime
    runtime = replace(parts, store=service.scribe.work, clock=SystemClock(), ids=Uuid7Ids())
    lease = Lease(await service.scribe.claim(RunId(run_id)), margin_seconds=1.0)
    await drive_run(runtime, lease, drain=CancellationToken())


@pytest.mark.parametrize("bound", [{"agent": "planner"}, {}])
async def test_a_run_that_waited_starts_with_whom_the_one_before_it_was_handed_to(
    service: Service, bound: dict[str, str]
) -> None:
    await put_team(service)
    session_id = await service.create_session(**bound)
    first, second = await submit_in(service, session_id), await submit_in(service, session_id)
    await drive(service, first, call("transfer_to_agent", agent_name="billing"), say("Paid."))
    await drive(service, second, say("Paid again."))
    events = (await service.client.get(f"/runs/{second}/events")).json()["items"]
    [begun] = [event for event in events if event["kind"] == "run_started"]
    [answer] = [event for event in events if event["kind"] == "model_response"]
    assert (begun["starts_with"], answer["author"], answer["text"]) == ("billing", "billing", "Paid again.")
    assert (await service.client.get(f"/sessions/{session_id}")).json()["last_agent"] == "billing"
