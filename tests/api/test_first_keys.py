"""The keys that a new deployment prints: what each of the three may do, and what it may not."""

import pytest

from app.ids import TenantId
from app.ports.tenancy import OperatorStore
from app.wiring.first_keys import FirstKeys, make_keys
from tests.api.harness import Service, with_key
from tests.api.lost_runs import lose
from tests.api.questions import ask, decide, told


@pytest.fixture
async def first(admin: OperatorStore, service: Service) -> FirstKeys:
    return await make_keys(admin, service.deps.ids, service.deps.ids.new("first"))


async def submit(service: Service, first: FirstKeys) -> str:
    """The service's key stores an agent and submits a run of it."""
    key = with_key(first.service)
    await service.client.put("/agents/planner", json={"instructions": "Plan."}, headers=key)
    response = await service.client.post("/runs", json={"agent": "planner", "input": "x"}, headers=key)
    return str(response.json()["id"])


async def test_the_service_submits_and_reads_approvals_and_the_approver_decides(
    service: Service, first: FirstKeys
) -> None:
    approval_id = await ask(service, await submit(service, first))
    read = await service.client.get(f"/approvals/{approval_id}", headers=with_key(first.service))
    by_service = await decide(service, approval_id, by=first.service)
    by_approver = await decide(service, approval_id, by=first.approver, arguments={"amount": 1})
    assert (read.status_code, told(by_service)) == (200, (403, "missing_scope"))
    assert (by_approver.status_code, by_approver.json()["decision"]["decided_by"]) == (200, "approver")


async def test_the_service_resumes_runs_again_and_erases(service: Service, first: FirstKeys) -> None:
    key = with_key(first.service)
    run_id = await lose(service, await submit(service, first))
    resumed = await service.client.post(f"/runs/{run_id}/resume", headers=key)
    await service.scribe.end(resumed.json()["id"])
    again = await service.client.post(f"/runs/{run_id}/rerun", headers=key)
    erased = await service.client.delete(f"/runs/{run_id}", headers=key)
    assert [answer.status_code for answer in (resumed, again, erased)] == [202, 202, 204]


async def test_the_approver_starts_nothing_and_the_operator_sees_nothing(service: Service, first: FirstKeys) -> None:
    run_id = await submit(service, first)
    submitted = await service.client.post("/runs", json={}, headers=with_key(first.approver))
    erased = await service.client.delete(f"/runs/{run_id}", headers=with_key(first.approver))
    listed = await service.client.get("/approvals", headers=with_key(first.operator))
    assert [told(answer) for answer in (submitted, erased, listed)] == [(403, "missing_scope")] * 3
    assert first.tenant_id != TenantId(service.keys.tenant_id)
