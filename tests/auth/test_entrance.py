"""A header becomes a principal, or one refusal that tells nothing."""

from dataclasses import replace

import pytest

from app.auth import Attempts, Entrance, Principal, Scope, Tickets, Uses, hash_secret, new_secret
from app.errors import StoreUnavailable, TooManyRequests, Unauthenticated
from app.ids import KeyId, TenantId
from app.ports.records import KeyRecord
from app.testing import FakeClock
from tests.auth.keyring import RECORD, SECRET, Keyring

TICKETS = Tickets(b"k" * 32)


def entrance(*, keys: Keyring | None = None, record: KeyRecord = RECORD) -> Entrance:
    keys = Keyring({hash_secret(SECRET): record}) if keys is None else keys
    return Entrance(keys=keys, clock=FakeClock(start_at=100.0), attempts=Attempts(), uses=Uses(), tickets=TICKETS)


async def admit(door: Entrance, header: str | None = f"Bearer {SECRET}") -> Principal:
    return await door.admit(header, address="192.0.2.1")


async def test_a_key_makes_the_principal_that_its_record_describes() -> None:
    principal = await admit(entrance(record=replace(RECORD, groups=frozenset({"finance"}))))
    assert principal == Principal(
        tenant_id=TenantId("ten_1"),
        key_id=KeyId("key_1"),
        subject="ada",
        scopes=frozenset({Scope.RUNS_READ}),
        groups=frozenset({"finance"}),
        user=None,
    )


@pytest.mark.parametrize("header", [f"bearer {SECRET}", f"BEARER  {SECRET} "])
async def test_the_word_bearer_is_read_in_any_case(header: str) -> None:
    assert (await admit(entrance(), header)).subject == "ada"


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
        "Bearer eyJhbGciOiJub25lIn0.e30.",
    ],
)
async def test_a_header_that_holds_no_key_is_refused_without_asking_the_store(header: str | None) -> None:
    keys = Keyring({hash_secret(SECRET): RECORD})
    with pytest.raises(Unauthenticated):
        await admit(entrance(keys=keys), header)
    assert keys.admitted == 0


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(replace(RECORD, revoked=True), id="revoked"),
        pytest.param(replace(RECORD, expires_at=100.0), id="expires now"),
    ],
)
async def test_a_key_that_no_longer_holds_looks_like_one_that_never_was(record: KeyRecord) -> None:
    with pytest.raises(Unauthenticated) as unknown:
        await admit(entrance(keys=Keyring()))
    with pytest.raises(Unauthenticated) as lapsed:
        await admit(entrance(record=record))
    assert str(unknown.value) == str(lapsed.value)


async def test_a_key_holds_until_the_instant_at_which_it_expires() -> None:
    assert (await admit(entrance(record=replace(RECORD, expires_at=100.001)))).subject == "ada"


async def test_an_operators_key_keeps_no_tenants_scope_and_a_tenants_key_is_no_operator() -> None:
    mixed = replace(RECORD, scopes=frozenset({"operator", "runs:read", "scope:of-a-later-release"}))
    operator = await admit(entrance(record=replace(mixed, tenant_id=None)))
    tenant = await admit(entrance(record=mixed))
    assert (operator.scopes, tenant.scopes) == (frozenset({Scope.OPERATOR}), frozenset({Scope.RUNS_READ}))


async def test_a_new_secret_opens_what_its_hash_was_stored_for() -> None:
    secret = new_secret()
    principal = await admit(entrance(keys=Keyring({hash_secret(secret): RECORD})), f"Bearer {secret}")
    assert principal.actor == "ada"


async def test_a_tenant_whose_requests_are_used_up_is_told_when_the_next_one_is_let_in() -> None:
    with pytest.raises(TooManyRequests) as refused:
        await admit(entrance(record=replace(RECORD, retry_after_seconds=2.5)))
    assert (refused.value.code, refused.value.retry_after_seconds) == ("rate_limited", 2.5)


async def test_a_wait_of_less_than_a_second_is_told_as_one() -> None:
    with pytest.raises(TooManyRequests) as refused:
        await admit(entrance(record=replace(RECORD, retry_after_seconds=0.01)))
    assert refused.value.retry_after_seconds == 1.0


async def test_a_revoked_key_is_refused_before_its_tenants_rate_is_looked_at() -> None:
    with pytest.raises(Unauthenticated):
        await admit(entrance(record=replace(RECORD, revoked=True, retry_after_seconds=2.5)))


async def test_a_request_that_is_served_is_noted_as_a_use_of_its_key() -> None:
    door = entrance()
    await admit(door)
    assert door.uses.take() == {"key_1": 100.0}


async def test_a_request_that_is_refused_is_no_use_of_a_key() -> None:
    door = entrance(record=replace(RECORD, revoked=True))
    with pytest.raises(Unauthenticated):
        await admit(door)
    assert door.uses.take() == {}


async def test_a_stream_that_asks_again_counts_as_no_request() -> None:
    keys = Keyring({hash_secret(SECRET): replace(RECORD, retry_after_seconds=60.0)})
    door = entrance(keys=keys)
    assert await door.still_holds(f"Bearer {SECRET}", Scope.RUNS_READ)
    assert (keys.found, keys.admitted, door.uses.take()) == (1, 0, {})


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(replace(RECORD, revoked=True), id="revoked"),
        pytest.param(replace(RECORD, expires_at=100.0), id="expired"),
        pytest.param(replace(RECORD, scopes=frozenset({"runs:write"})), id="without the scope"),
        pytest.param(replace(RECORD, tenant_id=None, scopes=frozenset({"operator"})), id="an operator's"),
    ],
)
async def test_a_stream_ends_with_what_its_key_allowed(record: KeyRecord) -> None:
    assert not await entrance(record=record).still_holds(f"Bearer {SECRET}", Scope.RUNS_READ)


async def test_a_stream_is_not_ended_by_a_store_that_does_not_answer() -> None:
    with pytest.raises(StoreUnavailable):
        await entrance(keys=Keyring(is_away=True)).still_holds(f"Bearer {SECRET}", Scope.RUNS_READ)
