"""A key becomes a principal, or one refusal that tells nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from app.auth import Principal, Scope, authenticate, hash_secret, new_secret
from app.errors import Forbidden, Unauthenticated
from app.ids import KeyId, TenantId
from app.ports.records import KeyRecord

SECRET = "rw_" + "k" * 43
RECORD = KeyRecord(
    key_id=KeyId("key_1"),
    tenant_id=TenantId("ten_1"),
    subject="ada",
    scopes=frozenset({"runs:read"}),
    expires_at=None,
    revoked=False,
)


@dataclass
class Keys:
    """The one question that authentication asks."""

    records: Mapping[bytes, KeyRecord]
    asked: int = 0

    async def find_key(self, secret_hash: bytes) -> KeyRecord | None:
        self.asked += 1
        return self.records.get(secret_hash)


def keys_with(record: KeyRecord) -> Keys:
    return Keys({hash_secret(SECRET): record})


async def test_a_key_makes_the_principal_that_its_record_describes() -> None:
    principal = await authenticate(keys_with(RECORD), f"Bearer {SECRET}", now=0)
    assert principal == Principal(
        tenant_id=TenantId("ten_1"), key_id=KeyId("key_1"), subject="ada", scopes=frozenset({Scope.RUNS_READ})
    )


@pytest.mark.parametrize("header", [f"bearer {SECRET}", f"BEARER  {SECRET} "])
async def test_the_word_bearer_is_read_in_any_case(header: str) -> None:
    assert (await authenticate(keys_with(RECORD), header, now=0)).subject == "ada"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        SECRET,
        "Bearer",
        "Bearer ",
        f"Basic {SECRET}",
        f"Bearer {SECRET} {SECRET}",
        f"Bearer {SECRET}=",
        f"Bearer {SECRET[:-1]}",
        f"Bearer {SECRET}\n",
        "Bearer rw_" + "é" * 43,
        "Bearer " + "x" * 100_000,
    ],
)
async def test_a_header_that_holds_no_key_is_refused_without_asking_the_store(header: str | None) -> None:
    keys = keys_with(RECORD)
    with pytest.raises(Unauthenticated):
        await authenticate(keys, header, now=0)
    assert keys.asked == 0


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(replace(RECORD, revoked=True), id="revoked"),
        pytest.param(replace(RECORD, expires_at=100.0), id="expires now"),
    ],
)
async def test_a_key_that_no_longer_holds_looks_like_one_that_never_was(record: KeyRecord) -> None:
    with pytest.raises(Unauthenticated) as unknown:
        await authenticate(Keys({}), f"Bearer {SECRET}", now=100)
    with pytest.raises(Unauthenticated) as lapsed:
        await authenticate(keys_with(record), f"Bearer {SECRET}", now=100)
    assert str(unknown.value) == str(lapsed.value)


async def test_a_key_holds_until_the_instant_at_which_it_expires() -> None:
    keys = keys_with(replace(RECORD, expires_at=100.0))
    assert (await authenticate(keys, f"Bearer {SECRET}", now=99.999)).subject == "ada"


async def test_an_operators_key_keeps_no_tenants_scope_and_a_tenants_key_is_no_operator() -> None:
    mixed = frozenset({"operator", "runs:read", "scope:of-a-later-release"})
    operator = await authenticate(keys_with(replace(RECORD, tenant_id=None, scopes=mixed)), f"Bearer {SECRET}", now=0)
    tenant = await authenticate(keys_with(replace(RECORD, scopes=mixed)), f"Bearer {SECRET}", now=0)
    assert (operator.scopes, tenant.scopes) == (frozenset({Scope.OPERATOR}), frozenset({Scope.RUNS_READ}))


async def test_a_scope_that_the_key_lacks_is_forbidden_by_name() -> None:
    principal = await authenticate(keys_with(RECORD), f"Bearer {SECRET}", now=0)
    assert principal.tenant_for(Scope.RUNS_READ) == "ten_1"
    with pytest.raises(Forbidden, match="runs:write"):
        principal.tenant_for(Scope.RUNS_WRITE)


def test_new_secrets_are_keys_and_no_two_are_alike() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert {len(secret) for secret in made} == {46}


async def test_a_new_secret_opens_what_its_hash_was_stored_for() -> None:
    secret = new_secret()
    principal = await authenticate(Keys({hash_secret(secret): RECORD}), f"Bearer {secret}", now=0)
    assert principal.actor == "ada"


def test_who_has_no_subject_acts_as_the_key() -> None:
    principal = Principal(tenant_id=None, key_id=KeyId("key_1"), subject=None, scopes=frozenset())
    assert principal.actor == "key_1"
