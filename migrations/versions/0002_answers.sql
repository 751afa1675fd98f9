-- Both are null where nothing was asked for or nothing has a price; no row is written again for them.
ALTER TABLE runs ADD COLUMN output_schema text, ADD COLUMN cost numeric;

-- The same functions with one argument more. It has a default: processes of the release before go on calling them.
DROP FUNCTION submit_run, append_events;

CREATE FUNCTION submit_run(
    p_tenant text, p_run text, p_agent text, p_agent_version integer, p_input text, p_context text, p_caller text,
    p_subject text, p_model text, p_deadline_at timestamptz, p_budget text, p_max_llm_calls integer,
    p_priority integer, p_metadata text, p_metadata_keys text[], p_metadata_values text[], p_event text,
    p_output_schema text DEFAULT NULL
) RETURNS SETOF runs
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_day date := (v_now AT TIME ZONE 'UTC')::date;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    RETURN QUERY
        INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, caller, subject,
            model, deadline_at, budget, max_llm_calls, priority, metadata, created_at, queued_at, last_seq,
            output_schema)
        VALUES (p_tenant, p_run, v_day, 'queued', p_agent, p_agent_version, p_input, p_context, p_caller, p_subject,
            p_model, p_deadline_at, p_budget, p_max_llm_calls, p_priority, p_metadata, v_now, v_now, 1,
            p_output_schema)
        RETURNING *;
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    VALUES (p_tenant, v_day, p_run, 1, 'run_queued', v_now, 0, p_event);
    INSERT INTO run_metadata (tenant_id, key, value, run_id)
    SELECT p_tenant, m.key, m.value, p_run FROM unnest(p_metadata_keys, p_metadata_values) AS m (key, value);
END
$$;

-- Promise 4: the fence is compared in the statement that takes the row. No row comes back when it is old.
-- p_after is the number of the last event that the caller knows: an append whose answer was lost may be sent again,
-- and is then answered with what it stored the first time.
CREATE FUNCTION append_events(
    p_tenant text, p_run text, p_fence bigint, p_after integer, p_kinds text[], p_payloads text[], p_state text,
    p_input_tokens bigint, p_cached_tokens bigint, p_output_tokens bigint, p_usage_source text,
    p_model_calls integer, p_tool_calls integer, p_output_text text, p_error_code text, p_error_detail text,
    p_prompt_version text, p_prompt_fingerprint text, p_model text, p_input text, p_cost numeric DEFAULT NULL
) RETURNS TABLE (seq integer, at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_count integer := cardinality(p_kinds);
    v_first integer;
    v_day date;
    v_at timestamptz;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    UPDATE runs r SET
        state = p_state,
        last_seq = r.last_seq + v_count,
        input_tokens = p_input_tokens,
        cached_tokens = p_cached_tokens,
        output_tokens = p_output_tokens,
        usage_source = p_usage_source,
        model_calls = p_model_calls,
        tool_calls = p_tool_calls,
        output_text = p_output_text,
        error_code = p_error_code,
        error_detail = p_error_detail,
        prompt_version = p_prompt_version,
        prompt_fingerprint = p_prompt_fingerprint,
        model = coalesce(p_model, r.model),
        input = coalesce(p_input, r.input),
        cost = p_cost,
        worker_id = CASE WHEN p_state = 'running' THEN r.worker_id END,
        lease_expires_at = CASE WHEN p_state = 'running' THEN r.lease_expires_at END,
        queued_at = CASE WHEN p_state = 'queued' THEN clock_timestamp() ELSE r.queued_at END,
        ended_at = CASE WHEN p_state NOT IN ('queued', 'running', 'suspended') THEN clock_timestamp() END
    WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence AND r.state = 'running'
        AND (p_after IS NULL OR r.last_seq = p_after)
    RETURNING r.last_seq - v_count, r.run_day, coalesce(r.ended_at, clock_timestamp()) INTO v_first, v_day, v_at;
    IF FOUND THEN
        RETURN QUERY
            INSERT INTO events AS e (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
            SELECT p_tenant, v_day, p_run, v_first + n.place::integer, n.kind, v_at, p_fence, n.payload
            FROM unnest(p_kinds, p_payloads) WITH ORDINALITY AS n (kind, payload, place)
            ORDER BY n.place
            RETURNING e.seq, e.at;
    ELSIF p_after IS NOT NULL THEN
        RETURN QUERY
            WITH stored AS (
                SELECT e.seq, e.at, e.kind, e.payload FROM runs r
                JOIN events e ON e.tenant_id = r.tenant_id AND e.run_day = r.run_day AND e.run_id = r.run_id
                WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence
                    AND r.last_seq = p_after + v_count AND e.seq > p_after AND e.fence = p_fence
            )
            SELECT s.seq, s.at FROM stored s
            WHERE p_kinds = (SELECT array_agg(o.kind ORDER BY o.seq) FROM stored o)
                AND p_payloads = (SELECT array_agg(o.payload ORDER BY o.seq) FROM stored o)
            ORDER BY s.seq;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION submit_run, append_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION submit_run, append_events TO runwright_app;
