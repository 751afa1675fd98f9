"""The tables of webhooks and their notices, beside those of ``tables.py``."""

from sqlalchemy import CheckConstraint, Column, Index, Integer, PrimaryKeyConstraint, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from app.store.schema import ID, INSTANT, metadata
from app.store.types import EscapedText

webhooks = Table(
    "webhooks",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("webhook_id", ID, nullable=False),
    Column("url", Text, nullable=False),
    Column("events", ARRAY(Text), nullable=False),
    Column("description", EscapedText, nullable=False),
    Column("created_at", INSTANT, nullable=False),
    Column("disabled_at", INSTANT),
    PrimaryKeyConstraint("tenant_id", "webhook_id", name="pk_webhooks"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("delivery_id", ID, nullable=False),
    Column("webhook_id", ID, nullable=False),
    Column("event", ID, nullable=False),
    Column("subject", ID, nullable=False),
    Column("run_id", ID),
    Column("body", Text),
    Column("status", ID, nullable=False, server_default=text("'pending'")),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("created_at", INSTANT, nullable=False),
    Column("next_attempt_at", INSTANT),
    Column("held_until", INSTANT),
    Column("ended_at", INSTANT),
    Column("last_status", Integer),
    Column("last_error", Text),
    PrimaryKeyConstraint("tenant_id", "delivery_id", name="pk_webhook_deliveries"),
    CheckConstraint("status IN ('pending', 'delivered', 'failed')", name="ck_webhook_deliveries_status"),
    CheckConstraint(
        "(status = 'pending') = (next_attempt_at IS NOT NULL) AND (status = 'pending') = (ended_at IS NULL)",
        name="ck_webhook_deliveries_over",
    ),
    postgresql_with={"fillfactor": 80},
)
_columns = webhook_deliveries.c
Index(
    "ix_webhook_deliveries_due",
    _columns.tenant_id,
    _columns.webhook_id,
    _columns.next_attempt_at,
    postgresql_where=text("status = 'pending'"),
)
Index(
    "ix_webhook_deliveries_held",
    _columns.tenant_id,
    _columns.webhook_id,
    _columns.held_until,
    postgresql_where=text("held_until IS NOT NULL"),
)
Index(
    "ix_webhook_deliveries_newest",
    _columns.tenant_id,
    _columns.webhook_id,
    _columns.created_at.desc(),
    _columns.delivery_id.desc(),
)
Index(
    "ix_webhook_deliveries_run",
    _columns.tenant_id,
    _columns.run_id,
    postgresql_where=text("run_id IS NOT NULL"),
)
Index("ix_webhook_deliveries_over", _columns.ended_at, postgresql_where=text("ended_at IS NOT NULL"))
