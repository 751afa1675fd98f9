-- What an operator sets for a tenant. Names of tools and models are stored as EscapedText; budget, approvers: JSON. All
-- columns have defaults, so no row is written again, and a process of the release before goes on as it did.
ALTER TABLE tenants
    ADD COLUMN max_queued integer,
    ADD COLUMN requests_per_minute integer,
    ADD COLUMN weight integer NOT NULL DEFAULT 1,
    ADD COLUMN tools text[],
    ADD COLUMN models text[],
    ADD COLUMN budget text,
    ADD COLUMN on_ledger_error text COLLATE "C" NOT NULL DEFAULT 'fail',
    ADD COLUMN approvers text,
    -- It is going: nobody can use it, and a job erases what it has.
    ADD COLUMN erase_requested_at timestamptz,
    ADD CONSTRAINT ck_tenants_max_queued CHECK (max_queued >= 0),
    ADD CONSTRAINT ck_tenants_requests_per_minute CHECK (requests_per_minute >= 1),
    ADD CONSTRAINT ck_tenants_weight CHECK (weight BETWEEN 1 AND 1000),
    ADD CONSTRAINT ck_tenants_on_ledger_error CHECK (on_ledger_error IN ('fail', 'proceed'));

CREATE INDEX ix_tenants_erasing ON tenants (erase_requested_at) WHERE erase_requested_at IS NOT NULL;

-- replaces: the key that it was made for.
ALTER TABLE keys
    ADD COLUMN groups text[] NOT NULL DEFAULT '{}',
    ADD COLUMN description text NOT NULL DEFAULT '',
    ADD COLUMN last_used_at timestamptz,
    ADD COLUMN replaces text COLLATE "C";

CREATE INDEX ix_keys_tenant ON keys (tenant_id, created_at, key_id);

ALTER TABLE workers ADD COLUMN drain_requested_at timestamptz;

-- At most limit_amount of one dimension within any window of that length.
CREATE TABLE ceilings (
    tenant_id text COLLATE "C" NOT NULL,
    dimension text COLLATE "C" NOT NULL,
    window_seconds integer NOT NULL,
    limit_amount numeric NOT NULL,
    CONSTRAINT pk_ceilings PRIMARY KEY (tenant_id, dimension, window_seconds),
    CONSTRAINT ck_ceilings_window CHECK (window_seconds >= 60 AND window_seconds % 60 = 0),
    CONSTRAINT ck_ceilings_limit CHECK (limit_amount > 0)
);

-- name: the agent's, tool's or model's, and the tenant's id for a tenant. tenant_id null: of a tool or a model, for
-- everybody.
CREATE TABLE pauses (
    pause_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C",
    reason text NOT NULL,
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL,
    CONSTRAINT pk_pauses PRIMARY KEY (pause_id),
    CONSTRAINT ck_pauses_kind CHECK (kind IN ('tenant', 'agent', 'tool', 'model')),
    CONSTRAINT ck_pauses_whose CHECK (tenant_id IS NOT NULL OR kind IN ('tool', 'model')),
    CONSTRAINT ck_pauses_tenant CHECK (kind <> 'tenant' OR name = tenant_id)
);
CREATE UNIQUE INDEX uq_pauses_thing ON pauses (kind, name, coalesce(tenant_id, ''));

-- full_at: when the tenant may again make as many requests at once as it ever may.
CREATE TABLE tenant_rates (
    tenant_id text COLLATE "C" NOT NULL,
    full_at timestamptz NOT NULL,
    CONSTRAINT pk_tenant_rates PRIMARY KEY (tenant_id)
) WITH (fillfactor = 50);

-- turn_seconds: what lay lately between two starts of the tenant's runs while others of them waited.
ALTER TABLE tenant_queue
    ADD COLUMN turn_seconds double precision,
    ADD COLUMN started_at timestamptz;

SELECT guard_by_tenant(name::regclass) FROM unnest(ARRAY['ceilings', 'pauses', 'tenant_rates']) AS name;

GRANT SELECT ON ceilings TO runwright_app;
GRANT SELECT (tenant_id, turn_seconds, started_at) ON tenant_queue TO runwright_app;

GRANT UPDATE (max_queued, requests_per_minute, weight, tools, models, budget, on_ledger_error, approvers,
    erase_requested_at) ON tenants TO runwright_scheduler;
GRANT UPDATE (expires_at, revoked_at, last_used_at) ON keys TO runwright_scheduler;
GRANT SELECT, INSERT, UPDATE, DELETE ON ceilings TO runwright_scheduler;
CREATE POLICY scheduler_keeps ON ceilings TO runwright_scheduler USING (true);
GRANT SELECT, INSERT, DELETE ON pauses TO runwright_scheduler;
CREATE POLICY scheduler_keeps ON pauses TO runwright_scheduler USING (true);
GRANT SELECT, INSERT, UPDATE ON tenant_rates TO runwright_scheduler;
CREATE POLICY scheduler_keeps ON tenant_rates TO runwright_scheduler USING (true);

-- What the operator has set for a tenant, as one JSON text: whoever asks sees it under his own rights.
CREATE FUNCTION tenant_rules(p_tenant text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT json_build_object(
        'max_running', t.max_running,
        'max_queued', t.max_queued,
        'requests_per_minute', t.requests_per_minute,
        'weight', t.weight,
        'tools', t.tools,
        'models', t.models,
        'budget', t.budget,
        'ceilings', (
            SELECT json_agg(json_build_object('dimension', c.dimension, 'window_seconds', c.window_seconds,
                'limit', c.limit_amount::text) ORDER BY c.dimension, c.window_seconds)
            FROM ceilings c WHERE c.tenant_id = t.tenant_id),
        'on_ledger_error', t.on_ledger_error,
        'approvers', t.approvers,
        'allow_self_approval', t.allow_self_approval)::text
    FROM tenants t WHERE t.tenant_id = p_tenant
$$;
REVOKE ALL ON FUNCTION tenant_rules FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenant_rules TO runwright_app, runwright_scheduler;
