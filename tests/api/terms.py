"""What an operator sets for a tenant, and people of it, as tests need them."""

from typing import Unpack

from app.auth import hash_secret, new_secret
from app.execution.system import Uuid7Ids
from app.ids import KeyId
from app.ports.tenancy import NewKey, OperatorStore, TenantChanges
from tests.api.harness import TENANT_SCOPES, Service


async def set_terms(admin: OperatorStore, service: Service, **changes: Unpack[TenantChanges]) -> None:
    assert await admin.set_tenant(service.keys.tenant_id, changes, actor="ops") is not None


async def add_person(admin: OperatorStore, service: Service, subject: str, *groups: str) -> str:
    """Somebody of the tenant who may do all that its people may; the secret of his key."""
    secret = new_secret()
    key = NewKey(
        key_id=KeyId(Uuid7Ids().new("key")),
        tenant_id=service.keys.tenant_id,
        subject=subject,
        scopes=frozenset(TENANT_SCOPES),
        groups=frozenset(groups),
        secret_hash=hash_secret(secret),
    )
    assert await admin.add_key(key, actor="ops") is not None
    return secret


async def add_people(admin: OperatorStore, service: Service, number: int) -> list[str]:
    """So many different ones."""
    return [await add_person(admin, service, f"person {n}") for n in range(number)]
