"""The tables of questions to people, beside those of ``tables.py``."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from app.store.schema import ID, INSTANT, metadata
from app.store.types import EscapedText

approvals = Table(
    "approvals",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("approval_id", ID, nullable=False),
    Column("run_id", ID, nullable=False),
    Column("root_run_id", ID, nullable=False),
    Column("agent", ID, nullable=False),
    Column("tool", EscapedText, nullable=False),
    Column("call_id", ID, nullable=False),
    Column("kind", ID, nullable=False),
    Column("dispatch", Integer, nullable=False),
    Column("arguments_digest", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("reason", EscapedText, nullable=False),
    Column("flagged", Boolean, nullable=False),
    Column("caller", EscapedText),
    Column("subject", EscapedText),
    Column("status", ID, nullable=False, server_default=text("'pending'")),
    Column("requested_at", INSTANT, nullable=False),
    Column("expires_at", INSTANT),
    Column("decided_at", INSTANT),
    Column("decided_by", EscapedText),
    Column("decision", ID),
    Column("decision_reason", EscapedText, nullable=False, server_default=text("''")),
    Column("arguments", Text),
    Column("edited_digest", Text),
    Column("approvals_needed", Integer),
    Column("approved_by", Text),
    PrimaryKeyConstraint("tenant_id", "approval_id", name="pk_approvals"),
    CheckConstraint("kind IN ('call', 'outcome')", name="ck_approvals_kind"),
    CheckConstraint("status IN ('pending', 'approved', 'denied', 'expired', 'cancelled')", name="ck_approvals_status"),
    CheckConstraint("decision IN ('approve', 'deny', 'succeeded', 'failed', 'retry')", name="ck_approvals_decision"),
    CheckConstraint(
        "(status = 'pending') = (decided_at IS NULL)"
        " AND (status IN ('approved', 'denied')) = (decided_by IS NOT NULL)"
        " AND (decided_by IS NULL) = (decision IS NULL)",
        name="ck_approvals_decided",
    ),
    CheckConstraint("(approvals_needed IS NULL) = (approved_by IS NULL)", name="ck_approvals_counted"),
)
Index("ix_approvals_newest", approvals.c.tenant_id, approvals.c.requested_at.desc(), approvals.c.approval_id.desc())
Index(
    "ix_approvals_pending",
    approvals.c.tenant_id,
    approvals.c.requested_at.desc(),
    approvals.c.approval_id.desc(),
    postgresql_where=text("status = 'pending'"),
)
Index("ix_approvals_expiry", approvals.c.expires_at, postgresql_where=text("status = 'pending'"))
Index(
    "ix_approvals_closed",
    approvals.c.tenant_id,
    approvals.c.status,
    approvals.c.requested_at.desc(),
    approvals.c.approval_id.desc(),
    postgresql_where=text("status <> 'pending'"),
)
for _filter in (approvals.c.agent, approvals.c.tool):
    Index(
        f"ix_approvals_{_filter.name}",
        approvals.c.tenant_id,
        _filter,
        approvals.c.requested_at.desc(),
        approvals.c.approval_id.desc(),
    )
Index("ix_approvals_root", approvals.c.tenant_id, approvals.c.root_run_id)
Index("ix_approvals_run", approvals.c.tenant_id, approvals.c.run_id)

approval_changes = Table(
    "approval_changes",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("change_id", BigInteger, Identity(always=True), nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("xid", BigInteger, nullable=False),
    Column("approval_id", ID, nullable=False),
    Column("status", ID, nullable=False),
    Column("at", INSTANT, nullable=False),
    PrimaryKeyConstraint("tenant_id", "change_id", name="pk_approval_changes"),
)
Index(
    "ix_approval_changes_order",
    approval_changes.c.tenant_id,
    approval_changes.c.incarnation,
    approval_changes.c.xid,
    approval_changes.c.change_id,
)
Index("ix_approval_changes_approval", approval_changes.c.tenant_id, approval_changes.c.approval_id)
