"""What tests of the operator's side share."""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

from app.execution.system import Uuid7Ids
from app.ids import KeyId, TenantId
from app.ports.tenancy import AuditEntry, NewKey, OperatorStore, Pause, PauseKind, TenantRecord

ACTOR = "ops"


def new_key(tenant_id: TenantId | None = None, **changes: Any) -> NewKey:
    return NewKey(
        **{
            "key_id": KeyId(Uuid7Ids().new("key")),
            "tenant_id": tenant_id,
            "subject": "somebody",
            "scopes": frozenset({"runs:read"}),
            "secret_hash": hashlib.sha256(secrets.token_bytes(16)).digest(),
            **changes,
        }
    )


def pause_of(kind: PauseKind, name: str, tenant_id: TenantId | None = None) -> Pause:
    return Pause(
        pause_id=Uuid7Ids().new("pau"),
        kind=kind,
        name=name,
        tenant_id=tenant_id,
        reason="for a test",
        paused_by=ACTOR,
        paused_at=0.0,
    )


async def new_tenant(operator: OperatorStore) -> TenantRecord:
    """One of whom no other test knows."""
    made = await operator.create_tenant(f"tenant {secrets.token_hex(6)}", actor=ACTOR)
    assert made is not None
    return made


async def trail(operator: OperatorStore, tenant_id: TenantId | None, action: str | None = None) -> Sequence[AuditEntry]:
    """The newest first."""
    return await operator.audit_trail(tenant_id=tenant_id, action=action, limit=100, before=None)
