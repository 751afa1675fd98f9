"""``/webhooks``: create, list, read, delete, test, and what became of each notice."""

import asyncio
import ipaddress
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from app.api import ApiDeps
from app.execution.deliveries import DeliveryParts, deliver
from app.ids import is_id
from app.ports.webhooks import DeliveryId, WebhookId
from app.store.database import Database
from app.store.webhooks import PostgresOutbox
from app.tools.outgoing import OutgoingClient
from tests.api.harness import JSON_TYPE, Service, eventually, with_key
from tests.tools.receivers import Receiver, receive

URL = "http://127.0.0.1:9/hooks"
PUBLIC_URL = "https://93.184.216.34/hooks"
BODY = {"url": PUBLIC_URL, "events": ["run.terminated"]}


async def create(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    response = await client.post("/webhooks", json={**BODY, **changes})
    assert response.status_code == 201, response.text
    return dict(response.json())


async def refusal(client: httpx.AsyncClient, **changes: Any) -> tuple[int, str, list[str]]:
    """Status, code and the places that are wrong."""
    response = await client.post("/webhooks", json={**BODY, **changes})
    problem = response.json()
    return response.status_code, problem["code"], [error["pointer"] for error in problem.get("errors", [])]


async def test_a_webhook_is_created_and_tells_its_secret(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/webhooks",
        json={"url": PUBLIC_URL, "events": ["approval.requested", "run.terminated"], "description": "for us\x00"},
    )
    created = response.json()
    assert response.status_code == 201
    assert is_id("whk", created["id"])
    assert response.headers["location"] == f"/webhooks/{created['id']}"
    assert created["secret"].startswith("whsec_")
    assert {name: created[name] for name in ("url", "events", "description", "disabled_at")} == {
        "url": PUBLIC_URL,
        "events": ["approval.requested", "run.terminated"],
        "description": "for us\x00",
        "disabled_at": None,
    }


async def test_a_webhook_is_read_and_listed_without_its_secret(client: httpx.AsyncClient) -> None:
    created = await create(client)
    read = await client.get(f"/webhooks/{created['id']}")
    listed = await client.get("/webhooks")
    shown = {name: value for name, value in created.items() if name != "secret"}
    assert read.json() == shown
    assert listed.json() == {"items": [shown], "next_cursor": None}


async def test_webhooks_are_listed_newest_first_in_pages(client: httpx.AsyncClient) -> None:
    ids = [(await create(client))["id"] for _ in range(3)]
    first = (await client.get("/webhooks?limit=2")).json()
    second = (await client.get("/webhooks", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]
    assert second["next_cursor"] is None


async def test_a_deleted_webhook_is_gone(client: httpx.AsyncClient) -> None:
    path = f"/webhooks/{(await create(client))['id']}"
    assert (await client.delete(path)).status_code == 204
    answers = [
        await client.get(path),
        await client.delete(path),
        await client.post(f"{path}/test"),
        await client.get(f"{path}/deliveries"),
    ]
    assert [answer.json()["code"] for answer in answers] == ["not_found"] * 4


async def test_another_tenants_webhook_is_as_unknown_as_none(service: Service) -> None:
    path = f"/webhooks/{(await create(service.client))['id']}"
    others = with_key(service.others_keys.service)
    answers = [
        await service.client.get(path, headers=others),
        await service.client.delete(path, headers=others),
        await service.client.post(f"{path}/test", headers=others),
        await service.client.get(f"{path}/deliveries", headers=others),
        await service.client.get("/webhooks/whk_nothing"),
        await service.client.get("/webhooks/whk_%00"),
    ]
    assert [(answer.status_code, answer.json()["detail"]) for answer in answers] == [
        (404, "there is no such webhook")
    ] * 6
    assert (await service.client.get("/webhooks", headers=others)).json()["items"] == []
    assert (await service.client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/webhooks"),
        ("GET", "/webhooks"),
        ("GET", "/webhooks/whk_1"),
        ("DELETE", "/webhooks/whk_1"),
        ("POST", "/webhooks/whk_1/test"),
        ("GET", "/webhooks/whk_1/deliveries"),
    ],
)
async def test_webhooks_need_the_right_to_write_runs(service: Service, method: str, path: str) -> None:
    response = await service.client.request(method, path, headers=with_key(service.keys.reader), json=BODY)
    assert (response.status_code, response.json()["code"]) == (403, "missing_scope")


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"url": None}, ["/url"]),
        ({"url": ""}, ["/url"]),
        ({"url": "https://a.b/".ljust(2001, "x")}, ["/url"]),
        ({"events": []}, ["/events"]),
        ({"events": ["run.started"]}, ["/events/0"]),
        ({"events": ["webhook.test"]}, ["/events/0"]),
        ({"events": ["run.terminated"] * 2}, ["/events"]),
        ({"events": "run.terminated"}, ["/events"]),
        ({"events": None}, ["/events"]),
        ({"description": "x" * 257}, ["/description"]),
        ({"description": None}, ["/description"]),
        ({"secret": "mine"}, ["/secret"]),
        ({"id": "whk_1"}, ["/id"]),
        ({"url": 1, "events": [1]}, ["/events/0", "/url"]),
    ],
)
async def test_a_body_that_is_none_is_refused_with_its_places(
    client: httpx.AsyncClient, changes: dict[str, Any], pointers: list[str]
) -> None:
    status, code, places = await refusal(client, **changes)
    assert (status, code, sorted(places)) == (422, "invalid_request", pointers)


@pytest.mark.parametrize(
    "url",
    [
        "example.com/hooks",
        "ftp://example.com/",
        "http://93.184.216.34/",
        "https://u:p@93.184.216.34/",
        "https://93.184.216.34/#x",
        "https://0x7f.1/",
        "https://2130706433/",
        "https://127.1/",
        "https://93.184.216.34:0/",
        "https://no-such-host.invalid/",
        "https://\x00/",
        "https://a b/",
    ],
)
async def test_what_nothing_can_be_sent_to_is_refused(client: httpx.AsyncClient, url: str) -> None:
    assert await refusal(client, url=url) == (422, "invalid_url", ["/url"])
    assert (await client.get("/webhooks")).json()["items"] == []


@pytest.mark.parametrize(
    "url",
    [
        "https://10.0.0.1/",
        "http://192.168.1.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://100.64.0.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[fd00::1]/",
        "https://[64:ff9b::a00:1]/",
        "https://0.0.0.0/",
    ],
)
async def test_a_private_address_is_refused(client: httpx.AsyncClient, url: str) -> None:
    assert await refusal(client, url=url) == (422, "private_address", ["/url"])


async def test_an_address_that_the_operator_allows_is_taken_without_encryption(client: httpx.AsyncClient) -> None:
    assert (await create(client, url=URL))["url"] == URL


async def test_a_tenant_has_at_most_sixteen_webhooks(service: Service) -> None:
    made = [await create(service.client) for _ in range(16)]
    assert await refusal(service.client) == (409, "too_many_webhooks", [])
    others = await service.client.post("/webhooks", json=BODY, headers=with_key(service.others_keys.service))
    await service.client.delete(f"/webhooks/{made[0]['id']}")
    assert others.status_code == 201
    assert (await service.client.post("/webhooks", json=BODY)).status_code == 201


async def test_of_many_that_are_created_at_once_only_sixteen_are_taken(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.post("/webhooks", json=BODY) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [201] * 16 + [409] * 4


async def test_the_same_key_and_body_are_the_same_webhook(client: httpx.AsyncClient) -> None:
    first = await client.post("/webhooks", json=BODY, headers={"Idempotency-Key": "k"})
    again = await client.post("/webhooks", json=BODY, headers={"Idempotency-Key": "k"})
    assert again.json() == first.json()
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert len((await client.get("/webhooks")).json()["items"]) == 1


async def test_the_same_key_with_another_body_is_refused(client: httpx.AsyncClient) -> None:
    await client.post("/webhooks", json=BODY, headers={"Idempotency-Key": "k"})
    other = {**BODY, "description": "other"}
    response = await client.post("/webhooks", json=other, headers={"Idempotency-Key": "k"})
    assert (response.status_code, response.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_test_puts_a_notice_into_the_outbox(client: httpx.AsyncClient) -> None:
    webhook_id = (await create(client))["id"]
    response = await client.post(f"/webhooks/{webhook_id}/test")
    notice = response.json()
    assert response.status_code == 202
    assert is_id("dlv", notice["id"])
    assert (notice["event"], notice["subject"], notice["status"]) == ("webhook.test", webhook_id, "pending")
    listed = await client.get(f"/webhooks/{webhook_id}/deliveries")
    assert listed.json() == {"items": [notice], "next_cursor": None}


async def test_deliveries_are_listed_newest_first_in_pages(client: httpx.AsyncClient) -> None:
    path = f"/webhooks/{(await create(client))['id']}"
    ids = [(await client.post(f"{path}/test")).json()["id"] for _ in range(3)]
    first = (await client.get(f"{path}/deliveries?limit=2")).json()
    params = {"limit": 2, "cursor": first["next_cursor"]}
    second = (await client.get(f"{path}/deliveries", params=params)).json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]


async def test_a_cursor_of_another_webhooks_deliveries_is_refused(client: httpx.AsyncClient) -> None:
    path, other = f"/webhooks/{(await create(client))['id']}", f"/webhooks/{(await create(client))['id']}"
    await client.post(f"{path}/test")
    await client.post(f"{path}/test")
    cursor = (await client.get(f"{path}/deliveries?limit=1")).json()["next_cursor"]
    response = await client.get(f"{other}/deliveries", params={"cursor": cursor})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_cursor")


@pytest.mark.parametrize("path", ["/webhooks?x=1", "/webhooks/whk_1?x=1", "/webhooks/whk_1/deliveries?x=1"])
async def test_an_unknown_parameter_is_refused(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/query/x")


async def test_a_body_that_is_no_json_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.post("/webhooks", content=b"{", headers=JSON_TYPE)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_json")


async def test_a_test_has_nothing_to_choose(client: httpx.AsyncClient) -> None:
    webhook_id = (await create(client))["id"]
    response = await client.post(f"/webhooks/{webhook_id}/test", json={"x": 1})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/x")
    assert (await client.get(f"/webhooks/{webhook_id}/deliveries")).json()["items"] == []


async def test_a_webhook_whose_receiver_is_gone_says_so_and_is_not_tested(service: Service, database: Database) -> None:
    created = await create(service.client)
    path = f"/webhooks/{created['id']}"
    await service.client.post(f"{path}/test")
    [due] = await own_notices(service, database)
    await PostgresOutbox(database).failed(due, status=410, error="gone", retry_in_seconds=None, disable=True)
    assert (await service.client.get(path)).json()["disabled_at"] is not None
    response = await service.client.post(f"{path}/test")
    assert (response.status_code, response.json()["code"]) == (409, "webhook_disabled")
    [told] = (await service.client.get(f"{path}/deliveries")).json()["items"]
    assert (told["status"], told["last_status"], told["last_error"]) == ("failed", 410, "gone")


async def own_notices(service: Service, database: Database) -> Sequence[Any]:
    taken = await PostgresOutbox(database).take_due(limit=1000, hold_seconds=60)
    return [due for due in taken if due.tenant_id == service.keys.tenant_id]


async def listening_webhook(service: Service, receiver: Receiver, *events: str) -> Verifier:
    created = await create(service.client, url=receiver.url("127.0.0.1"), events=list(events))
    return Verifier(created["secret"])


@pytest.fixture
def parts(deps: ApiDeps, database: Database) -> DeliveryParts:
    return DeliveryParts(
        outbox=PostgresOutbox(database),
        carrier=deps.notices.carrier,
        sign=deps.notices.signer.sign,
        clock=deps.clock,
        draw=lambda: 0.5,
    )


def verified(verifier: Verifier, receiver: Receiver) -> dict[str, Any]:
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    return dict(verifier.verify(receiver.bodies[-1], {name: receiver.header(name) for name in names}))


async def test_the_end_of_a_run_arrives_at_who_wants_it_signed_with_the_secret_that_was_shown(
    service: Service, parts: DeliveryParts
) -> None:
    async with receive() as receiver:
        verifier = await listening_webhook(service, receiver, "run.terminated")
        run_id = await service.submit(user="ada", metadata={"ticket": "T-1"}, input="not told")
        await service.scribe.end(run_id, output_text="not told either")
        job = asyncio.create_task(deliver(parts))
        await eventually(lambda: bool(receiver.bodies))
        job.cancel()
        await asyncio.wait({job})
    said = verified(verifier, receiver)
    assert said["type"] == "run.terminated"
    assert said["data"] == {
        "run_id": run_id,
        "state": "completed",
        "error_code": None,
        "agent": "planner",
        "session_id": None,
        "user": "ada",
        "metadata": {"ticket": "T-1"},
    }
    assert b"not told" not in receiver.bodies[0]


async def test_a_name_that_became_private_is_sent_nothing(service: Service, parts: DeliveryParts) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with receive() as receiver:
        await listening_webhook(service, receiver, "run.terminated")
        await service.scribe.end(await service.submit())
        strict = OutgoingClient([ipaddress.ip_network("10.0.0.0/8")], resolve=resolve)
        outcomes: list[str] = []
        job = asyncio.create_task(deliver(replace(parts, carrier=strict, told=outcomes.append)))
        await eventually(lambda: bool(outcomes))
        job.cancel()
        await asyncio.wait({job})
    [webhook] = (await service.client.get("/webhooks")).json()["items"]
    [told] = (await service.client.get(f"/webhooks/{webhook['id']}/deliveries")).json()["items"]
    assert (told["status"], told["last_error"], receiver.heads) == ("pending", "private_address", [])


async def test_ids_are_what_the_store_knows(service: Service) -> None:
    created = await create(service.client)
    notice = (await service.client.post(f"/webhooks/{created['id']}/test")).json()
    async with service.deps.store.begin(service.keys.tenant_id) as tx:
        [kept] = await tx.list_deliveries(WebhookId(created["id"]), limit=10, before=None)
    assert kept.delivery_id == DeliveryId(notice["id"])
