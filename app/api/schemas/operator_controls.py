"""Pauses, cancellations, workers and the audit trail on the wire."""

import datetime
import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, StringConstraints

from app.api.schemas import story
from app.api.schemas.common import Instant, View, Wire, told_by
from app.events.codec import format_instant
from app.ports.tenancy import AuditEntry, Pause, PauseKind, WorkerInfo
from app.service.operator_controls import CancelRequest, PauseRequest

_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)

_Name = Annotated[str, StringConstraints(min_length=1, max_length=400)]
_TenantId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
_Reason = Annotated[str, StringConstraints(max_length=1_000)]


def _epoch_seconds(text: str) -> float:
    if not _INSTANT.fullmatch(text):
        raise ValueError
    instant = datetime.datetime.fromisoformat(text.upper()).timestamp()
    # A zone can lead past the calendar's ends.
    datetime.datetime.fromtimestamp(instant, tz=datetime.UTC)
    return instant


def _check_instant(text: str) -> str:
    try:
        _epoch_seconds(text)
    except (ValueError, OverflowError):
        raise ValueError("must be a time as in 2026-01-31T12:00:00.000Z") from None
    return text


_Time = Annotated[
    str, AfterValidator(_check_instant), Field(description="RFC 3339", json_schema_extra={"format": "date-time"})
]


class AddPause(Wire):
    """What to pause. A tenant is named by `tenant_id` alone, an agent by that and its `name`."""

    kind: PauseKind
    name: Annotated[_Name | None, Field(description="Of the agent or the tool; of a model the full name")] = None
    tenant_id: Annotated[
        _TenantId | None, Field(description="Of a tool or a model: for this tenant alone; null: for everybody")
    ] = None
    reason: _Reason = ""

    def to_request(self) -> PauseRequest:
        return PauseRequest(kind=self.kind, name=self.name, tenant_id=self.tenant_id, reason=self.reason)


class CancelRuns(Wire):
    """Which runs to end. All conditions hold together, and at least one is needed."""

    tenant_id: _TenantId | None = None
    agent: Annotated[_Name | None, Field(description="The agent that the run was asked of")] = None
    tool: Annotated[_Name | None, Field(description="A tool that the run may use")] = None
    model: Annotated[_Name | None, Field(description="A model that the run may call, by its full name")] = None
    created_before: _Time | None = None
    reason: Annotated[_Reason | None, Field(description="Recorded on the runs")] = None

    def to_request(self) -> CancelRequest:
        before = None if self.created_before is None else _epoch_seconds(self.created_before)
        return CancelRequest(
            tenant_id=self.tenant_id,
            agent=self.agent,
            tool=self.tool,
            model=self.model,
            created_before=before,
            reason=self.reason,
        )


class PauseView(View):
    model_config = told_by(
        {
            "id": story.PAUSE_ID,
            "kind": "tool",
            "name": story.TOOL,
            "tenant_id": None,
            "reason": "the inn answers nothing",
            "paused_by": story.OPERATOR,
            "paused_at": story.CREATED_AT,
        }
    )

    id: str
    kind: PauseKind
    name: str | None = Field(description="null: of a tenant, which `tenant_id` names")
    tenant_id: str | None = Field(description="null: for everybody")
    reason: str
    paused_by: str
    paused_at: Instant


class PausePage(View):
    items: list[PauseView]
    next_cursor: None = None


class CancelledView(View):
    model_config = told_by({"cancelled": 3})

    cancelled: int = Field(description="Runs that had not been asked to end before; those below them end with them")


class WorkerView(View):
    model_config = told_by(
        {
            "id": story.WORKER_ID,
            "has": [f"model:{story.MODEL}", f"tool:{story.TOOL}"],
            "seen_at": story.CREATED_AT,
            "draining": False,
        }
    )

    id: str
    has: list[str] = Field(description="What runs may need and this worker has, each with its kind")
    seen_at: Instant
    draining: bool = Field(description="An operator wants it to drain")


class WorkerPage(View):
    items: list[WorkerView]
    next_cursor: None = None


class DrainView(View):
    model_config = told_by({"id": story.WORKER_ID, "draining": True})

    id: str
    draining: bool = True


class AuditView(View):
    """One change that somebody made."""

    model_config = told_by(
        {
            "id": 4711,
            "at": story.CREATED_AT,
            "tenant_id": story.TENANT_ID,
            "actor": story.OPERATOR,
            "action": "tenant.changed",
            "target": story.TENANT_ID,
            "before": "0" * 64,
            "after": "f" * 64,
            "details": {"weight": 2},
        }
    )

    id: int
    at: Instant
    tenant_id: str | None
    actor: str = Field(description="The key's subject, or its id; `cli:` and a login for who used the command line")
    action: str
    target: str = Field(description="The id or the name of what was changed")
    before: str | None = Field(description="SHA-256 of the whole row as it was; null where there was none")
    after: str | None = Field(description="SHA-256 of the whole row as it is; null where there is none")
    details: dict[str, Any] = Field(description="What changed. Nothing secret, and nothing that tenants wrote")


class AuditPage(View):
    items: list[AuditView]
    next_cursor: str | None


def view_pause(pause: Pause) -> PauseView:
    return PauseView(
        id=pause.pause_id,
        kind=pause.kind,
        name=None if pause.kind is PauseKind.TENANT else pause.name,
        tenant_id=pause.tenant_id,
        reason=pause.reason,
        paused_by=pause.paused_by,
        paused_at=format_instant(pause.paused_at),
    )


def view_worker(worker: WorkerInfo) -> WorkerView:
    return WorkerView(
        id=worker.worker_id,
        has=sorted(worker.has),
        seen_at=format_instant(worker.seen_at),
        draining=worker.draining,
    )


def view_entry(entry: AuditEntry) -> AuditView:
    return AuditView(
        id=entry.audit_id,
        at=format_instant(entry.at),
        tenant_id=entry.tenant_id,
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        before=entry.before,
        after=entry.after,
        details=dict(entry.details),
    )
