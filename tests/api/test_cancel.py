"""POST /runs/{id}/cancel: a wish that is never lost."""

import asyncio
from typing import Any

import pytest

from app.ports.store import TenantStore
from tests.api.harness import JSON_TYPE, Service, with_key


async def load(service: Service, run_id: str) -> Any:
    store: TenantStore = service.deps.store
    async with store.begin(service.keys.tenant_id) as tx:
        return await tx.get_run(run_id)  # type: ignore[arg-type]


async def test_a_cancel_before_any_worker_has_the_run_is_kept(service: Service) -> None:
    run_id = await service.submit()
    response = await service.client.post(f"/runs/{run_id}/cancel", json={"reason": "too late"})
    assert (response.status_code, response.json()["state"]) == (202, "queued")
    run = await load(service, run_id)
    assert (run.cancel_reason, run.cancel_requested_by) == ("too late", run.subject)
    assert service.feed.cancels_heard() == (run_id,)


async def test_the_first_wish_stays(service: Service) -> None:
    run_id = await service.submit()
    first = await service.client.post(f"/runs/{run_id}/cancel", json={"reason": "first"})
    again = await service.client.post(f"/runs/{run_id}/cancel", json={"reason": "second"})
    assert (again.status_code, again.json()) == (202, first.json())
    assert (await load(service, run_id)).cancel_reason == "first"


async def test_a_run_that_has_ended_is_answered_unchanged(service: Service) -> None:
    run_id = await service.submit()
    await service.scribe.end(run_id)
    before = (await service.client.get(f"/runs/{run_id}")).json()
    response = await service.client.post(f"/runs/{run_id}/cancel")
    assert (response.status_code, response.json()) == (200, before)
    assert service.feed.cancels_heard() == ()


async def test_a_cancel_needs_no_body(service: Service) -> None:
    run_id = await service.submit()
    assert (await service.client.post(f"/runs/{run_id}/cancel")).status_code == 202


async def test_who_has_no_subject_is_recorded_as_its_key(service: Service) -> None:
    run_id = await service.submit()
    await service.client.post(f"/runs/{run_id}/cancel", headers=with_key(service.keys.nobody))
    assert (await load(service, run_id)).cancel_requested_by.startswith("key_")


async def test_a_reason_may_be_any_text(service: Service) -> None:
    run_id = await service.submit()
    await service.client.post(f"/runs/{run_id}/cancel", json={"reason": "\x00 and \x1a0"})
    assert (await load(service, run_id)).cancel_reason == "\x00 and \x1a0"


@pytest.mark.parametrize("body", [{"reason": 5}, {"reason": "x" * 1001}, {"why": "x"}, []])
async def test_a_wrong_body_cancels_nothing(service: Service, body: Any) -> None:
    run_id = await service.submit()
    assert (await service.client.post(f"/runs/{run_id}/cancel", json=body)).status_code == 422
    assert (await load(service, run_id)).cancel_requested_at is None


async def test_a_body_of_another_type_cancels_nothing(service: Service) -> None:
    run_id = await service.submit()
    response = await service.client.post(f"/runs/{run_id}/cancel", content=b"reason=x")
    assert response.status_code == 415
    assert (await load(service, run_id)).cancel_requested_at is None


async def test_a_cancel_is_found_at_once_after_the_run_was_accepted(service: Service) -> None:
    await service.put_agent()

    async def submit_and_cancel() -> int:
        accepted = await service.client.post("/runs", json={"agent": "planner", "input": "x"})
        return (await service.client.post(f"{accepted.headers['location']}/cancel")).status_code

    statuses = await asyncio.gather(*(submit_and_cancel() for _ in range(50)))
    assert set(statuses) == {202}


async def test_a_key_that_only_reads_cancels_nothing(service: Service) -> None:
    run_id = await service.submit()
    response = await service.client.post(
        f"/runs/{run_id}/cancel", content=b"{}", headers=JSON_TYPE | with_key(service.keys.reader)
    )
    assert response.status_code == 403
    assert (await load(service, run_id)).cancel_requested_at is None
