-- Who wants to be told, and the outbox of notices.

CREATE TABLE webhooks (
    tenant_id text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    url text NOT NULL,
    events text[] NOT NULL,
    description text NOT NULL,
    created_at timestamptz NOT NULL,
    disabled_at timestamptz,
    CONSTRAINT pk_webhooks PRIMARY KEY (tenant_id, webhook_id)
);

-- body is what is signed and sent, and gone when nothing is sent any more. held_until: a carrier has it until then.
-- next_attempt_at: when it may be taken; null when it is over.
CREATE TABLE webhook_deliveries (
    tenant_id text COLLATE "C" NOT NULL,
    delivery_id text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    event text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    run_id text COLLATE "C",
    body text,
    status text COLLATE "C" NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    next_attempt_at timestamptz,
    held_until timestamptz,
    ended_at timestamptz,
    last_status integer,
    last_error text,
    CONSTRAINT pk_webhook_deliveries PRIMARY KEY (tenant_id, delivery_id),
    CONSTRAINT ck_webhook_deliveries_status CHECK (status IN ('pending', 'delivered', 'failed')),
    CONSTRAINT ck_webhook_deliveries_over
        CHECK ((status = 'pending') = (next_attempt_at IS NOT NULL) AND (status = 'pending') = (ended_at IS NULL))
) WITH (fillfactor = 80);

CREATE INDEX ix_webhook_deliveries_due ON webhook_deliveries (tenant_id, webhook_id, next_attempt_at)
    WHERE status = 'pending';
CREATE INDEX ix_webhook_deliveries_held ON webhook_deliveries (tenant_id, webhook_id, held_until)
    WHERE held_until IS NOT NULL;
CREATE INDEX ix_webhook_deliveries_newest
    ON webhook_deliveries (tenant_id, webhook_id, created_at DESC, delivery_id DESC);
-- To erase a run without reading all of its tenant's notices.
CREATE INDEX ix_webhook_deliveries_run ON webhook_deliveries (tenant_id, run_id) WHERE run_id IS NOT NULL;
CREATE INDEX ix_webhook_deliveries_over ON webhook_deliveries (ended_at) WHERE ended_at IS NOT NULL;

SELECT guard_by_tenant(name::regclass) FROM unnest(ARRAY['webhooks', 'webhook_deliveries']) AS name;

GRANT SELECT, INSERT, DELETE ON webhooks TO runwright_app;
GRANT UPDATE (disabled_at) ON webhooks TO runwright_app;
GRANT SELECT, INSERT, DELETE ON webhook_deliveries TO runwright_app;
GRANT UPDATE (body, status, next_attempt_at, held_until, ended_at, last_status, last_error)
    ON webhook_deliveries TO runwright_app;

-- The scheduler sees when which notice is due, and neither where it goes nor what it says.
GRANT SELECT (tenant_id, webhook_id) ON webhooks TO runwright_scheduler;
CREATE POLICY scheduler_reads ON webhooks FOR SELECT TO runwright_scheduler USING (true);
GRANT SELECT (tenant_id, delivery_id, webhook_id, status, attempts, created_at, next_attempt_at, held_until, ended_at)
    ON webhook_deliveries TO runwright_scheduler;
GRANT UPDATE (attempts, next_attempt_at, held_until), DELETE ON webhook_deliveries TO runwright_scheduler;
CREATE POLICY scheduler_reads ON webhook_deliveries FOR SELECT TO runwright_scheduler USING (true);
CREATE POLICY scheduler_takes ON webhook_deliveries FOR UPDATE TO runwright_scheduler
    USING (status = 'pending') WITH CHECK (status = 'pending');
CREATE POLICY scheduler_forgets ON webhook_deliveries FOR DELETE TO runwright_scheduler USING (status <> 'pending');

-- An id as the service makes them: a UUIDv7 (RFC 9562) in base32.
CREATE FUNCTION mint_id(p_prefix text, p_at timestamptz) RETURNS text
LANGUAGE sql VOLATILE SET search_path = pg_catalog, public, pg_temp AS $$
    WITH made AS MATERIALIZED (
        SELECT B'00' || ('x' || lpad(to_hex((extract(epoch FROM p_at) * 1000)::bigint), 12, '0') || '7'
            || substr(replace(gen_random_uuid()::text, '-', ''), 14))::bit(128) AS bits
    )
    SELECT p_prefix || '_' || string_agg(
        substr('0123456789abcdefghjkmnpqrstvwxyz', substring(m.bits FROM 5 * n + 1 FOR 5)::bit(5)::integer + 1, 1), ''
        ORDER BY n)
    FROM made m CROSS JOIN generate_series(0, 25) AS n
$$;

-- RFC 3339 in UTC with milliseconds, rounded as the service rounds: in binary.
CREATE FUNCTION write_instant(p_at timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT to_char(to_timestamp(round(extract(epoch FROM p_at)::float8 * 1000) / 1000) AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- JSON of a text that is stored with U+0000 and U+001A escaped: both are written as JSON escapes them.
CREATE FUNCTION write_text(p_text text) RETURNS json
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT CASE WHEN position(E'\x1a' IN p_text) = 0 THEN to_json(p_text) ELSE (
        -- Pairs of the mark first: what is left of it then stands before a 0. A part may be empty.
        SELECT ('"' || string_agg(coalesce((
            SELECT string_agg(substr(to_json(i.piece)::text, 2, length(to_json(i.piece)::text) - 2), '\u0000'
                ORDER BY i.place)
            FROM unnest(string_to_array(o.part, E'\x1a' || '0')) WITH ORDINALITY AS i (piece, place)
        ), ''), '\u001a' ORDER BY o.place) || '"')::json
        FROM unnest(string_to_array(p_text, E'\x1a\x1a')) WITH ORDINALITY AS o (part, place)
    ) END
$$;

-- What a notice says: of a run no input and no output, of a question no arguments.
CREATE FUNCTION describe_event(p_tenant text, p_event text, p_subject text) RETURNS json
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF p_event = 'run.terminated' THEN
        RETURN (SELECT json_build_object('run_id', r.run_id, 'state', r.state, 'error_code', r.error_code,
                'agent', r.agent, 'session_id', r.session_id, 'user', write_text(r.caller),
                'metadata', r.metadata::json)
            FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_subject);
    ELSIF p_event = 'approval.requested' THEN
        RETURN (SELECT json_build_object('id', a.approval_id, 'run_id', a.run_id, 'root_run_id', a.root_run_id,
                'agent', a.agent, 'tool', write_text(a.tool), 'call_id', a.call_id, 'kind', a.kind,
                'dispatch', a.dispatch, 'status', a.status, 'arguments_digest', a.arguments_digest,
                'summary', a.summary::json, 'reason', write_text(a.reason), 'flagged', a.flagged,
                'user', write_text(a.caller), 'requested_at', write_instant(a.requested_at),
                'expires_at', write_instant(a.expires_at), 'decision', NULL)
            FROM approvals a WHERE a.tenant_id = p_tenant AND a.approval_id = p_subject);
    END IF;
    RETURN json_build_object('webhook_id', p_subject);
END
$$;

-- Puts a notice for each webhook that wants the event into the outbox, in the transaction in which it came about.
-- p_subject: the id of what it is about. p_run: the run with which the notice is erased.
CREATE FUNCTION enqueue_deliveries(p_tenant text, p_event text, p_subject text, p_run text, p_at timestamptz)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_body text;
BEGIN
    -- Most tenants want nothing: that costs one look.
    IF NOT EXISTS (
        SELECT FROM webhooks w WHERE w.tenant_id = p_tenant AND w.disabled_at IS NULL AND p_event = ANY (w.events)
    ) THEN
        RETURN;
    END IF;
    v_body := write_body(p_event, p_at, describe_event(p_tenant, p_event, p_subject));
    INSERT INTO webhook_deliveries (tenant_id, delivery_id, webhook_id, event, subject, run_id, body, created_at,
        next_attempt_at)
    SELECT p_tenant, mint_id('dlv', p_at), w.webhook_id, p_event, p_subject, p_run, v_body, p_at, p_at
    FROM webhooks w WHERE w.tenant_id = p_tenant AND w.disabled_at IS NULL AND p_event = ANY (w.events);
END
$$;

CREATE FUNCTION write_body(p_event text, p_at timestamptz, p_data json) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT json_build_object('type', p_event, 'timestamp', write_instant(p_at), 'data', p_data)::text
$$;

-- Takes up to p_limit notices whose time has come, over all tenants; nobody else gets them for p_hold_seconds. Those
-- webhooks come first that have the fewest under way, and share alike; no more than p_each at a time go to one. So a
-- receiver that answers slowly holds up nobody but itself.
CREATE FUNCTION take_deliveries(p_limit integer, p_each integer, p_hold_seconds double precision)
RETURNS TABLE (tenant_id text, delivery_id text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
        -- From one webhook's first notice to the next one's along the index: 10,000 notices to one cost one step.
        WITH RECURSIVE waiting AS (
            (SELECT d.tenant_id, d.webhook_id, d.next_attempt_at FROM webhook_deliveries d WHERE d.status = 'pending'
                ORDER BY d.tenant_id, d.webhook_id, d.next_attempt_at LIMIT 1)
            UNION ALL
            SELECT n.tenant_id, n.webhook_id, n.next_attempt_at FROM waiting w CROSS JOIN LATERAL (
                SELECT d.tenant_id, d.webhook_id, d.next_attempt_at FROM webhook_deliveries d
                WHERE d.status = 'pending' AND (d.tenant_id, d.webhook_id) > (w.tenant_id, w.webhook_id)
                ORDER BY d.tenant_id, d.webhook_id, d.next_attempt_at LIMIT 1
            ) AS n
        ),
        open AS MATERIALIZED (
            SELECT w.tenant_id, w.webhook_id, h.held FROM waiting w CROSS JOIN LATERAL (
                SELECT count(*) AS held FROM webhook_deliveries d
                WHERE d.tenant_id = w.tenant_id AND d.webhook_id = w.webhook_id AND d.held_until > v_now
            ) AS h
            WHERE w.next_attempt_at <= v_now AND h.held < p_each
            ORDER BY h.held, w.next_attempt_at LIMIT p_limit
        ),
        picked AS (
            SELECT o.tenant_id, l.delivery_id FROM open o CROSS JOIN LATERAL (
                SELECT d.delivery_id FROM webhook_deliveries d
                WHERE d.tenant_id = o.tenant_id AND d.webhook_id = o.webhook_id AND d.status = 'pending'
                    AND d.next_attempt_at <= v_now
                ORDER BY d.next_attempt_at
                LIMIT least(p_each - o.held, p_limit / (SELECT count(*) FROM open)) FOR UPDATE SKIP LOCKED
            ) AS l
        )
        UPDATE webhook_deliveries d SET
            attempts = d.attempts + 1,
            next_attempt_at = v_now + make_interval(secs => p_hold_seconds),
            held_until = v_now + make_interval(secs => p_hold_seconds)
        FROM picked p WHERE d.tenant_id = p.tenant_id AND d.delivery_id = p.delivery_id
        RETURNING d.tenant_id, d.delivery_id;
END
$$;

-- What notices that were taken say, and where they go. One whose webhook is gone, or wants nothing more, is settled here
-- and does not come back.
CREATE FUNCTION open_deliveries(p_tenants text[], p_deliveries text[])
RETURNS TABLE (tenant_id text, delivery_id text, webhook_id text, url text, body text, attempts integer,
    created_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_tenant text;
    v_deliveries text[];
BEGIN
    FOR v_tenant, v_deliveries IN
        SELECT t.tenant, array_agg(t.delivery) FROM unnest(p_tenants, p_deliveries) AS t (tenant, delivery)
        GROUP BY t.tenant ORDER BY t.tenant
    LOOP
        PERFORM set_config('app.tenant_id', v_tenant, true);
        DELETE FROM webhook_deliveries d WHERE d.tenant_id = v_tenant AND d.delivery_id = ANY (v_deliveries)
            AND NOT EXISTS (SELECT FROM webhooks w WHERE w.tenant_id = v_tenant AND w.webhook_id = d.webhook_id);
        UPDATE webhook_deliveries d SET status = 'failed', last_error = 'webhook_disabled', body = NULL,
            next_attempt_at = NULL, held_until = NULL, ended_at = clock_timestamp()
        FROM webhooks w WHERE d.tenant_id = v_tenant AND d.delivery_id = ANY (v_deliveries) AND d.status = 'pending'
            AND w.tenant_id = v_tenant AND w.webhook_id = d.webhook_id AND w.disabled_at IS NOT NULL;
        RETURN QUERY
            SELECT d.tenant_id, d.delivery_id, d.webhook_id, w.url, d.body, d.attempts, d.created_at
            FROM webhook_deliveries d JOIN webhooks w ON w.tenant_id = v_tenant AND w.webhook_id = d.webhook_id
            WHERE d.tenant_id = v_tenant AND d.delivery_id = ANY (v_deliveries) AND d.status = 'pending';
    END LOOP;
END
$$;

-- Forgets notices that were over long ago, up to p_limit of them; tells how many.
CREATE FUNCTION forget_deliveries(p_older_than interval, p_limit integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_count integer;
BEGIN
    DELETE FROM webhook_deliveries d USING (
        SELECT o.tenant_id, o.delivery_id FROM webhook_deliveries o
        WHERE o.ended_at < clock_timestamp() - p_older_than ORDER BY o.ended_at LIMIT p_limit
    ) AS old
    WHERE d.tenant_id = old.tenant_id AND d.delivery_id = old.delivery_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

ALTER FUNCTION take_deliveries OWNER TO runwright_scheduler;
ALTER FUNCTION forget_deliveries OWNER TO runwright_scheduler;
REVOKE ALL ON FUNCTION mint_id, write_instant, write_text, write_body, describe_event, enqueue_deliveries,
    take_deliveries, open_deliveries, forget_deliveries FROM PUBLIC;
GRANT EXECUTE ON FUNCTION mint_id, write_instant, write_text, write_body, describe_event, enqueue_deliveries,
    take_deliveries, open_deliveries, forget_deliveries TO runwright_app;
