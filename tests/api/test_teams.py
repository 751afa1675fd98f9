"""Agents that name other agents: what a definition may say of them, and what a run of them fixes."""

from typing import Any

import httpx
import pytest

from app.agents import SubAgent
from app.ports.store import TenantStore
from tests.api.harness import DEAR_MODEL, MODEL, Service, with_key


def pointers(response: httpx.Response) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


async def put(service: Service, name: str = "planner", /, **definition: Any) -> httpx.Response:
    return await service.client.put(f"/agents/{name}", json={"instructions": "x", **definition})


async def post(service: Service, **body: Any) -> httpx.Response:
    return await service.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})


async def load(service: Service, run_id: str) -> Any:
    store: TenantStore = service.deps.store
    async with store.begin(service.keys.tenant_id) as tx:
        return await tx.get_run(run_id)  # type: ignore[arg-type]


async def test_sub_agents_are_named_alone_or_with_what_they_may(service: Service) -> None:
    for name in ("billing", "legal"):
        await service.put_agent(name)
    await service.put_agent("travel.desk", tools=["look_up"])
    entries = ["billing", "legal@1", {"agent": "travel.desk", "mode": "tool", "tools": ["look_up"]}]
    stored = await put(service, sub_agents=entries, callbacks=["audit"], disallow_transfer_to_peers=True)
    assert stored.status_code == 201
    assert stored.json()["sub_agents"] == [
        {"agent": "billing", "mode": "transfer", "tools": None},
        {"agent": "legal@1", "mode": "transfer", "tools": None},
        {"agent": "travel.desk", "mode": "tool", "tools": ["look_up"]},
    ]
    assert (stored.json()["callbacks"], stored.json()["disallow_transfer_to_peers"]) == (["audit"], True)
    assert (await service.client.get("/agents/planner")).json() == stored.json()


async def test_a_name_and_an_entry_that_says_no_more_are_one_version(service: Service) -> None:
    await service.put_agent("billing")
    await put(service, sub_agents=["billing"])
    assert (await put(service, sub_agents=[{"agent": "billing"}])).status_code == 200


@pytest.mark.parametrize(
    ("definition", "pointer"),
    [
        pytest.param({"callbacks": ["audit", "none_such"]}, "/callbacks/1", id="callbacks"),
        pytest.param({"sub_agents": ["billing", "nobody"]}, "/sub_agents/1", id="an agent"),
        pytest.param({"sub_agents": ["billing@2"]}, "/sub_agents/0", id="a version"),
        pytest.param({"sub_agents": [{"agent": "nobody", "mode": "tool"}]}, "/sub_agents/0", id="a tool's agent"),
        pytest.param(
            {"sub_agents": [{"agent": "billing", "tools": ["note", "fly"]}]}, "/sub_agents/0/tools/1", id="a tool"
        ),
    ],
)
async def test_what_is_not_there_is_pointed_to_and_nothing_is_stored(
    service: Service, definition: dict[str, Any], pointer: str
) -> None:
    await service.put_agent("billing")
    response = await put(service, **definition)
    assert (response.status_code, response.json()["code"], pointers(response)) == (422, "unknown_name", [pointer])
    assert (await service.client.get("/agents/planner")).status_code == 404


async def test_another_tenants_agent_is_as_unknown_as_any(service: Service) -> None:
    other = with_key(service.others_keys.service)
    await service.client.put("/agents/billing", json={"instructions": "x"}, headers=other)
    assert (await put(service, sub_agents=["billing"])).json()["code"] == "unknown_name"


@pytest.mark.parametrize(
    ("entry", "pointer"),
    [
        pytest.param({"agent": {"name": "billing", "instructions": "x"}}, "/sub_agents/0/agent", id="a definition"),
        pytest.param({"name": "billing", "agent": "billing"}, "/sub_agents/0/name", id="an unknown field"),
        pytest.param({"mode": "tool"}, "/sub_agents/0/agent", id="no name"),
        pytest.param("Billing", "/sub_agents/0", id="a name that no agent can have"),
        pytest.param("billing@0", "/sub_agents/0", id="a version that there can't be"),
        pytest.param({"agent": "billing", "mode": "guess"}, "/sub_agents/0/mode", id="an unknown mode"),
        pytest.param({"agent": "billing", "tools": "note"}, "/sub_agents/0/tools", id="a text as tools"),
        pytest.param(5, "/sub_agents/0", id="a number"),
        pytest.param(None, "/sub_agents/0", id="nothing"),
    ],
)
async def test_an_entry_that_names_no_agent_is_refused(service: Service, entry: Any, pointer: str) -> None:
    await service.put_agent("billing")
    response = await put(service, sub_agents=[entry])
    assert (response.status_code, response.json()["code"], pointers(response)) == (422, "invalid_request", [pointer])


@pytest.mark.parametrize(
    "field",
    [
        "before_agent_callback",
        "after_agent_callback",
        "before_model_callback",
        "after_model_callback",
        "before_tool_callback",
        "after_tool_callback",
    ],
)
async def test_a_callback_is_code_and_never_goes_over_the_wire(service: Service, field: str) -> None:
    response = await put(service, **{field: None})
    assert (response.status_code, pointers(response)) == (422, [f"/{field}"])
    await put(service)
    assert field not in (await service.client.get("/agents/planner")).json()


async def test_an_agent_below_itself_is_no_team(service: Service) -> None:
    response = await put(service, sub_agents=["planner"])
    assert (response.status_code, response.json()["code"]) == (422, "invalid_team")
    assert pointers(response) == ["/sub_agents/0"]


async def test_a_circle_of_agents_is_no_team(service: Service) -> None:
    await service.put_agent("legal")
    await service.put_agent("planner")
    await service.put_agent("billing", sub_agents=["planner"])
    response = await put(service, sub_agents=["legal", "billing"])
    assert (response.status_code, response.json()["code"]) == (422, "invalid_team")
    assert pointers(response) == ["/sub_agents/1"]


async def test_an_agent_twice_is_no_team(service: Service) -> None:
    await service.put_agent("legal")
    await service.put_agent("billing", sub_agents=["legal"])
    response = await put(service, sub_agents=["billing", {"agent": "legal", "mode": "tool"}])
    assert (response.status_code, response.json()["code"]) == (422, "invalid_team")
    assert pointers(response) == ["/sub_agents/1"]


async def test_an_agent_with_a_budget_of_its_own_takes_no_run_over(service: Service) -> None:
    await service.put_agent("billing", budget={"max_output_tokens": 5})
    response = await put(service, sub_agents=["billing"])
    assert (response.status_code, response.json()["code"]) == (422, "invalid_team")
    assert pointers(response) == ["/sub_agents"]
    assert (await put(service, sub_agents=[{"agent": "billing", "mode": "tool"}])).status_code == 201


async def put_many(service: Service, names: list[str]) -> None:
    for name in names:
        await service.put_agent(name)


async def test_a_team_has_at_most_64_agents_below_the_first(service: Service) -> None:
    names = [f"a{number}" for number in range(64)]
    await put_many(service, [*names, "one-more"])
    accepted = await put(service, sub_agents=names)
    await service.put_agent("a63", sub_agents=["one-more"])
    refused = await put(service, sub_agents=names)
    assert (accepted.status_code, refused.json()["code"]) == (201, "invalid_team")
    assert pointers(refused) == ["/sub_agents/63"]


async def test_a_retired_agent_is_in_no_new_definition(service: Service) -> None:
    await service.put_agent("billing")
    await service.client.delete("/agents/billing")
    response = await put(service, sub_agents=["billing"])
    assert (response.status_code, response.json()["code"]) == (409, "agent_retired")
    assert pointers(response) == ["/sub_agents/0"]


async def test_a_cost_is_bounded_where_the_whole_team_has_prices(service: Service) -> None:
    await service.put_agent("billing", model=MODEL)
    await service.put_agent("legal")
    definition = {"model": DEAR_MODEL, "budget": {"max_cost": "1"}}
    refused = await put(service, sub_agents=["billing"], **definition)
    assert (refused.json()["code"], pointers(refused)) == ("price_missing", ["/budget/max_cost"])
    assert (await put(service, sub_agents=["legal"], **definition)).status_code == 201


async def test_a_run_fixes_the_versions_of_its_whole_team(service: Service) -> None:
    await service.put_agent("legal")
    await service.put_agent("billing", sub_agents=["legal"])
    await put(service, sub_agents=["billing"])
    await service.put_agent("legal", description="new")
    run_id = (await post(service)).json()["id"]
    await service.put_agent("legal", description="newer")
    assert (await load(service, run_id)).team == {"billing": 1, "legal": 2}


async def test_a_run_of_an_agent_alone_has_no_team(service: Service) -> None:
    assert (await load(service, await service.submit())).team is None


async def test_a_version_that_is_named_is_the_one_that_is_fixed(service: Service) -> None:
    await service.put_agent("billing")
    await service.put_agent("billing", description="new")
    await put(service, sub_agents=["billing@1"])
    assert (await load(service, (await post(service)).json()["id"])).team == {"billing": 1}


async def test_a_team_that_has_lost_a_member_takes_no_runs(service: Service) -> None:
    await service.put_agent("billing")
    await put(service, sub_agents=["billing"])
    await service.client.delete("/agents/billing")
    response = await post(service)
    assert (response.status_code, response.json()["code"], pointers(response)) == (409, "agent_retired", ["/agent"])


async def test_a_team_that_has_become_a_circle_takes_no_runs(service: Service) -> None:
    await service.put_agent("legal")
    await service.put_agent("billing", sub_agents=["legal"])
    await put(service, sub_agents=["billing"])
    await put_past_the_checks(service, "legal", sub_agents=(SubAgent(agent="billing"),))
    response = await post(service)
    assert (response.status_code, response.json()["code"], pointers(response)) == (422, "invalid_team", ["/agent"])


async def test_a_member_whose_model_is_away_takes_no_runs(service: Service) -> None:
    await service.put_agent("billing")
    await put(service, sub_agents=["billing"])
    await put_past_the_checks(service, "billing", model="scripted:gone")
    response = await post(service)
    assert (response.status_code, response.json()["code"], pointers(response)) == (422, "unknown_model", ["/agent"])


async def test_a_member_whose_calls_a_person_has_to_allow_takes_runs(service: Service) -> None:
    await service.put_agent("billing", tools=["wire"])
    stored = await put(service, sub_agents=[{"agent": "billing", "tools": ["wire"]}])
    assert (stored.status_code, (await post(service)).status_code) == (201, 202)


async def test_a_grant_of_what_the_sub_agent_does_not_have_is_refused(service: Service) -> None:
    await service.put_agent("billing", tools=["look_up"])
    stored = await put(service, sub_agents=[{"agent": "billing", "tools": ["look_up", "wire"]}])
    assert (stored.json()["code"], pointers(stored)) == ("empty_grant", ["/sub_agents/0/tools/1"])


async def test_a_name_that_leaves_a_sub_agent_without_any_of_its_tools_is_refused(service: Service) -> None:
    await service.put_agent("billing", tools=["look_up"])
    silent = await put(service, sub_agents=["billing"])
    said = await put(service, sub_agents=[{"agent": "billing", "tools": []}])
    assert (silent.json()["code"], pointers(silent)) == ("empty_grant", ["/sub_agents/0"])
    assert said.status_code == 201


async def test_a_bounded_cost_needs_prices_of_the_whole_team(service: Service) -> None:
    await service.put_agent("billing", model=MODEL)
    await put(service, model=DEAR_MODEL, sub_agents=["billing"])
    response = await post(service, budget={"max_cost": "1"})
    assert (response.json()["code"], pointers(response)) == ("price_missing", ["/budget/max_cost"])


async def put_past_the_checks(service: Service, name: str, **changes: Any) -> None:
    """As a deployment that had other models and tools would have stored it, or two requests at once."""
    store: TenantStore = service.deps.store
    async with store.begin(service.keys.tenant_id) as tx:
        stored = await tx.get_agent(name)
        assert stored is not None
        await tx.put_agent(stored.agent.model_copy(update=changes))


async def test_a_grant_that_names_a_tool_twice_is_refused(service: Service) -> None:
    await service.put_agent("billing", tools=["look_up"])
    stored = await put(service, sub_agents=[{"agent": "billing", "tools": ["look_up", "look_up"]}])
    assert (stored.json()["code"], pointers(stored)) == ("invalid_request", ["/sub_agents/0/tools"])
