"""An Idempotency-Key is honoured, or it is refused, or a repeated request does nothing more."""

import pytest

from tests.api.contract import load_description
from tests.api.harness import Service, with_key
from tests.api.operators import Operator
from tests.api.test_webhooks import create

KEY = {"Idempotency-Key": "order-4711"}
NEW_KEY = {"subject": "checkout", "scopes": ["runs:read"]}
# Of these a second request finds done what the first one did, or tells the same again.
ONCE_IS_TWICE = {
    "/approvals/{approval_id}/decision",
    "/cancellations",
    "/pauses",
    "/runs/{run_id}/cancel",
    "/stream-tickets",
    "/tenants",
    "/workers/{worker_id}/drain",
}


def test_each_route_that_makes_something_honours_the_key_or_refuses_it() -> None:
    posts = {path: methods["post"] for path, methods in load_description()["paths"].items() if "post" in methods}
    honours = {
        path
        for path, route in posts.items()
        if any(parameter.get("name") == "Idempotency-Key" for parameter in route.get("parameters", ()))
    }
    refuses = {path for path, route in posts.items() if "idempotency_key_unsupported" in str(route["responses"])}
    assert not honours & refuses
    assert set(posts) - honours - refuses == ONCE_IS_TWICE


@pytest.fixture
def operator(service: Service) -> Operator:
    return Operator(service)


async def test_no_key_is_made_where_a_repetition_would_make_another_one(service: Service, operator: Operator) -> None:
    tenant = (await operator.create_tenant())["id"]
    first = await operator.create_key(tenant)
    theirs = await operator.post("/operators/keys", {"subject": "ada"})
    headers = {**operator.headers, **KEY}
    for path, body in (
        (f"/tenants/{tenant}/keys", NEW_KEY),
        (f"/tenants/{tenant}/keys/{first['id']}/rotate", {}),
        ("/operators/keys", {"subject": "ada"}),
        (f"/operators/keys/{theirs['id']}/rotate", {}),
    ):
        response = await service.client.post(path, json=body, headers=headers)
        assert (response.status_code, response.json()["code"]) == (400, "idempotency_key_unsupported"), path
    assert [key["id"] for key in (await operator.get(f"/tenants/{tenant}/keys"))["items"]] == [first["id"]]
    kept = [key for key in (await operator.get("/operators/keys"))["items"] if key["replaces"] == theirs["id"]]
    assert kept == []


async def test_no_notice_is_sent_where_a_repetition_would_send_another_one(service: Service) -> None:
    webhook = await create(service.client)
    address = f"/webhooks/{webhook['id']}"
    response = await service.client.post(f"{address}/test", headers={**with_key(service.keys.service), **KEY})
    assert (response.status_code, response.json()["code"]) == (400, "idempotency_key_unsupported")
    assert (await service.client.get(f"{address}/deliveries")).json()["items"] == []
