"""Keys and tenants: the operator's side, and the look-up before a tenant is known."""

import hashlib
import secrets
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.execution.system import Uuid7Ids
from app.ids import is_id
from app.store.admin import PostgresAdminStore
from app.store.database import Database, DatabaseConfig
from app.store.keys import PostgresKeyStore
from tests.conftest import DatabaseUrls
from tests.store.support import NUL, query


@pytest.fixture
async def admin(shared_urls: DatabaseUrls) -> AsyncIterator[PostgresAdminStore]:
    database = Database(DatabaseConfig(url=shared_urls.admin_url, pool_size=1))
    yield PostgresAdminStore(database, Uuid7Ids())
    await database.close()


@pytest.fixture
def secret_hash() -> bytes:
    return hashlib.sha256(secrets.token_bytes(16)).digest()


async def test_a_tenant_is_made_once(admin: PostgresAdminStore) -> None:
    name = f"{NUL} {secrets.token_hex(4)}"
    first = await admin.ensure_tenant(name)
    assert is_id("ten", first)
    assert await admin.ensure_tenant(name) == first
    assert await admin.ensure_tenant(f"{name} ") != first


async def test_a_key_is_found_by_its_hash(
    admin: PostgresAdminStore, shared_database: Database, secret_hash: bytes
) -> None:
    tenant_id = await admin.ensure_tenant("keys")
    await admin.add_key(tenant_id=tenant_id, subject=NUL, scopes={"runs:read", "runs:write"}, secret_hash=secret_hash)
    found = await PostgresKeyStore(shared_database).find_key(secret_hash)
    assert found is not None
    assert (found.tenant_id, found.subject, found.scopes) == (tenant_id, NUL, frozenset({"runs:read", "runs:write"}))
    assert (found.expires_at, found.revoked) == (None, False)
    assert is_id("key", found.key_id)


async def test_an_operators_key_has_no_tenant(
    admin: PostgresAdminStore, shared_database: Database, secret_hash: bytes
) -> None:
    await admin.add_key(tenant_id=None, subject=None, scopes=["operator"], secret_hash=secret_hash)
    found = await PostgresKeyStore(shared_database).find_key(secret_hash)
    assert found is not None
    assert (found.tenant_id, found.subject) == (None, None)


async def test_an_expired_or_revoked_key_says_so(
    admin: PostgresAdminStore, shared_urls: DatabaseUrls, shared_database: Database, secret_hash: bytes
) -> None:
    await admin.add_key(tenant_id=None, subject=None, scopes=["operator"], secret_hash=secret_hash)
    await query(
        shared_urls.superuser_url,
        "UPDATE keys SET expires_at = to_timestamp(1000.5), revoked_at = now() WHERE secret_hash = $1",
        secret_hash,
    )
    found = await PostgresKeyStore(shared_database).find_key(secret_hash)
    assert found is not None
    assert (found.expires_at, found.revoked) == (1000.5, True)


async def test_an_unknown_hash_finds_nothing(shared_database: Database, secret_hash: bytes) -> None:
    assert await PostgresKeyStore(shared_database).find_key(secret_hash) is None


async def test_one_secret_is_one_key(admin: PostgresAdminStore, secret_hash: bytes) -> None:
    await admin.add_key(tenant_id=None, subject=None, scopes=["operator"], secret_hash=secret_hash)
    with pytest.raises(asyncpg.UniqueViolationError):
        await admin.add_key(tenant_id=None, subject=None, scopes=["operator"], secret_hash=secret_hash)


async def test_the_services_login_makes_no_keys(shared_database: Database, secret_hash: bytes) -> None:
    service = PostgresAdminStore(shared_database, Uuid7Ids())
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await service.add_key(tenant_id=None, subject=None, scopes=["operator"], secret_hash=secret_hash)
