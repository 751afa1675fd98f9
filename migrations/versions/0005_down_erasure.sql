DROP FUNCTION export_keys, erase_tenant_portion, tenants_tables, tenants_to_erase, erase_user, user_has_open_runs;
REVOKE SELECT ON tenant_queue, tenant_rates, pauses, erasures, retention_turns, audit FROM runwright_app;
DROP INDEX ix_runs_caller;

-- As the release before has them.
CREATE OR REPLACE FUNCTION erase_trees(p_tenant text, p_runs text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_run record;
BEGIN
    DELETE FROM approval_changes c USING approvals a
        WHERE a.tenant_id = p_tenant AND a.run_id = ANY (p_runs)
            AND c.tenant_id = p_tenant AND c.approval_id = a.approval_id;
    DELETE FROM approvals a WHERE a.tenant_id = p_tenant AND a.run_id = ANY (p_runs);
    DELETE FROM webhook_deliveries d WHERE d.tenant_id = p_tenant AND d.run_id = ANY (p_runs);
    FOR v_run IN SELECT r.run_day, r.run_id FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = ANY (p_runs)
    LOOP
        -- The day leads to the one partition.
        DELETE FROM events e WHERE e.tenant_id = p_tenant AND e.run_day = v_run.run_day AND e.run_id = v_run.run_id;
    END LOOP;
    DELETE FROM run_metadata m WHERE m.tenant_id = p_tenant AND m.run_id = ANY (p_runs);
    DELETE FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = ANY (p_runs);
END
$$;

CREATE OR REPLACE FUNCTION erase_run(p_tenant text, p_run text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_session text;
    v_parent text;
    v_runs text[];
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    SELECT r.session_id INTO v_session FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run;
    IF v_session IS NOT NULL THEN
        PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = v_session FOR NO KEY UPDATE;
    END IF;
    SELECT r.parent_run_id INTO v_parent FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run FOR UPDATE;
    IF NOT FOUND THEN
        RETURN true;
    ELSIF v_parent IS NOT NULL OR is_run_needed(p_tenant, p_run) THEN
        RETURN false;
    END IF;
    v_runs := list_tree(p_tenant, p_run);
    PERFORM erase_trees(p_tenant, v_runs);
    DELETE FROM idempotency_keys k WHERE k.tenant_id = p_tenant AND k.run_id = ANY (v_runs);
    DELETE FROM session_items i WHERE i.tenant_id = p_tenant AND i.session_id = v_session AND i.run_id = p_run;
    PERFORM note_erasure(p_tenant, clock_timestamp());
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION erase_session(p_tenant text, p_session text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_runs text[];
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        RETURN true;
    ELSIF EXISTS (
        SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session
            AND r.state IN ('queued', 'running', 'suspended')
    ) THEN
        RETURN false;
    END IF;
    -- Before their questions: who decides one has locked its root.
    PERFORM FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session ORDER BY r.session_seq FOR UPDATE;
    WITH RECURSIVE doomed AS (
        SELECT r.run_id FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session
        UNION ALL
        SELECT r.run_id FROM doomed d JOIN runs r ON r.tenant_id = p_tenant AND r.parent_run_id = d.run_id
    )
    SELECT array_agg(d.run_id) INTO v_runs FROM doomed d;
    PERFORM erase_trees(p_tenant, v_runs);
    -- Those that led to its runs, and to the session itself.
    DELETE FROM idempotency_keys k WHERE k.tenant_id = p_tenant AND k.run_id = ANY (v_runs || p_session);
    PERFORM erase_session_rows(p_tenant, p_session);
    PERFORM note_erasure(p_tenant, clock_timestamp());
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION take_retention_turn(p_archives boolean, p_hold_seconds double precision)
RETURNS TABLE (tenant_id text, archive boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_due record;
BEGIN
    FOR v_due IN
        SELECT t.tenant_id, coalesce((t.retention::json ->> 'archive')::boolean, false) AS archive
        FROM tenants t LEFT JOIN retention_turns q ON q.tenant_id = t.tenant_id
        WHERE t.retention IS NOT NULL AND coalesce(q.next_at, '-infinity') <= clock_timestamp()
            AND (p_archives OR NOT coalesce((t.retention::json ->> 'archive')::boolean, false))
        ORDER BY coalesce(q.next_at, '-infinity'), t.tenant_id
    LOOP
        INSERT INTO retention_turns AS q (tenant_id, next_at)
        VALUES (v_due.tenant_id, clock_timestamp() + make_interval(secs => p_hold_seconds))
        ON CONFLICT (tenant_id) DO UPDATE SET next_at = excluded.next_at WHERE q.next_at <= clock_timestamp();
        IF FOUND THEN
            RETURN QUERY SELECT v_due.tenant_id, v_due.archive;
            RETURN;
        END IF;
    END LOOP;
END
$$;

DROP FUNCTION erase_whole_session, erase_root;
