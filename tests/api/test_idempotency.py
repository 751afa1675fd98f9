"""Idempotency-Key: however often a request is sent, it is one run."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.harness import AS_STREAM, Service, read_frames, read_until, stored, with_key

BODY = {"agent": "planner", "input": "Hello.", "metadata": {"a": "1", "b": "2"}}
KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}


async def runs_of(service: Service) -> list[dict[str, Any]]:
    return list((await service.client.get("/runs")).json()["items"])


async def test_the_same_key_and_body_is_answered_as_for_the_first_run(service: Service) -> None:
    await service.put_agent()
    first = await service.client.post("/runs", json=BODY, headers=KEY)
    again = await service.client.post("/runs", json=BODY, headers=KEY)
    assert again.json() == first.json()
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert "idempotency-replayed" not in first.headers
    assert len(await runs_of(service)) == 1


async def test_the_order_of_a_bodys_members_does_not_matter(service: Service) -> None:
    await service.put_agent()
    first = await service.client.post("/runs", json=BODY, headers=KEY)
    turned = {"metadata": {"b": "2", "a": "1"}, "input": "Hello.", "agent": "planner"}
    again = await service.client.post("/runs", json=turned, headers=KEY)
    assert again.json()["id"] == first.json()["id"]


@pytest.mark.parametrize("body", [{**BODY, "input": "Goodbye."}, {**BODY, "priority": 0}])
async def test_the_same_key_with_another_body_is_refused(service: Service, body: dict[str, Any]) -> None:
    await service.put_agent()
    await service.client.post("/runs", json=BODY, headers=KEY)
    response = await service.client.post("/runs", json=body, headers=KEY)
    assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused")
    assert len(await runs_of(service)) == 1


async def test_twenty_requests_at_once_are_one_run(service: Service) -> None:
    await service.put_agent()
    responses = await asyncio.gather(*(service.client.post("/runs", json=BODY, headers=KEY) for _ in range(20)))
    assert {response.status_code for response in responses} == {202}
    assert len({response.json()["id"] for response in responses}) == 1
    assert sum("idempotency-replayed" in response.headers for response in responses) == 19
    assert len(await runs_of(service)) == 1


async def test_a_refused_request_is_not_remembered(service: Service) -> None:
    refused = await service.client.post("/runs", json=BODY, headers=KEY)
    await service.put_agent()
    accepted = await service.client.post("/runs", json=BODY, headers=KEY)
    assert (refused.status_code, accepted.status_code) == (422, 202)
    assert "idempotency-replayed" not in accepted.headers


async def test_another_subject_of_the_tenant_has_keys_of_its_own(service: Service) -> None:
    await service.put_agent()
    secrets = (service.keys.service, service.keys.colleague, service.keys.nobody)
    answers = [await service.client.post("/runs", json=BODY, headers=KEY | with_key(secret)) for secret in secrets]
    assert len({answer.json()["id"] for answer in answers}) == 3


async def test_another_tenant_has_keys_of_its_own(service: Service) -> None:
    other = with_key(service.others_keys.service)
    await service.put_agent()
    await service.client.put("/agents/planner", json={"instructions": "x"}, headers=other)
    mine = await service.client.post("/runs", json=BODY, headers=KEY)
    theirs = await service.client.post("/runs", json=BODY, headers=KEY | other)
    assert (theirs.status_code, "idempotency-replayed" in theirs.headers) == (202, False)
    assert mine.json()["id"] != theirs.json()["id"]


async def test_a_replay_is_answered_only_to_who_may_write_runs(service: Service) -> None:
    await service.put_agent()
    await service.client.post("/runs", json=BODY, headers=KEY)
    response = await service.client.post("/runs", json=BODY, headers=KEY | with_key(service.keys.reader))
    assert response.status_code == 403


async def test_a_replay_waits_as_the_first_request_would(service: Service) -> None:
    await service.put_agent()
    run_id = (await service.client.post("/runs", json=BODY, headers=KEY)).json()["id"]
    await service.scribe.end(run_id, output_text="Done.")
    again = await service.client.post("/runs", json=BODY, headers=KEY | {"Prefer": "wait=5"})
    assert (again.status_code, again.json()["output_text"]) == (200, "Done.")


async def test_a_replay_streams_the_first_run(service: Service, live: httpx.AsyncClient) -> None:
    await service.put_agent()
    run_id = (await service.client.post("/runs", json=BODY, headers=KEY)).json()["id"]
    await service.scribe.end(run_id)
    async with live.stream("POST", "/runs", json=BODY, headers=KEY | AS_STREAM) as response:
        frames = await read_until(read_frames(response), lambda frame: frame.event == "terminated")
    assert {frame.json["run_id"] for frame in stored(frames)} == {run_id}


@pytest.mark.parametrize("key", ["", "two words", "x" * 256])
async def test_a_key_that_could_be_misread_is_refused(service: Service, key: str) -> None:
    response = await service.client.post("/runs", json=BODY, headers={"Idempotency-Key": key})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_idempotency_key")
