"""Equal answers to equal requests: who asks for them, and where nobody can promise them."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api import ApiDeps
from app.ports.store import TenantStore
from tests.api.harness import DETERMINISTIC_MODEL, MODEL, Service, SmallCatalogue


async def put(service: Service, name: str = "planner", /, **definition: Any) -> httpx.Response:
    return await service.client.put(f"/agents/{name}", json={"instructions": "x", **definition})


async def post(service: Service, **body: Any) -> httpx.Response:
    return await service.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})


def told(response: httpx.Response) -> tuple[int, str, list[str]]:
    problem = response.json()
    return response.status_code, problem["code"], [error["pointer"] for error in problem["errors"]]


async def load(service: Service, run_id: str) -> Any:
    store: TenantStore = service.deps.store
    async with store.begin(service.keys.tenant_id) as tx:
        return await tx.get_run(run_id)  # type: ignore[arg-type]


async def test_a_definition_that_its_model_can_not_keep_is_refused(service: Service) -> None:
    response = await put(service, model=MODEL, deterministic=True)

    assert told(response) == (422, "deterministic_unavailable", ["/deterministic"])
    assert (await service.client.get("/agents/planner")).status_code == 404


async def test_a_definition_is_stored_where_its_model_keeps_it(service: Service) -> None:
    response = await put(service, model=DETERMINISTIC_MODEL, deterministic=True)

    assert (response.status_code, response.json()["deterministic"]) == (201, True)


async def test_a_definition_without_it_is_the_version_that_it_was(service: Service) -> None:
    await put(service)

    assert (await put(service, deterministic=False)).status_code == 200
    assert (await service.client.get("/agents/planner")).json()["deterministic"] is False


@pytest.mark.parametrize("wrong", ["yes", 1, None])
async def test_anything_but_true_and_false_is_refused(service: Service, wrong: Any) -> None:
    await put(service, model=DETERMINISTIC_MODEL)

    assert told(await put(service, deterministic=wrong))[::2] == (422, ["/deterministic"])
    assert told(await post(service, deterministic=wrong))[::2] == (422, ["/deterministic"])


async def test_a_request_is_refused_where_the_agents_model_can_not_keep_it(service: Service) -> None:
    await put(service, model=MODEL)

    assert told(await post(service, deterministic=True)) == (422, "deterministic_unavailable", ["/deterministic"])
    assert (await service.client.get("/runs")).json()["items"] == []


async def test_every_model_of_a_route_has_to_keep_it(service: Service) -> None:
    await put(service, task_class="mixed")
    mixed = await post(service, deterministic=True)
    await put(service, task_class="paid")

    assert told(mixed) == (422, "deterministic_unavailable", ["/deterministic"])
    assert (await post(service, deterministic=True)).status_code == 202


async def test_a_request_turns_it_on_and_the_run_says_so(service: Service) -> None:
    await put(service, model=DETERMINISTIC_MODEL)
    plain, asked = (await post(service)).json(), (await post(service, deterministic=True)).json()

    assert (plain["deterministic"], asked["deterministic"]) == (False, True)
    assert (await load(service, asked["id"])).deterministic is True
    assert (await service.client.get(f"/runs/{plain['id']}")).json()["deterministic"] is False


async def test_a_request_does_not_turn_off_what_the_agent_says(service: Service) -> None:
    await put(service, model=DETERMINISTIC_MODEL, deterministic=True)

    assert (await post(service, deterministic=False)).json()["deterministic"] is True


async def test_a_request_asks_it_of_all_agents_of_the_run(service: Service) -> None:
    await put(service, "billing", model=MODEL)
    await put(service, model=DETERMINISTIC_MODEL, sub_agents=[{"agent": "billing", "mode": "tool"}])

    assert (await post(service)).status_code == 202
    refused = await post(service, deterministic=True)
    assert told(refused) == (422, "deterministic_unavailable", ["/deterministic"])
    assert "billing" in refused.json()["errors"][0]["detail"]


async def test_who_is_below_a_deterministic_agent_has_to_keep_it_too(service: Service) -> None:
    await put(service, "billing", model=MODEL)
    entry = {"agent": "billing"}
    response = await put(service, model=DETERMINISTIC_MODEL, deterministic=True, sub_agents=[entry])

    assert told(response) == (422, "deterministic_unavailable", ["/deterministic"])


async def test_models_say_whether_they_take_such_calls(service: Service) -> None:
    models = {model["name"]: model for model in (await service.client.get("/models")).json()["items"]}

    assert {name: model["supports_deterministic"] for name, model in models.items()} == {
        MODEL: False,
        DETERMINISTIC_MODEL: True,
    }
    assert models[MODEL]["deterministic_tokens"] is None


class TestWhereTheDefaultModelKeepsIt:
    @pytest.fixture
    def deps(self, deps: ApiDeps) -> ApiDeps:
        return replace(deps, catalogue=SmallCatalogue(default=DETERMINISTIC_MODEL))

    async def test_a_sub_agent_that_would_have_another_model_from_its_caller_is_pointed_at(
        self, service: Service
    ) -> None:
        await put(service, "legal")
        await put(service, "billing", deterministic=True)
        response = await put(service, model=MODEL, sub_agents=["legal", "billing"])

        assert told(response) == (422, "deterministic_unavailable", ["/sub_agents/1"])
        assert (await put(service, sub_agents=["legal", "billing"])).status_code == 201
