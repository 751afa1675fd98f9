"""``/tenants``: made, listed, read, changed, erased."""

from typing import Any

import pytest

from app.ids import is_id
from tests.api.harness import DEAR_MODEL, MODEL, Service, with_key
from tests.api.operators import Operator, pages

NEW: dict[str, Any] = {
    "paused": False,
    "erasing": False,
    "max_running": None,
    "max_queued": None,
    "requests_per_minute": None,
    "weight": 1,
    "tools": None,
    "models": None,
    "ceilings": [],
    "on_ledger_error": "fail",
    "approvers": [],
    "allow_self_approval": False,
    "runs_days": None,
    "sessions_days": None,
    "archive": False,
}
UNKNOWN = f"ten_{'0' * 26}"


@pytest.fixture
def operator(service: Service) -> Operator:
    return Operator(service)


def bounds(tenant: dict[str, Any]) -> dict[str, Any]:
    return {name: limit for name, limit in tenant["budget"].items() if limit is not None}


async def test_a_tenant_is_created_without_bounds(operator: Operator) -> None:
    name = operator.service.deps.ids.new("tenant") + " \x00é"
    response = await operator.ask("POST", "/tenants", json={"name": name})
    created = response.json()
    assert response.status_code == 201
    assert is_id("ten", created["id"])
    assert response.headers["location"] == f"/tenants/{created['id']}"
    assert created["name"] == name
    assert {key: created[key] for key in NEW} == NEW
    assert bounds(created) == {}


async def test_a_created_tenant_is_read_and_listed(operator: Operator) -> None:
    created = await operator.create_tenant()
    assert await operator.get(f"/tenants/{created['id']}") == created
    listed = [tenant async for page in pages(operator, "/tenants", limit=200) for tenant in page]
    assert created in listed


async def test_tenants_are_listed_by_name_in_pages(operator: Operator) -> None:
    made = [(await operator.create_tenant())["name"] for _ in range(3)]
    listed = [page async for page in pages(operator, "/tenants", limit=2)]
    names = [tenant["name"] for page in listed for tenant in page]
    assert names == sorted(set(names))
    assert [name for name in names if name in made] == made
    assert all(len(page) == 2 for page in listed[:-1])


async def test_a_cursor_of_another_list_is_refused(operator: Operator) -> None:
    await operator.create_tenant()
    await operator.create_tenant()
    cursor = (await operator.get("/tenants", limit=1))["next_cursor"]
    assert (await operator.refusal("GET", f"/audit?cursor={cursor}"))[:2] == (400, "invalid_cursor")


async def test_a_name_that_is_taken_is_refused(operator: Operator) -> None:
    name = (await operator.create_tenant())["name"]
    assert await operator.refusal("POST", "/tenants", {"name": name}) == (409, "tenant_exists", [])


BAD_TENANTS: list[tuple[Any, list[str]]] = [
    ({}, ["/name"]),
    ({"name": None}, ["/name"]),
    ({"name": " "}, ["/name"]),
    ({"name": ""}, ["/name"]),
    ({"name": "x" * 201}, ["/name"]),
    ({"name": UNKNOWN}, ["/name"]),
    ({"name": 1}, ["/name"]),
    ({"name": "a", "weight": 2}, ["/weight"]),
    ([], [""]),
]


async def test_a_body_that_makes_no_tenant_is_refused_with_its_places(operator: Operator) -> None:
    told = [(bad, await operator.refusal("POST", "/tenants", bad)) for bad, _ in BAD_TENANTS]
    assert told == [(bad, (422, "invalid_request", pointers)) for bad, pointers in BAD_TENANTS]


async def test_every_setting_is_changed_and_read_back(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    changes = {
        "max_running": 0,
        "max_queued": 7,
        "requests_per_minute": 600,
        "weight": 1_000,
        "tools": ["look_up", "pay"],
        "models": [DEAR_MODEL, MODEL],
        "ceilings": [
            {"dimension": "cost", "window_seconds": 86_400, "limit": "0.5"},
            {"dimension": "tokens", "window_seconds": 60, "limit": "1000"},
        ],
        "on_ledger_error": "proceed",
        "approvers": [
            {"agents": None, "tools": ["pay"], "subjects": ["ada"], "groups": ["finance"], "approvals": 2},
        ],
        "allow_self_approval": True,
        "runs_days": 36_500,
        "sessions_days": 1,
        "archive": True,
    }
    changed = await operator.change(tenant["id"], **changes, budget={"max_cost": "0.25", "max_seconds": 1.5})
    assert {name: changed[name] for name in changes} == changes
    assert bounds(changed) == {"max_cost": "0.25", "max_seconds": 1.5}
    assert await operator.get(f"/tenants/{tenant['id']}") == changed


async def test_what_is_left_out_stays_and_null_takes_a_bound_away(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    await operator.change(tenant["id"], max_running=3, tools=["pay"], weight=5)
    changed = await operator.change(tenant["id"], max_running=None)
    assert (changed["max_running"], changed["tools"], changed["weight"]) == (None, ["pay"], 5)
    assert (await operator.change(tenant["id"], tools=None))["tools"] is None


async def test_no_tools_at_all_is_another_thing_than_all(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    assert (await operator.change(tenant["id"], tools=[], models=[]))["tools"] == []


async def test_a_budget_is_replaced_whole(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    await operator.change(tenant["id"], budget={"max_cost": "1", "max_tool_calls": 4})
    changed = await operator.change(tenant["id"], budget={"max_iterations": 2})
    assert bounds(changed) == {"max_iterations": 2}
    assert bounds(await operator.change(tenant["id"], budget=None)) == {}


async def test_ceilings_and_approvers_are_replaced_whole(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    by_day = {"dimension": "cost", "window_seconds": 86_400, "limit": "25"}
    by_hour = {"dimension": "cost", "window_seconds": 3_600, "limit": "2"}
    await operator.change(tenant["id"], ceilings=[by_day], approvers=[{"subjects": ["ada"]}])
    changed = await operator.change(tenant["id"], ceilings=[by_hour], approvers=[{"groups": ["finance"]}])
    assert changed["ceilings"] == [by_hour]
    assert [rule["groups"] for rule in changed["approvers"]] == [["finance"]]


async def test_an_empty_change_changes_nothing_and_is_in_no_trail(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    assert await operator.change(tenant["id"]) == tenant
    trail = await operator.get("/audit", tenant_id=tenant["id"])
    assert [entry["action"] for entry in trail["items"]] == ["tenant.created"]


BAD_SETTINGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"max_running": -1}, ["/max_running"]),
    ({"max_running": 1_000_001}, ["/max_running"]),
    ({"max_running": "3"}, ["/max_running"]),
    ({"max_running": True}, ["/max_running"]),
    ({"max_queued": -1}, ["/max_queued"]),
    ({"requests_per_minute": 0}, ["/requests_per_minute"]),
    ({"weight": 0}, ["/weight"]),
    ({"weight": 1_001}, ["/weight"]),
    ({"weight": None}, ["/weight"]),
    ({"tools": ["look_up", "look_up"]}, ["/tools"]),
    ({"tools": [""]}, ["/tools/0"]),
    ({"tools": "look_up"}, ["/tools"]),
    ({"models": ["demo"]}, ["/models/0"]),
    ({"budget": {"max_cost": "0"}}, ["/budget/max_cost"]),
    ({"budget": {"max_tool_calls": 0}}, ["/budget/max_tool_calls"]),
    ({"budget": {"max_dollars": 1}}, ["/budget/max_dollars"]),
    ({"budget": []}, ["/budget"]),
    ({"ceilings": None}, ["/ceilings"]),
    ({"ceilings": [{"dimension": "cost", "window_seconds": 61, "limit": "1"}]}, ["/ceilings/0/window_seconds"]),
    ({"ceilings": [{"dimension": "cost", "window_seconds": 0, "limit": "1"}]}, ["/ceilings/0/window_seconds"]),
    ({"ceilings": [{"dimension": "luck", "window_seconds": 60, "limit": "1"}]}, ["/ceilings/0/dimension"]),
    ({"ceilings": [{"dimension": "cost", "window_seconds": 60, "limit": "0"}]}, ["/ceilings/0/limit"]),
    ({"ceilings": [{"dimension": "cost", "window_seconds": 60, "limit": "1e3"}]}, ["/ceilings/0/limit"]),
    ({"ceilings": [{"dimension": "tokens", "window_seconds": 60, "limit": "1.5"}]}, ["/ceilings/0"]),
    ({"ceilings": [{"dimension": "cost", "window_seconds": 60, "limit": "1"}] * 2}, ["/ceilings/1"]),
    ({"on_ledger_error": "ignore"}, ["/on_ledger_error"]),
    ({"approvers": None}, ["/approvers"]),
    ({"approvers": [{}]}, ["/approvers/0"]),
    ({"approvers": [{"subjects": ["ada"], "approvals": 3}]}, ["/approvers/0/approvals"]),
    ({"approvers": [{"subjects": ["ada"], "tools": []}]}, ["/approvers/0"]),
    ({"approvers": [{"subjects": [""]}]}, ["/approvers/0/subjects/0"]),
    ({"approvers": [{"agents": ["ok", "The Clerk"], "approvals": 2}]}, ["/approvers/0/agents/1"]),
    ({"allow_self_approval": None}, ["/allow_self_approval"]),
    ({"runs_days": 0}, ["/runs_days"]),
    ({"runs_days": 1.5}, ["/runs_days"]),
    ({"sessions_days": 36_501}, ["/sessions_days"]),
    ({"archive": "yes"}, ["/archive"]),
    ({"name": "other"}, ["/name"]),
    ({"paused": True}, ["/paused"]),
    ({"weight": 0, "archive": 1}, ["/weight", "/archive"]),
]


async def test_a_setting_that_makes_no_sense_is_refused_with_its_places_and_nothing_changes(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    path = f"/tenants/{tenant['id']}"
    told = [(bad, await operator.refusal("PATCH", path, {"max_queued": 5, **bad})) for bad, _ in BAD_SETTINGS]
    assert told == [(bad, (422, "invalid_request", pointers)) for bad, pointers in BAD_SETTINGS]
    assert await operator.get(path) == tenant


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"tools": ["look_up", "fly"]}, ["/tools/1"]),
        ({"models": ["scripted:gone"]}, ["/models/0"]),
        ({"approvers": [{"subjects": ["ada"]}, {"tools": ["fly"], "approvals": 2}]}, ["/approvers/1/tools/0"]),
        ({"tools": ["fly"], "models": ["scripted:gone"]}, ["/tools/0", "/models/0"]),
    ],
)
async def test_what_this_deployment_does_not_have_is_refused_by_name(
    operator: Operator, changes: dict[str, Any], pointers: list[str]
) -> None:
    tenant = await operator.create_tenant()
    path = f"/tenants/{tenant['id']}"
    assert await operator.refusal("PATCH", path, changes) == (422, "unknown_name", pointers)
    assert await operator.get(path) == tenant


async def test_an_unknown_tenant_is_not_found_by_any_route(operator: Operator) -> None:
    answers = [
        await operator.ask(method, path, json={})
        for path in (f"/tenants/{UNKNOWN}", "/tenants/ten_%00", "/tenants/acme")
        for method in ("GET", "PATCH", "DELETE")
    ]
    assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {(404, "there is no such tenant")}


async def test_erasing_a_tenant_is_accepted_and_shown(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    responses = [await operator.ask("DELETE", f"/tenants/{tenant['id']}") for _ in range(2)]
    assert [(each.status_code, each.json()) for each in responses] == [(202, {**tenant, "erasing": True})] * 2


async def test_the_wish_to_erase_is_in_the_trail_once(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    await operator.ask("DELETE", f"/tenants/{tenant['id']}")
    await operator.ask("DELETE", f"/tenants/{tenant['id']}")
    trail = (await operator.get("/audit", tenant_id=tenant["id"]))["items"]
    assert [entry["action"] for entry in trail] == ["tenant.changed", "tenant.created"]
    assert "erase_requested_at" in trail[0]["details"]


async def test_keys_of_a_tenant_that_goes_are_valid_no_more(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    key = await operator.create_key(tenant["id"])
    client = operator.service.client
    before = await client.get("/me", headers=with_key(key["secret"]))
    await operator.ask("DELETE", f"/tenants/{tenant['id']}")
    after = await client.get("/me", headers=with_key(key["secret"]))
    assert (before.status_code, after.status_code) == (200, 401)


async def test_a_tenant_that_goes_is_not_changed_and_gets_no_keys(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    path = f"/tenants/{tenant['id']}"
    await operator.ask("DELETE", path)
    assert await operator.refusal("PATCH", path, {"weight": 2}) == (409, "tenant_erasing", [])
    body = {"scopes": ["runs:read"]}
    assert await operator.refusal("POST", f"{path}/keys", body) == (409, "tenant_erasing", [])


async def test_a_change_names_who_made_it(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    await operator.change(tenant["id"], weight=7)
    entry = await operator.last_change("tenant.changed", tenant["id"])
    assert (entry["actor"], entry["tenant_id"]) == ("ops", tenant["id"])
    assert "weight" in entry["details"]
    assert entry["before"] != entry["after"]
