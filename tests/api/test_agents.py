"""/agents, /tools, /models: immutable versions, and names that have to be there."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.harness import Service, with_key

FULL: dict[str, Any] = {
    "instructions": "Plan trips. \x00",
    "description": "A planner.",
    "model": "scripted:demo",
    "tools": ["look_up", "pay"],
    "idempotent_tools": ["look_up"],
    "tool_choice": "look_up",
    "budget": {"max_output_tokens": 500, "max_seconds": 1.5},
    "max_llm_calls": 20,
    "max_iterations": 5,
    "max_tool_result_chars": 1000,
    "deadlines": {"run_seconds": 60, "grace_seconds": 1},
    "retry": {"max_attempts": 3},
    "loop": {"max_repeated_calls": 2},
    "output_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "repair": {"max_attempts": 2},
    "concurrency": {"max_concurrent_tools": 4},
    "history": "all",
    "approval_denial": "fail_run",
    "approval_ttl_seconds": 60,
    "on_tool_error": "fail_run",
    "on_indeterminate": "surface",
    "guardrails": ["injection_guard"],
    "hooks": ["redactor"],
    "metadata": {"team": "travel"},
}


COMPARED = ("instructions", "tools", "output_schema", "repair", "concurrency", "on_tool_error", "metadata")


async def put(service: Service, **definition: Any) -> httpx.Response:
    return await service.client.put("/agents/planner", json={"instructions": "x", **definition})


def pointers(response: httpx.Response) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


async def test_a_definition_reads_back_as_it_was_put(service: Service) -> None:
    stored = await put(service, **FULL)
    read = await service.client.get("/agents/planner")
    assert (stored.status_code, stored.headers["location"]) == (201, "/agents/planner/versions/1")
    assert read.json() == stored.json() == (await service.client.get("/agents/planner/versions/1")).json()
    assert {name: read.json()[name] for name in COMPARED} == {name: FULL[name] for name in COMPARED}
    assert read.json()["budget"]["max_seconds"] == 1.5


async def test_an_equal_definition_is_the_version_that_is_there(service: Service) -> None:
    first = await put(service)
    again = await put(service, description="", max_iterations=8)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()


async def test_a_definition_that_differs_is_the_next_version_and_the_first_one_stays(service: Service) -> None:
    first = await put(service)
    second = await put(service, description="new")
    assert (second.status_code, second.json()["version"]) == (201, 2)
    assert second.json()["digest"] != first.json()["digest"]
    assert (await service.client.get("/agents/planner/versions/1")).json() == first.json()
    assert (await service.client.get("/agents/planner")).json() == second.json()


async def test_an_agent_that_was_retired_and_put_again_goes_on_counting(service: Service) -> None:
    await put(service)
    await service.client.delete("/agents/planner")
    retired = await service.client.get("/agents/planner")
    revived = await put(service, description="new")
    assert (retired.json()["retired"], revived.json()["retired"], revived.json()["version"]) == (True, False, 2)


async def test_retiring_twice_is_retiring_once(service: Service) -> None:
    await put(service)
    answers = [await service.client.delete("/agents/planner"), await service.client.delete("/agents/planner")]
    assert [answer.status_code for answer in answers] == [204, 204]


async def test_names_that_this_deployment_does_not_have_are_pointed_to_one_by_one(service: Service) -> None:
    response = await put(
        service,
        tools=["look_up", "fly"],
        hooks=["none_such"],
        guardrails=["injection_guard", "none_such"],
        model="openai:gpt",
    )
    assert (response.status_code, response.json()["code"]) == (422, "unknown_name")
    assert pointers(response) == ["/tools/1", "/hooks/0", "/guardrails/1", "/model"]
    assert (await service.client.get("/agents/planner")).status_code == 404


async def test_a_tool_that_its_author_declared_once_can_not_be_listed_as_idempotent(service: Service) -> None:
    response = await put(service, tools=["look_up", "pay"], idempotent_tools=["look_up", "pay"])
    assert (response.status_code, pointers(response)) == (422, ["/idempotent_tools/1"])


async def test_a_tool_of_which_nothing_was_declared_may_be_listed_as_idempotent(service: Service) -> None:
    assert (await put(service, tools=["note"], idempotent_tools=["note"])).status_code == 201


async def test_no_type_of_pythons_is_ever_looked_at(service: Service, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    response = await put(service, output_type=f"__import__('pathlib').Path('{trace}').touch()")
    assert (response.status_code, response.json()["errors"]) == (
        422,
        [{"pointer": "/output_type", "detail": "unknown field"}],
    )
    assert not trace.exists()


async def test_a_schema_that_no_answer_could_be_held_against_says_why(service: Service) -> None:
    response = await put(service, output_schema={"$ref": "https://example.com/schema"})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_output_schema")
    assert pointers(response) == ["/output_schema"]


async def test_a_class_of_work_that_has_a_route_stands_in_for_a_model(service: Service) -> None:
    assert (await put(service, task_class="mixed")).json()["task_class"] == "mixed"


async def test_a_class_of_work_without_a_route_is_not_known(service: Service) -> None:
    response = await put(service, task_class="chess")
    assert (response.json()["code"], pointers(response)) == ("unknown_name", ["/task_class"])


@pytest.mark.parametrize("chosen", [{}, {"model": "scripted:demo"}, {"task_class": "mixed"}])
async def test_a_cost_that_could_not_be_told_can_not_be_bounded(service: Service, chosen: dict[str, str]) -> None:
    response = await put(service, budget={"max_cost": "0.25"}, **chosen)
    assert (response.status_code, response.json()["code"]) == (422, "price_missing")
    assert pointers(response) == ["/budget/max_cost"]
    assert "scripted:demo" in response.json()["errors"][0]["detail"]


@pytest.mark.parametrize("chosen", [{"model": "scripted:dear"}, {"task_class": "paid"}])
async def test_a_cost_is_bounded_where_every_model_has_a_price(service: Service, chosen: dict[str, str]) -> None:
    response = await put(service, budget={"max_cost": "0.25"}, **chosen)
    assert (response.status_code, response.json()["budget"]["max_cost"]) == (201, "0.25")


@pytest.mark.parametrize("policy", ["fail", "surface", "ask"])
async def test_an_unknown_outcome_is_met_as_the_agent_says(service: Service, policy: str) -> None:
    response = await put(service, on_indeterminate=policy)
    assert (response.status_code, response.json()["on_indeterminate"]) == (201, policy)


async def test_tools_that_a_person_has_to_allow_can_be_named(service: Service) -> None:
    response = await put(service, tools=["look_up", "wire", "pay"], approval_required_tools=["pay"])
    assert (response.status_code, response.json()["approval_required_tools"]) == (201, ["pay"])


@pytest.mark.parametrize(
    ("definition", "pointer"),
    [
        pytest.param({"instructions": ""}, "/instructions", id="no instructions"),
        pytest.param({"instructions": " "}, "", id="blank instructions"),
        pytest.param({"instructions": 5}, "/instructions", id="a number as instructions"),
        pytest.param({"colour": "red"}, "/colour", id="an unknown field"),
        pytest.param({"name": "planner"}, "/name", id="a name in the body"),
        pytest.param({"version": 1}, "/version", id="a version in the body"),
        pytest.param({"model": "demo"}, "/model", id="a model without a provider"),
        pytest.param({"tools": "look_up"}, "/tools", id="a text as tools"),
        pytest.param({"tools": ["look up"]}, "/tools/0", id="a name that no tool can have"),
        pytest.param({"tools": ["look_up", "look_up"]}, "", id="a tool twice"),
        pytest.param({"idempotent_tools": ["look_up"]}, "", id="idempotent but not allowed"),
        pytest.param({"tool_choice": "look_up"}, "", id="a choice that is not allowed"),
        pytest.param({"budget": {"max_seconds": 0}}, "/budget/max_seconds", id="a budget of nothing"),
        pytest.param({"budget": {"max_input_tokens": "9"}}, "/budget/max_input_tokens", id="a text as budget"),
        pytest.param({"max_llm_calls": 501}, "/max_llm_calls", id="too many model calls"),
        pytest.param({"max_llm_calls": 0}, "/max_llm_calls", id="a bound on model calls that is lifted"),
        pytest.param({"output_type": "dict"}, "/output_type", id="a type of Python's"),
        pytest.param({"output_type": None}, "/output_type", id="no type of Python's"),
        pytest.param({"output_schema": "object"}, "/output_schema", id="a text as schema"),
        pytest.param({"output_schema": {"type": "thing"}}, "/output_schema", id="a schema that is none"),
        pytest.param({"model": "scripted:demo", "task_class": "paid"}, "", id="a model and a class of work"),
        pytest.param({"repair": {"max_attempts": 0}}, "/repair/max_attempts", id="no repairs"),
        pytest.param(
            {"concurrency": {"max_concurrent_tools": 0}}, "/concurrency/max_concurrent_tools", id="no tool at a time"
        ),
        pytest.param({"deadlines": {"run_seconds": -1}}, "/deadlines/run_seconds", id="a deadline in the past"),
        pytest.param({"retry": {"max_attempts": 0}}, "/retry/max_attempts", id="no attempts"),
        pytest.param({"on_tool_error": "shrug"}, "/on_tool_error", id="an unknown policy"),
        pytest.param({"on_indeterminate": "guess"}, "/on_indeterminate", id="an unknown policy of outcomes"),
        pytest.param({"metadata": {"k": 1}}, "/metadata/k", id="a number in metadata"),
        pytest.param({"metadata": {"k": "v" * 513}}, "/metadata", id="a long value in metadata"),
        pytest.param({"metadata": {"k" * 65: "v"}}, "/metadata", id="a long name in metadata"),
        pytest.param({"metadata": {str(n): "v" for n in range(17)}}, "/metadata", id="too much metadata"),
    ],
)
async def test_a_wrong_definition_is_refused_with_a_pointer_and_nothing_is_stored(
    service: Service, definition: dict[str, Any], pointer: str
) -> None:
    response = await put(service, **definition)
    assert (response.status_code, pointers(response)) == (422, [pointer])
    assert (await service.client.get("/agents/planner")).status_code == 404


async def test_a_definition_without_instructions_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.put("/agents/planner", json={})
    assert pointers(response) == ["/instructions"]


@pytest.mark.parametrize(
    "name", ["Planner", "-planner", "x" * 65, "plan%20ner", "planner%00", "pl%C3%A4ner", "planner%0A"]
)
async def test_a_name_that_no_agent_can_have_is_refused(client: httpx.AsyncClient, name: str) -> None:
    response = await client.put(f"/agents/{name}", json={"instructions": "x"})
    assert (response.status_code, pointers(response)) == (422, ["/path/name"])
    assert (await client.get(f"/agents/{name}")).status_code == 404
    assert (await client.delete(f"/agents/{name}")).status_code == 404


@pytest.mark.parametrize("version", ["0", "2", "-1", "01", "x", "1.0", "9" * 30, "%D9%A1"])
async def test_a_version_that_is_not_there_is_not_found(service: Service, version: str) -> None:
    await put(service)
    assert (await service.client.get(f"/agents/planner/versions/{version}")).status_code == 404


async def test_agents_are_listed_by_name_and_pages_join(service: Service) -> None:
    await service.put_agent("carol")
    await service.put_agent("alice")
    await service.put_agent("bob")
    first = (await service.client.get("/agents?limit=2")).json()
    second = (await service.client.get(f"/agents?limit=2&cursor={first['next_cursor']}")).json()
    assert [item["name"] for item in first["items"] + second["items"]] == ["alice", "bob", "carol"]
    assert second["next_cursor"] is None


async def test_another_tenants_agent_is_not_found_and_not_listed(service: Service) -> None:
    await put(service)
    other = with_key(service.others_keys.service)
    assert (await service.client.get("/agents", headers=other)).json()["items"] == []
    assert (await service.client.get("/agents/planner", headers=other)).status_code == 404
    assert (await service.client.get("/agents/planner/versions/1", headers=other)).status_code == 404
    assert (await service.client.delete("/agents/planner", headers=other)).status_code == 404
    assert (await service.client.get("/agents/planner")).json()["retired"] is False


async def test_the_tools_that_can_be_named_are_listed_with_schema_and_effect(client: httpx.AsyncClient) -> None:
    tools = (await client.get("/tools")).json()["items"]
    assert [(tool["name"], tool["effect"]) for tool in tools] == [
        ("look_up", "read"),
        ("note", "once"),
        ("pay", "once"),
        ("wire", "once"),
    ]
    assert tools[0]["parameters"] == {"type": "object", "properties": {}}


async def test_of_a_tool_it_is_told_whether_it_runs_beside_others_and_whether_a_person_is_asked(
    client: httpx.AsyncClient,
) -> None:
    tools = {tool["name"]: tool for tool in (await client.get("/tools")).json()["items"]}
    assert [(tools[name]["parallel_safe"], tools[name]["needs_approval"]) for name in ("look_up", "pay", "wire")] == [
        (True, False),
        (False, False),
        (False, True),
    ]


async def test_the_models_that_can_be_named_are_listed_with_what_they_can(client: httpx.AsyncClient) -> None:
    models = (await client.get("/models")).json()["items"]
    assert [(model["name"], model["is_default"], model["context_tokens"]) for model in models] == [
        ("scripted:dear", False, 4096),
        ("scripted:demo", True, 4096),
    ]


async def test_a_models_price_is_decimal_text_or_null(client: httpx.AsyncClient) -> None:
    models = (await client.get("/models")).json()["items"]
    assert [model["price"] for model in models] == [{"input": "2.5", "output": "10", "cached": None}, None]
