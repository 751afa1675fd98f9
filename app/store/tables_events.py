"""The log of every run, beside the tables of ``tables.py``."""

from sqlalchemy import BigInteger, Column, Date, Index, Integer, PrimaryKeyConstraint, Table, Text, text

from app.store.schema import ID, INSTANT, XID, metadata

events = Table(
    "events",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("run_day", Date, nullable=False),
    Column("run_id", ID, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("kind", ID, nullable=False),
    Column("at", INSTANT, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("xid", BigInteger, nullable=False, server_default=XID),
    Column("payload", Text, nullable=False),
    Column("incarnation", BigInteger),
    PrimaryKeyConstraint("tenant_id", "run_day", "run_id", "seq", name="pk_events"),
    postgresql_partition_by="RANGE (run_day)",
)
Index(
    "uq_events_terminated",
    events.c.tenant_id,
    events.c.run_day,
    events.c.run_id,
    unique=True,
    postgresql_where=text("kind = 'terminated'"),
)
Index(
    "ix_events_order",
    events.c.tenant_id,
    events.c.incarnation,
    events.c.xid,
    postgresql_where=text("incarnation IS NOT NULL"),
)
