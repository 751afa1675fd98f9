"""What tenants have used over time, beside their ceilings in ``tables_tenancy.py``."""

from sqlalchemy import BigInteger, Boolean, Column, Integer, Numeric, PrimaryKeyConstraint, Table

from app.store.schema import ID, metadata

ledger = Table(
    "ledger",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("window_seconds", Integer, nullable=False),
    Column("stretch", BigInteger, nullable=False),
    Column("cost", Numeric, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("model_calls", BigInteger, nullable=False),
    Column("tool_calls", BigInteger, nullable=False),
    Column("active_us", BigInteger, nullable=False),
    Column("estimated", Boolean, nullable=False),
    PrimaryKeyConstraint("tenant_id", "window_seconds", "stretch", name="pk_ledger"),
    postgresql_with={"fillfactor": 50},
)

ledger_holds = Table(
    "ledger_holds",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("run_id", ID, nullable=False),
    Column("cost", Numeric, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    PrimaryKeyConstraint("tenant_id", "run_id", name="pk_ledger_holds"),
    postgresql_with={"fillfactor": 50},
)
