"""The first keys of a deployment: shown once, stored as hashes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.auth import Scope, hash_secret, new_secret
from app.errors import ConfigurationError
from app.execution.system import Uuid7Ids
from app.ids import KeyId, TenantId
from app.ports.clock import IdSource
from app.ports.tenancy import NewKey, OperatorStore
from app.settings import Settings
from app.store.database import Database, DatabaseConfig
from app.store.operator import PostgresOperatorStore
from app.wiring.schema import open_as_owner
from app.wiring.secret import write_private

FIRST_TENANT: Final = "default"
_ACTOR: Final = "runwright"
_SERVICE_SCOPES: Final = (
    Scope.RUNS_READ,
    Scope.RUNS_WRITE,
    Scope.AGENTS_READ,
    Scope.AGENTS_WRITE,
    Scope.SESSIONS_READ,
    Scope.SESSIONS_WRITE,
    Scope.APPROVALS_READ,
)
_APPROVER_SCOPES: Final = (Scope.APPROVALS_READ, Scope.APPROVALS_DECIDE, Scope.RUNS_READ)


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstKeys:
    """Secrets. The service can't approve what it asked for: the approver is another subject."""

    tenant_id: TenantId
    service: str
    approver: str
    operator: str


async def make_keys(store: OperatorStore, ids: IdSource, tenant: str, *, actor: str = _ACTOR) -> FirstKeys:
    """Makes the tenant where there is none, and three new keys. Raises ConfigurationError ``tenant_erasing`` where it
    is going."""
    tenant_id = await store.ensure_tenant(tenant, actor=actor)
    keys = FirstKeys(tenant_id=tenant_id, service=new_secret(), approver=new_secret(), operator=new_secret())
    wanted = (
        (keys.service, tenant_id, "service", _SERVICE_SCOPES),
        (keys.approver, tenant_id, "approver", _APPROVER_SCOPES),
        (keys.operator, None, "operator", (Scope.OPERATOR,)),
    )
    for secret, owner, subject, scopes in wanted:
        key = NewKey(
            key_id=KeyId(ids.new("key")),
            tenant_id=owner,
            subject=subject,
            scopes=frozenset(scope.value for scope in scopes),
            secret_hash=hash_secret(secret),
        )
        if await store.add_key(key, actor=actor) is None:
            raise ConfigurationError(f"the tenant {tenant!r} is being erased", code="tenant_erasing")
    return keys


async def ensure_dev_keys(store: OperatorStore, ids: IdSource, path: Path) -> FirstKeys:
    """The keys in ``path`` (mode 0600), made where the file is not there. For the embedded database only."""
    kept = _read_keys(path)
    if kept is not None:
        return FirstKeys(tenant_id=await store.ensure_tenant(FIRST_TENANT, actor=_ACTOR), **kept)
    keys = await make_keys(store, ids, FIRST_TENANT)
    content = {"service": keys.service, "approver": keys.approver, "operator": keys.operator}
    write_private(path, (json.dumps(content, indent=2) + "\n").encode())
    return keys


def _read_keys(path: Path) -> dict[str, str] | None:
    try:
        kept: dict[str, str] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return kept


async def create_configured_keys(settings: Settings, tenant: str, *, actor: str = _ACTOR) -> FirstKeys:
    """Makes keys in the database that the settings point to."""
    async with open_as_owner(settings) as admin_url:
        database = Database(DatabaseConfig(url=admin_url, pool_size=1))
        try:
            ids = Uuid7Ids()
            return await make_keys(PostgresOperatorStore(database, ids), ids, tenant, actor=actor)
        finally:
            await database.close()
