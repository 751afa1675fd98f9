-- Who may do what. FORCE: the owner is held too, so nothing is seen by accident of who asks.

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO runwright_app, runwright_scheduler;

CREATE FUNCTION guard_by_tenant(p_table regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', p_table);
    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', p_table);
    EXECUTE format(
        'CREATE POLICY tenant_only ON %s TO runwright_app, runwright_owner
             USING (tenant_id = nullif(current_setting(''app.tenant_id'', true), ''''))', p_table);
END
$$;
REVOKE ALL ON FUNCTION guard_by_tenant(regclass) FROM PUBLIC;

SELECT guard_by_tenant(name::regclass) FROM unnest(ARRAY['tenants', 'keys', 'agents', 'agent_versions', 'runs',
    'run_metadata', 'tenant_queue', 'events', 'events_default', 'idempotency_keys']) AS name;

-- No UPDATE and no DELETE of events, no access to keys at all.
GRANT SELECT ON tenants TO runwright_app;
GRANT SELECT, INSERT, UPDATE ON agents TO runwright_app;
GRANT SELECT, INSERT ON agent_versions TO runwright_app;
GRANT SELECT, INSERT, UPDATE ON runs TO runwright_app;
GRANT SELECT, INSERT ON run_metadata TO runwright_app;
GRANT SELECT, INSERT ON events TO runwright_app;
GRANT SELECT, INSERT, UPDATE ON idempotency_keys TO runwright_app;
GRANT SELECT ON alembic_version TO runwright_app;

-- The scheduler sees where runs stand, over all tenants, and nothing that people wrote.
GRANT SELECT (tenant_id, run_id, run_day, state, priority, created_at, queued_at, started_at, ended_at, last_seq,
    fence, worker_id, lease_expires_at, recoveries, deadline_at, cancel_requested_at, cancel_reason, cancel_requested_by)
    ON runs TO runwright_scheduler;
GRANT UPDATE (state, queued_at, started_at, fence, worker_id, lease_expires_at, recoveries)
    ON runs TO runwright_scheduler;
CREATE POLICY scheduler_reads ON runs FOR SELECT TO runwright_scheduler USING (true);
CREATE POLICY scheduler_moves ON runs FOR UPDATE TO runwright_scheduler
    USING (state IN ('queued', 'running')) WITH CHECK (state IN ('queued', 'running'));

GRANT SELECT (tenant_id, run_day, run_id, seq, kind, at, fence, xid) ON events TO runwright_scheduler;
CREATE POLICY scheduler_reads ON events FOR SELECT TO runwright_scheduler USING (true);

GRANT SELECT, INSERT, UPDATE ON tenant_queue TO runwright_scheduler;
GRANT USAGE ON SEQUENCE claim_turns TO runwright_scheduler;
CREATE POLICY scheduler_keeps ON tenant_queue TO runwright_scheduler USING (true);

GRANT SELECT, INSERT ON tenants, keys TO runwright_scheduler;
CREATE POLICY scheduler_keeps ON tenants TO runwright_scheduler USING (true);
CREATE POLICY scheduler_keeps ON keys TO runwright_scheduler USING (true);

GRANT SELECT (created_at), DELETE ON idempotency_keys TO runwright_scheduler;
CREATE POLICY scheduler_forgets ON idempotency_keys FOR SELECT TO runwright_scheduler USING (true);
CREATE POLICY scheduler_deletes ON idempotency_keys FOR DELETE TO runwright_scheduler USING (true);
