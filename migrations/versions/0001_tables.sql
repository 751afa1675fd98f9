-- Ids and names that machines choose compare by bytes on every server, whatever its locale; text that callers choose
-- goes through EscapedText (store/types.py).

CREATE TABLE tenants (
    tenant_id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_tenants PRIMARY KEY (tenant_id),
    CONSTRAINT uq_tenants_name UNIQUE (name)
);

CREATE TABLE keys (
    key_id text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C",
    subject text,
    scopes text[] NOT NULL,
    secret_hash bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT pk_keys PRIMARY KEY (key_id),
    CONSTRAINT uq_keys_secret_hash UNIQUE (secret_hash),
    CONSTRAINT fk_keys_tenant FOREIGN KEY (tenant_id) REFERENCES tenants (tenant_id)
);

CREATE TABLE agents (
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    newest_version integer NOT NULL,
    retired boolean NOT NULL DEFAULT false,
    CONSTRAINT pk_agents PRIMARY KEY (tenant_id, name)
);

CREATE TABLE agent_versions (
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version integer NOT NULL,
    digest text NOT NULL,
    definition text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_agent_versions PRIMARY KEY (tenant_id, name, version)
);

CREATE TABLE runs (
    tenant_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    run_day date NOT NULL,
    state text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    agent_version integer NOT NULL,
    input text NOT NULL,
    context text NOT NULL,
    caller text,
    subject text,
    model text,
    deadline_at timestamptz,
    budget text NOT NULL,
    max_llm_calls integer NOT NULL,
    priority integer NOT NULL,
    metadata text NOT NULL,
    output_text text,
    error_code text,
    error_detail text,
    prompt_version text,
    prompt_fingerprint text,
    input_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    usage_source text NOT NULL DEFAULT 'provider',
    model_calls integer NOT NULL DEFAULT 0,
    tool_calls integer NOT NULL DEFAULT 0,
    cancel_requested_at timestamptz,
    cancel_reason text,
    cancel_requested_by text,
    created_at timestamptz NOT NULL,
    queued_at timestamptz NOT NULL,
    started_at timestamptz,
    ended_at timestamptz,
    last_seq integer NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    worker_id text,
    lease_expires_at timestamptz,
    recoveries integer NOT NULL DEFAULT 0,
    CONSTRAINT pk_runs PRIMARY KEY (tenant_id, run_id),
    CONSTRAINT ck_runs_state CHECK (state IN ('queued', 'running', 'suspended', 'completed', 'failed',
        'budget_exhausted', 'max_iterations_exceeded', 'loop_limit_exceeded', 'cancelled'))
-- Room on each page: most updates of a run touch no indexed column and then write no index either.
) WITH (fillfactor = 70);

CREATE INDEX ix_runs_newest ON runs (tenant_id, created_at DESC, run_id DESC);
CREATE INDEX ix_runs_queued ON runs (tenant_id, priority DESC, created_at, run_id) WHERE state = 'queued';
CREATE INDEX ix_runs_ending ON runs (LEAST(cancel_requested_at, deadline_at)) WHERE state = 'queued';
CREATE INDEX ix_runs_running ON runs (tenant_id, run_id) WHERE state = 'running';
CREATE INDEX ix_runs_suspended ON runs (tenant_id, run_id) WHERE state = 'suspended';

-- A side table, because operators on jsonb are not leakproof: under row security no index on them would be used.
CREATE TABLE run_metadata (
    tenant_id text COLLATE "C" NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    CONSTRAINT pk_run_metadata PRIMARY KEY (tenant_id, key, value, run_id)
);

-- Whose turn it is. A claim locks the rows of the tenants that it serves, so two claims never count the same tenant's
-- running runs at once.
CREATE TABLE tenant_queue (
    tenant_id text COLLATE "C" NOT NULL,
    virtual_time bigint NOT NULL DEFAULT 0,
    CONSTRAINT pk_tenant_queue PRIMARY KEY (tenant_id)
) WITH (fillfactor = 50);

-- A claim takes one number and gives the next 1,023 to the runs it picks.
CREATE SEQUENCE claim_turns AS bigint INCREMENT BY 1024 START WITH 1024;

CREATE TABLE events (
    tenant_id text COLLATE "C" NOT NULL,
    run_day date NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    seq integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    fence bigint NOT NULL,
    -- The tenant's stream is ordered by it: rows below the oldest running transaction can't be overtaken any more.
    xid bigint NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    payload text NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (tenant_id, run_day, run_id, seq)
) PARTITION BY RANGE (run_day);

CREATE UNIQUE INDEX uq_events_terminated ON events (tenant_id, run_day, run_id) WHERE kind = 'terminated';

CREATE TABLE events_default PARTITION OF events DEFAULT;

CREATE TABLE idempotency_keys (
    tenant_id text COLLATE "C" NOT NULL,
    key_digest text COLLATE "C" NOT NULL,
    body_digest text NOT NULL,
    run_id text COLLATE "C",
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (tenant_id, key_digest)
);

CREATE INDEX ix_idempotency_keys_age ON idempotency_keys (created_at);
