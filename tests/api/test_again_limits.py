"""Runs once more, in a deployment that is another one by now: its ceilings, its models, its prices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import httpx
import pytest

from app.api import ApiConfig, create_app
from app.policy import BudgetLimits, Price
from app.ports.model import ModelInfo
from app.service.runs import RunRules
from tests.api.contract import check_answer
from tests.api.harness import DEAR_MODEL, Service, SmallCatalogue, with_key
from tests.api.lost_runs import lose
from tests.api.questions import told


@dataclass(frozen=True)
class PoorCatalogue(SmallCatalogue):
    """Nothing has a price any more, and the dear model is gone where ``gone`` says so."""

    gone: bool = False

    def models(self) -> Sequence[ModelInfo]:
        return [model for model in super().models() if not (self.gone and model.name == DEAR_MODEL)]

    def price(self, model: str) -> Price | None:
        return None


@pytest.fixture(params=["resume", "rerun"])
def again(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def ask_again(service: Service, run_id: str, again: str, **changes: Any) -> httpx.Response:
    """Asks a deployment that differs in this."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(replace(service.deps, **changes))),
        base_url="http://test",
        headers=with_key(service.keys.service),
        event_hooks={"response": [check_answer]},
    ) as client:
        return await client.post(f"/runs/{run_id}/{again}")


def with_budget(**limits: Any) -> ApiConfig:
    return ApiConfig(rules=RunRules(budget=BudgetLimits(**limits)))


async def submit_and_lose(service: Service, *, definition: dict[str, Any] | None = None, **body: Any) -> str:
    await service.put_agent(**definition or {})
    response = await service.client.post("/runs", json={"agent": "planner", "input": "x", **body})
    return await lose(service, response.json()["id"])


async def test_the_deployments_ceilings_of_today_tighten_the_budget(service: Service, again: str) -> None:
    run_id = await submit_and_lose(service, budget={"max_tool_calls": 5, "max_model_calls": 4})
    config = with_budget(max_tool_calls=3, max_model_calls=9, max_seconds=60)
    budget = (await ask_again(service, run_id, again, config=config)).json()["budget"]
    limits, sources = budget["limits"], budget["sources"]
    assert (limits["max_tool_calls"], sources["max_tool_calls"]) == (3, "deployment")
    assert (limits["max_model_calls"], sources["max_model_calls"]) == (4, "request")
    assert (limits["max_seconds"], sources["max_seconds"]) == (60, "deployment")


async def test_they_never_widen_it(service: Service, again: str) -> None:
    run_id = await submit_and_lose(service)
    before = (await service.client.get(f"/runs/{run_id}")).json()["budget"]
    after = (await ask_again(service, run_id, again, config=with_budget(max_tool_calls=10_000))).json()["budget"]
    assert after == before


async def test_a_full_queue_takes_no_more(service: Service, again: str) -> None:
    run_id = await submit_and_lose(service)
    await service.submit()
    config = ApiConfig(rules=RunRules(max_queued_runs=1))
    response = await ask_again(service, run_id, again, config=config)
    assert (told(response), response.headers["retry-after"]) == ((429, "queue_full"), "1")


async def test_a_model_that_is_gone_takes_no_runs(service: Service, again: str) -> None:
    run_id = await submit_and_lose(service, definition={"model": DEAR_MODEL})
    response = await ask_again(service, run_id, again, catalogue=PoorCatalogue(gone=True))
    assert told(response) == (422, "unknown_model")


async def test_a_bounded_cost_needs_its_prices_still(service: Service, again: str) -> None:
    run_id = await submit_and_lose(service, definition={"model": DEAR_MODEL, "budget": {"max_cost": "0.5"}})
    response = await ask_again(service, run_id, again, catalogue=PoorCatalogue())
    assert told(response) == (422, "price_missing")
    kept = (await ask_again(service, run_id, again)).json()["budget"]
    assert Decimal(kept["limits"]["max_cost"]) == Decimal("0.5")


async def test_of_a_route_the_router_takes_its_choice_again(service: Service, again: str) -> None:
    run_id = await submit_and_lose(service, definition={"task_class": "paid"})
    assert (await ask_again(service, run_id, again)).json()["model"] is None


async def test_a_default_model_that_is_another_one_now_changes_nothing(service: Service, again: str) -> None:
    run_id = await submit_and_lose(service)
    response = await ask_again(service, run_id, again, catalogue=SmallCatalogue(default=DEAR_MODEL))
    assert response.json()["model"] == "scripted:demo"
