-- Erasing what belongs to one person, and all of a tenant; and what an export may read. Each erasure that somebody asked
-- for is told in the audit trail, which itself loses nothing.

CREATE INDEX ix_runs_caller ON runs (tenant_id, caller, created_at DESC, run_id DESC) WHERE caller IS NOT NULL;

-- For export: what the service keeps about a tenant beside what the tenant wrote. Of keys only export_keys tells.
GRANT SELECT ON tenant_queue, tenant_rates, pauses, erasures, retention_turns, audit TO runwright_app;

-- As before, with what this release's tables keep of a run.
CREATE OR REPLACE FUNCTION erase_trees(p_tenant text, p_runs text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_run record;
BEGIN
    DELETE FROM approval_votes v USING approvals a
        WHERE a.tenant_id = p_tenant AND a.run_id = ANY (p_runs)
            AND v.tenant_id = p_tenant AND v.approval_id = a.approval_id;
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
    DELETE FROM ledger_holds h WHERE h.tenant_id = p_tenant AND h.run_id = ANY (p_runs);
    DELETE FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = ANY (p_runs);
END
$$;

-- Erases a root run and those below it: how many runs that were. Null where there is none, and 0, with nothing erased,
-- while somebody still needs its log, and for a run below another one. p_with_artifacts: also those that they saved in
-- their session. The session is locked before the run, as everywhere; whoever erases several runs takes them in the
-- order of their sessions.
CREATE FUNCTION erase_root(p_tenant text, p_run text, p_with_artifacts boolean) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_session text;
    v_parent text;
    v_runs text[];
BEGIN
    SELECT r.session_id INTO v_session FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run;
    IF v_session IS NOT NULL THEN
        PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = v_session FOR NO KEY UPDATE;
    END IF;
    SELECT r.parent_run_id INTO v_parent FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF v_parent IS NOT NULL OR is_run_needed(p_tenant, p_run) THEN
        RETURN 0;
    END IF;
    v_runs := list_tree(p_tenant, p_run);
    PERFORM erase_trees(p_tenant, v_runs);
    DELETE FROM idempotency_keys k WHERE k.tenant_id = p_tenant AND k.run_id = ANY (v_runs);
    DELETE FROM session_items i WHERE i.tenant_id = p_tenant AND i.session_id = v_session AND i.run_id = p_run;
    IF p_with_artifacts THEN
        DELETE FROM artifacts a WHERE a.tenant_id = p_tenant AND a.session_id = v_session AND a.run_id = ANY (v_runs);
    END IF;
    RETURN cardinality(v_runs);
END
$$;

-- Erases a session with its runs and those below them: how many runs that were. Null where there is none, and -1, with
-- nothing erased, while a run of it has not ended.
CREATE FUNCTION erase_whole_session(p_tenant text, p_session text) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_runs text[];
BEGIN
    PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = p_session FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF EXISTS (
        SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session
            AND r.state IN ('queued', 'running', 'suspended')
    ) THEN
        RETURN -1;
    END IF;
    -- Before their questions: who decides one has locked its root.
    PERFORM FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session ORDER BY r.session_seq FOR UPDATE;
    WITH RECURSIVE doomed AS (
        SELECT r.run_id FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session
        UNION ALL
        SELECT r.run_id FROM doomed d JOIN runs r ON r.tenant_id = p_tenant AND r.parent_run_id = d.run_id
    )
    SELECT coalesce(array_agg(d.run_id), '{}') INTO v_runs FROM doomed d;
    PERFORM erase_trees(p_tenant, v_runs);
    -- Those that led to its runs, and to the session itself.
    DELETE FROM idempotency_keys k WHERE k.tenant_id = p_tenant AND k.run_id = ANY (v_runs || p_session);
    PERFORM erase_session_rows(p_tenant, p_session);
    RETURN cardinality(v_runs);
END
$$;

CREATE OR REPLACE FUNCTION erase_run(p_tenant text, p_run text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_erased integer;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    v_erased := erase_root(p_tenant, p_run, false);
    IF v_erased > 0 THEN
        PERFORM write_audit(p_tenant, 'run.erased', p_run, NULL, NULL, jsonb_build_object('runs', v_erased));
        PERFORM note_erasure(p_tenant, clock_timestamp());
    END IF;
    RETURN v_erased IS DISTINCT FROM 0;
END
$$;

CREATE OR REPLACE FUNCTION erase_session(p_tenant text, p_session text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_erased integer;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    v_erased := erase_whole_session(p_tenant, p_session);
    IF v_erased >= 0 THEN
        PERFORM write_audit(p_tenant, 'session.erased', p_session, NULL, NULL, jsonb_build_object('runs', v_erased));
        PERFORM note_erasure(p_tenant, clock_timestamp());
    END IF;
    RETURN v_erased IS DISTINCT FROM -1;
END
$$;

-- Whether a run of the user, one in a session of his, or one in a session that he had a run in, has not ended.
CREATE FUNCTION user_has_open_runs(p_tenant text, p_user text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN EXISTS (
            SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.caller = p_user
                AND r.state IN ('queued', 'running', 'suspended'))
        OR EXISTS (
            SELECT FROM sessions s JOIN runs o ON o.tenant_id = p_tenant AND o.session_id = s.session_id
                AND o.state IN ('queued', 'running', 'suspended')
            WHERE s.tenant_id = p_tenant AND s.caller = p_user)
        OR EXISTS (
            SELECT FROM runs r JOIN runs o ON o.tenant_id = p_tenant AND o.session_id = r.session_id
                AND o.state IN ('queued', 'running', 'suspended')
            WHERE r.tenant_id = p_tenant AND r.caller = p_user);
END
$$;

-- Erases up to p_limit runs and sessions of a user, and at the end the state that is kept for him: all that is left is
-- then gone (is_done). is_open: something of it still has to end, and who asks undoes what this call has erased. p_target
-- stands for him in the audit trail. One after the other: two calls for one user never wait for each other in a circle.
CREATE FUNCTION erase_user(p_tenant text, p_user text, p_target text, p_limit integer)
RETURNS TABLE (runs integer, sessions integer, is_open boolean, is_done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_id text;
    v_left integer := p_limit;
    v_erased integer;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    PERFORM pg_advisory_xact_lock(hashtextextended('runwright.erase_user ' || p_tenant || ' ' || p_user, 0));
    runs := 0;
    sessions := 0;
    is_open := false;
    FOR v_id IN
        SELECT n.run_id FROM (
            SELECT r.run_id, r.session_id, r.created_at FROM runs r
            WHERE r.tenant_id = p_tenant AND r.caller = p_user AND r.parent_run_id IS NULL
            ORDER BY r.created_at DESC, r.run_id DESC LIMIT p_limit
        ) AS n ORDER BY n.session_id NULLS FIRST, n.created_at DESC, n.run_id DESC
    LOOP
        v_erased := erase_root(p_tenant, v_id, true);
        is_open := is_open OR v_erased = 0;
        runs := runs + coalesce(v_erased, 0);
        v_left := v_left - 1;
    END LOOP;
    FOR v_id IN
        SELECT n.session_id FROM (
            SELECT s.session_id FROM sessions s WHERE s.tenant_id = p_tenant AND s.caller = p_user
            ORDER BY s.created_at DESC, s.session_id DESC LIMIT v_left
        ) AS n ORDER BY n.session_id
    LOOP
        v_erased := erase_whole_session(p_tenant, v_id);
        is_open := is_open OR v_erased = -1;
        runs := runs + greatest(v_erased, 0);
        sessions := sessions + (v_erased >= 0)::integer;
        v_left := v_left - 1;
    END LOOP;
    is_done := v_left > 0 AND NOT is_open;
    IF is_done THEN
        -- The owner is the agent's name, a slash, which no name holds, and the user.
        DELETE FROM state_entries e WHERE e.tenant_id = p_tenant AND e.scope = 'user'
            AND substr(e.owner, strpos(e.owner, '/') + 1) = p_user;
    END IF;
    PERFORM write_audit(p_tenant, 'user.erased', p_target, NULL, NULL,
        jsonb_build_object('runs', runs, 'sessions', sessions, 'done', is_done));
    PERFORM note_erasure(p_tenant, clock_timestamp());
    RETURN NEXT;
END
$$;

-- Tenants that are to be erased and were not used any more for so long.
CREATE FUNCTION tenants_to_erase(p_after_seconds double precision) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.tenant_id FROM tenants t
    WHERE t.erase_requested_at <= clock_timestamp() - make_interval(secs => p_after_seconds)
    ORDER BY t.erase_requested_at, t.tenant_id
$$;

-- The tables that hold rows of tenants, found in the catalogue, so that none is forgotten. Partitions stand for
-- themselves. What is left out outlives a tenant: its own row, which goes last, the audit trail, and the note by which
-- processes that were away learn what they have to forget.
CREATE FUNCTION tenants_tables() RETURNS SETOF regclass
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT c.oid::regclass FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
        AND c.relname NOT IN ('tenants', 'audit', 'erasures')
    ORDER BY c.relname
$$;

-- Erases up to p_limit rows of a tenant that is to be erased, and at last the tenant. Tells 'more', 'waiting' while a run
-- of it has not ended, 'busy' where somebody else is at it or holds a row, 'gone' when nothing is left. Runs that were
-- not asked to end are: they were accepted at the moment at which the tenant was given up.
CREATE FUNCTION erase_tenant_portion(p_tenant text, p_limit integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '500ms'
-- Along the index, and no further than the portion: a bitmap would be made of all rows each time.
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    v_actor text;
    v_tenants text[];
    v_runs text[];
    v_table regclass;
    v_left integer := p_limit;
    v_count integer;
    v_found boolean;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    PERFORM FROM tenants t WHERE t.tenant_id = p_tenant AND t.erase_requested_at IS NOT NULL FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 'busy';
    END IF;
    SELECT e.actor INTO v_actor FROM audit e
    WHERE e.tenant_id = p_tenant AND e.action = 'tenant.changed' AND e.details::jsonb ? 'erase_requested_at'
    ORDER BY e.audit_id DESC LIMIT 1;
    PERFORM set_config('app.actor', v_actor, true);
    SELECT array_agg(r.tenant_id), array_agg(r.run_id) INTO v_tenants, v_runs FROM runs r
    WHERE r.tenant_id = p_tenant AND r.state IN ('queued', 'running', 'suspended');
    IF v_runs IS NOT NULL THEN
        PERFORM ask_runs_to_end(v_tenants, v_runs, NULL, v_actor);
        RETURN 'waiting';
    END IF;
    FOR v_table IN SELECT tenants_tables() LOOP
        EXIT WHEN v_left = 0;
        EXECUTE format('DELETE FROM %1$s WHERE tenant_id = $1 AND ctid = ANY (ARRAY(
            SELECT ctid FROM %1$s WHERE tenant_id = $1 LIMIT $2 FOR UPDATE SKIP LOCKED))', v_table)
            USING p_tenant, v_left;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_left := v_left - v_count;
    END LOOP;
    IF v_left < p_limit THEN
        RETURN 'more';
    END IF;
    FOR v_table IN SELECT tenants_tables() LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE tenant_id = $1)', v_table) INTO v_found USING p_tenant;
        IF v_found THEN
            RETURN 'busy';
        END IF;
    END LOOP;
    DELETE FROM tenants t WHERE t.tenant_id = p_tenant;
    PERFORM note_erasure(p_tenant, clock_timestamp());
    RETURN 'gone';
EXCEPTION WHEN lock_not_available THEN
    RETURN 'busy';
END
$$;

-- As before, and not of those that are to be erased whole.
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
        WHERE t.retention IS NOT NULL AND t.erase_requested_at IS NULL
            AND coalesce(q.next_at, '-infinity') <= clock_timestamp()
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

-- The keys of the tenant whose transaction it is, without what a secret could be tried against.
CREATE FUNCTION export_keys() RETURNS SETOF json
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT (to_jsonb(k) - 'secret_hash')::json FROM keys k
    WHERE k.tenant_id = nullif(current_setting('app.tenant_id', true), '') ORDER BY k.created_at, k.key_id
$$;

REVOKE ALL ON FUNCTION erase_root, erase_whole_session, user_has_open_runs, erase_user,
    tenants_to_erase, tenants_tables, erase_tenant_portion, export_keys FROM PUBLIC;
GRANT EXECUTE ON FUNCTION user_has_open_runs, erase_user, tenants_to_erase, erase_tenant_portion, export_keys
    TO runwright_app;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION tenants_to_erase OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
