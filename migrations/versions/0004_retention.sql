-- Erasing: what a caller asks for, and what a tenant's setting says. Locks are taken in one order everywhere: session,
-- root run, run below it, question.

-- When something of a tenant was last erased: whoever keeps texts outside the database forgets what is older.
CREATE TABLE erasures (
    tenant_id text COLLATE "C" NOT NULL,
    erased_at timestamptz NOT NULL,
    -- Ordered by it like the events: an erasure that commits late is still found.
    xid bigint NOT NULL,
    CONSTRAINT pk_erasures PRIMARY KEY (tenant_id)
);

-- When a tenant's setting is next looked at. A process that has a turn pushes it ahead, so that no two work at once.
CREATE TABLE retention_turns (
    tenant_id text COLLATE "C" NOT NULL,
    next_at timestamptz NOT NULL,
    CONSTRAINT pk_retention_turns PRIMARY KEY (tenant_id)
);

CREATE INDEX ix_runs_ended ON runs (tenant_id, ended_at, run_id)
    WHERE ended_at IS NOT NULL AND session_id IS NULL AND parent_run_id IS NULL;

SELECT guard_by_tenant(name::regclass) FROM unnest(ARRAY['erasures', 'retention_turns']) AS name;

GRANT SELECT ON erasures TO runwright_scheduler;
CREATE POLICY scheduler_reads ON erasures FOR SELECT TO runwright_scheduler USING (true);
GRANT SELECT, INSERT, UPDATE ON retention_turns TO runwright_scheduler;
CREATE POLICY scheduler_keeps ON retention_turns TO runwright_scheduler USING (true);
GRANT UPDATE (max_running, allow_self_approval, retention) ON tenants TO runwright_scheduler;

-- The instant from which on things are kept ('runs_days', 'sessions_days'); null where all of them are.
CREATE FUNCTION kept_from(p_tenant text, p_days text) RETURNS timestamptz
LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT clock_timestamp() - make_interval(days => (t.retention::json ->> p_days)::integer)
    FROM tenants t WHERE t.tenant_id = p_tenant
$$;

-- Whether a session was not used for so long that it goes: no run was accepted or has ended, none goes on, and nobody
-- has put an artifact there.
CREATE FUNCTION is_session_due(p_tenant text, p_session text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_from timestamptz := kept_from(p_tenant, 'sessions_days');
BEGIN
    RETURN EXISTS (SELECT FROM sessions s
            WHERE s.tenant_id = p_tenant AND s.session_id = p_session AND s.updated_at < v_from)
        AND NOT EXISTS (SELECT FROM artifacts a
            WHERE a.tenant_id = p_tenant AND a.session_id = p_session AND a.created_at >= v_from)
        AND NOT EXISTS (SELECT FROM runs r
            WHERE r.tenant_id = p_tenant AND r.session_id = p_session
                AND r.state IN ('queued', 'running', 'suspended'));
END
$$;

-- The run and those below it.
CREATE FUNCTION list_tree(p_tenant text, p_run text) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    WITH RECURSIVE tree AS (
        SELECT r.run_id FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run
        UNION ALL
        SELECT r.run_id FROM tree t JOIN runs r ON r.tenant_id = p_tenant AND r.parent_run_id = t.run_id
    )
    SELECT array_agg(t.run_id) FROM tree t
$$;

-- Whether somebody still needs the log of a root run that is locked: itself or a run below it, a run that goes on from
-- it, or a later one of its session, which has read what it said.
CREATE FUNCTION is_run_needed(p_tenant text, p_run text) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp AS $$
    WITH RECURSIVE chain AS (
        SELECT r.run_id, r.session_id, r.session_seq FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run
        UNION ALL
        SELECT r.run_id, r.session_id, r.session_seq
        FROM chain c JOIN runs r ON r.tenant_id = p_tenant AND r.resumes = c.run_id
    )
    SELECT EXISTS (SELECT FROM runs r WHERE r.tenant_id = p_tenant
            AND r.run_id = ANY (list_tree(p_tenant, p_run) || (SELECT array_agg(c.run_id) FROM chain c))
            AND r.state IN ('queued', 'running', 'suspended'))
        OR EXISTS (SELECT FROM runs own JOIN runs r ON r.tenant_id = p_tenant AND r.session_id = own.session_id
                AND r.session_seq > own.session_seq AND r.state IN ('queued', 'running', 'suspended')
            WHERE own.tenant_id = p_tenant AND own.run_id = p_run)
$$;

-- Deletes these runs, whole trees of them, whose roots are locked, with all that is kept of them. What a session keeps
-- of its runs is the session's.
CREATE FUNCTION erase_trees(p_tenant text, p_runs text[]) RETURNS void
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

CREATE FUNCTION erase_session_rows(p_tenant text, p_session text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    DELETE FROM session_items i WHERE i.tenant_id = p_tenant AND i.session_id = p_session;
    DELETE FROM artifacts a WHERE a.tenant_id = p_tenant AND a.session_id = p_session;
    DELETE FROM state_entries e WHERE e.tenant_id = p_tenant AND e.scope = 'session' AND e.owner = p_session;
    DELETE FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = p_session;
END
$$;

-- Texts of the tenant that were kept elsewhere up to that instant have to go. The last lock of its transaction.
CREATE FUNCTION note_erasure(p_tenant text, p_at timestamptz) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO erasures AS e (tenant_id, erased_at, xid)
    VALUES (p_tenant, p_at, pg_current_xact_id()::text::bigint)
    ON CONFLICT (tenant_id) DO UPDATE SET erased_at = excluded.erased_at, xid = excluded.xid
        WHERE e.erased_at < excluded.erased_at
$$;

-- Erases a root run and those below it, with all that is kept of them, also in its session's history. False, and
-- nothing is erased, while somebody still needs its log, and for a run below another one. The owner's: the service
-- itself may delete none of it. Each statement names the tenant.
CREATE FUNCTION erase_run(p_tenant text, p_run text) RETURNS boolean
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

-- Like the one of the release before, which calls it by the same name.
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

-- Erases a run that the tenant's setting no longer keeps, a tree of it. False where it is locked at this moment, still
-- kept, or gone. A run of a session goes when the whole session does; what the session keeps of it goes with the
-- session's own row. Its idempotency key has expired, and is forgotten with the others. One that a later run goes on
-- from stays as long as that one.
CREATE FUNCTION retain_run(p_tenant text, p_run text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '500ms'
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_session text;
    v_ended_at timestamptz;
    v_runs text[];
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    SELECT r.session_id INTO v_session FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run;
    IF v_session IS NOT NULL THEN
        PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = v_session
            FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND OR NOT is_session_due(p_tenant, v_session) THEN
            RETURN false;
        END IF;
    END IF;
    SELECT r.ended_at INTO v_ended_at FROM runs r
        WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.parent_run_id IS NULL FOR UPDATE SKIP LOCKED;
    IF v_ended_at IS NULL
        OR (v_session IS NULL AND NOT coalesce(v_ended_at < kept_from(p_tenant, 'runs_days'), false))
        OR is_run_needed(p_tenant, p_run)
        OR EXISTS (SELECT FROM runs n WHERE n.tenant_id = p_tenant AND n.resumes = p_run)
    THEN
        RETURN false;
    END IF;
    v_runs := list_tree(p_tenant, p_run);
    PERFORM erase_trees(p_tenant, v_runs);
    -- What was made of its texts is as old as the run; the hour is for what was written late, and for clocks.
    PERFORM note_erasure(p_tenant, least(v_ended_at + interval '1 hour', clock_timestamp()));
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

-- Erases a session that the tenant's setting no longer keeps and that has no run any more. False as above.
CREATE FUNCTION retain_session(p_tenant text, p_session text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '500ms'
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_updated_at timestamptz;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    SELECT s.updated_at INTO v_updated_at FROM sessions s
        WHERE s.tenant_id = p_tenant AND s.session_id = p_session FOR UPDATE SKIP LOCKED;
    IF v_updated_at IS NULL OR NOT is_session_due(p_tenant, p_session)
        OR EXISTS (SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session)
    THEN
        RETURN false;
    END IF;
    PERFORM erase_session_rows(p_tenant, p_session);
    PERFORM note_erasure(p_tenant, least(v_updated_at + interval '1 hour', clock_timestamp()));
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

-- The tenant whose turn it is, and nobody else's for so long. Those that want an archive only for who has one.
CREATE FUNCTION take_retention_turn(p_archives boolean, p_hold_seconds double precision)
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

CREATE FUNCTION hold_retention_turn(p_tenant text, p_seconds double precision) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    UPDATE retention_turns q SET next_at = clock_timestamp() + make_interval(secs => p_seconds)
    WHERE q.tenant_id = p_tenant
$$;

-- Erasures that were not yet to be seen at p_from, and the position from which to ask next. Some are told twice. A
-- position that this database has not come to is of another one: then all are told.
CREATE FUNCTION erasures_since(p_from bigint)
RETURNS TABLE (next_from bigint, tenants text[], instants timestamptz[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT n.xmin, f.tenants, f.instants
    FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin) AS n
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(e.tenant_id), '{}') AS tenants, coalesce(array_agg(e.erased_at), '{}') AS instants
        FROM erasures e WHERE e.xid >= p_from OR p_from > n.xmin
    ) AS f
$$;

CREATE FUNCTION is_day_empty(p_day date) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET row_security = on AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM events e WHERE e.run_day = p_day);
END
$$;

-- Drops one partition of a day of which no event is left; false when there is none to drop now. A log whose first event
-- is gone gets no other, and new runs are of today: an old day that is empty stays so. Whoever wants to read or write
-- events waits for at most two lock timeouts.
CREATE FUNCTION drop_empty_event_partition() RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '100ms'
-- A policy that hid rows here would be an error instead of an empty table.
SET row_security = off AS $$
DECLARE
    v_name text;
    v_filled boolean;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('runwright.ensure_event_partitions')) THEN
        RETURN false;
    END IF;
    SELECT c.relname INTO v_name
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'public.events'::regclass AND c.relname ~ '^events_[0-9]{8}$'
        AND to_date(right(c.relname, 8), 'YYYYMMDD') < (clock_timestamp() AT TIME ZONE 'UTC')::date - 1
        -- Until it was vacuumed it would be read under the lock.
        AND pg_relation_size(c.oid) <= 16 * 1024 * 1024
        AND is_day_empty(to_date(right(c.relname, 8), 'YYYYMMDD'))
    ORDER BY c.relname LIMIT 1;
    IF v_name IS NULL THEN
        RETURN false;
    END IF;
    LOCK TABLE ONLY public.events IN ACCESS EXCLUSIVE MODE;
    EXECUTE format('ALTER TABLE public.%I NO FORCE ROW LEVEL SECURITY', v_name);
    EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', v_name) INTO v_filled;
    IF v_filled THEN
        EXECUTE format('ALTER TABLE public.%I FORCE ROW LEVEL SECURITY', v_name);
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE public.%I', v_name);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;

CREATE FUNCTION admin_tenants(p_name text DEFAULT NULL)
RETURNS TABLE (tenant_id text, name text, created_at timestamptz, max_running integer, allow_self_approval boolean,
    retention text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT t.tenant_id, t.name, t.created_at, t.max_running, t.allow_self_approval, t.retention
    FROM tenants t WHERE p_name IS NULL OR t.name = p_name ORDER BY t.name
$$;

-- p_changes: JSON of what is to be changed; what it does not name stays. False for an unknown tenant.
CREATE FUNCTION admin_set_tenant(p_name text, p_changes text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_changes jsonb := p_changes::jsonb;
    v_retention jsonb := v_changes - 'max_running' - 'allow_self_approval';
BEGIN
    UPDATE tenants t SET
        max_running = CASE WHEN v_changes ? 'max_running'
            THEN (v_changes ->> 'max_running')::integer ELSE t.max_running END,
        allow_self_approval = coalesce((v_changes ->> 'allow_self_approval')::boolean, t.allow_self_approval),
        retention = CASE WHEN v_retention = '{}' THEN t.retention
            ELSE (coalesce(t.retention, '{}')::jsonb || v_retention)::text END
    WHERE t.name = p_name;
    RETURN FOUND;
END
$$;

REVOKE ALL ON FUNCTION kept_from, is_session_due, list_tree, is_run_needed, erase_trees, erase_session_rows,
    note_erasure, erase_run, retain_run, retain_session, take_retention_turn, hold_retention_turn, erasures_since,
    is_day_empty, drop_empty_event_partition, admin_tenants, admin_set_tenant FROM PUBLIC;
-- The first two and the tree: the service looks for what is due, one tenant at a time, under row security.
GRANT EXECUTE ON FUNCTION kept_from, is_session_due, list_tree, erase_run, retain_run, retain_session,
    take_retention_turn, hold_retention_turn, erasures_since, drop_empty_event_partition TO runwright_app;
GRANT EXECUTE ON FUNCTION is_day_empty, admin_tenants, admin_set_tenant TO runwright_owner;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION take_retention_turn OWNER TO runwright_scheduler;
ALTER FUNCTION hold_retention_turn OWNER TO runwright_scheduler;
ALTER FUNCTION erasures_since OWNER TO runwright_scheduler;
ALTER FUNCTION is_day_empty OWNER TO runwright_scheduler;
ALTER FUNCTION admin_tenants OWNER TO runwright_scheduler;
ALTER FUNCTION admin_set_tenant OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
