"""What a request asks of the database, and that nothing is missed for the looks that it saves."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api import ApiConfig, ApiDeps, create_app
from app.ports.records import NewRun, RunRecord
from app.ports.store import TenantStore
from app.store.database import Database
from tests.api.harness import Service, with_key
from tests.wrapped_store import WrappedStore

BODY: dict[str, Any] = {"agent": "planner", "input": "Hello."}


@pytest.fixture
def config() -> ApiConfig:
    """Nothing is found out by looking once more."""
    return ApiConfig(poll_seconds=1000.0)


@pytest.fixture
def statements(database: Database, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent by itself, from here on. Transactions are refused."""
    sent: list[str] = []
    fetch = database.fetch

    async def listen(statement: str, *arguments: Any) -> Any:
        sent.append(statement)
        return await fetch(statement, *arguments)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a transaction was begun")

    monkeypatch.setattr(database, "fetch", listen)
    monkeypatch.setattr(database, "enter_tenant", refuse)
    return sent


async def test_a_run_is_accepted_in_three_statements_without_a_transaction(
    service: Service, request: pytest.FixtureRequest
) -> None:
    await service.put_agent(name="planner")
    statements: list[str] = request.getfixturevalue("statements")
    assert (await service.client.post("/runs", json=BODY)).status_code == 202
    assert [word for word in ("admit_key", "admission_facts", "submit_run") if word not in " ".join(statements)] == []
    assert len(statements) == 3


async def test_a_run_is_read_in_two_statements_without_a_transaction(
    service: Service, request: pytest.FixtureRequest
) -> None:
    run_id = await service.submit()
    statements: list[str] = request.getfixturevalue("statements")
    assert (await service.client.get(f"/runs/{run_id}")).status_code == 200
    assert len(statements) == 2


class StoreBesideAQuickWorker(WrappedStore):
    """A worker elsewhere is done with a run before its insertion is answered."""

    def __init__(self, store: TenantStore, service: Service) -> None:
        super().__init__(store)
        self.service = service

    async def insert_run(self, run: NewRun) -> RunRecord:
        record = await self.store.insert_run(run)
        await self.service.scribe.end(record.run_id, output_text="Quick.")
        return record


async def test_a_run_that_ends_before_its_submission_is_answered_keeps_nobody_waiting(
    service: Service, deps: ApiDeps
) -> None:
    await service.put_agent(name="planner")
    app = create_app(replace(deps, store=StoreBesideAQuickWorker(deps.store, service)))
    async with (
        asyncio.timeout(5),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://test", headers=with_key(service.keys.service)
        ) as client,
    ):
        answer = await client.post("/runs", json=BODY, headers={"Prefer": "wait=50"})
    assert (answer.status_code, answer.json()["output_text"]) == (200, "Quick.")
