-- What tenants with ceilings have used over time, and what is reserved of it.

-- active_us: how long it was driven by claims, in microseconds; of root runs alone, since those below them are driven
-- in the same time. last_event_at, last_event_fence: of the newest event that a claim has appended. All have defaults,
-- so no row is written again.
ALTER TABLE runs
    ADD COLUMN on_ledger_error text COLLATE "C" NOT NULL DEFAULT 'fail',
    ADD COLUMN active_us bigint NOT NULL DEFAULT 0,
    ADD COLUMN last_event_at timestamptz,
    ADD COLUMN last_event_fence bigint;

-- A window is kept in sixty stretches, numbered from the epoch on. estimated: somebody has guessed some of the tokens.
CREATE TABLE ledger (
    tenant_id text COLLATE "C" NOT NULL,
    window_seconds integer NOT NULL,
    stretch bigint NOT NULL,
    cost numeric NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    model_calls bigint NOT NULL,
    tool_calls bigint NOT NULL,
    active_us bigint NOT NULL,
    estimated boolean NOT NULL,
    CONSTRAINT pk_ledger PRIMARY KEY (tenant_id, window_seconds, stretch)
-- Each append of the tenant updates one row of each window.
) WITH (fillfactor = 50);

-- What is reserved for a run's call that is out.
CREATE TABLE ledger_holds (
    tenant_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    cost numeric NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    CONSTRAINT pk_ledger_holds PRIMARY KEY (tenant_id, run_id)
) WITH (fillfactor = 50);

SELECT guard_by_tenant(name::regclass) FROM unnest(ARRAY['ledger', 'ledger_holds']) AS name;
GRANT SELECT, INSERT, UPDATE ON ledger TO runwright_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON ledger_holds TO runwright_app;

-- Figures, and nothing that people wrote: old stretches are forgotten, and audits compare the rest.
GRANT SELECT, DELETE ON ledger TO runwright_scheduler;
CREATE POLICY scheduler_keeps ON ledger TO runwright_scheduler USING (true);
GRANT SELECT, UPDATE (cost, output_tokens) ON ledger_holds TO runwright_scheduler;
CREATE POLICY scheduler_reads ON ledger_holds FOR SELECT TO runwright_scheduler USING (true);
CREATE POLICY scheduler_lowers ON ledger_holds FOR UPDATE TO runwright_scheduler USING (true);
GRANT SELECT (cost, input_tokens, output_tokens, model_calls, tool_calls, active_us) ON runs TO runwright_scheduler;

-- What becomes of a run without its ledger holds for those below it, too.
CREATE FUNCTION take_from_root() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    SELECT o.on_ledger_error INTO NEW.on_ledger_error FROM runs o
    WHERE o.tenant_id = NEW.tenant_id AND o.run_id = NEW.root_run_id;
    RETURN NEW;
END
$$;

CREATE TRIGGER runs_take_from_root BEFORE INSERT ON runs FOR EACH ROW
    WHEN (NEW.root_run_id IS NOT NULL) EXECUTE FUNCTION take_from_root();

-- A run that goes back to the queue may wait there for long, and of its call, and of those below it, nobody takes the
-- answer any more: what the next claim charges for them, their prompts, stays reserved.
CREATE FUNCTION lower_holds() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    UPDATE ledger_holds h SET cost = 0, output_tokens = 0 FROM runs r
    WHERE h.tenant_id = NEW.tenant_id AND r.tenant_id = h.tenant_id AND r.run_id = h.run_id
        AND (r.run_id = NEW.run_id OR r.root_run_id = NEW.run_id);
    RETURN NULL;
END
$$;

CREATE TRIGGER runs_lower_holds AFTER UPDATE ON runs FOR EACH ROW
    WHEN (OLD.state = 'running' AND NEW.state = 'queued') EXECUTE FUNCTION lower_holds();

-- The stretch of a window in which an instant lies.
CREATE FUNCTION stretch_of(p_at timestamptz, p_window integer) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN floor(extract(epoch FROM p_at) / (p_window / 60));
END
$$;

-- What of these figures counts against a ceiling.
CREATE FUNCTION amount_of(
    p_dimension text, p_cost numeric, p_input numeric, p_output numeric, p_model_calls numeric, p_tool_calls numeric,
    p_active_us numeric
) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RETURN coalesce(CASE p_dimension
        WHEN 'cost' THEN p_cost
        WHEN 'tokens' THEN p_input + p_output
        WHEN 'input_tokens' THEN p_input
        WHEN 'output_tokens' THEN p_output
        WHEN 'model_calls' THEN p_model_calls
        WHEN 'tool_calls' THEN p_tool_calls
        -- Exact, which a division would not be.
        WHEN 'seconds' THEN p_active_us * 0.000001
    END, 0);
END
$$;

-- Each ceiling of the tenant, with what was used since so long before p_until as its window is, to a stretch, and what
-- is reserved for runs other than p_run (null: for all). One snapshot: what is settled is in one of the two.
CREATE FUNCTION ceilings_used(p_tenant text, p_run text, p_until timestamptz)
RETURNS TABLE (dimension text, window_seconds integer, limit_amount numeric, used numeric, held numeric,
    estimated boolean)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        WITH windows AS (
            -- Looked at apart (OFFSET 0): it leads along the index to those stretches alone, however many there are.
            SELECT DISTINCT c.window_seconds,
                stretch_of(p_until - make_interval(secs => c.window_seconds), c.window_seconds) AS first
            FROM ceilings c WHERE c.tenant_id = p_tenant OFFSET 0
        ),
        used AS (
            SELECT w.window_seconds, s.* FROM windows w CROSS JOIN LATERAL (
                SELECT sum(l.cost) AS cost, sum(l.input_tokens) AS input, sum(l.output_tokens) AS output,
                    sum(l.model_calls) AS model_calls, sum(l.tool_calls) AS tool_calls, sum(l.active_us) AS active_us,
                    bool_or(l.estimated) AS estimated
                FROM ledger l
                WHERE l.tenant_id = p_tenant AND l.window_seconds = w.window_seconds AND l.stretch >= w.first
            ) AS s
        ),
        held AS (
            SELECT sum(h.cost) AS cost, sum(h.input_tokens) AS input, sum(h.output_tokens) AS output
            FROM ledger_holds h WHERE h.tenant_id = p_tenant AND h.run_id IS DISTINCT FROM p_run
        )
        SELECT c.dimension, c.window_seconds, c.limit_amount,
            amount_of(c.dimension, u.cost, u.input, u.output, u.model_calls, u.tool_calls, u.active_us),
            amount_of(c.dimension, h.cost, h.input, h.output, 0, 0, 0),
            coalesce(u.estimated, false)
        FROM ceilings c CROSS JOIN held h JOIN used u ON u.window_seconds = c.window_seconds
        WHERE c.tenant_id = p_tenant
        ORDER BY c.dimension, c.window_seconds;
END
$$;

-- What the ceilings leave to a run, the least of each dimension, and what they would leave if nobody else had reserved
-- anything. p_root as in append_events. RW001: nobody can tell.
CREATE FUNCTION ledger_room(p_tenant text, p_run text, p_root text)
RETURNS TABLE (dimension text, room numeric, unheld numeric)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    RETURN QUERY
        SELECT u.dimension, greatest(0, min(u.limit_amount - u.used - u.held)),
            greatest(0, min(u.limit_amount - u.used))
        FROM runs o CROSS JOIN LATERAL ceilings_used(p_tenant, p_run, o.started_at) AS u
        WHERE o.tenant_id = p_tenant AND o.run_id = coalesce(p_root, p_run) GROUP BY u.dimension;
EXCEPTION WHEN OTHERS THEN
    RAISE EXCEPTION 'the ledger can''t be read' USING ERRCODE = 'RW001', DETAIL = SQLSTATE;
END
$$;

-- Refuses a call that is about to go out where a ceiling has no room for what its run has used since its row was last
-- written and for what is to be reserved: answers with the first such ceiling, as JSON, or null. Whoever is not refused
-- keeps the tenant's others waiting until his transaction ends. RW001: nobody can tell.
CREATE FUNCTION refuse_call(
    p_tenant text, p_run text, p_root text, p_cost numeric, p_input bigint, p_output bigint,
    p_model_calls bigint, p_tool_calls bigint, p_active_us bigint
) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_refused text;
BEGIN
    -- No row: those who claim and those who set ceilings are not kept waiting.
    PERFORM pg_advisory_xact_lock(hashtextextended('runwright.ledger.' || p_tenant, 0));
    SELECT json_build_object('dimension', w.dimension, 'window_seconds', w.window_seconds,
        'limit', w.limit_amount::text, 'used', (w.used + w.held)::text, 'requested', w.requested::text)::text
    INTO v_refused FROM (
        SELECT u.*, amount_of(u.dimension, p_cost, p_input, p_output, p_model_calls, p_tool_calls, p_active_us)
            AS requested
        FROM runs o CROSS JOIN LATERAL ceilings_used(p_tenant, p_run, o.started_at) AS u
        WHERE o.tenant_id = p_tenant AND o.run_id = coalesce(p_root, p_run)
    ) AS w
    WHERE w.used + w.held + w.requested > w.limit_amount
    ORDER BY w.dimension, w.window_seconds LIMIT 1;
    RETURN v_refused;
EXCEPTION WHEN OTHERS THEN
    RAISE EXCEPTION 'the ledger can''t be read' USING ERRCODE = 'RW001', DETAIL = SQLSTATE;
END
$$;

-- Adds what a run has used to the stretch of each of its tenant's windows, and reserves exactly what is said. RW001: it
-- can't, and a call is not to go out. Without a call the error is told as it is.
CREATE FUNCTION charge_ledger(
    p_tenant text, p_run text, p_at timestamptz, p_cost numeric, p_input bigint, p_output bigint,
    p_model_calls bigint, p_tool_calls bigint, p_active_us bigint, p_estimated boolean,
    p_held_cost numeric, p_held_input bigint, p_held_output bigint, p_announces boolean
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF p_cost <> 0 OR (p_input | p_output | p_model_calls | p_tool_calls | p_active_us) <> 0 THEN
        -- Always in the order of windows: no deadlock.
        INSERT INTO ledger AS l (tenant_id, window_seconds, stretch, cost, input_tokens, output_tokens, model_calls,
            tool_calls, active_us, estimated)
        SELECT p_tenant, w.window_seconds, stretch_of(p_at, w.window_seconds), p_cost, p_input, p_output,
            p_model_calls, p_tool_calls, p_active_us, p_estimated
        FROM (SELECT DISTINCT c.window_seconds FROM ceilings c WHERE c.tenant_id = p_tenant) AS w
        ORDER BY w.window_seconds
        ON CONFLICT (tenant_id, window_seconds, stretch) DO UPDATE SET
            cost = l.cost + excluded.cost,
            input_tokens = l.input_tokens + excluded.input_tokens,
            output_tokens = l.output_tokens + excluded.output_tokens,
            model_calls = l.model_calls + excluded.model_calls,
            tool_calls = l.tool_calls + excluded.tool_calls,
            active_us = l.active_us + excluded.active_us,
            estimated = l.estimated OR excluded.estimated;
    END IF;
    IF p_held_cost IS NULL THEN
        DELETE FROM ledger_holds h WHERE h.tenant_id = p_tenant AND h.run_id = p_run;
    ELSE
        INSERT INTO ledger_holds AS h (tenant_id, run_id, cost, input_tokens, output_tokens)
        VALUES (p_tenant, p_run, p_held_cost, p_held_input, p_held_output)
        ON CONFLICT (tenant_id, run_id) DO UPDATE SET
            cost = excluded.cost, input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens;
    END IF;
EXCEPTION WHEN OTHERS THEN
    IF p_announces THEN
        RAISE EXCEPTION 'the ledger can''t be written' USING ERRCODE = 'RW001', DETAIL = SQLSTATE;
    END IF;
    RAISE;
END
$$;

-- Forgets stretches that left their window long ago and that no run which goes on counts from.
CREATE FUNCTION forget_ledger(p_limit integer DEFAULT 100000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_kept record;
    v_before timestamptz;
    v_deleted bigint;
    v_forgotten bigint := 0;
BEGIN
    FOR v_kept IN
        WITH RECURSIVE kept AS (
            (SELECT l.tenant_id, l.window_seconds, l.stretch FROM ledger l
                ORDER BY l.tenant_id, l.window_seconds, l.stretch LIMIT 1)
            UNION ALL
            SELECT n.* FROM kept k CROSS JOIN LATERAL (
                SELECT l.tenant_id, l.window_seconds, l.stretch FROM ledger l
                WHERE (l.tenant_id, l.window_seconds) > (k.tenant_id, k.window_seconds)
                ORDER BY l.tenant_id, l.window_seconds, l.stretch LIMIT 1
            ) AS n
        )
        -- Each window's oldest stretch.
        SELECT a.* FROM (
            SELECT k.*, w.length, clock_timestamp() - 2 * w.length - interval '7 days' AS before
            FROM kept k CROSS JOIN LATERAL (SELECT make_interval(secs => k.window_seconds) AS length) AS w
        ) AS a
        WHERE a.stretch < stretch_of(a.before, a.window_seconds)
    LOOP
        SELECT least(
            v_kept.before,
            (SELECT min(r.started_at) FROM runs r WHERE r.tenant_id = v_kept.tenant_id AND r.state = 'running')
                - v_kept.length,
            (SELECT min(r.started_at) FROM runs r WHERE r.tenant_id = v_kept.tenant_id AND r.state = 'suspended')
                - v_kept.length,
            (SELECT min(r.started_at) FROM runs r WHERE r.tenant_id = v_kept.tenant_id AND r.state = 'queued')
                - v_kept.length
        ) INTO v_before;
        DELETE FROM ledger l USING (
            SELECT o.stretch FROM ledger o
            WHERE o.tenant_id = v_kept.tenant_id AND o.window_seconds = v_kept.window_seconds
                AND o.stretch < stretch_of(v_before, v_kept.window_seconds)
            ORDER BY o.stretch LIMIT p_limit - v_forgotten
        ) AS o
        WHERE l.tenant_id = v_kept.tenant_id AND l.window_seconds = v_kept.window_seconds AND l.stretch = o.stretch;
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
        v_forgotten := v_forgotten + v_deleted;
        EXIT WHEN v_forgotten >= p_limit;
    END LOOP;
    RETURN v_forgotten;
END
$$;

REVOKE ALL ON FUNCTION take_from_root, lower_holds, amount_of, stretch_of, ceilings_used, ledger_room, refuse_call,
    charge_ledger, forget_ledger FROM PUBLIC;
GRANT EXECUTE ON FUNCTION amount_of, stretch_of, ceilings_used, ledger_room, refuse_call, charge_ledger, forget_ledger
    TO runwright_app;
GRANT EXECUTE ON FUNCTION stretch_of TO runwright_scheduler;

GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION forget_ledger OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
