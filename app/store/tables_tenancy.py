"""The tables of what an operator sets, beside those of ``tables.py``."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
    true,
)

from app.store.schema import ID, INSTANT, NOW, metadata
from app.store.types import EscapedText

ceilings = Table(
    "ceilings",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("dimension", ID, nullable=False),
    Column("window_seconds", Integer, nullable=False),
    Column("limit_amount", Numeric, nullable=False),
    PrimaryKeyConstraint("tenant_id", "dimension", "window_seconds", name="pk_ceilings"),
    CheckConstraint("window_seconds >= 60 AND window_seconds % 60 = 0", name="ck_ceilings_window"),
    CheckConstraint("limit_amount > 0", name="ck_ceilings_limit"),
)

pauses = Table(
    "pauses",
    metadata,
    Column("pause_id", ID, nullable=False),
    Column("kind", ID, nullable=False),
    Column("name", EscapedText(collation="C"), nullable=False),
    Column("tenant_id", ID),
    Column("reason", EscapedText, nullable=False),
    Column("paused_by", EscapedText, nullable=False),
    Column("paused_at", INSTANT, nullable=False),
    PrimaryKeyConstraint("pause_id", name="pk_pauses"),
    CheckConstraint("kind IN ('tenant', 'agent', 'tool', 'model')", name="ck_pauses_kind"),
    CheckConstraint("tenant_id IS NOT NULL OR kind IN ('tool', 'model')", name="ck_pauses_whose"),
    CheckConstraint("kind <> 'tenant' OR name = tenant_id", name="ck_pauses_tenant"),
)
Index("uq_pauses_thing", pauses.c.kind, pauses.c.name, text("COALESCE(tenant_id, ''::text)"), unique=True)

tenant_rates = Table(
    "tenant_rates",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("full_at", INSTANT, nullable=False),
    PrimaryKeyConstraint("tenant_id", name="pk_tenant_rates"),
    postgresql_with={"fillfactor": 50},
)

audit = Table(
    "audit",
    metadata,
    Column("audit_id", BigInteger, Identity(always=True), nullable=False),
    Column("at", INSTANT, nullable=False, server_default=NOW),
    Column("tenant_id", ID),
    Column("actor", EscapedText, nullable=False),
    Column("action", ID, nullable=False),
    Column("target", EscapedText, nullable=False),
    Column("before", ID),
    Column("after", ID),
    Column("details", Text, nullable=False),
    PrimaryKeyConstraint("audit_id", name="pk_audit"),
)
Index("ix_audit_tenant", audit.c.tenant_id, audit.c.audit_id)

audit_key = Table(
    "audit_key",
    metadata,
    Column("one", Boolean, nullable=False, server_default=true()),
    Column("inner_key", LargeBinary, nullable=False),
    Column("outer_key", LargeBinary, nullable=False),
    PrimaryKeyConstraint("one", name="pk_audit_key"),
    CheckConstraint("one", name="ck_audit_key_one"),
)
