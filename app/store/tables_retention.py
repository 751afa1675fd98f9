"""The tables of erasing and keeping, beside those of ``tables.py``."""

from sqlalchemy import BigInteger, Column, PrimaryKeyConstraint, Table

from app.store.schema import ID, INSTANT, metadata

erasures = Table(
    "erasures",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("erased_at", INSTANT, nullable=False),
    Column("xid", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", name="pk_erasures"),
)

retention_turns = Table(
    "retention_turns",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("next_at", INSTANT, nullable=False),
    PrimaryKeyConstraint("tenant_id", name="pk_retention_turns"),
)
