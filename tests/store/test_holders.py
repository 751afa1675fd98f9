"""Holders of tickets: looked up by what a ticket says, for as long as the ticket and its key are good."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.execution.system import Uuid7Ids
from app.ids import KeyId, TenantId
from app.ports.records import TicketHolder
from app.store.database import Database, DatabaseConfig
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_key, new_tenant
from tests.store.support import NUL, query

FAR = 4_000_000_000.0
BOTH = pytest.mark.parametrize("name", ["find_holder", "admit_holder"])


@pytest.fixture
async def operator(shared_urls: DatabaseUrls) -> AsyncIterator[PostgresOperatorStore]:
    database = Database(DatabaseConfig(url=shared_urls.admin_url, pool_size=1))
    yield PostgresOperatorStore(database, Uuid7Ids())
    await database.close()


@pytest.fixture
def keys(shared_database: Database) -> PostgresKeyStore:
    return PostgresKeyStore(shared_database)


async def add_key(operator: PostgresOperatorStore, **more: Any) -> TicketHolder:
    """The holder of a ticket of a new tenant's new key."""
    tenant = await new_tenant(operator)
    key = new_key(tenant.tenant_id, scopes=frozenset({"runs:read"}), **more)
    await operator.add_key(key, actor=ACTOR)
    return TicketHolder(tenant_id=tenant.tenant_id, key_id=key.key_id, until=FAR)


@BOTH
async def test_a_key_is_found_by_its_id_and_its_tenant(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str
) -> None:
    holder = await add_key(operator, subject=NUL, groups=frozenset({"finance", NUL}))
    found = await getattr(keys, name)(holder)
    assert (found.key_id, found.tenant_id, found.subject) == (holder.key_id, holder.tenant_id, NUL)
    assert (found.scopes, found.groups, found.revoked) == ({"runs:read"}, {"finance", NUL}, False)


@BOTH
async def test_a_holder_without_a_key_is_the_tenant(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str
) -> None:
    holder = await add_key(operator)
    found = await getattr(keys, name)(TicketHolder(tenant_id=holder.tenant_id, key_id=None, until=FAR))
    assert (found.key_id, found.tenant_id, found.scopes, found.revoked) == ("", holder.tenant_id, frozenset(), False)


@BOTH
async def test_another_tenants_key_is_not_found(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str
) -> None:
    one, other = await add_key(operator), await add_key(operator)
    mixed = TicketHolder(tenant_id=one.tenant_id, key_id=other.key_id, until=FAR)
    assert await getattr(keys, name)(mixed) is None


@BOTH
@pytest.mark.parametrize("key_id", [None, KeyId("key_nobodys")])
async def test_an_unknown_tenant_is_not_found(keys: PostgresKeyStore, name: str, key_id: KeyId | None) -> None:
    assert await getattr(keys, name)(TicketHolder(tenant_id=TenantId("ten_x"), key_id=key_id, until=FAR)) is None


@BOTH
async def test_a_revoked_key_says_so(operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str) -> None:
    holder = await add_key(operator)
    assert holder.key_id is not None
    await operator.revoke_key(holder.key_id, holder.tenant_id, actor=ACTOR)
    assert (await getattr(keys, name)(holder)).revoked


@BOTH
async def test_an_expired_key_says_so(operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str) -> None:
    holder = await add_key(operator, lifetime_seconds=-1.0)
    assert (await getattr(keys, name)(holder)).revoked


@BOTH
@pytest.mark.parametrize("is_keys", [True, False])
async def test_a_ticket_whose_time_is_over_by_the_databases_clock_says_so(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, shared_urls: DatabaseUrls, name: str, is_keys: bool
) -> None:
    holder = await add_key(operator)
    [[now]] = await query(shared_urls.superuser_url, "SELECT extract(epoch FROM clock_timestamp())::float8")
    key_id = holder.key_id if is_keys else None
    past = TicketHolder(tenant_id=holder.tenant_id, key_id=key_id, until=now - 0.01)
    soon = TicketHolder(tenant_id=holder.tenant_id, key_id=key_id, until=now + 60)
    assert [(await getattr(keys, name)(past)).revoked, (await getattr(keys, name)(soon)).revoked] == [True, False]


@BOTH
async def test_nobody_is_found_of_a_tenant_that_is_going(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str
) -> None:
    holder = await add_key(operator)
    await operator.erase_tenant(holder.tenant_id, actor=ACTOR)
    assert await getattr(keys, name)(holder) is None


async def test_each_admission_counts_against_the_tenants_requests_per_minute(
    operator: PostgresOperatorStore, keys: PostgresKeyStore
) -> None:
    holder = await add_key(operator)
    await operator.set_tenant(holder.tenant_id, {"requests_per_minute": 1}, actor=ACTOR)
    first, second = await keys.admit_holder(holder), await keys.admit_holder(holder)
    assert first is not None
    assert first.retry_after_seconds is None
    assert second is not None
    assert second.retry_after_seconds is not None


async def test_what_is_refused_counts_for_nothing(operator: PostgresOperatorStore, keys: PostgresKeyStore) -> None:
    holder = await add_key(operator)
    await operator.set_tenant(holder.tenant_id, {"requests_per_minute": 1}, actor=ACTOR)
    await keys.admit_holder(TicketHolder(tenant_id=holder.tenant_id, key_id=holder.key_id, until=1.0))
    admitted = await keys.admit_holder(holder)
    assert admitted is not None
    assert admitted.retry_after_seconds is None


async def test_looking_again_counts_nowhere(operator: PostgresOperatorStore, keys: PostgresKeyStore) -> None:
    holder = await add_key(operator)
    await operator.set_tenant(holder.tenant_id, {"requests_per_minute": 1}, actor=ACTOR)
    await keys.find_holder(holder)
    admitted = await keys.admit_holder(holder)
    assert admitted is not None
    assert admitted.retry_after_seconds is None


@BOTH
async def test_only_the_service_may_ask(shared_urls: DatabaseUrls, name: str) -> None:
    asked = (
        "SELECT has_function_privilege('runwright_app', $1, 'EXECUTE'), has_function_privilege('public', $1, 'EXECUTE')"
    )
    [row] = await query(shared_urls.superuser_url, asked, f"{name}(text, text, timestamptz)")
    assert tuple(row) == (True, False)
