"""What form an answer has, and what it cost: as it is asked for, fixed and read back."""

from decimal import Decimal
from typing import Any

import httpx
import pytest

from app.api import ApiConfig
from app.policy import BudgetLimits
from app.service.runs import RunRules
from tests.api.harness import DEAR_MODEL, Service

PLAN: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def submit(service: Service, **body: Any) -> httpx.Response:
    return await service.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})


async def answered(service: Service, text: str, **body: Any) -> dict[str, Any]:
    """A run of the stored agent, once it has ended with that text."""
    run_id = (await submit(service, **body)).json()["id"]
    await service.scribe.end(run_id, output_text=text)
    return dict((await service.client.get(f"/runs/{run_id}")).json())


def pointers(response: httpx.Response) -> list[str]:
    return [error["pointer"] for error in response.json()["errors"]]


async def schema_of(service: Service, run_id: str) -> Any:
    async with service.deps.store.begin(service.keys.tenant_id) as tx:
        run = await tx.get_run(run_id)  # type: ignore[arg-type]
    assert run is not None
    return run.output_schema


# --- the form of the answer ------------------------------------------------------------------------------------------


async def test_the_requests_schema_stands_in_for_the_agents(service: Service) -> None:
    await service.put_agent(output_schema=PLAN)
    response = await submit(service, output_schema={"type": "array"})
    assert response.status_code == 202
    assert await schema_of(service, response.json()["id"]) == {"type": "array"}


async def test_without_one_in_the_request_the_agents_schema_is_fixed_for_the_run(service: Service) -> None:
    await service.put_agent(output_schema=PLAN)
    run_id = (await submit(service)).json()["id"]
    await service.put_agent()
    assert await schema_of(service, run_id) == PLAN


async def test_a_run_without_a_schema_has_none(service: Service) -> None:
    assert await schema_of(service, await service.submit()) is None


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "thing"}, id="no schema"),
        pytest.param({"$ref": "https://example.com/schema"}, id="a reference to elsewhere"),
        pytest.param({"$ref": "#"}, id="a circle"),
        pytest.param({"pattern": "(?=a)b"}, id="a look-ahead"),
        pytest.param({"unevaluatedProperties": False}, id="a keyword that is not taken"),
        pytest.param({"description": "x" * 66_000}, id="a long one"),
    ],
)
async def test_a_schema_that_no_answer_could_be_held_against_is_refused(service: Service, schema: Any) -> None:
    await service.put_agent()
    response = await submit(service, output_schema=schema)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_output_schema")
    assert pointers(response) == ["/output_schema"]
    assert (await service.client.get("/runs")).json()["items"] == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"city": "Kyoto", "nights": [4]}', {"city": "Kyoto", "nights": [4]}),
        ("[]", []),
        ('"text"', "text"),
        ("null", None),
        ("-0.25", -0.25),
        (str(10**400), 10**400),
        ('{"\\u0000": "\\u0000"}', {"\0": "\0"}),
    ],
)
async def test_where_a_run_has_a_schema_its_output_is_the_value(service: Service, text: str, value: Any) -> None:
    await service.put_agent()
    run = await answered(service, text, output_schema={})
    assert (run["output"], run["output_text"]) == (value, text)


async def test_without_a_schema_the_output_is_the_text_also_where_it_looks_like_json(service: Service) -> None:
    await service.put_agent()
    run = await answered(service, '{"city": "Kyoto"}')
    assert run["output"] == run["output_text"] == '{"city": "Kyoto"}'


async def test_a_run_with_a_schema_that_has_not_answered_has_no_output(service: Service) -> None:
    run_id = await service.submit(output_schema=PLAN)
    run = (await service.client.get(f"/runs/{run_id}")).json()
    assert (run["output"], run["output_text"]) == (None, None)


async def test_an_answer_that_an_older_process_did_not_check_spoils_no_list(service: Service) -> None:
    await service.put_agent()
    await answered(service, "Kyoto, of course.", output_schema=PLAN)
    (run,) = (await service.client.get("/runs")).json()["items"]
    assert run["output"] == "Kyoto, of course."


# --- cost ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cost", "told"), [("0.000312500", "0.0003125"), ("1E+3", "1000"), ("0", "0")])
async def test_what_a_run_cost_is_decimal_text(service: Service, cost: str, told: str) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id, cost=Decimal(cost))
    assert (await service.client.get(f"/runs/{run_id}")).json()["usage"]["cost"] == told


async def test_a_run_of_which_nothing_has_a_price_has_no_cost(service: Service) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    assert (await service.client.get(f"/runs/{run_id}")).json()["usage"]["cost"] is None


async def test_a_cost_that_could_not_be_told_can_not_be_bounded_by_a_request(service: Service) -> None:
    await service.put_agent()
    response = await submit(service, budget={"max_cost": "1"})
    assert (response.status_code, response.json()["code"]) == (422, "price_missing")
    assert pointers(response) == ["/budget/max_cost"]


@pytest.mark.parametrize("chosen", [{"model": DEAR_MODEL}, {"task_class": "paid"}])
async def test_a_request_bounds_the_cost_of_models_with_a_price(service: Service, chosen: dict[str, str]) -> None:
    await service.put_agent(**chosen)
    run = (await submit(service, budget={"max_cost": 0.25})).json()
    assert (run["budget"]["limits"]["max_cost"], run["budget"]["sources"]["max_cost"]) == ("0.25", "request")


class TestUnderADeploymentThatBoundsCost:
    @pytest.fixture
    def config(self) -> ApiConfig:
        return ApiConfig(rules=RunRules(budget=BudgetLimits(max_cost=Decimal(5))))

    async def test_an_agent_on_a_model_without_a_price_takes_no_runs(self, service: Service) -> None:
        await service.put_agent()
        response = await submit(service)
        assert (response.status_code, response.json()["code"]) == (422, "price_missing")
        assert pointers(response) == ["/agent"]

    async def test_an_agent_on_a_model_with_a_price_does(self, service: Service) -> None:
        await service.put_agent(model=DEAR_MODEL)
        assert (await submit(service)).json()["budget"]["limits"]["max_cost"] == "5"


# --- routes ----------------------------------------------------------------------------------------------------------


async def test_the_model_of_a_class_of_work_is_chosen_when_the_run_starts(service: Service) -> None:
    await service.put_agent(task_class="mixed")
    assert (await submit(service)).json()["model"] is None


async def test_a_class_of_work_whose_models_are_gone_takes_no_runs(service: Service) -> None:
    await service.put_agent(task_class="lost")
    response = await submit(service)
    assert (response.json()["code"], pointers(response)) == ("unknown_model", ["/agent"])
