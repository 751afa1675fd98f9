"""What an operator sets for tenants, as rows tell it and as they are told."""

import json
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from pydantic import TypeAdapter

from app.ids import KeyId, TenantId, WorkerId
from app.policy import BudgetLimits
from app.policy.approvers import ApproverRule
from app.policy.ceilings import Ceiling
from app.ports.tenancy import (
    AuditEntry,
    KeyInfo,
    Pause,
    PauseKind,
    TenantChanges,
    TenantRecord,
    TenantRules,
    WorkerInfo,
)
from app.store.rows import dump_json, to_epoch
from app.store.types import escape_text, unescape_optional, unescape_text

_CEILINGS: Final = TypeAdapter(tuple[Ceiling, ...])
_APPROVERS: Final = TypeAdapter(tuple[ApproverRule, ...])
_NESTED: Final = frozenset({"budget", "approvers", "retention"})


# They are asked for with each run, and seldom change.
@lru_cache(maxsize=1024)
def load_rules(text: str) -> TenantRules:
    """What the SQL function ``tenant_rules`` tells."""
    told: dict[str, Any] = json.loads(text)
    return TenantRules(
        max_running=told["max_running"],
        max_queued=told["max_queued"],
        requests_per_minute=told["requests_per_minute"],
        weight=told["weight"],
        tools=_load_names(told["tools"]),
        models=_load_names(told["models"]),
        budget=BudgetLimits.model_validate_json(told["budget"] or "{}"),
        ceilings=_CEILINGS.validate_python(
            [{**ceiling, "limit": Decimal(ceiling["limit"])} for ceiling in told["ceilings"] or ()]
        ),
        on_ledger_error=told["on_ledger_error"],
        approvers=_APPROVERS.validate_json(told["approvers"] or "[]"),
        allow_self_approval=told["allow_self_approval"],
    )


def _load_names(names: Sequence[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(map(unescape_text, names))


def dump_changes(changes: TenantChanges) -> str:
    """What ``operator_set_tenant`` is told: values as their columns hold them."""
    told: dict[str, Any] = dict(changes)
    for name in ("tools", "models"):
        if told.get(name) is not None:
            told[name] = dump_names(told[name])
    if (budget := changes.get("budget")) is not None:
        told["budget"] = dump_json(budget.model_dump(mode="json", exclude_none=True))
    if "ceilings" in changes:
        told["ceilings"] = [
            {**ceiling.model_dump(mode="json"), "limit": str(ceiling.limit)} for ceiling in changes["ceilings"]
        ]
    if "approvers" in changes:
        told["approvers"] = dump_json([rule.model_dump(mode="json") for rule in changes["approvers"]])
    return dump_json(told)


def dump_names(names: Collection[str]) -> list[str]:
    return sorted({escape_text(name) for name in names})


def to_tenant(row: Mapping[str, Any]) -> TenantRecord:
    kept: dict[str, Any] = json.loads(row["retention"] or "{}")
    return TenantRecord(
        tenant_id=TenantId(row["tenant_id"]),
        name=unescape_text(row["name"]),
        created_at=row["created_at"].timestamp(),
        rules=load_rules(row["rules"]),
        runs_days=kept.get("runs_days"),
        sessions_days=kept.get("sessions_days"),
        archive=bool(kept.get("archive")),
        paused=row["paused"],
        erasing=row["erasing"],
    )


def to_key(row: Mapping[str, Any]) -> KeyInfo:
    return KeyInfo(
        key_id=KeyId(row["key_id"]),
        tenant_id=to_tenant_id(row["tenant_id"]),
        subject=unescape_optional(row["subject"]),
        scopes=frozenset(row["scopes"]),
        groups=frozenset(map(unescape_text, row["groups"])),
        description=unescape_text(row["description"]),
        created_at=row["created_at"].timestamp(),
        expires_at=to_epoch(row["expires_at"]),
        revoked_at=to_epoch(row["revoked_at"]),
        last_used_at=to_epoch(row["last_used_at"]),
        replaces=None if row["replaces"] is None else KeyId(row["replaces"]),
    )


def to_pause(row: Mapping[str, Any]) -> Pause:
    return Pause(
        pause_id=row["pause_id"],
        kind=PauseKind(row["kind"]),
        name=unescape_text(row["name"]),
        tenant_id=to_tenant_id(row["tenant_id"]),
        reason=unescape_text(row["reason"]),
        paused_by=unescape_text(row["paused_by"]),
        paused_at=row["paused_at"].timestamp(),
    )


def to_worker(row: Mapping[str, Any]) -> WorkerInfo:
    return WorkerInfo(
        worker_id=WorkerId(row["worker_id"]),
        has=frozenset(map(unescape_text, row["names"])),
        seen_at=row["seen_at"].timestamp(),
        draining=row["draining"],
    )


def to_audit_entry(row: Mapping[str, Any]) -> AuditEntry:
    return AuditEntry(
        audit_id=row["audit_id"],
        at=row["at"].timestamp(),
        tenant_id=to_tenant_id(row["tenant_id"]),
        actor=unescape_text(row["actor"]),
        action=row["action"],
        target=unescape_text(row["target"]),
        before=row["before"],
        after=row["after"],
        details=_unescape(json.loads(row["details"])),
    )


def to_tenant_id(text: str | None) -> TenantId | None:
    return None if text is None else TenantId(text)


def _unescape(value: Any, *, name: str = "") -> Any:
    """Columns' values as people wrote them. Below a column that holds JSON it is the value itself."""
    match value:
        case dict():
            return {key: _unescape(item, name=key if name not in _NESTED else name) for key, item in value.items()}
        case list():
            return [_unescape(item) for item in value]
        case str():
            return json.loads(value) if name in _NESTED else unescape_text(value)
        case _:
            return value
