"""The tables as queries see them. The migrations make them; ``runwright migrate --check`` compares the two.

Every table that grows has ``tenant_id`` first in its primary key, so the schema can be distributed by tenant.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    PrimaryKeyConstraint,
    Sequence,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from app.events import RunState
from app.store import (
    tables_approvals,
    tables_events,
    tables_ledger,
    tables_retention,
    tables_tenancy,
    tables_votes,
    tables_webhooks,
)
from app.store.schema import ID, INSTANT, NOW, metadata
from app.store.types import EscapedText

__all__ = [
    "metadata",
    "runs",
    "tables_approvals",
    "tables_events",
    "tables_ledger",
    "tables_retention",
    "tables_tenancy",
    "tables_votes",
    "tables_webhooks",
]

tenants = Table(
    "tenants",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("name", EscapedText, nullable=False),
    Column("created_at", INSTANT, nullable=False, server_default=NOW),
    Column("max_running", Integer),
    Column("allow_self_approval", Boolean, nullable=False, server_default=text("false")),
    Column("retention", Text),
    Column("max_queued", Integer),
    Column("requests_per_minute", Integer),
    Column("weight", Integer, nullable=False, server_default=text("1")),
    Column("tools", ARRAY(EscapedText)),
    Column("models", ARRAY(EscapedText)),
    Column("budget", Text),
    Column("on_ledger_error", ID, nullable=False, server_default=text("'fail'")),
    Column("approvers", Text),
    Column("erase_requested_at", INSTANT),
    PrimaryKeyConstraint("tenant_id", name="pk_tenants"),
    UniqueConstraint("name", name="uq_tenants_name"),
    CheckConstraint("max_running >= 0", name="ck_tenants_max_running"),
    CheckConstraint("max_queued >= 0", name="ck_tenants_max_queued"),
    CheckConstraint("requests_per_minute >= 1", name="ck_tenants_requests_per_minute"),
    CheckConstraint("weight BETWEEN 1 AND 1000", name="ck_tenants_weight"),
    CheckConstraint("on_ledger_error IN ('fail', 'proceed')", name="ck_tenants_on_ledger_error"),
)
Index("ix_tenants_erasing", tenants.c.erase_requested_at, postgresql_where=text("erase_requested_at IS NOT NULL"))

keys = Table(
    "keys",
    metadata,
    Column("key_id", ID, nullable=False),
    Column("tenant_id", ID),
    Column("subject", EscapedText),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("created_at", INSTANT, nullable=False, server_default=NOW),
    Column("expires_at", INSTANT),
    Column("revoked_at", INSTANT),
    Column("groups", ARRAY(EscapedText), nullable=False, server_default=text("'{}'")),
    Column("description", EscapedText, nullable=False, server_default=text("''")),
    Column("last_used_at", INSTANT),
    Column("replaces", ID),
    PrimaryKeyConstraint("key_id", name="pk_keys"),
    UniqueConstraint("secret_hash", name="uq_keys_secret_hash"),
    ForeignKeyConstraint(["tenant_id"], ["tenants.tenant_id"], name="fk_keys_tenant"),
)
Index("ix_keys_tenant", keys.c.tenant_id, keys.c.created_at, keys.c.key_id)

agents = Table(
    "agents",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("name", ID, nullable=False),
    Column("newest_version", Integer, nullable=False),
    Column("retired", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("tenant_id", "name", name="pk_agents"),
)

agent_versions = Table(
    "agent_versions",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("name", ID, nullable=False),
    Column("version", Integer, nullable=False),
    Column("digest", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("created_at", INSTANT, nullable=False, server_default=NOW),
    PrimaryKeyConstraint("tenant_id", "name", "version", name="pk_agent_versions"),
)

runs = Table(
    "runs",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("run_id", ID, nullable=False),
    Column("run_day", Date, nullable=False),
    Column("state", ID, nullable=False),
    Column("agent", ID, nullable=False),
    Column("agent_version", Integer, nullable=False),
    Column("input", Text, nullable=False),
    Column("context", Text, nullable=False),
    Column("caller", EscapedText),
    Column("subject", EscapedText),
    Column("model", EscapedText),
    Column("deadline_at", INSTANT),
    Column("budget", Text, nullable=False),
    Column("max_llm_calls", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("output_text", EscapedText),
    Column("error_code", Text),
    Column("error_detail", EscapedText),
    Column("prompt_version", Text),
    Column("prompt_fingerprint", Text),
    Column("input_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("cached_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("output_tokens", BigInteger, nullable=False, server_default=text("0")),
    Column("usage_source", Text, nullable=False, server_default=text("'provider'")),
    Column("model_calls", Integer, nullable=False, server_default=text("0")),
    Column("tool_calls", Integer, nullable=False, server_default=text("0")),
    Column("cancel_requested_at", INSTANT),
    Column("cancel_reason", EscapedText),
    Column("cancel_requested_by", EscapedText),
    Column("created_at", INSTANT, nullable=False),
    Column("queued_at", INSTANT, nullable=False),
    Column("started_at", INSTANT),
    Column("ended_at", INSTANT),
    Column("last_seq", Integer, nullable=False, server_default=text("0")),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("worker_id", Text),
    Column("lease_expires_at", INSTANT),
    Column("recoveries", Integer, nullable=False, server_default=text("0")),
    Column("output_schema", Text),
    Column("cost", Numeric),
    Column("session_id", ID),
    Column("session_seq", Integer),
    Column("blocked", Boolean, nullable=False, server_default=text("false")),
    Column("parent_run_id", ID),
    Column("root_run_id", ID),
    Column("depth", Integer, nullable=False, server_default=text("0")),
    Column("path", ARRAY(Text)),
    Column("team", Text),
    Column("iterations", Integer, nullable=False, server_default=text("0")),
    Column("state_owner", ID),
    Column("lane", ID, nullable=False, server_default=text("''")),
    Column("resumes", ID),
    Column("resumed_by", ID),
    Column("first_run_id", ID),
    Column("resolutions", Text),
    Column("on_ledger_error", ID, nullable=False, server_default=text("'fail'")),
    Column("active_us", BigInteger, nullable=False, server_default=text("0")),
    Column("last_event_at", INSTANT),
    Column("last_event_fence", BigInteger),
    PrimaryKeyConstraint("tenant_id", "run_id", name="pk_runs"),
    CheckConstraint(f"state IN ({', '.join(repr(state.value) for state in RunState)})", name="ck_runs_state"),
    postgresql_with={"fillfactor": 70},
)
Index("ix_runs_newest", runs.c.tenant_id, runs.c.created_at.desc(), runs.c.run_id.desc())
Index(
    "ix_runs_queued",
    runs.c.tenant_id,
    runs.c.lane,
    runs.c.priority.desc(),
    runs.c.created_at,
    runs.c.run_id,
    postgresql_where=text("state = 'queued' AND NOT blocked"),
)
Index(
    "ix_runs_queued_agent",
    runs.c.tenant_id,
    runs.c.lane,
    runs.c.agent,
    runs.c.priority.desc(),
    runs.c.created_at,
    runs.c.run_id,
    postgresql_where=text("state = 'queued' AND NOT blocked"),
)
Index("ix_runs_recovered", runs.c.recoveries.desc(), postgresql_where=text("state = 'queued' AND recoveries > 0"))
Index(
    "ix_runs_ending",
    func.least(runs.c.cancel_requested_at, runs.c.deadline_at),
    postgresql_where=text("state = 'queued'"),
)
Index("ix_runs_running", runs.c.tenant_id, runs.c.run_id, postgresql_where=text("state = 'running'"))
Index("ix_runs_suspended", runs.c.tenant_id, runs.c.run_id, postgresql_where=text("state = 'suspended'"))
Index(
    "ix_runs_caller",
    runs.c.tenant_id,
    runs.c.caller,
    runs.c.created_at.desc(),
    runs.c.run_id.desc(),
    postgresql_where=text("caller IS NOT NULL"),
)
for _filter in (runs.c.state, runs.c.agent):
    Index(f"ix_runs_{_filter.name}", runs.c.tenant_id, _filter, runs.c.created_at.desc(), runs.c.run_id.desc())
Index(
    "ix_runs_session",
    runs.c.tenant_id,
    runs.c.session_id,
    runs.c.created_at.desc(),
    runs.c.run_id.desc(),
    postgresql_where=text("session_id IS NOT NULL"),
)
Index(
    "uq_runs_session_seq",
    runs.c.tenant_id,
    runs.c.session_id,
    runs.c.session_seq,
    unique=True,
    postgresql_where=text("session_id IS NOT NULL"),
)
Index(
    "ix_runs_session_open",
    runs.c.tenant_id,
    runs.c.session_id,
    runs.c.session_seq,
    postgresql_where=text("session_id IS NOT NULL AND state IN ('queued', 'running', 'suspended')"),
)
Index("uq_runs_resumes", runs.c.tenant_id, runs.c.resumes, unique=True, postgresql_where=text("resumes IS NOT NULL"))
Index("ix_runs_parent", runs.c.tenant_id, runs.c.parent_run_id, postgresql_where=text("parent_run_id IS NOT NULL"))
Index(
    "ix_runs_ended",
    runs.c.tenant_id,
    runs.c.ended_at,
    runs.c.run_id,
    postgresql_where=text("ended_at IS NOT NULL AND session_id IS NULL AND parent_run_id IS NULL"),
)

run_metadata = Table(
    "run_metadata",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("key", EscapedText, nullable=False),
    Column("value", EscapedText, nullable=False),
    Column("run_id", ID, nullable=False),
    Column("created_at", INSTANT),
    PrimaryKeyConstraint("tenant_id", "key", "value", "run_id", name="pk_run_metadata"),
)
Index(
    "ix_run_metadata_newest",
    run_metadata.c.tenant_id,
    run_metadata.c.key,
    run_metadata.c.value,
    run_metadata.c.created_at.desc(),
    run_metadata.c.run_id.desc(),
)
Index("ix_run_metadata_run", run_metadata.c.tenant_id, run_metadata.c.run_id)

tenant_queue = Table(
    "tenant_queue",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("virtual_time", BigInteger, nullable=False, server_default=text("0")),
    Column("turn_seconds", Double),
    Column("started_at", INSTANT),
    PrimaryKeyConstraint("tenant_id", name="pk_tenant_queue"),
    postgresql_with={"fillfactor": 50},
)

lanes = Table(
    "lanes",
    metadata,
    Column("lane", ID, nullable=False),
    Column("names", ARRAY(Text), nullable=False),
    PrimaryKeyConstraint("lane", name="pk_lanes"),
)

workers = Table(
    "workers",
    metadata,
    Column("worker_id", ID, nullable=False),
    Column("names", ARRAY(Text), nullable=False),
    Column("seen_at", INSTANT, nullable=False),
    Column("drain_requested_at", INSTANT),
    PrimaryKeyConstraint("worker_id", name="pk_workers"),
)

claim_turns = Sequence("claim_turns", metadata=metadata, start=1024, increment=1024, data_type=BigInteger)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("key_digest", ID, nullable=False),
    Column("body_digest", Text, nullable=False),
    Column("run_id", ID),
    Column("created_at", INSTANT, nullable=False),
    PrimaryKeyConstraint("tenant_id", "key_digest", name="pk_idempotency_keys"),
)
Index("ix_idempotency_keys_age", idempotency_keys.c.created_at)

sessions = Table(
    "sessions",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("session_id", ID, nullable=False),
    Column("agent", ID),
    Column("caller", EscapedText),
    Column("title", EscapedText),
    Column("metadata", Text, nullable=False),
    Column("last_agent", ID),
    Column("last_seq", Integer, nullable=False, server_default=text("0")),
    Column("created_at", INSTANT, nullable=False),
    Column("updated_at", INSTANT, nullable=False),
    PrimaryKeyConstraint("tenant_id", "session_id", name="pk_sessions"),
    postgresql_with={"fillfactor": 70},
)
Index("ix_sessions_newest", sessions.c.tenant_id, sessions.c.created_at.desc(), sessions.c.session_id.desc())
for _filter in (sessions.c.caller, sessions.c.agent):
    Index(
        f"ix_sessions_{_filter.name}",
        sessions.c.tenant_id,
        _filter,
        sessions.c.created_at.desc(),
        sessions.c.session_id.desc(),
        postgresql_where=text(f"{_filter.name} IS NOT NULL"),
    )

session_items = Table(
    "session_items",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("session_id", ID, nullable=False),
    Column("session_seq", Integer, nullable=False),
    Column("run_id", ID, nullable=False),
    Column("messages", Text, nullable=False),
    Column("created_at", INSTANT, nullable=False),
    PrimaryKeyConstraint("tenant_id", "session_id", "session_seq", name="pk_session_items"),
)

state_entries = Table(
    "state_entries",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("scope", ID, nullable=False),
    Column("owner", EscapedText(collation="C"), nullable=False),
    Column("key_digest", LargeBinary, nullable=False),
    Column("key", EscapedText, nullable=False),
    Column("value", Text, nullable=False),
    PrimaryKeyConstraint("tenant_id", "scope", "owner", "key_digest", name="pk_state_entries"),
    CheckConstraint("scope IN ('session', 'app', 'user')", name="ck_state_entries_scope"),
    postgresql_with={"fillfactor": 80},
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("tenant_id", ID, nullable=False),
    Column("session_id", ID, nullable=False),
    Column("name", ID, nullable=False),
    Column("version", Integer, nullable=False),
    Column("content_type", EscapedText, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("created_at", INSTANT, nullable=False),
    Column("run_id", ID),
    PrimaryKeyConstraint("tenant_id", "session_id", "name", "version", name="pk_artifacts"),
)
