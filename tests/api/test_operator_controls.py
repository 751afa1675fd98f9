"""Pauses, cancellations, workers, and the trail of all that was done."""

from typing import Any

import pytest

from app.ids import WorkerId, is_id
from tests.api.harness import MODEL, Service, with_key
from tests.api.operators import Operator, pages

UNKNOWN = f"ten_{'0' * 26}"


@pytest.fixture
def operator(service: Service) -> Operator:
    return Operator(service)


async def test_each_kind_of_thing_is_paused_listed_and_let_go(operator: Operator) -> None:
    tenant_id = operator.service.keys.tenant_id
    wanted: list[dict[str, Any]] = [
        {"kind": "tenant", "tenant_id": tenant_id, "name": None, "reason": ""},
        {"kind": "agent", "tenant_id": tenant_id, "name": "planner", "reason": "it loops\x00"},
        {"kind": "tool", "tenant_id": tenant_id, "name": "pay", "reason": ""},
        {"kind": "tool", "tenant_id": None, "name": "pay", "reason": ""},
        {"kind": "model", "tenant_id": None, "name": MODEL, "reason": "too dear"},
    ]
    made = [await operator.post("/pauses", body) for body in wanted]
    assert [{name: pause[name] for name in wanted[0]} for pause in made] == wanted
    assert {(pause["paused_by"], is_id("pau", pause["id"])) for pause in made} == {("ops", True)}
    listed = (await operator.get("/pauses"))["items"]
    assert all(pause in listed for pause in made)
    ended = [(await operator.ask("DELETE", f"/pauses/{pause['id']}")).status_code for pause in made]
    assert ended == [204] * 5
    left = {pause["id"] for pause in (await operator.get("/pauses"))["items"]}
    assert left.isdisjoint(pause["id"] for pause in made)


async def test_what_is_paused_already_is_answered_as_it_is(operator: Operator) -> None:
    body = {"kind": "agent", "tenant_id": operator.service.keys.tenant_id, "name": "planner"}
    first = await operator.post("/pauses", {**body, "reason": "one"})
    assert await operator.post("/pauses", {**body, "reason": "two"}, status=200) == first


async def test_a_paused_tenant_is_shown_as_paused(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    pause = await operator.post("/pauses", {"kind": "tenant", "tenant_id": tenant["id"]})
    assert (await operator.get(f"/tenants/{tenant['id']}"))["paused"] is True
    await operator.ask("DELETE", f"/pauses/{pause['id']}")
    assert (await operator.get(f"/tenants/{tenant['id']}"))["paused"] is False


async def test_runs_of_a_paused_tenant_are_taken_and_wait(operator: Operator) -> None:
    service = operator.service
    pause = await operator.post("/pauses", {"kind": "tenant", "tenant_id": service.keys.tenant_id})
    run_id = await service.submit()
    work = service.scribe.work
    claimed = {claim.run_id for claim in await work.claim(WorkerId("w"), limit=100, lease_seconds=60)}
    await operator.ask("DELETE", f"/pauses/{pause['id']}")
    later = {claim.run_id for claim in await work.claim(WorkerId("w"), limit=100, lease_seconds=60)}
    assert (run_id in claimed, run_id in later) == (False, True)


BAD_PAUSES: list[tuple[dict[str, Any], str, list[str]]] = [
    ({}, "invalid_request", ["/kind"]),
    ({"kind": "user", "name": "ada"}, "invalid_request", ["/kind"]),
    ({"kind": "tenant"}, "invalid_request", ["/tenant_id"]),
    ({"kind": "tenant", "name": "acme"}, "invalid_request", ["/name", "/tenant_id"]),
    ({"kind": "tenant", "tenant_id": UNKNOWN}, "unknown_tenant", ["/tenant_id"]),
    ({"kind": "tenant", "tenant_id": "acme\x00"}, "unknown_tenant", ["/tenant_id"]),
    ({"kind": "agent", "name": "planner"}, "invalid_request", ["/tenant_id"]),
    ({"kind": "agent"}, "invalid_request", ["/name", "/tenant_id"]),
    ({"kind": "tool"}, "invalid_request", ["/name"]),
    ({"kind": "tool", "name": ""}, "invalid_request", ["/name"]),
    ({"kind": "tool", "name": "fly"}, "unknown_name", ["/name"]),
    ({"kind": "tool", "name": "pay", "tenant_id": UNKNOWN}, "unknown_tenant", ["/tenant_id"]),
    ({"kind": "model", "name": "scripted:gone"}, "unknown_name", ["/name"]),
    ({"kind": "tool", "name": "pay", "reason": "x" * 1_001}, "invalid_request", ["/reason"]),
    ({"kind": "tool", "name": "pay", "paused_by": "me"}, "invalid_request", ["/paused_by"]),
]


async def test_what_pauses_nothing_is_refused_with_its_places(operator: Operator) -> None:
    before = await operator.get("/pauses")
    told = [(bad, *await operator.refusal("POST", "/pauses", bad)) for bad, *_ in BAD_PAUSES]
    assert told == [(bad, 422, code, pointers) for bad, code, pointers in BAD_PAUSES]
    assert await operator.get("/pauses") == before


async def test_a_name_that_no_agent_can_have_is_refused(operator: Operator) -> None:
    body = {"kind": "agent", "tenant_id": operator.service.keys.tenant_id, "name": "Planner!"}
    assert await operator.refusal("POST", "/pauses", body) == (422, "invalid_request", ["/name"])


@pytest.mark.parametrize("pause_id", [f"pau_{'0' * 26}", "pau_1", "%00"])
async def test_an_unknown_pause_is_not_found(operator: Operator, pause_id: str) -> None:
    assert await operator.refusal("DELETE", f"/pauses/{pause_id}") == (404, "not_found", [])


async def test_open_runs_of_one_tenant_are_cancelled_and_counted(operator: Operator) -> None:
    service = operator.service
    mine = [await service.submit() for _ in range(2)]
    others = with_key(service.others_keys.service)
    await service.client.put("/agents/planner", json={"instructions": "Plan."}, headers=others)
    run = await service.client.post("/runs", json={"agent": "planner", "input": "Hi."}, headers=others)
    body = {"tenant_id": service.keys.tenant_id, "reason": "wrong\x00prices"}
    assert await operator.post("/cancellations", body, status=200) == {"cancelled": 2}
    assert await operator.post("/cancellations", body, status=200) == {"cancelled": 0}
    wished = [(await service.client.get(f"/runs/{run_id}")).json()["cancel_requested_at"] for run_id in mine]
    spared = await service.client.get(f"/runs/{run.json()['id']}", headers=others)
    assert [at is None for at in (*wished, spared.json()["cancel_requested_at"])] == [False, False, True]
    entry = await operator.get("/audit", action="runs.cancelled", tenant_id=service.keys.tenant_id)
    assert {item["actor"] for item in entry["items"]} == {"ops"}


async def test_conditions_of_a_cancellation_hold_together(operator: Operator) -> None:
    service = operator.service
    await service.put_agent("payer", tools=["pay"])
    payers = (await service.client.post("/runs", json={"agent": "payer", "input": "Pay."})).json()["id"]
    await service.submit()
    mine = {"tenant_id": service.keys.tenant_id}
    counts = [
        (await operator.post("/cancellations", {**mine, **where}, status=200))["cancelled"]
        for where in (
            {"agent": "nobody"},
            {"agent": "planner", "tool": "pay"},
            {"tool": "look_up"},
            {"model": "scripted:gone"},
            {"created_before": "2001-01-01T00:00:00+01:00"},
            {"tool": "pay", "model": MODEL, "agent": "payer", "created_before": "2999-01-01T00:00:00Z"},
        )
    ]
    assert counts == [0, 0, 0, 0, 0, 1]
    assert (await service.client.get(f"/runs/{payers}")).json()["cancel_requested_at"] is not None


BAD_CANCELLATIONS: list[tuple[dict[str, Any], str, list[str]]] = [
    ({}, "invalid_request", [""]),
    ({"reason": "all of it"}, "invalid_request", [""]),
    ({"tenant_id": None}, "invalid_request", [""]),
    ({"tenant_id": UNKNOWN}, "unknown_tenant", ["/tenant_id"]),
    ({"agent": ""}, "invalid_request", ["/agent"]),
    ({"created_before": "yesterday"}, "invalid_request", ["/created_before"]),
    ({"created_before": "2026-01-31"}, "invalid_request", ["/created_before"]),
    ({"created_before": "9999-12-31T23:59:59-23:59"}, "invalid_request", ["/created_before"]),
    ({"created_before": 1}, "invalid_request", ["/created_before"]),
    ({"agent": "planner", "state": "queued"}, "invalid_request", ["/state"]),
]


async def test_a_cancellation_that_makes_no_sense_is_refused_and_ends_nothing(operator: Operator) -> None:
    run_id = await operator.service.submit()
    told = [(bad, *await operator.refusal("POST", "/cancellations", bad)) for bad, *_ in BAD_CANCELLATIONS]
    assert told == [(bad, 422, code, pointers) for bad, code, pointers in BAD_CANCELLATIONS]
    assert (await operator.service.client.get(f"/runs/{run_id}")).json()["cancel_requested_at"] is None


async def test_a_worker_is_listed_and_told_to_drain(operator: Operator) -> None:
    worker_id = WorkerId(f"host:1:{operator.service.deps.ids.new('wrk')}")
    work = operator.service.scribe.work
    assert await work.hello(worker_id, frozenset({"tool:pay", f"model:{MODEL}"})) is False
    (worker,) = [each for each in (await operator.get("/workers"))["items"] if each["id"] == worker_id]
    assert (worker["has"], worker["draining"]) == ([f"model:{MODEL}", "tool:pay"], False)
    answer = await operator.ask("POST", f"/workers/{worker_id}/drain")
    assert (answer.status_code, answer.json()) == (202, {"id": worker_id, "draining": True})
    assert await work.hello(worker_id, frozenset()) is True
    entry = await operator.last_change("worker.drained", worker_id)
    assert (entry["actor"], entry["tenant_id"]) == ("ops", None)


@pytest.mark.parametrize("worker_id", ["nobody", "%00", "x" * 600])
async def test_an_unknown_worker_is_not_found(operator: Operator, worker_id: str) -> None:
    assert await operator.refusal("POST", f"/workers/{worker_id}/drain") == (404, "not_found", [])


async def test_the_trail_is_read_newest_first_in_pages(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    await operator.change(tenant["id"], weight=2)
    await operator.change(tenant["id"], weight=3)
    listed = [page async for page in pages(operator, "/audit", tenant_id=tenant["id"], limit=2)]
    entries = [entry for page in listed for entry in page]
    assert [entry["action"] for entry in entries] == ["tenant.changed", "tenant.changed", "tenant.created"]
    assert [len(page) for page in listed] == [2, 1]
    assert [entry["id"] for entry in entries] == sorted((entry["id"] for entry in entries), reverse=True)
    assert (entries[0]["before"], entries[2]["before"]) == (entries[1]["after"], None)


async def test_the_trail_is_read_by_action(operator: Operator) -> None:
    tenant = await operator.create_tenant()
    await operator.change(tenant["id"], weight=2)
    found = await operator.get("/audit", tenant_id=tenant["id"], action="tenant.created")
    assert [entry["action"] for entry in found["items"]] == ["tenant.created"]
    assert (await operator.get("/audit", tenant_id=tenant["id"], action="nothing\x00"))["items"] == []


BAD_QUESTIONS = [
    ("tenant_id=acme", "/query/tenant_id"),
    ("tenant_id=%00", "/query/tenant_id"),
    (f"action={'x' * 65}", "/query/action"),
    ("action=a&action=b", "/query/action"),
    ("limit=0", "/query/limit"),
    ("limit=201", "/query/limit"),
]


async def test_a_question_to_the_trail_that_makes_no_sense_is_refused(operator: Operator) -> None:
    told = [(bad, *await operator.refusal("GET", f"/audit?{bad}")) for bad, _ in BAD_QUESTIONS]
    assert told == [(bad, 422, "invalid_request", [pointer]) for bad, pointer in BAD_QUESTIONS]
