"""A tenant's limits as a new run meets them: its budget, its queue, its ceilings, and what /me tells of all that."""

from decimal import Decimal
from typing import Any

import httpx
import pytest

from app.api import ApiConfig
from app.policy import BudgetLimits, Ceiling, CeilingDimension
from app.ports.tenancy import OperatorStore
from app.service.runs import RunRules
from tests.api.harness import DEAR_MODEL, MODEL, Service, with_key
from tests.api.lost_runs import lose
from tests.api.questions import pointers, told
from tests.api.terms import set_terms
from tests.conftest import DatabaseUrls
from tests.store.support import query

RULES = RunRules(max_queued_runs=3, budget=BudgetLimits(max_output_tokens=800, max_tool_calls=40))
COST = Ceiling(dimension=CeilingDimension.COST, window_seconds=3600, limit=Decimal("0.25"))
TOKENS = Ceiling(dimension=CeilingDimension.TOKENS, window_seconds=60, limit=Decimal(1000))


@pytest.fixture
def config() -> ApiConfig:
    return ApiConfig(rules=RULES)


async def post(service: Service, **body: Any) -> httpx.Response:
    return await service.client.post("/runs", json={"agent": "planner", "input": "Hello.", **body})


async def limits(service: Service) -> dict[str, Any]:
    return dict((await service.client.get("/me")).json()["limits"])


# --- budget ----------------------------------------------------------------------------------------------------------


async def test_the_tenants_budget_narrows_the_deployments(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, budget=BudgetLimits(max_output_tokens=500, max_tool_calls=90, max_model_calls=7))
    await service.put_agent()
    budget = (await post(service)).json()["budget"]
    assert {name: value for name, value in budget["limits"].items() if value is not None} == {
        "max_output_tokens": 500,
        "max_tool_calls": 40,
        "max_model_calls": 7,
    }
    assert budget["sources"] == {
        "max_output_tokens": "tenant",
        "max_tool_calls": "deployment",
        "max_model_calls": "tenant",
    }


async def test_an_agent_and_a_request_narrow_it_further_and_never_widen_it(
    service: Service, admin: OperatorStore
) -> None:
    await set_terms(admin, service, budget=BudgetLimits(max_output_tokens=500, max_model_calls=7))
    await service.put_agent(budget={"max_output_tokens": 600})
    budget = (await post(service, budget={"max_model_calls": 3})).json()["budget"]
    assert (budget["limits"]["max_output_tokens"], budget["sources"]["max_output_tokens"]) == (500, "tenant")
    assert (budget["limits"]["max_model_calls"], budget["sources"]["max_model_calls"]) == (3, "request")


async def test_a_run_that_is_run_again_has_the_tighter_one_of_then_and_now(
    service: Service, admin: OperatorStore
) -> None:
    await set_terms(admin, service, budget=BudgetLimits(max_output_tokens=500, max_tool_calls=9))
    run_id = await service.submit()
    await service.scribe.end(run_id)
    await set_terms(admin, service, budget=BudgetLimits(max_output_tokens=600, max_tool_calls=8))
    budget = (await service.client.post(f"/runs/{run_id}/rerun")).json()["budget"]
    assert (budget["limits"]["max_output_tokens"], budget["limits"]["max_tool_calls"]) == (500, 8)
    assert budget["sources"] == {"max_output_tokens": "tenant", "max_tool_calls": "tenant"}


async def test_a_run_that_was_accepted_keeps_its_budget(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, budget=BudgetLimits(max_output_tokens=500))
    run_id = await service.submit()
    await set_terms(admin, service, budget=BudgetLimits(max_output_tokens=400))
    budget = (await service.client.get(f"/runs/{run_id}")).json()["budget"]
    assert budget["limits"]["max_output_tokens"] == 500


# --- cost ------------------------------------------------------------------------------------------------------------


async def test_a_ceiling_on_cost_takes_no_run_whose_cost_nobody_can_tell(
    service: Service, admin: OperatorStore
) -> None:
    await set_terms(admin, service, ceilings=[COST])
    await service.put_agent()
    response = await post(service)
    assert (told(response), pointers(response)) == ((422, "price_missing"), ["/agent"])


async def test_it_takes_runs_that_have_a_price(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, ceilings=[COST])
    await service.put_agent(model=DEAR_MODEL)
    assert (await post(service)).status_code == 202


async def test_ceilings_on_other_things_need_no_price(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, ceilings=[TOKENS])
    await service.put_agent()
    assert (await post(service)).status_code == 202


@pytest.mark.parametrize("again", ["rerun", "resume"])
async def test_it_is_the_same_for_a_run_once_more(service: Service, admin: OperatorStore, again: str) -> None:
    run_id = await lose(service, await service.submit())
    await set_terms(admin, service, ceilings=[COST])
    assert told(await service.client.post(f"/runs/{run_id}/{again}")) == (422, "price_missing")


async def test_a_tenants_budget_of_cost_needs_a_price_too(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, budget=BudgetLimits(max_cost=Decimal(1)))
    await service.put_agent()
    assert told(await post(service)) == (422, "price_missing")


# --- the queue -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "taken"), [(1, 1), (2, 2), (9, 3), (None, 3), (0, 0)])
async def test_the_tenants_queue_is_no_longer_than_the_deployments(
    service: Service, admin: OperatorStore, own: int | None, taken: int
) -> None:
    await set_terms(admin, service, max_queued=own)
    await service.put_agent()
    answers = [await post(service) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202] * taken + [429] * (4 - taken)
    assert told(answers[-1]) == (429, "queue_full")
    assert (await limits(service))["max_queued_runs"] == taken


async def test_who_is_sent_away_is_told_how_long_a_place_takes_of_late(
    service: Service, admin: OperatorStore, api_urls: DatabaseUrls
) -> None:
    await set_terms(admin, service, max_queued=1)
    run_id = await service.submit()
    await service.scribe.end(run_id)
    statement = "UPDATE tenant_queue SET turn_seconds = 41.2 WHERE tenant_id = $1"
    await query(api_urls.superuser_url, statement, service.keys.tenant_id)
    await service.submit()
    response = await post(service)
    assert (told(response), response.headers["retry-after"]) == ((429, "queue_full"), "42")


async def test_a_run_once_more_meets_the_same_queue(service: Service, admin: OperatorStore) -> None:
    run_id = await lose(service, await service.submit())
    await set_terms(admin, service, max_queued=1)
    await service.submit()
    answers = [await service.client.post(f"/runs/{run_id}/{again}") for again in ("rerun", "resume")]
    assert list(map(told, answers)) == [(429, "queue_full")] * 2


# --- a ledger that can't be asked ------------------------------------------------------------------------------------


async def test_a_run_tells_what_becomes_of_it_where_the_ceilings_cannot_be_asked(
    service: Service, admin: OperatorStore
) -> None:
    first = await service.submit()
    await set_terms(admin, service, on_ledger_error="proceed")
    second = await service.submit()
    runs = [(await service.client.get(f"/runs/{run_id}")).json() for run_id in (first, second)]
    assert [run["on_ledger_error"] for run in runs] == ["fail", "proceed"]


@pytest.mark.parametrize("again", ["rerun", "resume"])
async def test_a_run_once_more_goes_by_the_setting_of_now(service: Service, admin: OperatorStore, again: str) -> None:
    run_id = await lose(service, await service.submit())
    await set_terms(admin, service, on_ledger_error="proceed")
    assert (await service.client.post(f"/runs/{run_id}/{again}")).json()["on_ledger_error"] == "proceed"


# --- /me -------------------------------------------------------------------------------------------------------------


async def test_me_tells_the_tenants_limits(service: Service, admin: OperatorStore) -> None:
    await set_terms(
        admin,
        service,
        max_running=4,
        max_queued=2,
        requests_per_minute=6000,
        weight=3,
        tools=["wire", "note"],
        models=[MODEL],
        budget=BudgetLimits(max_output_tokens=500),
        ceilings=[COST, TOKENS],
        on_ledger_error="proceed",
    )
    told_limits = await limits(service)
    budget = {name: value for name, value in told_limits.pop("budget").items() if value is not None}
    assert budget == {"max_output_tokens": 500, "max_tool_calls": 40}
    assert told_limits == {
        "max_queued_runs": 2,
        "max_running_runs": 4,
        "requests_per_minute": 6000,
        "weight": 3,
        "tools": ["note", "wire"],
        "models": [MODEL],
        "ceilings": [
            {"dimension": "cost", "window_seconds": 3600, "limit": "0.25"},
            {"dimension": "tokens", "window_seconds": 60, "limit": "1000"},
        ],
        "on_ledger_error": "proceed",
    }


async def test_where_nothing_was_set_me_says_so(service: Service) -> None:
    told_limits = await limits(service)
    unset = ("max_running_runs", "requests_per_minute", "tools", "models", "weight", "ceilings", "on_ledger_error")
    assert [told_limits[name] for name in unset] == [None, None, None, None, 1, [], "fail"]


async def test_me_tells_nothing_of_another_tenants_limits(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, max_running=4, tools=[])
    me = (await service.client.get("/me", headers=with_key(service.others_keys.service))).json()
    assert (me["limits"]["max_running_runs"], me["limits"]["tools"]) == (None, None)
