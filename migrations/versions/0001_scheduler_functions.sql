-- Over all tenants, as runwright_scheduler. They take and return ids, counts and instants; a key's row leaves only for
-- its hash. Statements are planned once for a connection (force_generic_plan): planning takes longer than they do.

-- Takes up to p_limit queued runs. The tenant served longest ago comes first, then priority, then age.
CREATE FUNCTION claim_runs(p_worker text, p_limit integer, p_lease_seconds double precision)
RETURNS TABLE (run_id text, tenant_id text, fence bigint, recoveries integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_limit integer := least(p_limit, 1000);
    v_tenants text[];
    v_turn bigint;
BEGIN
    -- From one waiting tenant to the next along the index: a tenant with 10,000 queued runs costs one step.
    WITH RECURSIVE waiting AS (
        (SELECT r.tenant_id FROM runs r WHERE r.state = 'queued' ORDER BY r.tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT r.tenant_id FROM runs r WHERE r.state = 'queued' AND r.tenant_id > w.tenant_id
                ORDER BY r.tenant_id LIMIT 1)
        FROM waiting w WHERE w.tenant_id IS NOT NULL
    )
    SELECT array_agg(f.tenant_id) INTO v_tenants FROM (
        SELECT w.tenant_id FROM waiting w LEFT JOIN tenant_queue q ON q.tenant_id = w.tenant_id
        WHERE w.tenant_id IS NOT NULL
        ORDER BY coalesce(q.virtual_time, 0), w.tenant_id LIMIT v_limit
    ) AS f;
    IF v_tenants IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO tenant_queue (tenant_id)
        SELECT t FROM unnest(v_tenants) AS t ORDER BY t ON CONFLICT DO NOTHING;
    -- Waits for another claim of these tenants, one statement long. Always in the order of ids: no deadlock.
    PERFORM FROM tenant_queue q WHERE q.tenant_id = ANY (v_tenants) ORDER BY q.tenant_id FOR UPDATE;
    v_turn := nextval('claim_turns');
    RETURN QUERY
        WITH best AS (
            SELECT q.tenant_id, q.virtual_time, b.run_id, b.round
            FROM tenant_queue q
            CROSS JOIN LATERAL (
                SELECT l.run_id, row_number() OVER (ORDER BY l.priority DESC, l.created_at, l.run_id) AS round
                FROM (
                    -- A row that somebody else holds (a cancel, a paused process) stops nobody.
                    SELECT r.run_id, r.priority, r.created_at FROM runs r
                    WHERE r.tenant_id = q.tenant_id AND r.state = 'queued'
                    ORDER BY r.priority DESC, r.created_at, r.run_id LIMIT v_limit FOR UPDATE SKIP LOCKED
                ) AS l
            ) AS b
            WHERE q.tenant_id = ANY (v_tenants)
        ),
        picked AS (
            SELECT p.tenant_id, p.run_id, row_number() OVER (ORDER BY p.round, p.virtual_time, p.tenant_id) AS place
            FROM best p ORDER BY p.round, p.virtual_time, p.tenant_id LIMIT v_limit
        ),
        served AS (
            UPDATE tenant_queue q SET virtual_time = v_turn + s.place
            FROM (SELECT p.tenant_id, max(p.place) AS place FROM picked p GROUP BY p.tenant_id) AS s
            WHERE q.tenant_id = s.tenant_id
        ),
        claimed AS (
            UPDATE runs r SET
                state = 'running',
                fence = r.fence + 1,
                worker_id = p_worker,
                lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds),
                started_at = coalesce(r.started_at, clock_timestamp())
            FROM picked p
            -- Not the state again: it would lead along the queue instead of to the row.
            WHERE r.tenant_id = p.tenant_id AND r.run_id = p.run_id
            RETURNING r.run_id, r.tenant_id, r.fence, r.recoveries, p.place
        )
        SELECT c.run_id, c.tenant_id, c.fence, c.recoveries FROM claimed c ORDER BY c.place;
END
$$;

-- Queued runs that only need to end: a cancel was asked for, or the deadline has passed. Out of turn, and outside the
-- tenants' fair share: they take no worker's time.
CREATE FUNCTION claim_ending_runs(p_worker text, p_limit integer, p_lease_seconds double precision)
RETURNS TABLE (run_id text, tenant_id text, fence bigint, recoveries integer)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    WITH ending AS (
        SELECT r.tenant_id, r.run_id FROM runs r
        WHERE r.state = 'queued' AND least(r.cancel_requested_at, r.deadline_at) <= clock_timestamp()
        ORDER BY least(r.cancel_requested_at, r.deadline_at) LIMIT least(p_limit, 1000) FOR UPDATE SKIP LOCKED
    )
    UPDATE runs r SET
        state = 'running',
        fence = r.fence + 1,
        worker_id = p_worker,
        lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds),
        started_at = coalesce(r.started_at, clock_timestamp())
    FROM ending e WHERE r.tenant_id = e.tenant_id AND r.run_id = e.run_id
    RETURNING r.run_id, r.tenant_id, r.fence, r.recoveries
$$;

-- Extends the leases that still hold and tells of a cancel. A row that is locked at this moment is told as held and
-- not waited for: one stuck run must not cost a worker its other leases.
CREATE FUNCTION renew_claims(p_tenants text[], p_runs text[], p_fences bigint[], p_lease_seconds double precision)
RETURNS TABLE (run_id text, cancelled boolean, reason text, requested_by text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH held AS (
            SELECT h.tenant_id, h.run_id, h.fence FROM unnest(p_tenants, p_runs, p_fences) AS h (tenant_id, run_id, fence)
        ),
        unlocked AS (
            SELECT r.tenant_id, r.run_id FROM held h JOIN runs r ON r.tenant_id = h.tenant_id AND r.run_id = h.run_id
            WHERE r.fence = h.fence AND r.state = 'running' FOR UPDATE OF r SKIP LOCKED
        ),
        renewed AS (
            UPDATE runs r SET lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds)
            FROM unlocked u WHERE r.tenant_id = u.tenant_id AND r.run_id = u.run_id
        )
        SELECT r.run_id, r.cancel_requested_at IS NOT NULL, r.cancel_reason, r.cancel_requested_by
        FROM held h JOIN runs r ON r.tenant_id = h.tenant_id AND r.run_id = h.run_id
        WHERE r.fence = h.fence AND r.state = 'running';
END
$$;

CREATE FUNCTION release_claim(p_tenant text, p_run text, p_fence bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    UPDATE runs r SET state = 'queued', queued_at = clock_timestamp(), worker_id = NULL, lease_expires_at = NULL
    WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence AND r.state = 'running';
    RETURN FOUND;
END
$$;

CREATE FUNCTION requeue_expired_runs() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_count integer;
BEGIN
    WITH lapsed AS (
        SELECT r.tenant_id, r.run_id FROM runs r
        WHERE r.state = 'running' AND r.lease_expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED
    )
    UPDATE runs r SET state = 'queued', queued_at = clock_timestamp(), worker_id = NULL, lease_expires_at = NULL,
        recoveries = r.recoveries + 1
    FROM lapsed l WHERE r.tenant_id = l.tenant_id AND r.run_id = l.run_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

CREATE FUNCTION find_key(p_secret_hash bytea)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], expires_at timestamptz, revoked boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT k.key_id, k.tenant_id, k.subject, k.scopes, k.expires_at, k.revoked_at IS NOT NULL
        FROM keys k WHERE k.secret_hash = p_secret_hash;
END
$$;

-- Only the states that pass: the ended runs of years are not counted at every scrape.
CREATE FUNCTION deployment_gauges()
RETURNS TABLE (state text, runs bigint, oldest_seconds double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT 'queued', count(*), coalesce(extract(epoch FROM clock_timestamp() - min(r.queued_at)), 0)::float8
    FROM runs r WHERE r.state = 'queued'
    UNION ALL
    SELECT 'running', count(*), 0 FROM runs r WHERE r.state = 'running'
    UNION ALL
    SELECT 'suspended', count(*), 0 FROM runs r WHERE r.state = 'suspended'
$$;

CREATE FUNCTION forget_idempotency_keys(p_older_than interval) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM idempotency_keys k WHERE k.created_at < clock_timestamp() - p_older_than;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

CREATE FUNCTION admin_ensure_tenant(p_tenant text, p_name text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_tenant text;
BEGIN
    INSERT INTO tenants (tenant_id, name) VALUES (p_tenant, p_name) ON CONFLICT (name) DO NOTHING;
    SELECT t.tenant_id INTO STRICT v_tenant FROM tenants t WHERE t.name = p_name;
    RETURN v_tenant;
END
$$;

CREATE FUNCTION admin_add_key(p_key text, p_tenant text, p_subject text, p_scopes text[], p_secret_hash bytea)
RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO keys (key_id, tenant_id, subject, scopes, secret_hash)
    VALUES (p_key, p_tenant, p_subject, p_scopes, p_secret_hash)
$$;

REVOKE ALL ON FUNCTION claim_runs, claim_ending_runs, renew_claims, release_claim, requeue_expired_runs, find_key, deployment_gauges,
    forget_idempotency_keys, admin_ensure_tenant, admin_add_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_runs, claim_ending_runs, renew_claims, release_claim, requeue_expired_runs, find_key, deployment_gauges,
    forget_idempotency_keys TO runwright_app;
GRANT EXECUTE ON FUNCTION admin_ensure_tenant, admin_add_key TO runwright_owner;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION claim_runs OWNER TO runwright_scheduler;
ALTER FUNCTION claim_ending_runs OWNER TO runwright_scheduler;
ALTER FUNCTION renew_claims OWNER TO runwright_scheduler;
ALTER FUNCTION release_claim OWNER TO runwright_scheduler;
ALTER FUNCTION requeue_expired_runs OWNER TO runwright_scheduler;
ALTER FUNCTION find_key OWNER TO runwright_scheduler;
ALTER FUNCTION deployment_gauges OWNER TO runwright_scheduler;
ALTER FUNCTION forget_idempotency_keys OWNER TO runwright_scheduler;
ALTER FUNCTION admin_ensure_tenant OWNER TO runwright_scheduler;
ALTER FUNCTION admin_add_key OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
