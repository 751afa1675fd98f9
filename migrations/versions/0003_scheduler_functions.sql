-- The same functions, which know of sessions and of runs below others. Replaced, they keep owner and grants.

-- Takes up to p_limit queued runs, without those that wait for an earlier one of their session. The tenant served
-- longest ago comes first, then priority, then age.
CREATE OR REPLACE FUNCTION claim_runs(p_worker text, p_limit integer, p_lease_seconds double precision)
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
        (SELECT r.tenant_id FROM runs r WHERE r.state = 'queued' AND NOT r.blocked ORDER BY r.tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT r.tenant_id FROM runs r WHERE r.state = 'queued' AND NOT r.blocked AND r.tenant_id > w.tenant_id
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
                    WHERE r.tenant_id = q.tenant_id AND r.state = 'queued' AND NOT r.blocked
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

-- Extends the leases that still hold and tells of a cancel. A row that is locked at this moment is told as held and
-- not waited for: one stuck run must not cost a worker its other leases. A run below another one has no lease: it is
-- held for as long as its root is, under the same fence.
CREATE OR REPLACE FUNCTION renew_claims(
    p_tenants text[], p_runs text[], p_fences bigint[], p_lease_seconds double precision
)
RETURNS TABLE (run_id text, cancelled boolean, reason text, requested_by text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH held AS (
            SELECT h.tenant_id, h.run_id, h.fence
            FROM unnest(p_tenants, p_runs, p_fences) AS h (tenant_id, run_id, fence)
        ),
        unlocked AS (
            SELECT r.tenant_id, r.run_id FROM held h JOIN runs r ON r.tenant_id = h.tenant_id AND r.run_id = h.run_id
            WHERE r.fence = h.fence AND r.state = 'running' AND r.parent_run_id IS NULL FOR UPDATE OF r SKIP LOCKED
        ),
        renewed AS (
            UPDATE runs r SET lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds)
            FROM unlocked u WHERE r.tenant_id = u.tenant_id AND r.run_id = u.run_id
        )
        SELECT r.run_id, r.cancel_requested_at IS NOT NULL, r.cancel_reason, r.cancel_requested_by
        FROM held h JOIN runs r ON r.tenant_id = h.tenant_id AND r.run_id = h.run_id
        LEFT JOIN runs o ON o.tenant_id = r.tenant_id AND o.run_id = r.root_run_id
        WHERE r.fence = h.fence AND r.state = 'running'
            AND (r.root_run_id IS NULL OR (o.fence = h.fence AND o.state = 'running'));
END
$$;

CREATE OR REPLACE FUNCTION release_claim(p_tenant text, p_run text, p_fence bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    UPDATE runs r SET state = 'queued', queued_at = clock_timestamp(), worker_id = NULL, lease_expires_at = NULL
    WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence AND r.state = 'running'
        AND r.parent_run_id IS NULL;
    RETURN FOUND;
END
$$;

-- Only the states that pass: the ended runs of years are not counted at every scrape. Runs below others take no place
-- of their own, and a run that waits for its session is no sign of too few workers.
CREATE OR REPLACE FUNCTION deployment_gauges()
RETURNS TABLE (state text, runs bigint, oldest_seconds double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT 'queued', count(*),
        coalesce(extract(epoch FROM clock_timestamp() - min(r.queued_at) FILTER (WHERE NOT r.blocked)), 0)::float8
    FROM runs r WHERE r.state = 'queued'
    UNION ALL
    SELECT 'running', count(*), 0 FROM runs r WHERE r.state = 'running' AND r.parent_run_id IS NULL
    UNION ALL
    SELECT 'suspended', count(*), 0 FROM runs r WHERE r.state = 'suspended' AND r.parent_run_id IS NULL
$$;
