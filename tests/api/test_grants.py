"""Tools and models that a tenant was granted: what agents may name, what runs may use, and what is shown."""

from typing import Any

import httpx
import pytest

from app.ports.tenancy import OperatorStore
from tests.api.harness import DEAR_MODEL, MODEL, Service, with_key
from tests.api.lost_runs import lose
from tests.api.questions import ask, decide, pointers, told
from tests.api.terms import set_terms


async def put(service: Service, **definition: Any) -> httpx.Response:
    return await service.client.put("/agents/planner", json={"instructions": "Plan.", **definition})


async def post(service: Service, **body: Any) -> httpx.Response:
    return await service.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})


async def names(service: Service, path: str, key: str) -> list[str]:
    response = await service.client.get(path, headers=with_key(key))
    return [item["name"] for item in response.json()["items"]]


# --- what is shown ---------------------------------------------------------------------------------------------------


async def test_only_granted_tools_and_models_are_listed(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, tools=["wire", "gone", "note"], models=[DEAR_MODEL])
    assert await names(service, "/tools", service.keys.service) == ["note", "wire"]
    assert await names(service, "/models", service.keys.service) == [DEAR_MODEL]


async def test_another_tenant_sees_what_it_was_granted(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, tools=[], models=[])
    assert await names(service, "/tools", service.others_keys.service) == ["look_up", "note", "pay", "wire"]
    assert await names(service, "/models", service.others_keys.service) == [DEAR_MODEL, MODEL]


async def test_grants_that_are_taken_back_altogether_grant_all_again(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, tools=["note"], models=[DEAR_MODEL])
    await set_terms(admin, service, tools=None, models=None)
    assert len(await names(service, "/tools", service.keys.service)) == 4
    assert len(await names(service, "/models", service.keys.service)) == 2


async def test_a_default_that_was_not_granted_is_nobodys_default(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, models=[DEAR_MODEL])
    [model] = (await service.client.get("/models")).json()["items"]
    assert (model["name"], model["is_default"], model["price"]["input"]) == (DEAR_MODEL, False, "2.5")


# --- what agents may name --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "pointer"),
    [
        ({"tools": ["note", "pay"]}, "/tools/1"),
        ({"model": DEAR_MODEL}, "/model"),
        ({"task_class": "mixed"}, "/task_class"),
    ],
)
async def test_an_agent_may_not_name_what_was_not_granted(
    service: Service, admin: OperatorStore, definition: dict[str, Any], pointer: str
) -> None:
    await set_terms(admin, service, tools=["note"], models=[MODEL])
    response = await put(service, **definition)
    assert (told(response), pointers(response)) == ((422, "unknown_name"), [pointer])
    assert (await service.client.get("/agents/planner")).status_code == 404


async def test_what_was_not_granted_looks_like_what_is_not_there(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, tools=["note"])
    ungranted, unknown = await put(service, tools=["pay"]), await put(service, tools=["fly"])
    assert ungranted.json()["errors"] == unknown.json()["errors"]


async def test_a_tool_that_is_passed_on_to_a_sub_agent_has_to_be_granted(
    service: Service, admin: OperatorStore
) -> None:
    await service.put_agent("billing", tools=["note", "pay"])
    await set_terms(admin, service, tools=["note"])
    response = await put(service, sub_agents=[{"agent": "billing", "tools": ["pay"]}])
    assert (told(response), pointers(response)) == ((422, "unknown_name"), ["/sub_agents/0/tools/0"])


async def test_an_agent_may_name_what_was_granted(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, tools=["note"], models=[DEAR_MODEL])
    assert (await put(service, tools=["note"], task_class="paid")).status_code == 201


# --- what runs may use -----------------------------------------------------------------------------------------------


async def test_a_run_of_an_agent_whose_tool_was_taken_back_is_refused(service: Service, admin: OperatorStore) -> None:
    await put(service, tools=["note", "pay"])
    await set_terms(admin, service, tools=["note"])
    response = await post(service)
    assert (told(response), pointers(response)) == ((422, "unknown_tool"), ["/agent"])
    assert response.json()["errors"][0]["detail"].startswith("planner names pay")
    assert (await service.client.get("/runs")).json()["items"] == []


async def test_so_is_one_whose_sub_agent_has_such_a_tool(service: Service, admin: OperatorStore) -> None:
    await service.put_agent("billing", tools=["pay"])
    await put(service, tools=["pay"], sub_agents=["billing"])
    await set_terms(admin, service, tools=["note"])
    response = await post(service)
    assert (told(response), pointers(response)) == ((422, "unknown_tool"), ["/agent", "/agent"])


async def test_a_sub_agents_tool_that_it_may_not_call_there_is_no_reason(
    service: Service, admin: OperatorStore
) -> None:
    await service.put_agent("billing", tools=["note", "pay"])
    await put(service, tools=["note"], sub_agents=[{"agent": "billing", "tools": ["note"]}])
    await set_terms(admin, service, tools=["note"])
    assert (await post(service)).status_code == 202


@pytest.mark.parametrize("definition", [{"model": DEAR_MODEL}, {"task_class": "paid"}, {"task_class": "mixed"}])
async def test_a_run_of_an_agent_whose_model_was_taken_back_is_refused(
    service: Service, admin: OperatorStore, definition: dict[str, Any]
) -> None:
    await put(service, **definition)
    await set_terms(admin, service, models=[MODEL])
    response = await post(service)
    assert (told(response), pointers(response)) == ((422, "unknown_model"), ["/agent"])


async def test_a_run_that_would_get_a_default_which_was_not_granted_is_refused(
    service: Service, admin: OperatorStore
) -> None:
    await put(service)
    await set_terms(admin, service, models=[DEAR_MODEL])
    assert told(await post(service)) == (422, "unknown_model")


async def test_an_accepted_run_stays_accepted(service: Service, admin: OperatorStore) -> None:
    run_id = await service.submit()
    await set_terms(admin, service, tools=[], models=[])
    assert (await service.client.get(f"/runs/{run_id}")).json()["state"] == "queued"


async def test_a_key_that_is_used_again_finds_its_run_though_the_grant_is_gone(
    service: Service, admin: OperatorStore
) -> None:
    await put(service, tools=["pay"])
    headers, body = {"Idempotency-Key": "k"}, {"agent": "planner", "input": "Hello."}
    first = await service.client.post("/runs", json=body, headers=headers)
    await set_terms(admin, service, tools=[])
    again = await service.client.post("/runs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])


@pytest.mark.parametrize(
    ("terms", "code"), [({"tools": ["note"]}, "unknown_tool"), ({"models": [DEAR_MODEL]}, "unknown_model")]
)
async def test_a_run_is_not_run_again_with_what_was_taken_back(
    service: Service, admin: OperatorStore, terms: Any, code: str
) -> None:
    await put(service, tools=["pay"])
    run_id = (await post(service)).json()["id"]
    await service.scribe.end(run_id)
    await set_terms(admin, service, **terms)
    assert told(await service.client.post(f"/runs/{run_id}/rerun")) == (422, code)


@pytest.mark.parametrize(
    ("terms", "code"), [({"tools": ["note"]}, "unknown_tool"), ({"models": [DEAR_MODEL]}, "unknown_model")]
)
async def test_a_run_is_not_gone_on_from_with_what_was_taken_back(
    service: Service, admin: OperatorStore, terms: Any, code: str
) -> None:
    await put(service, tools=["pay"])
    run_id = (await post(service)).json()["id"]
    await lose(service, run_id)
    await set_terms(admin, service, **terms)
    assert told(await service.client.post(f"/runs/{run_id}/resume")) == (422, code)


# --- other arguments -------------------------------------------------------------------------------------------------


async def test_no_other_arguments_are_taken_for_a_tool_that_was_taken_back(
    service: Service, admin: OperatorStore
) -> None:
    approval_id = await ask(service, await service.submit())
    await set_terms(admin, service, tools=["note"])
    response = await decide(service, approval_id, arguments={"amount": 5})
    assert (told(response), pointers(response)) == ((422, "invalid_arguments"), ["/arguments"])


async def test_other_arguments_are_taken_for_one_that_was_granted(service: Service, admin: OperatorStore) -> None:
    approval_id = await ask(service, await service.submit())
    await set_terms(admin, service, tools=["wire"])
    assert (await decide(service, approval_id, arguments={"amount": 5})).status_code == 200
