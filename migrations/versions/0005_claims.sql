-- Over all tenants, as runwright_scheduler. Processes of the release before go on calling these with the same arguments
-- and read columns by their names.
DROP FUNCTION claim_runs, renew_claims, hello_worker;

-- Where agents are paused, the queue is walked agent by agent.
CREATE INDEX ix_runs_queued_agent ON runs (tenant_id, lane, agent, priority DESC, created_at, run_id)
    WHERE state = 'queued' AND NOT blocked;

-- The clock by which tenants are served in turn: the place of the run that was started last. A tenant is served in the
-- order of its own place, which grows by a step for each run; the step is the smaller, the greater its weight.
GRANT SELECT, UPDATE ON SEQUENCE claim_turns TO runwright_scheduler;

-- Whether an operator has paused such runs.
CREATE FUNCTION is_paused(p_tenant text, p_agent text, p_lane text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM pauses p WHERE (p.tenant_id IS NULL OR p.tenant_id = p_tenant) AND CASE p.kind
            WHEN 'tenant' THEN true
            WHEN 'agent' THEN p.name = p_agent
            ELSE EXISTS (SELECT FROM lanes l WHERE l.lane = p_lane AND p.kind || ':' || p.name = ANY (l.names)) END)
$$;

-- Takes up to p_limit queued runs, without those that wait for an earlier one of their session, those that need what is
-- not in p_has (null: the worker has everything), and those that an operator has paused. Nothing for a worker that is to
-- drain. Tenants take turns by their weights, one that did not wait joins those who did; then come priority and age. A
-- tenant that has as many running runs as it may have is left out.
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
    v_agents text[];
    v_clock bigint;
BEGIN
    IF EXISTS (SELECT FROM workers w WHERE w.worker_id = p_worker AND w.drain_requested_at IS NOT NULL) THEN
        RETURN;
    END IF;
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
    -- Lanes of a tool or a model that is paused, whose tenant_id is null for everybody.
    halted AS MATERIALIZED (
        SELECT p.tenant_id, l.lane FROM pauses p JOIN lanes l ON p.kind || ':' || p.name = ANY (l.names)
        WHERE p.kind IN ('tool', 'model')
    ),
    takeable AS (
        SELECT w.tenant_id, w.lane,
            EXISTS (SELECT FROM pauses p WHERE p.kind = 'agent' AND p.tenant_id = w.tenant_id) AS by_agent
        FROM waiting w
        WHERE (p_has IS NULL OR w.lane = ''
                OR EXISTS (SELECT FROM lanes l WHERE l.lane = w.lane AND l.names <@ p_has))
            AND NOT EXISTS (SELECT FROM pauses p WHERE p.kind = 'tenant' AND p.tenant_id = w.tenant_id)
            AND NOT EXISTS (
                SELECT FROM halted h WHERE h.lane = w.lane AND (h.tenant_id IS NULL OR h.tenant_id = w.tenant_id))
    ),
    parts AS (
        SELECT t.tenant_id, t.lane, NULL AS agent FROM takeable t WHERE NOT t.by_agent
        UNION ALL
        SELECT t.tenant_id, t.lane, a.agent FROM takeable t CROSS JOIN LATERAL (
            WITH RECURSIVE hop AS (
                (SELECT r.agent FROM runs r
                    WHERE r.tenant_id = t.tenant_id AND r.lane = t.lane AND r.state = 'queued' AND NOT r.blocked
                    ORDER BY r.agent LIMIT 1)
                UNION ALL
                SELECT n.agent FROM hop h CROSS JOIN LATERAL (
                    SELECT r.agent FROM runs r
                    WHERE r.tenant_id = t.tenant_id AND r.lane = t.lane AND r.state = 'queued' AND NOT r.blocked
                        AND r.agent > h.agent
                    ORDER BY r.agent LIMIT 1
                ) AS n
            )
            SELECT h.agent FROM hop h WHERE NOT EXISTS (
                SELECT FROM pauses p WHERE p.kind = 'agent' AND p.tenant_id = t.tenant_id AND p.name = h.agent)
        ) AS a
        WHERE t.by_agent
    ),
    next AS (
        SELECT t.tenant_id FROM (SELECT DISTINCT k.tenant_id FROM parts k) AS t
        CROSS JOIN claim_turns s
        LEFT JOIN tenant_queue q ON q.tenant_id = t.tenant_id
        LEFT JOIN tenants c ON c.tenant_id = t.tenant_id AND c.max_running IS NOT NULL
        -- A full tenant must not stand in the others' way.
        WHERE c.tenant_id IS NULL OR c.max_running > (
            SELECT count(*) FROM runs r
            WHERE r.tenant_id = t.tenant_id AND r.state = 'running' AND r.parent_run_id IS NULL)
        -- A tenant all of whose runs somebody else holds stops nobody: there are a few to spare.
        ORDER BY greatest(q.virtual_time, s.last_value), q.started_at NULLS FIRST, t.tenant_id LIMIT v_limit + 8
    )
    SELECT array_agg(DISTINCT k.tenant_id), array_agg(k.tenant_id), array_agg(k.lane), array_agg(k.agent)
    INTO v_tenants, v_lane_tenants, v_lanes, v_agents FROM parts k JOIN next n ON n.tenant_id = k.tenant_id;
    IF v_tenants IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO tenant_queue (tenant_id)
        SELECT t FROM unnest(v_tenants) AS t ORDER BY t ON CONFLICT DO NOTHING;
    -- Waits for another claim of these tenants, one statement long. Always in the order of ids: no deadlock.
    PERFORM FROM tenant_queue q WHERE q.tenant_id = ANY (v_tenants) ORDER BY q.tenant_id FOR UPDATE;
    SELECT s.last_value INTO v_clock FROM claim_turns s;
    RETURN QUERY
        WITH rooms AS MATERIALIZED (
            -- Counted again under the lock: nobody else claims for these tenants now.
            SELECT q.tenant_id, greatest(q.virtual_time, v_clock) AS place, q.started_at,
                1000000 / coalesce(c.weight, 1) AS step,
                CASE WHEN c.max_running IS NULL THEN v_limit ELSE c.max_running - (
                    SELECT count(*) FROM runs r
                    WHERE r.tenant_id = q.tenant_id AND r.state = 'running' AND r.parent_run_id IS NULL) END AS room
            FROM tenant_queue q LEFT JOIN tenants c ON c.tenant_id = q.tenant_id
            WHERE q.tenant_id = ANY (v_tenants)
        ),
        best AS (
            SELECT q.tenant_id, q.place, q.started_at, q.step, q.room, b.run_id, b.round
            FROM rooms q
            CROSS JOIN LATERAL (
                SELECT l.run_id, row_number() OVER (ORDER BY l.priority DESC, l.created_at, l.run_id) AS round
                FROM unnest(v_lane_tenants, v_lanes, v_agents) AS w (tenant_id, lane, agent)
                CROSS JOIN LATERAL (
                    (SELECT r.run_id, r.priority, r.created_at FROM runs r
                    WHERE w.agent IS NULL AND r.tenant_id = q.tenant_id AND r.lane = w.lane
                        AND r.state = 'queued' AND NOT r.blocked
                    ORDER BY r.priority DESC, r.created_at, r.run_id LIMIT v_limit + 8)
                    UNION ALL
                    (SELECT r.run_id, r.priority, r.created_at FROM runs r
                    WHERE r.tenant_id = q.tenant_id AND r.lane = w.lane AND r.agent = w.agent
                        AND r.state = 'queued' AND NOT r.blocked
                    ORDER BY r.priority DESC, r.created_at, r.run_id LIMIT v_limit + 8)
                ) AS l
                WHERE w.tenant_id = q.tenant_id
            ) AS b
        ),
        ranked AS (
            -- A row that somebody else holds (a cancel, a paused process) stops nobody: there are a few to spare.
            SELECT b.*, row_number() OVER (ORDER BY b.round > b.room, b.place + (b.round - 1) * b.step,
                b.started_at NULLS FIRST, b.tenant_id) AS rank
            FROM best b WHERE b.room > 0 ORDER BY rank LIMIT v_limit + 8
        ),
        locked AS (
            -- Not the state again: it would lead along the queue instead of to the row.
            SELECT r.tenant_id, r.run_id, r.state, r.queued_at, k.round, k.place, k.started_at, k.step, k.room
            FROM ranked k JOIN runs r ON r.tenant_id = k.tenant_id AND r.run_id = k.run_id
            ORDER BY k.rank LIMIT v_limit FOR UPDATE OF r SKIP LOCKED
        ),
        picked AS (
            SELECT k.tenant_id, k.run_id, k.place + (k.nth - 1) * k.step AS place, k.step, k.started_at,
                k.queued_at <= k.started_at AS has_waited
            FROM (
                SELECT l.*, row_number() OVER (PARTITION BY l.tenant_id ORDER BY l.round) AS nth
                -- Somebody has taken it to end it between the look and the lock, perhaps.
                FROM locked l WHERE l.state = 'queued'
            ) AS k
            WHERE k.nth <= k.room
        ),
        served AS (
            -- Only runs that waited already when the last one was started tell how long a turn takes.
            UPDATE tenant_queue q SET
                virtual_time = s.place,
                started_at = clock_timestamp(),
                turn_seconds = CASE WHEN s.waited = 0 THEN q.turn_seconds
                    ELSE s.turn + (coalesce(q.turn_seconds, s.turn) - s.turn) * power(0.8::float8, s.waited) END
            FROM (
                SELECT p.tenant_id, max(p.place + p.step) AS place, count(*) FILTER (WHERE p.has_waited) AS waited,
                    extract(epoch FROM clock_timestamp() - max(p.started_at))::float8
                        / nullif(count(*) FILTER (WHERE p.has_waited), 0) AS turn
                FROM picked p GROUP BY p.tenant_id
            ) AS s
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
            RETURNING r.run_id, r.tenant_id, r.fence, r.recoveries, p.place, p.started_at AS served_at
        ),
        clock AS (
            -- Two claims at once may set it back by what one of them took: a newcomer begins as much earlier.
            SELECT setval('public.claim_turns', greatest(v_clock, max(p.place))) FROM picked p HAVING count(*) > 0
        )
        SELECT c.run_id, c.tenant_id, c.fence, c.recoveries FROM claimed c CROSS JOIN clock
        ORDER BY c.place, c.served_at NULLS FIRST, c.tenant_id;
END
$$;

-- Extends the leases that still hold, and tells of a cancel and of a pause. A row that is locked at this moment is told
-- as held and not extended, and not waited for: one stuck run must not cost a worker its other leases. A run below
-- another one has no lease: it is held under its root's fence and for as long, and paused when its root is.
CREATE FUNCTION renew_claims(p_tenants text[], p_runs text[], p_fences bigint[], p_lease_seconds double precision)
RETURNS TABLE (run_id text, cancelled boolean, reason text, requested_by text, extended boolean, paused boolean)
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
            n.run_id IS NOT NULL,
            -- A question to the table first, which has no row mostly.
            EXISTS (SELECT FROM pauses) AND CASE WHEN r.root_run_id IS NULL THEN is_paused(r.tenant_id, r.agent, r.lane)
                ELSE is_paused(o.tenant_id, o.agent, o.lane) END
        FROM held h JOIN runs r ON r.tenant_id = h.tenant_id AND r.run_id = h.run_id
        LEFT JOIN runs o ON o.tenant_id = r.tenant_id AND o.run_id = r.root_run_id
        LEFT JOIN renewed n ON n.tenant_id = r.tenant_id AND n.run_id = coalesce(r.root_run_id, r.run_id)
        WHERE r.fence = h.fence AND r.state = 'running'
            AND (r.root_run_id IS NULL OR (o.fence = h.fence AND o.state = 'running'));
END
$$;

-- Says that a worker is alive and what it has; true where it is to drain. Those that were not heard of for an hour are
-- forgotten.
CREATE FUNCTION hello_worker(p_worker text, p_names text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_drains boolean;
BEGIN
    INSERT INTO workers AS w (worker_id, names, seen_at) VALUES (p_worker, p_names, clock_timestamp())
    ON CONFLICT (worker_id) DO UPDATE SET names = excluded.names, seen_at = excluded.seen_at
    RETURNING w.drain_requested_at IS NOT NULL INTO v_drains;
    DELETE FROM workers w WHERE w.worker_id IN (
        SELECT o.worker_id FROM workers o WHERE o.seen_at < clock_timestamp() - interval '1 hour'
        FOR UPDATE SKIP LOCKED);
    RETURN v_drains;
END
$$;

-- What waits: queued runs for which no worker that was heard of in the last two minutes and is not to drain has what
-- they need (those that only need to end are anybody's), open questions, and notices that have not arrived.
CREATE OR REPLACE FUNCTION deployment_waits()
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
                    AND w.drain_requested_at IS NULL AND (q.lane = '' OR l.names <@ w.names))),
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

REVOKE ALL ON FUNCTION is_paused, claim_runs, renew_claims, hello_worker FROM PUBLIC;
GRANT EXECUTE ON FUNCTION is_paused TO runwright_scheduler;
GRANT EXECUTE ON FUNCTION claim_runs, renew_claims, hello_worker TO runwright_app;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION claim_runs OWNER TO runwright_scheduler;
ALTER FUNCTION renew_claims OWNER TO runwright_scheduler;
ALTER FUNCTION hello_worker OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
