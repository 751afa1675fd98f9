"""What durability promises over HTTP: who decides, what a replay needs, and what no database holds."""

import asyncpg
import httpx
import pytest

from app.auth import Scope
from app.events import RunState
from app.ports.tenancy import OperatorStore
from app.store.tables import metadata
from tests.api.harness import Service, add_key, with_key
from tests.api.lost_runs import lose
from tests.api.questions import ask, decide, read, state_of, told
from tests.conftest import DatabaseUrls

KEY = {"Idempotency-Key": "k-1"}
WEBHOOK = {"url": "https://93.184.216.34/hooks", "events": ["run.terminated"]}


async def test_another_key_of_the_subject_that_asked_does_not_decide_either(
    service: Service, admin: OperatorStore
) -> None:
    run_id = await service.submit()
    approval_id = await ask(service, run_id)
    me = (await service.client.get("/me")).json()["subject"]
    scopes = [Scope.APPROVALS_READ, Scope.APPROVALS_DECIDE]
    secret = await add_key(admin, service.keys.tenant_id, me, scopes)
    refused = await decide(service, approval_id, by=secret)
    assert told(refused) == (403, "self_approval")
    assert ((await read(service, approval_id))["status"], await state_of(service, run_id)) == ("pending", "suspended")


@pytest.mark.parametrize("route", ["resume", "rerun"])
async def test_a_run_once_more_is_told_again_only_to_who_may_write_runs(service: Service, route: str) -> None:
    run_id = await lose(service, await service.submit())
    path = f"/runs/{run_id}/{route}"
    await service.client.post(path, headers=KEY)
    assert told(await service.client.post(path, headers=KEY | with_key(service.keys.reader))) == (403, "missing_scope")


async def test_a_run_once_more_is_told_again_to_the_subject_that_asked_and_to_no_other_one(service: Service) -> None:
    path = f"/runs/{await lose(service, await service.submit())}/rerun"
    secrets = (service.keys.service, service.keys.service, service.keys.colleague)
    first, again, others = [await service.client.post(path, headers=KEY | with_key(secret)) for secret in secrets]
    assert again.json()["id"] == first.json()["id"]
    assert others.json()["id"] != first.json()["id"]


async def test_a_webhooks_secret_is_told_again_to_nobody_else(service: Service) -> None:
    await service.client.post("/webhooks", json=WEBHOOK, headers=KEY)
    by_reader = await service.client.post("/webhooks", json=WEBHOOK, headers=KEY | with_key(service.keys.reader))
    by_colleague = await service.client.post("/webhooks", json=WEBHOOK, headers=KEY | with_key(service.keys.colleague))
    assert told(by_reader) == (403, "missing_scope")
    assert (by_colleague.status_code, "idempotency-replayed" in by_colleague.headers) == (201, False)


async def test_a_webhooks_secret_is_in_no_table(client: httpx.AsyncClient, api_urls: DatabaseUrls) -> None:
    created = (await client.post("/webhooks", json=WEBHOOK)).json()
    await client.post(f"/webhooks/{created['id']}/test")
    secret = created["secret"].removeprefix("whsec_")
    tables = [table.name for table in metadata.sorted_tables]
    assert await tables_that_hold(api_urls, tables, created["id"]) == {"webhooks", "webhook_deliveries"}
    assert await tables_that_hold(api_urls, tables, secret) == set()


async def tables_that_hold(urls: DatabaseUrls, tables: list[str], text: str) -> set[str]:
    looks = " UNION ALL ".join(
        f"SELECT '{name}' AS name FROM {name} t WHERE position($1 IN t::text) > 0" for name in tables
    )
    connection = await asyncpg.connect(urls.superuser_url)
    try:
        return {row["name"] for row in await connection.fetch(looks, text)}
    finally:
        await connection.close()


async def test_a_run_is_not_erased_while_a_later_one_of_its_session_has_not_ended(service: Service) -> None:
    session_id = await service.create_session()
    first = await service.submit(session_id=session_id)
    second = await service.submit(session_id=session_id)
    await service.scribe.end(first)
    refused = await service.client.delete(f"/runs/{first}")
    assert told(refused) == (409, "run_not_terminal")
    assert await state_of(service, first) == "completed"
    await service.scribe.end(second, state=RunState.COMPLETED)
    assert (await service.client.delete(f"/runs/{first}")).status_code == 204
