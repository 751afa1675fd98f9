-- The operator's side, over all tenants, as runwright_scheduler. The service calls it for an operator's key, and so does
-- the command line as the owner. p_actor is who asks: the audit trail names him. The functions of the release before
-- (admin_*) stay for its processes.

CREATE FUNCTION operator_tenants(
    p_tenant text DEFAULT NULL, p_name text DEFAULT NULL, p_after text DEFAULT NULL, p_limit integer DEFAULT NULL
)
RETURNS TABLE (tenant_id text, name text, created_at timestamptz, rules text, retention text, paused boolean,
    erasing boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.tenant_id, t.name, t.created_at, tenant_rules(t.tenant_id), t.retention,
        EXISTS (SELECT FROM pauses p WHERE p.kind = 'tenant' AND p.name = t.tenant_id),
        t.erase_requested_at IS NOT NULL
    FROM tenants t
    WHERE (p_tenant IS NULL OR t.tenant_id = p_tenant) AND (p_name IS NULL OR t.name = p_name)
        AND (p_after IS NULL OR t.name > p_after)
    ORDER BY t.name LIMIT p_limit
$$;

CREATE FUNCTION operator_create_tenant(p_actor text, p_tenant text, p_name text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    INSERT INTO tenants (tenant_id, name) VALUES (p_tenant, p_name) ON CONFLICT (name) DO NOTHING;
    RETURN FOUND;
END
$$;

-- p_changes: JSON by the names of columns; what it does not name stays. False for an unknown tenant.
CREATE FUNCTION operator_set_tenant(p_actor text, p_tenant text, p_changes text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v jsonb := p_changes::jsonb;
    v_kept jsonb;
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    -- Two that change one tenant come one after the other, also about its ceilings.
    PERFORM FROM tenants t WHERE t.tenant_id = p_tenant FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT coalesce(jsonb_object_agg(k.key, k.value), '{}') INTO v_kept
    FROM jsonb_each(v) AS k WHERE k.key IN ('runs_days', 'sessions_days', 'archive');
    UPDATE tenants t SET
        max_running = CASE WHEN v ? 'max_running' THEN (v ->> 'max_running')::integer ELSE t.max_running END,
        max_queued = CASE WHEN v ? 'max_queued' THEN (v ->> 'max_queued')::integer ELSE t.max_queued END,
        requests_per_minute = CASE WHEN v ? 'requests_per_minute'
            THEN (v ->> 'requests_per_minute')::integer ELSE t.requests_per_minute END,
        weight = coalesce((v ->> 'weight')::integer, t.weight),
        tools = CASE WHEN v ? 'tools' THEN read_names(v -> 'tools') ELSE t.tools END,
        models = CASE WHEN v ? 'models' THEN read_names(v -> 'models') ELSE t.models END,
        budget = CASE WHEN v ? 'budget' THEN v ->> 'budget' ELSE t.budget END,
        on_ledger_error = coalesce(v ->> 'on_ledger_error', t.on_ledger_error),
        approvers = CASE WHEN v ? 'approvers' THEN v ->> 'approvers' ELSE t.approvers END,
        allow_self_approval = coalesce((v ->> 'allow_self_approval')::boolean, t.allow_self_approval),
        retention = CASE WHEN v_kept = '{}' THEN t.retention
            ELSE (coalesce(t.retention, '{}')::jsonb || v_kept)::text END
    WHERE t.tenant_id = p_tenant;
    IF v ? 'ceilings' THEN
        DELETE FROM ceilings c WHERE c.tenant_id = p_tenant AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(v -> 'ceilings') AS n (ceiling)
            WHERE n.ceiling ->> 'dimension' = c.dimension
                AND (n.ceiling ->> 'window_seconds')::integer = c.window_seconds);
        INSERT INTO ceilings AS c (tenant_id, dimension, window_seconds, limit_amount)
        SELECT p_tenant, n.ceiling ->> 'dimension', (n.ceiling ->> 'window_seconds')::integer,
            (n.ceiling ->> 'limit')::numeric
        FROM jsonb_array_elements(v -> 'ceilings') AS n (ceiling)
        ON CONFLICT (tenant_id, dimension, window_seconds) DO UPDATE SET limit_amount = excluded.limit_amount
            WHERE c.limit_amount <> excluded.limit_amount;
    END IF;
    RETURN true;
END
$$;

-- JSON's list of names; null where it is null.
CREATE FUNCTION read_names(p_names jsonb) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE WHEN jsonb_typeof(p_names) = 'array' THEN ARRAY(SELECT jsonb_array_elements_text(p_names)) END
$$;

-- Writes the wish to end on these root runs, where it was not written before, as a caller's cancel does: those that are
-- suspended are queued, and open questions of them and of the runs below them are cancelled.
CREATE FUNCTION ask_runs_to_end(p_tenants text[], p_runs text[], p_reason text, p_by text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_count bigint;
BEGIN
    -- Always in the order of ids, and roots before questions: no deadlock.
    PERFORM FROM runs r JOIN unnest(p_tenants, p_runs) AS n (tenant_id, run_id)
        ON r.tenant_id = n.tenant_id AND r.run_id = n.run_id
    ORDER BY r.tenant_id, r.run_id FOR NO KEY UPDATE OF r;
    WITH asked AS (
        UPDATE runs r SET
            cancel_requested_at = clock_timestamp(), cancel_reason = p_reason, cancel_requested_by = p_by,
            queued_at = CASE WHEN r.state = 'suspended' THEN clock_timestamp() ELSE r.queued_at END,
            state = CASE WHEN r.state = 'suspended' THEN 'queued' ELSE r.state END
        FROM unnest(p_tenants, p_runs) AS n (tenant_id, run_id)
        WHERE r.tenant_id = n.tenant_id AND r.run_id = n.run_id AND r.cancel_requested_at IS NULL
            AND r.parent_run_id IS NULL AND r.state IN ('queued', 'running', 'suspended')
        RETURNING r.tenant_id, r.run_id
    ),
    closed AS (
        UPDATE approvals a SET status = 'cancelled', decided_at = clock_timestamp()
        FROM asked k WHERE a.tenant_id = k.tenant_id AND a.root_run_id = k.run_id AND a.status = 'pending'
    )
    SELECT count(*) INTO v_count FROM asked;
    RETURN v_count;
END
$$;

-- All conditions hold together; null: any. Tools and models are those that the run's agent, or one below it, may use.
CREATE FUNCTION operator_cancel_runs(
    p_actor text, p_tenant text, p_agent text, p_tool text, p_model text, p_created_before timestamptz, p_reason text
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_tenants text[];
    v_runs text[];
    v_count bigint;
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    SELECT array_agg(r.tenant_id), array_agg(r.run_id) INTO v_tenants, v_runs FROM (
        SELECT q.tenant_id, q.run_id, q.agent, q.lane, q.created_at FROM runs q
        WHERE q.state = 'queued' AND q.parent_run_id IS NULL AND q.cancel_requested_at IS NULL
        UNION ALL
        SELECT q.tenant_id, q.run_id, q.agent, q.lane, q.created_at FROM runs q
        WHERE q.state = 'running' AND q.parent_run_id IS NULL AND q.cancel_requested_at IS NULL
        UNION ALL
        SELECT q.tenant_id, q.run_id, q.agent, q.lane, q.created_at FROM runs q
        WHERE q.state = 'suspended' AND q.parent_run_id IS NULL AND q.cancel_requested_at IS NULL
    ) AS r
    LEFT JOIN lanes l ON l.lane = r.lane
    WHERE (p_tenant IS NULL OR r.tenant_id = p_tenant) AND (p_agent IS NULL OR r.agent = p_agent)
        AND (p_tool IS NULL OR 'tool:' || p_tool = ANY (l.names))
        AND (p_model IS NULL OR 'model:' || p_model = ANY (l.names))
        AND (p_created_before IS NULL OR r.created_at < p_created_before);
    v_count := ask_runs_to_end(v_tenants, v_runs, p_reason, p_actor);
    PERFORM write_audit(p_tenant, 'runs.cancelled', '', NULL, NULL, jsonb_strip_nulls(jsonb_build_object(
        'agent', p_agent, 'tool', p_tool, 'model', p_model, 'created_before', p_created_before, 'reason', p_reason,
        'cancelled', v_count)));
    RETURN v_count;
END
$$;

-- Marks a tenant that is to go. May be called again: runs that were accepted meanwhile are asked to end as well.
CREATE FUNCTION operator_erase_tenant(p_actor text, p_tenant text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_tenants text[];
    v_runs text[];
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    UPDATE tenants t SET erase_requested_at = coalesce(t.erase_requested_at, clock_timestamp())
    WHERE t.tenant_id = p_tenant;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE keys k SET revoked_at = clock_timestamp() WHERE k.tenant_id = p_tenant AND k.revoked_at IS NULL;
    SELECT array_agg(r.tenant_id), array_agg(r.run_id) INTO v_tenants, v_runs FROM runs r
    WHERE r.tenant_id = p_tenant AND r.state IN ('queued', 'running', 'suspended');
    PERFORM ask_runs_to_end(v_tenants, v_runs, NULL, p_actor);
    RETURN true;
END
$$;

-- The pause, or the one that there is of the same thing; no row for an unknown tenant.
CREATE FUNCTION operator_add_pause(
    p_actor text, p_pause text, p_kind text, p_name text, p_tenant text, p_reason text, p_by text
) RETURNS SETOF pauses
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    -- Who erases the last of the tenant waits, and then finds the pause; or we wait, and find no tenant.
    PERFORM FROM tenants t WHERE t.tenant_id = p_tenant FOR KEY SHARE;
    IF p_tenant IS NOT NULL AND NOT FOUND THEN
        RETURN;
    END IF;
    LOOP
        INSERT INTO pauses (pause_id, kind, name, tenant_id, reason, paused_by, paused_at)
        VALUES (p_pause, p_kind, p_name, p_tenant, p_reason, p_by, clock_timestamp())
        ON CONFLICT (kind, name, coalesce(tenant_id, '')) DO NOTHING;
        RETURN QUERY SELECT * FROM pauses p
            WHERE p.kind = p_kind AND p.name = p_name AND p.tenant_id IS NOT DISTINCT FROM p_tenant;
        -- Somebody has ended the other one between the two statements, perhaps.
        EXIT WHEN FOUND;
    END LOOP;
END
$$;

CREATE FUNCTION operator_pauses() RETURNS SETOF pauses
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT * FROM pauses p ORDER BY p.paused_at, p.pause_id
$$;

CREATE FUNCTION operator_end_pause(p_actor text, p_pause text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    DELETE FROM pauses p WHERE p.pause_id = p_pause;
    RETURN FOUND;
END
$$;

CREATE FUNCTION operator_workers()
RETURNS TABLE (worker_id text, names text[], seen_at timestamptz, draining boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT w.worker_id, w.names, w.seen_at, w.drain_requested_at IS NOT NULL
    FROM workers w WHERE w.seen_at > clock_timestamp() - interval '2 minutes' ORDER BY w.worker_id
$$;

CREATE FUNCTION operator_drain_worker(p_actor text, p_worker text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    UPDATE workers w SET drain_requested_at = coalesce(w.drain_requested_at, clock_timestamp())
    WHERE w.worker_id = p_worker;
    RETURN FOUND;
END
$$;

CREATE FUNCTION operator_audit(p_tenant text, p_action text, p_before bigint, p_limit integer) RETURNS SETOF audit
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM audit a
        WHERE (p_tenant IS NULL OR a.tenant_id = p_tenant) AND (p_action IS NULL OR a.action = p_action)
            AND (p_before IS NULL OR a.audit_id < p_before)
        ORDER BY a.audit_id DESC LIMIT p_limit;
END
$$;

GRANT SELECT (agent) ON runs TO runwright_scheduler;
GRANT UPDATE (cancel_requested_at, cancel_reason, cancel_requested_by) ON runs TO runwright_scheduler;
ALTER POLICY scheduler_closes ON approvals WITH CHECK (status IN ('expired', 'cancelled'));

REVOKE ALL ON FUNCTION operator_tenants, operator_create_tenant, operator_set_tenant, read_names, ask_runs_to_end,
    operator_cancel_runs, operator_erase_tenant, operator_add_pause, operator_pauses, operator_end_pause,
    operator_workers, operator_drain_worker, operator_audit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION read_names TO runwright_scheduler;
GRANT EXECUTE ON FUNCTION operator_tenants, operator_create_tenant, operator_set_tenant, operator_cancel_runs,
    operator_erase_tenant, operator_add_pause, operator_pauses, operator_end_pause, operator_workers,
    operator_drain_worker, operator_audit TO runwright_app, runwright_owner;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION operator_tenants OWNER TO runwright_scheduler;
ALTER FUNCTION operator_create_tenant OWNER TO runwright_scheduler;
ALTER FUNCTION operator_set_tenant OWNER TO runwright_scheduler;
ALTER FUNCTION ask_runs_to_end OWNER TO runwright_scheduler;
ALTER FUNCTION operator_cancel_runs OWNER TO runwright_scheduler;
ALTER FUNCTION operator_erase_tenant OWNER TO runwright_scheduler;
ALTER FUNCTION operator_add_pause OWNER TO runwright_scheduler;
ALTER FUNCTION operator_pauses OWNER TO runwright_scheduler;
ALTER FUNCTION operator_end_pause OWNER TO runwright_scheduler;
ALTER FUNCTION operator_workers OWNER TO runwright_scheduler;
ALTER FUNCTION operator_drain_worker OWNER TO runwright_scheduler;
ALTER FUNCTION operator_audit OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
