"""Keys: found by their hash before a tenant is known, with what the operator gave them."""

import hashlib
import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.execution.system import Uuid7Ids
from app.ids import KeyId
from app.store.database import Database, DatabaseConfig
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_key, new_tenant
from tests.store.support import FUTURE, NUL, PAST, query


@pytest.fixture
async def operator(shared_urls: DatabaseUrls) -> AsyncIterator[PostgresOperatorStore]:
    database = Database(DatabaseConfig(url=shared_urls.admin_url, pool_size=1))
    yield PostgresOperatorStore(database, Uuid7Ids())
    await database.close()


@pytest.fixture
def keys(shared_database: Database) -> PostgresKeyStore:
    return PostgresKeyStore(shared_database)


@pytest.mark.parametrize("name", ["find_key", "admit_key"])
async def test_a_key_is_found_by_its_hash(operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str) -> None:
    tenant = await new_tenant(operator)
    key = new_key(
        tenant.tenant_id,
        subject=NUL,
        scopes=frozenset({"runs:read", "runs:write"}),
        groups=frozenset({"finance", NUL}),
    )
    await operator.add_key(key, actor=ACTOR)
    found = await getattr(keys, name)(key.secret_hash)
    assert (found.key_id, found.tenant_id, found.subject) == (key.key_id, tenant.tenant_id, NUL)
    assert (found.scopes, found.groups) == (key.scopes, key.groups)
    assert (found.expires_at, found.revoked, found.retry_after_seconds) == (None, False, None)


@pytest.mark.parametrize("name", ["find_key", "admit_key"])
async def test_an_operators_key_has_no_tenant(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str
) -> None:
    key = new_key(None, subject=None, scopes=frozenset({"operator"}))
    await operator.add_key(key, actor=ACTOR)
    found = await getattr(keys, name)(key.secret_hash)
    assert (found.tenant_id, found.subject) == (None, None)


@pytest.mark.parametrize("name", ["find_key", "admit_key"])
async def test_an_expired_or_revoked_key_says_so(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, shared_urls: DatabaseUrls, name: str
) -> None:
    key = new_key(None)
    await operator.add_key(key, actor=ACTOR)
    await query(
        shared_urls.superuser_url,
        "UPDATE keys SET expires_at = to_timestamp(1000.5), revoked_at = now() WHERE secret_hash = $1",
        key.secret_hash,
    )
    found = await getattr(keys, name)(key.secret_hash)
    assert (found.expires_at, found.revoked) == (1000.5, True)


@pytest.mark.parametrize("name", ["find_key", "admit_key"])
async def test_a_key_that_is_at_its_end_is_not_valid_whatever_the_clock_of_who_asks(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str
) -> None:
    key, successor = new_key(None), new_key(None)
    await operator.add_key(key, actor=ACTOR)
    await operator.rotate_key(key.key_id, None, successor, overlap_seconds=0, actor=ACTOR)
    ends = [await getattr(keys, name)(each.secret_hash) for each in (key, successor)]
    assert [found.revoked for found in ends] == [True, False]


@pytest.mark.parametrize("name", ["find_key", "admit_key"])
async def test_an_unknown_hash_finds_nothing(keys: PostgresKeyStore, name: str) -> None:
    unknown = hashlib.sha256(secrets.token_bytes(16)).digest()
    assert await getattr(keys, name)(unknown) is None


async def test_one_secret_is_one_key(operator: PostgresOperatorStore) -> None:
    key = new_key(None)
    await operator.add_key(key, actor=ACTOR)
    with pytest.raises(asyncpg.UniqueViolationError):
        await operator.add_key(new_key(None, secret_hash=key.secret_hash), actor=ACTOR)


async def test_a_key_without_a_hash_is_refused(operator: PostgresOperatorStore) -> None:
    with pytest.raises(ValueError, match="hash"):
        await operator.add_key(new_key(None, secret_hash=b""), actor=ACTOR)


async def test_the_last_use_is_kept_and_never_goes_back(
    operator: PostgresOperatorStore, keys: PostgresKeyStore
) -> None:
    tenant = await new_tenant(operator)
    key = new_key(tenant.tenant_id)
    await operator.add_key(key, actor=ACTOR)
    await keys.note_uses({key.key_id: 2000.5, KeyId("key_unknown"): 1.0})
    await keys.note_uses({key.key_id: PAST})
    [told] = await operator.list_keys(tenant.tenant_id)
    assert told.last_used_at == 2000.5


async def test_a_clock_that_is_ahead_puts_no_use_into_the_future(
    operator: PostgresOperatorStore, keys: PostgresKeyStore
) -> None:
    tenant = await new_tenant(operator)
    key = new_key(tenant.tenant_id)
    created = await operator.add_key(key, actor=ACTOR)
    await keys.note_uses({key.key_id: FUTURE})
    [told] = await operator.list_keys(tenant.tenant_id)
    assert created is not None
    assert told.last_used_at is not None
    assert created.created_at <= told.last_used_at < FUTURE


async def test_a_process_of_the_release_before_finds_keys_as_it_did(
    operator: PostgresOperatorStore, shared_urls: DatabaseUrls
) -> None:
    key = new_key(None)
    await operator.add_key(key, actor=ACTOR)
    statement = "SELECT key_id, tenant_id, subject, scopes, expires_at, revoked FROM find_key($1)"
    [found] = await query(shared_urls.app_url, statement, key.secret_hash)
    assert tuple(found) == (key.key_id, None, "somebody", ["runs:read"], None, False)


@pytest.mark.parametrize("name", ["find_key", "admit_key"])
async def test_a_key_of_a_tenant_that_is_being_erased_is_not_found(
    operator: PostgresOperatorStore, keys: PostgresKeyStore, name: str
) -> None:
    tenant = await new_tenant(operator)
    key = new_key(tenant.tenant_id)
    await operator.add_key(key, actor=ACTOR)
    await operator.erase_tenant(tenant.tenant_id, actor=ACTOR)
    assert await getattr(keys, name)(key.secret_hash) is None


async def test_a_tenant_is_admitted_by_its_id_and_by_its_name(
    operator: PostgresOperatorStore, keys: PostgresKeyStore
) -> None:
    tenant = await new_tenant(operator)
    found = [await keys.admit_tenant(asked) for asked in (tenant.tenant_id, tenant.name)]
    told = [(record.tenant_id, record.scopes, record.subject) for record in found if record is not None]
    assert told == [(tenant.tenant_id, frozenset(), None)] * 2


async def test_a_tenant_is_there_by_its_id_and_by_its_name(
    operator: PostgresOperatorStore, keys: PostgresKeyStore
) -> None:
    tenant = await new_tenant(operator)
    assert [await keys.has_tenant(asked) for asked in (tenant.tenant_id, tenant.name)] == [True, True]


async def test_an_id_comes_before_the_name_of_somebody_else(
    operator: PostgresOperatorStore, keys: PostgresKeyStore
) -> None:
    tenant = await new_tenant(operator)
    await operator.create_tenant(tenant.tenant_id, actor=ACTOR)
    found = await keys.admit_tenant(tenant.tenant_id)
    assert found is not None
    assert found.tenant_id == tenant.tenant_id


async def test_an_unknown_tenant_and_one_that_is_being_erased_are_not_admitted(
    operator: PostgresOperatorStore, keys: PostgresKeyStore
) -> None:
    tenant = await new_tenant(operator)
    await operator.erase_tenant(tenant.tenant_id, actor=ACTOR)
    assert [await keys.admit_tenant(asked) for asked in (tenant.name, "nobody", NUL)] == [None] * 3
    assert not any([await keys.has_tenant(asked) for asked in (tenant.name, "nobody", NUL)])
