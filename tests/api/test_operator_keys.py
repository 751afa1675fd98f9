"""Keys: made, listed without secrets, rotated, revoked; a tenant's and operators'."""

from datetime import datetime
from typing import Any

import httpx
import pytest

from app.ids import is_id
from tests.api.harness import Service, with_key
from tests.api.operators import Operator

UNKNOWN = f"key_{'0' * 26}"


@pytest.fixture
def operator(service: Service) -> Operator:
    return Operator(service)


@pytest.fixture
async def tenant_id(operator: Operator) -> str:
    return str((await operator.create_tenant())["id"])


async def me(operator: Operator, key: dict[str, Any]) -> httpx.Response:
    return await operator.service.client.get("/me", headers=with_key(key["secret"]))


def lifetime(key: dict[str, Any]) -> float:
    made, ends = (datetime.fromisoformat(key[name]) for name in ("created_at", "expires_at"))
    return (ends - made).total_seconds()


def shown(key: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in key.items() if name not in ("secret", "last_used_at")}


async def test_a_key_is_made_with_what_was_asked_and_works(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id, groups=["finance", "audit"], description="the shop's\x00")
    assert is_id("key", key["id"])
    assert shown(key) == {
        "id": key["id"],
        "tenant_id": tenant_id,
        "subject": "checkout",
        "scopes": ["runs:read", "runs:write"],
        "groups": ["audit", "finance"],
        "description": "the shop's\x00",
        "created_at": key["created_at"],
        "expires_at": None,
        "revoked_at": None,
        "replaces": None,
    }
    answer = (await me(operator, key)).json()
    assert (answer["tenant_id"], answer["key_id"], answer["scopes"]) == (
        tenant_id,
        key["id"],
        ["runs:read", "runs:write"],
    )


async def test_a_secret_is_shown_once_and_kept_by_no_cache(operator: Operator, tenant_id: str) -> None:
    response = await operator.ask("POST", f"/tenants/{tenant_id}/keys", json={"scopes": ["runs:read"]})
    secret = response.json()["secret"]
    assert response.headers["cache-control"] == "no-store"
    answers = [await operator.ask("GET", path) for path in (f"/tenants/{tenant_id}/keys", "/audit", "/tenants")]
    assert [secret in answer.text for answer in answers] == [False] * 3


async def test_keys_are_listed_oldest_first_with_those_that_are_revoked(operator: Operator, tenant_id: str) -> None:
    first, second = await operator.create_key(tenant_id), await operator.create_key(tenant_id)
    await operator.ask("DELETE", f"/tenants/{tenant_id}/keys/{first['id']}")
    listed = (await operator.get(f"/tenants/{tenant_id}/keys"))["items"]
    assert [key["id"] for key in listed] == [first["id"], second["id"]]
    assert [key["revoked_at"] is None for key in listed] == [False, True]
    assert shown(listed[1]) == shown(second)


async def test_a_revoked_key_is_refused_at_once(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id)
    path = f"/tenants/{tenant_id}/keys/{key['id']}"
    before = await me(operator, key)
    revoked = [(await operator.ask("DELETE", path)).status_code for _ in range(2)]
    after = await me(operator, key)
    assert (before.status_code, revoked, after.status_code) == (200, [204, 204], 401)


async def test_a_key_expires_by_its_lifetime(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id, lifetime_seconds=90)
    assert lifetime(key) == pytest.approx(90, abs=0.01)


async def test_a_successor_has_the_same_rights_and_both_are_valid(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id, groups=["finance"], description="x")
    path = f"/tenants/{tenant_id}/keys/{key['id']}/rotate"
    response = await operator.ask("POST", path, json={"overlap_seconds": 60})
    successor = response.json()
    changed = {"id": successor["id"], "created_at": successor["created_at"], "replaces": key["id"]}
    assert (response.status_code, response.headers["cache-control"]) == (201, "no-store")
    assert shown(successor) == {**shown(key), **changed}
    assert successor["secret"] != key["secret"]
    assert [(await me(operator, each)).status_code for each in (key, successor)] == [200, 200]
    old = (await operator.get(f"/tenants/{tenant_id}/keys"))["items"][0]
    ends = datetime.fromisoformat(old["expires_at"]) - datetime.fromisoformat(successor["created_at"])
    assert ends.total_seconds() == pytest.approx(60, abs=1)


async def test_without_an_overlap_the_old_key_ends_at_once(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id)
    path = f"/tenants/{tenant_id}/keys/{key['id']}/rotate"
    successor = await operator.post(path, {"overlap_seconds": 0})
    assert [(await me(operator, each)).status_code for each in (key, successor)] == [401, 200]
    assert await operator.refusal("POST", path, {"overlap_seconds": 0}) == (409, "key_not_valid", [])


async def test_a_successor_lives_as_long_as_the_key_was_made_for(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id, lifetime_seconds=7_200)
    path = f"/tenants/{tenant_id}/keys/{key['id']}/rotate"
    successors = [await operator.post(path, {"overlap_seconds": 60}) for _ in range(2)]
    assert [lifetime(successor) for successor in successors] == pytest.approx([7_200, 7_200], abs=0.01)


async def test_a_successor_lives_so_long_also_where_an_earlier_one_was_rotated_itself(
    operator: Operator, tenant_id: str
) -> None:
    key = await operator.create_key(tenant_id)
    path = f"/tenants/{tenant_id}/keys"
    successor = await operator.post(f"{path}/{key['id']}/rotate", {"overlap_seconds": 3_600})
    await operator.post(f"{path}/{successor['id']}/rotate", {"overlap_seconds": 60})
    again = await operator.post(f"{path}/{key['id']}/rotate", {"overlap_seconds": 60})
    assert again["expires_at"] is None


async def test_a_successor_may_be_given_another_lifetime(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id, lifetime_seconds=7_200)
    path = f"/tenants/{tenant_id}/keys/{key['id']}/rotate"
    successor = await operator.post(path, {"overlap_seconds": 60, "lifetime_seconds": 120})
    assert lifetime(successor) == pytest.approx(120, abs=0.01)


async def test_a_revoked_key_has_no_successor(operator: Operator, tenant_id: str) -> None:
    path = f"/tenants/{tenant_id}/keys/{(await operator.create_key(tenant_id))['id']}"
    await operator.ask("DELETE", path)
    assert await operator.refusal("POST", f"{path}/rotate", {"overlap_seconds": 9}) == (409, "key_not_valid", [])
    assert len((await operator.get(f"/tenants/{tenant_id}/keys"))["items"]) == 1


async def test_a_key_is_found_under_its_own_tenant_only(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id)
    others = (await operator.create_tenant())["id"]
    body = {"overlap_seconds": 60}
    answers = [
        *[
            await operator.ask("DELETE", f"{place}/{key['id']}")
            for place in (f"/tenants/{others}/keys", "/operators/keys")
        ],
        *[
            await operator.ask("POST", f"{place}/{each}/rotate", json=body)
            for place in (f"/tenants/{others}/keys", "/operators/keys", f"/tenants/{tenant_id}/keys")
            for each in (UNKNOWN, "key_%00")
        ],
        await operator.ask("POST", f"/tenants/{others}/keys/{key['id']}/rotate", json=body),
    ]
    assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {(404, "there is no such key")}
    assert (await me(operator, key)).status_code == 200


async def test_keys_of_an_unknown_tenant_are_not_found(operator: Operator) -> None:
    path = f"/tenants/ten_{'0' * 26}/keys"
    answers = [
        await operator.ask("GET", path),
        await operator.ask("POST", path, json={"scopes": ["runs:read"]}),
        await operator.ask("DELETE", f"{path}/{UNKNOWN}"),
        await operator.ask("POST", f"{path}/{UNKNOWN}/rotate", json={"overlap_seconds": 0}),
    ]
    assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {(404, "there is no such tenant")}


BAD_KEYS: list[tuple[dict[str, Any], list[str]]] = [
    ({"scopes": []}, ["/scopes"]),
    ({"scopes": None}, ["/scopes"]),
    ({"scopes": ["runs:delete"]}, ["/scopes/0"]),
    ({"scopes": ["runs:read", "runs:read"]}, ["/scopes"]),
    ({"scopes": ["operator"]}, ["/scopes"]),
    ({"scopes": ["runs:read", "operator"]}, ["/scopes"]),
    ({"scopes": "runs:read"}, ["/scopes"]),
    ({"subject": None, "scopes": ["approvals:decide"]}, ["/subject"]),
    ({"subject": " "}, ["/subject"]),
    ({"subject": "x" * 201}, ["/subject"]),
    ({"groups": ["a", "a"]}, ["/groups"]),
    ({"groups": [""]}, ["/groups/0"]),
    ({"groups": [f"g{number}" for number in range(65)]}, ["/groups"]),
    ({"description": "x" * 257}, ["/description"]),
    ({"lifetime_seconds": 0}, ["/lifetime_seconds"]),
    ({"lifetime_seconds": 10**9}, ["/lifetime_seconds"]),
    ({"secret": "mine"}, ["/secret"]),
    ({"tenant_id": "ten_1"}, ["/tenant_id"]),
]


async def test_a_body_that_makes_no_key_is_refused_with_its_places(operator: Operator, tenant_id: str) -> None:
    path = f"/tenants/{tenant_id}/keys"
    good = {"subject": "checkout", "scopes": ["runs:read"]}
    told = [(bad, await operator.refusal("POST", path, {**good, **bad})) for bad, _ in BAD_KEYS]
    assert told == [(bad, (422, "invalid_request", pointers)) for bad, pointers in BAD_KEYS]
    assert (await operator.get(path))["items"] == []


BAD_ROTATIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["/overlap_seconds"]),
    ({"overlap_seconds": -1}, ["/overlap_seconds"]),
    ({"overlap_seconds": 2_592_001}, ["/overlap_seconds"]),
    ({"overlap_seconds": 1.5}, ["/overlap_seconds"]),
    ({"overlap_seconds": 1, "lifetime_seconds": 0}, ["/lifetime_seconds"]),
    ({"overlap_seconds": 1, "scopes": ["operator"]}, ["/scopes"]),
]


async def test_a_rotation_that_makes_no_sense_is_refused(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id)
    path = f"/tenants/{tenant_id}/keys/{key['id']}/rotate"
    told = [(bad, await operator.refusal("POST", path, bad)) for bad, _ in BAD_ROTATIONS]
    assert told == [(bad, (422, "invalid_request", pointers)) for bad, pointers in BAD_ROTATIONS]


async def test_an_operators_key_is_made_rotated_and_revoked(operator: Operator) -> None:
    key = await operator.post("/operators/keys", {"subject": "ada", "lifetime_seconds": 3_600})
    successor = await operator.post(f"/operators/keys/{key['id']}/rotate", {"overlap_seconds": 60})
    assert (key["tenant_id"], key["scopes"], successor["replaces"]) == (None, ["operator"], key["id"])
    client = operator.service.client
    listed = (await client.get("/operators/keys", headers=with_key(successor["secret"]))).json()["items"]
    assert {key["id"], successor["id"]} <= {each["id"] for each in listed}
    assert (await operator.ask("DELETE", f"/operators/keys/{successor['id']}")).status_code == 204
    assert (await me(operator, successor)).status_code == 401


BAD_OPERATORS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["/subject"]),
    ({"subject": None}, ["/subject"]),
    ({"subject": "ada", "scopes": ["runs:read"]}, ["/scopes"]),
    ({"subject": "ada", "groups": ["x"]}, ["/groups"]),
]


async def test_a_body_that_makes_no_operators_key_is_refused(operator: Operator) -> None:
    told = [(bad, await operator.refusal("POST", "/operators/keys", bad)) for bad, _ in BAD_OPERATORS]
    assert told == [(bad, (422, "invalid_request", pointers)) for bad, pointers in BAD_OPERATORS]


async def test_what_is_done_to_keys_is_in_the_trail_without_secrets(operator: Operator, tenant_id: str) -> None:
    key = await operator.create_key(tenant_id)
    await operator.post(f"/tenants/{tenant_id}/keys/{key['id']}/rotate", {"overlap_seconds": 60})
    await operator.ask("DELETE", f"/tenants/{tenant_id}/keys/{key['id']}")
    trail = (await operator.get("/audit", tenant_id=tenant_id))["items"]
    assert {"key.created", "key.rotated", "key.revoked"} <= {entry["action"] for entry in trail}
    assert {entry["actor"] for entry in trail} == {"ops"}
    assert not any("secret" in str(entry) for entry in trail)
