"""GET /usage: what the tenant has used in a stretch of time, and what its ceilings leave now."""

from decimal import Decimal
from typing import Any

import pytest

from app.conversation import Usage, UsageSource
from app.events import RunState
from app.ids import RunId
from app.policy import Ceiling, CeilingDimension, Spend
from app.ports.records import RunUpdate
from app.ports.tenancy import OperatorStore
from tests.api.harness import Service, with_key
from tests.api.questions import pointers, told
from tests.api.terms import set_terms
from tests.conftest import DatabaseUrls
from tests.store.support import query, warned

DAY = Ceiling(dimension=CeilingDimension.OUTPUT_TOKENS, window_seconds=86_400, limit=Decimal(1000))
COST = Ceiling(dimension=CeilingDimension.COST, window_seconds=3600, limit=Decimal("0.25"))


async def use(
    service: Service, *, cost: str | None = None, source: UsageSource = UsageSource.PROVIDER, **body: Any
) -> str:
    """A run that has used 100 tokens, 40 of them cached, wrote 20, and made two calls of each kind; its id."""
    run_id = await service.submit(**body)
    await spend(service, run_id, cost=cost, source=source)
    return run_id


async def spend(
    service: Service, run_id: str, *, cost: str | None = None, source: UsageSource = UsageSource.PROVIDER
) -> None:
    usage = Usage(input_tokens=100, cached_tokens=40, output_tokens=20, source=source)
    await write(service, run_id, usage=usage, model_calls=2, tool_calls=2, cost=None if cost is None else Decimal(cost))


async def write(service: Service, run_id: str, **update: Any) -> None:
    claim = await service.scribe.claim(RunId(run_id))
    await service.scribe.work.append_if_owner(claim, [warned()], RunUpdate(state=RunState.RUNNING, **update))


async def read(service: Service, path: str = "/usage", *, key: str | None = None) -> dict[str, Any]:
    response = await service.client.get(path, headers=with_key(service.keys.service if key is None else key))
    assert response.status_code == 200, response.text
    return dict(response.json())


async def test_what_was_used_in_the_last_day_is_one_total(service: Service) -> None:
    await use(service, cost="0.001")
    await use(service, cost="0.0002")
    usage = await read(service)
    [total] = usage["items"]
    assert total.pop("seconds") >= 0
    assert total == {
        "name": None,
        "runs": 2,
        "input_tokens": 200,
        "cached_tokens": 80,
        "output_tokens": 40,
        "model_calls": 4,
        "tool_calls": 4,
        "cost": "0.0012",
        "estimated": False,
    }
    assert (usage["by"], usage["ceilings"]) == (None, [])


async def test_where_nothing_was_used_the_total_is_nothing(service: Service) -> None:
    [total] = (await read(service))["items"]
    assert (total["runs"], total["output_tokens"], total["cost"]) == (0, 0, None)


@pytest.mark.parametrize(
    ("by", "names"), [("agent", ["planner"]), ("user", ["ada", "bob"]), ("model", ["scripted:demo"])]
)
async def test_it_is_told_apart_by_agent_model_or_user(service: Service, by: str, names: list[str]) -> None:
    await use(service, user="ada")
    await use(service, user="ada")
    await use(service, user="bob")
    usage = await read(service, f"/usage?by={by}")
    assert (usage["by"], [item["name"] for item in usage["items"]]) == (by, names)
    assert sum(item["output_tokens"] for item in usage["items"]) == 60


async def test_runs_that_name_no_user_are_a_group_without_a_name(service: Service) -> None:
    await use(service)
    assert [item["name"] for item in (await read(service, "/usage?by=user"))["items"]] == [None]


async def test_the_largest_groups_come_first_and_no_more_than_were_asked_for(service: Service) -> None:
    await use(service, user="ada")
    await use(service, user="bob")
    await use(service, user="bob")
    assert [item["name"] for item in (await read(service, "/usage?by=user&limit=1"))["items"]] == ["bob"]


async def test_the_time_is_told_and_bounds_what_is_counted(service: Service, api_urls: DatabaseUrls) -> None:
    run_id = await use(service)
    statement = "UPDATE runs SET created_at = '2026-01-31T12:00:00Z' WHERE run_id = $1"
    await query(api_urls.superuser_url, statement, run_id)
    inside = await read(service, "/usage?since=2026-01-31T12:00:00Z&until=2026-01-31T12:00:01Z")
    before = await read(service, "/usage?since=2026-01-31T11:00:00Z&until=2026-01-31T12:00:00Z")
    assert (inside["since"], inside["until"]) == ("2026-01-31T12:00:00.000Z", "2026-01-31T12:00:01.000Z")
    assert [usage["items"][0]["runs"] for usage in (inside, before)] == [1, 0]


async def test_without_a_beginning_it_is_the_day_before_the_end(service: Service) -> None:
    usage = await read(service, "/usage?until=2026-01-31T12:00:00Z")
    assert usage["since"] == "2026-01-30T12:00:00.000Z"


async def test_what_nobody_counted_is_marked(service: Service) -> None:
    await use(service, source=UsageSource.HEURISTIC)
    assert (await read(service))["items"][0]["estimated"] is True


async def test_ceilings_tell_what_their_windows_hold(service: Service, admin: OperatorStore) -> None:
    run_id = await service.submit()
    await set_terms(admin, service, ceilings=[DAY, COST])
    await spend(service, run_id, cost="0.001")
    cost, tokens = (await read(service))["ceilings"]
    assert cost == {
        "dimension": "cost",
        "window_seconds": 3600,
        "limit": "0.25",
        "used": "0.001",
        "held": "0",
        "remaining": "0.249",
        "estimated": False,
    }
    assert (tokens["dimension"], tokens["used"], tokens["remaining"]) == ("output_tokens", "20", "980")


async def test_what_is_reserved_for_a_call_that_is_out_is_told_apart(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, ceilings=[DAY])
    run_id = await service.submit()
    held = Spend(input_tokens=10, output_tokens=300)
    await write(service, run_id, usage=Usage(), model_calls=0, tool_calls=0, held=held, announces=True)
    [tokens] = (await read(service))["ceilings"]
    assert (tokens["used"], tokens["held"], tokens["remaining"]) == ("0", "300", "700")


async def test_what_one_tenant_used_another_one_does_not_see(service: Service, admin: OperatorStore) -> None:
    await set_terms(admin, service, ceilings=[DAY])
    await use(service)
    other = await read(service, key=service.others_keys.service)
    assert (other["items"][0]["runs"], other["ceilings"]) == (0, [])


async def test_whoever_may_read_runs_may_read_it(service: Service) -> None:
    assert (await read(service, key=service.keys.reader))["items"][0]["runs"] == 0


async def test_nobody_else_may(service: Service) -> None:
    answers = [
        await service.client.get("/usage", headers=with_key(key))
        for key in (service.keys.approver, service.keys.operator)
    ]
    assert list(map(told, answers)) == [(403, "missing_scope")] * 2


@pytest.mark.parametrize(
    ("parameters", "pointer"),
    [
        ("by=tenant", "/query/by"),
        ("by=", "/query/by"),
        ("by=agent&by=user", "/query/by"),
        ("limit=0", "/query/limit"),
        ("limit=201", "/query/limit"),
        ("since=yesterday", "/query/since"),
        ("until=2026-01-31", "/query/until"),
        ("since=2026-01-31T12:00:00Z&until=2026-01-31T12:00:00Z", "/query/since"),
        ("since=2026-02-01T00:00:00Z&until=2026-01-31T12:00:00Z", "/query/since"),
        ("since=2025-01-01T00:00:00Z&until=2026-01-02T00:00:01Z", "/query/since"),
        ("since=0001-01-01T00:00:00Z&until=9999-12-31T23:59:59Z", "/query/since"),
        ("since=2999-01-01T00:00:00Z", "/query/since"),
        ("until=0001-01-01T00:00:00Z", "/query/until"),
        ("agent=planner", "/query/agent"),
    ],
)
async def test_a_parameter_that_is_wrong_is_pointed_to(service: Service, parameters: str, pointer: str) -> None:
    response = await service.client.get(f"/usage?{parameters}")
    assert (told(response), pointers(response)) == ((422, "invalid_request"), [pointer])


async def test_a_year_with_a_day_more_is_taken(service: Service) -> None:
    await read(service, "/usage?since=2025-01-01T00:00:00Z&until=2026-01-02T00:00:00Z")
