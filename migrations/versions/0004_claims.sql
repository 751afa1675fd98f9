-- Over all tenants, as runwright_scheduler, like those of the releases before, whose processes go on calling them
-- without the last arguments and read columns by their names.
DROP FUNCTION claim_runs, claim_ending_runs, renew_claims;

-- Takes up to p_limit queued runs, without those that wait for an earlier one of their session and those that need
-- what is not in p_has (null: the worker has everything). The tenant served longest ago comes first, then priority,
-- then age. A tenant that has as many running runs as it may have is left out.
CREATE FUNCTION claim_runs(
    p_worker text, p_limit integer, p_lease_seconds double precision, p_has text[] DEFAULT NULL
)
RETURNS TABLE (run_id text, tenant_id text, fence bigint, recoveries integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_limit integer := least(p_limit, 1000);
    v_tenants text[];
    v_lane_tenants text[];
    v_lanes text[];
    v_turn bigint;
BEGIN
    -- From one waiting lane to the next along the index: a tenant with 10,000 queued runs costs a step for each lane.
    WITH RECURSIVE waiting AS (
        (SELECT r.tenant_id, r.lane FROM runs r WHERE r.state = 'queued' AND NOT r.blocked
            ORDER BY r.tenant_id, r.lane LIMIT 1)
        UNION ALL
        SELECT n.tenant_id, n.lane FROM waiting w CROSS JOIN LATERAL (
            SELECT r.tenant_id, r.lane FROM runs r
            WHERE r.state = 'queued' AND NOT r.blocked AND (r.tenant_id, r.lane) > (w.tenant_id, w.lane)
            ORDER BY r.tenant_id, r.lane LIMIT 1
        ) AS n
    ),
    takeable AS (
        SELECT w.tenant_id, w.lane FROM waiting w
        WHERE p_has IS NULL OR w.lane = ''
            OR EXISTS (SELECT FROM lanes l WHERE l.lane = w.lane AND l.names <@ p_has)
    ),
    next AS (
        SELECT t.tenant_id FROM (SELECT DISTINCT k.tenant_id FROM takeable k) AS t
        LEFT JOIN tenant_queue q ON q.tenant_id = t.tenant_id
        LEFT JOIN tenants c ON c.tenant_id = t.tenant_id AND c.max_running IS NOT NULL
        -- A full tenant must not stand in the others' way.
        WHERE c.tenant_id IS NULL OR c.max_running > (
            SELECT count(*) FROM runs r
            WHERE r.tenant_id = t.tenant_id AND r.state = 'running' AND r.parent_run_id IS NULL)
        -- A tenant all of whose runs somebody else holds stops nobody: there are a few to spare.
        ORDER BY coalesce(q.virtual_time, 0), t.tenant_id LIMIT v_limit + 8
    )
    SELECT array_agg(DISTINCT k.tenant_id), array_agg(k.tenant_id), array_agg(k.lane)
    INTO v_tenants, v_lane_tenants, v_lanes FROM takeable k JOIN next n ON n.tenant_id = k.tenant_id;
    IF v_tenants IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO tenant_queue (tenant_id)
        SELECT t FROM unnest(v_tenants) AS t ORDER BY t ON CONFLICT DO NOTHING;
    -- Waits for another claim of these tenants, one statement long. Always in the order of ids: no deadlock.
    PERFORM FROM tenant_queue q WHERE q.tenant_id = ANY (v_tenants) ORDER BY q.tenant_id FOR UPDATE;
    v_turn := nextval('claim_turns');
    RETURN QUERY
        WITH rooms AS (
            -- Counted again under the lock: nobody else claims for these tenants now.
            SELECT q.tenant_id, q.virtual_time,
                CASE WHEN c.max_running IS NULL THEN v_limit ELSE c.max_running - (
                    SELECT count(*) FROM runs r
                    WHERE r.tenant_id = q.tenant_id AND r.state = 'running' AND r.parent_run_id IS NULL) END AS room
            FROM tenant_queue q LEFT JOIN tenants c ON c.tenant_id = q.tenant_id
            WHERE q.tenant_id = ANY (v_tenants)
        ),
        best AS (
            SELECT q.tenant_id, q.virtual_time, q.room, b.run_id, b.round
            FROM rooms q
            CROSS JOIN LATERAL (
                SELECT l.run_id, row_number() OVER (ORDER BY l.priority DESC, l.created_at, l.run_id) AS round
                FROM unnest(v_lane_tenants, v_lanes) AS w (tenant_id, lane)
                CROSS JOIN LATERAL (
                    SELECT r.run_id, r.priority, r.created_at FROM runs r
                    WHERE r.tenant_id = q.tenant_id AND r.lane = w.lane AND r.state = 'queued' AND NOT r.blocked
                    ORDER BY r.priority DESC, r.created_at, r.run_id LIMIT v_limit + 8
                ) AS l
                WHERE w.tenant_id = q.tenant_id
            ) AS b
        ),
        ranked AS (
            -- A row that somebody else holds (a cancel, a paused process) stops nobody: there are a few to spare.
            SELECT b.*, row_number() OVER (ORDER BY b.round > b.room, b.round, b.virtual_time, b.tenant_id) AS rank
            FROM best b WHERE b.room > 0 ORDER BY rank LIMIT v_limit + 8
        ),
        locked AS (
            -- Not the state again: it would lead along the queue instead of to the row.
            SELECT r.tenant_id, r.run_id, r.state, k.round, k.virtual_time, k.room
            FROM ranked k JOIN runs r ON r.tenant_id = k.tenant_id AND r.run_id = k.run_id
            ORDER BY k.rank LIMIT v_limit FOR UPDATE OF r SKIP LOCKED
        ),
        picked AS (
            SELECT k.tenant_id, k.run_id, row_number() OVER (ORDER BY k.round, k.virtual_time, k.tenant_id) AS place
            FROM (
                SELECT l.tenant_id, l.run_id, l.round, l.virtual_time, l.room,
                    row_number() OVER (PARTITION BY l.tenant_id ORDER BY l.round) AS nth
                -- Somebody has taken it to end it between the look and the lock, perhaps.
                FROM locked l WHERE l.state = 'queued'
            ) AS k
            WHERE k.nth <= k.room
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
            FROM picked p WHERE r.tenant_id = p.tenant_id AND r.run_id = p.run_id
            RETURNING r.run_id, r.tenant_id, r.fence, r.recoveries, p.place
        )
        SELECT c.run_id, c.tenant_id, c.fence, c.recoveries FROM claimed c ORDER BY c.place;
END
$$;

-- Queued runs that only need to end: a cancel was asked for, the deadline has passed, or they were lost more often than
-- p_max_recoveries. Out of turn, and outside the tenants' fair share: they take no worker's time.
CREATE FUNCTION claim_ending_runs(
    p_worker text, p_limit integer, p_lease_seconds double precision, p_max_recoveries integer DEFAULT NULL
)
RETURNS TABLE (run_id text, tenant_id text, fence bigint, recoveries integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_limit integer := least(p_limit, 1000);
    v_tenants text[];
    v_runs text[];
    v_lost_tenants text[];
    v_lost_runs text[];
BEGIN
    SELECT array_agg(e.tenant_id), array_agg(e.run_id) INTO v_tenants, v_runs FROM (
        SELECT r.tenant_id, r.run_id FROM runs r
        WHERE r.state = 'queued' AND least(r.cancel_requested_at, r.deadline_at) <= v_now
        ORDER BY least(r.cancel_requested_at, r.deadline_at) LIMIT v_limit FOR UPDATE SKIP LOCKED
    ) AS e;
    -- One that is both may be named twice, and is taken once.
    SELECT array_agg(e.tenant_id), array_agg(e.run_id) INTO v_lost_tenants, v_lost_runs FROM (
        SELECT r.tenant_id, r.run_id FROM runs r
        WHERE r.state = 'queued' AND r.recoveries > 0 AND r.recoveries > p_max_recoveries
        ORDER BY r.recoveries DESC LIMIT v_limit - coalesce(cardinality(v_runs), 0) FOR UPDATE SKIP LOCKED
    ) AS e;
    -- Apart: of a few rows that were named it is known that they are few.
    RETURN QUERY
        UPDATE runs r SET
            state = 'running',
            fence = r.fence + 1,
            worker_id = p_worker,
            lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds),
            started_at = coalesce(r.started_at, clock_timestamp())
        FROM unnest(v_tenants || v_lost_tenants, v_runs || v_lost_runs) AS e (tenant_id, run_id)
        WHERE r.tenant_id = e.tenant_id AND r.run_id = e.run_id
        RETURNING r.run_id, r.tenant_id, r.fence, r.recoveries;
END
$$;

-- Extends the leases that still hold and tells of a cancel. A row that is locked at this moment is told as held and not
-- extended, and not waited for: one stuck run must not cost a worker its other leases. A run below another one has no
-- lease: it is held under its root's fence and for as long.
CREATE FUNCTION renew_claims(p_tenants text[], p_runs text[], p_fences bigint[], p_lease_seconds double precision)
RETURNS TABLE (run_id text, cancelled boolean, reason text, requested_by text, extended boolean)
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
            RETURNING r.tenant_id, r.run_id
        )
        SELECT r.run_id, r.cancel_requested_at IS NOT NULL, r.cancel_reason, r.cancel_requested_by,
            n.run_id IS NOT NULL
        FROM held h JOIN runs r ON r.tenant_id = h.tenant_id AND r.run_id = h.run_id
        LEFT JOIN runs o ON o.tenant_id = r.tenant_id AND o.run_id = r.root_run_id
        LEFT JOIN renewed n ON n.tenant_id = r.tenant_id AND n.run_id = coalesce(r.root_run_id, r.run_id)
        WHERE r.fence = h.fence AND r.state = 'running'
            AND (r.root_run_id IS NULL OR (o.fence = h.fence AND o.state = 'running'));
END
$$;

-- Closes questions whose time is over and queues suspended runs that nothing keeps waiting, a few at a time. A row
-- that is locked at this moment is left to the next sweep. Roots are locked before questions, as everywhere.
CREATE FUNCTION sweep_waiting_runs(p_limit integer DEFAULT 200)
RETURNS TABLE (queued integer, tenant_ids text[], approval_ids text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_tenant_ids text[];
    v_approval_ids text[];
    v_tenants text[];
    v_runs text[];
    v_queued integer;
BEGIN
    WITH due AS (
        SELECT a.tenant_id, a.approval_id FROM approvals a
        JOIN runs r ON r.tenant_id = a.tenant_id AND r.run_id = a.root_run_id
        WHERE a.status = 'pending' AND a.expires_at <= v_now
            AND r.state IN ('queued', 'running', 'suspended')
        ORDER BY a.expires_at LIMIT p_limit FOR NO KEY UPDATE OF r SKIP LOCKED
    ),
    expired AS (
        UPDATE approvals a SET status = 'expired', decided_at = clock_timestamp()
        FROM due d WHERE a.tenant_id = d.tenant_id AND a.approval_id = d.approval_id AND a.status = 'pending'
        RETURNING a.tenant_id, a.approval_id
    )
    SELECT array_agg(e.tenant_id), array_agg(e.approval_id) INTO v_tenant_ids, v_approval_ids FROM expired e;
    WITH idle AS (
        SELECT r.tenant_id, coalesce(r.root_run_id, r.run_id) AS run_id FROM runs r
        WHERE r.state = 'suspended' AND least(r.cancel_requested_at, r.deadline_at) <= v_now
        UNION
        SELECT r.tenant_id, r.run_id FROM runs r
        WHERE r.state = 'suspended' AND r.parent_run_id IS NULL AND NOT EXISTS (
            SELECT FROM approvals a
            WHERE a.tenant_id = r.tenant_id AND a.root_run_id = r.run_id AND a.status = 'pending')
    ),
    locked AS (
        SELECT r.tenant_id, r.run_id FROM idle i
        JOIN runs r ON r.tenant_id = i.tenant_id AND r.run_id = i.run_id
        WHERE r.state = 'suspended' LIMIT p_limit FOR NO KEY UPDATE OF r SKIP LOCKED
    )
    SELECT array_agg(l.tenant_id), array_agg(l.run_id) INTO v_tenants, v_runs FROM locked l;
    UPDATE runs r SET state = 'queued', queued_at = clock_timestamp()
    FROM unnest(v_tenants, v_runs) AS l (tenant_id, run_id)
    WHERE r.tenant_id = l.tenant_id AND r.run_id = l.run_id;
    GET DIAGNOSTICS v_queued = ROW_COUNT;
    RETURN QUERY SELECT v_queued, v_tenant_ids, v_approval_ids;
END
$$;

-- Says that a worker is alive and what it has. Those that were not heard of for an hour are forgotten.
CREATE FUNCTION hello_worker(p_worker text, p_names text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO workers AS w (worker_id, names, seen_at) VALUES (p_worker, p_names, clock_timestamp())
    ON CONFLICT (worker_id) DO UPDATE SET names = excluded.names, seen_at = excluded.seen_at;
    DELETE FROM workers w WHERE w.worker_id IN (
        SELECT o.worker_id FROM workers o WHERE o.seen_at < clock_timestamp() - interval '1 hour'
        FOR UPDATE SKIP LOCKED);
END
$$;

-- What waits: queued runs for which no worker that was heard of in the last two minutes has what they need (those that
-- only need to end are anybody's), open questions, and notices that have not arrived.
CREATE FUNCTION deployment_waits()
RETURNS TABLE (unclaimable bigint, approvals_pending bigint, oldest_approval_seconds double precision,
    notices_waiting bigint, oldest_notice_seconds double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT
        (SELECT coalesce(sum(q.runs), 0)::bigint
            FROM (SELECT r.lane, count(*) AS runs FROM runs r WHERE r.state = 'queued' AND NOT r.blocked
                AND coalesce(least(r.cancel_requested_at, r.deadline_at) > clock_timestamp(), true)
                GROUP BY r.lane) AS q
            LEFT JOIN lanes l ON l.lane = q.lane
            WHERE NOT EXISTS (
                SELECT FROM workers w WHERE w.seen_at > clock_timestamp() - interval '2 minutes'
                    AND (q.lane = '' OR l.names <@ w.names))),
        p.pending,
        coalesce(extract(epoch FROM clock_timestamp() - p.oldest), 0)::float8,
        n.waiting,
        coalesce(extract(epoch FROM clock_timestamp() - n.oldest), 0)::float8
    FROM (
        SELECT count(*) AS pending, min(a.requested_at) AS oldest FROM approvals a
        WHERE a.status = 'pending' AND (a.expires_at IS NULL OR a.expires_at > clock_timestamp())
    ) AS p
    CROSS JOIN (
        SELECT count(*) AS waiting, min(d.created_at) AS oldest FROM webhook_deliveries d WHERE d.status = 'pending'
    ) AS n
$$;

REVOKE ALL ON FUNCTION claim_runs, claim_ending_runs, renew_claims, sweep_waiting_runs, hello_worker, deployment_waits
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_runs, claim_ending_runs, renew_claims, sweep_waiting_runs, hello_worker,
    deployment_waits TO runwright_app;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION claim_runs OWNER TO runwright_scheduler;
ALTER FUNCTION claim_ending_runs OWNER TO runwright_scheduler;
ALTER FUNCTION renew_claims OWNER TO runwright_scheduler;
ALTER FUNCTION sweep_waiting_runs OWNER TO runwright_scheduler;
ALTER FUNCTION hello_worker OWNER TO runwright_scheduler;
ALTER FUNCTION deployment_waits OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
