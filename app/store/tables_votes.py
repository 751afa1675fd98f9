"""What persons have said of questions that several have to answer, beside the tables of ``tables_approvals.py``."""

from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, PrimaryKeyConstraint, Table, Text

from app.store.schema import ID, INSTANT, metadata
from app.store.types import EscapedText

approval_votes = Table(
    "approval_votes",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("approval_id", ID, nullable=False),
    Column("subject", EscapedText(collation="C"), nullable=False),
    Column("groups", Text, nullable=False),
    Column("decision", ID, nullable=False),
    Column("at", INSTANT, nullable=False),
    PrimaryKeyConstraint("tenant_id", "approval_id", "subject", name="pk_approval_votes"),
    ForeignKeyConstraint(
        ["tenant_id", "approval_id"],
        ["approvals.tenant_id", "approvals.approval_id"],
        name="fk_approval_votes_approval",
        ondelete="CASCADE",
    ),
    CheckConstraint("decision IN ('approve', 'succeeded', 'failed', 'retry')", name="ck_approval_votes_decision"),
)
