-- The same functions with more arguments, which have defaults: processes of the release before go on calling them. The
-- ledger comes last in the order of locks, and windows in it by their length.
DROP FUNCTION submit_run, append_events;

-- No row comes back for an unknown session, for an unknown run to go on from, and for one that another run has gone on
-- from already. p_needs is sorted.
CREATE FUNCTION submit_run(
    p_tenant text, p_run text, p_agent text, p_agent_version integer, p_input text, p_context text, p_caller text,
    p_subject text, p_model text, p_deadline_at timestamptz, p_budget text, p_max_llm_calls integer,
    p_priority integer, p_metadata text, p_metadata_keys text[], p_metadata_values text[], p_event text,
    p_output_schema text DEFAULT NULL, p_session text DEFAULT NULL, p_team text DEFAULT NULL,
    p_needs text[] DEFAULT NULL, p_resumes text DEFAULT NULL, p_first text DEFAULT NULL,
    p_resolutions text DEFAULT NULL, p_on_ledger_error text DEFAULT 'fail'
) RETURNS SETOF runs
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz;
    v_day date;
    v_seq integer;
    v_blocked boolean := false;
    v_lane text := '';
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    IF p_resumes IS NOT NULL THEN
        -- Two that go on from one run come one after the other.
        PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = p_session FOR NO KEY UPDATE;
        -- The mark outlives the run that goes on: what that has done is not done again when it was erased.
        UPDATE runs r SET resumed_by = p_run
        WHERE r.tenant_id = p_tenant AND r.run_id = p_resumes AND r.resumed_by IS NULL;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF p_session IS NOT NULL THEN
        -- From here on no other run of the session is accepted or ends.
        UPDATE sessions s SET last_seq = s.last_seq + 1, updated_at = clock_timestamp()
        WHERE s.tenant_id = p_tenant AND s.session_id = p_session RETURNING s.last_seq INTO v_seq;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        v_blocked := EXISTS (
            SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session
                AND r.state IN ('queued', 'running', 'suspended'));
    END IF;
    IF cardinality(p_needs) > 0 THEN
        v_lane := left(encode(sha256(convert_to(array_to_string(p_needs, E'\n'), 'UTF8')), 'hex'), 16);
        INSERT INTO lanes (lane, names) VALUES (v_lane, p_needs) ON CONFLICT DO NOTHING;
    END IF;
    v_now := clock_timestamp();
    v_day := (v_now AT TIME ZONE 'UTC')::date;
    RETURN QUERY
        INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, caller, subject,
            model, deadline_at, budget, max_llm_calls, priority, metadata, created_at, queued_at, last_seq,
            output_schema, session_id, session_seq, blocked, team, state_owner, lane, resumes, first_run_id,
            resolutions, on_ledger_error)
        VALUES (p_tenant, p_run, v_day, 'queued', p_agent, p_agent_version, p_input, p_context, p_caller, p_subject,
            p_model, p_deadline_at, p_budget, p_max_llm_calls, p_priority, p_metadata, v_now, v_now, 1,
            p_output_schema, p_session, v_seq, v_blocked, p_team, p_agent, v_lane, p_resumes, p_first,
            p_resolutions, p_on_ledger_error)
        RETURNING *;
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    VALUES (p_tenant, v_day, p_run, 1, 'run_queued', v_now, 0, p_event);
    INSERT INTO run_metadata (tenant_id, key, value, run_id)
    SELECT p_tenant, m.key, m.value, p_run FROM unnest(p_metadata_keys, p_metadata_values) AS m (key, value);
END
$$;

-- Promise 4: the fence is compared in the statement that takes the row. No row comes back when it is old.
-- p_after is the number of the last event that the caller knows: an append whose answer was lost may be sent again,
-- and is then answered with what it stored the first time. p_root is the root of a run below another one. A root that
-- is to be suspended is queued instead where nothing keeps it waiting: a decision, a cancel or the deadline came
-- between the question and this append. What the run has used since its last append is charged to its tenant's
-- ceilings, and p_held_ is what is reserved after it (null: nothing). p_announces: a call is about to go out. Where a
-- ceiling has no room for it, nothing is stored, and one row tells of that alone; RW001 where nobody can tell.
CREATE FUNCTION append_events(
    p_tenant text, p_run text, p_fence bigint, p_after integer, p_kinds text[], p_payloads text[], p_state text,
    p_input_tokens bigint, p_cached_tokens bigint, p_output_tokens bigint, p_usage_source text,
    p_model_calls integer, p_tool_calls integer, p_output_text text, p_error_code text, p_error_detail text,
    p_prompt_version text, p_prompt_fingerprint text, p_model text, p_input text, p_cost numeric DEFAULT NULL,
    p_root text DEFAULT NULL, p_iterations integer DEFAULT NULL, p_items text DEFAULT NULL,
    p_last_agent text DEFAULT NULL, p_state_keys text[] DEFAULT NULL, p_state_values text[] DEFAULT NULL,
    p_asked text DEFAULT NULL, p_closed text[] DEFAULT NULL, p_closed_statuses text[] DEFAULT NULL,
    p_held_cost numeric DEFAULT NULL, p_held_input bigint DEFAULT NULL, p_held_output bigint DEFAULT NULL,
    p_announces boolean DEFAULT false
) RETURNS TABLE (seq integer, at timestamptz, refused text)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_count integer := cardinality(p_kinds);
    v_ends boolean := p_state NOT IN ('queued', 'running', 'suspended');
    v_state text := p_state;
    v_first integer;
    v_day date;
    v_at timestamptz;
    v_session text;
    v_session_seq integer;
    v_blocked boolean;
    v_owner text;
    v_caller text;
    v_resumes text;
    v_now timestamptz;
    v_old record;
    v_cost numeric;
    v_input bigint;
    v_output bigint;
    v_model_calls bigint;
    v_tool_calls bigint;
    v_active_us bigint;
    v_is_charged boolean := false;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    IF p_root IS NOT NULL THEN
        PERFORM FROM runs o WHERE o.tenant_id = p_tenant AND o.run_id = p_root AND o.fence = p_fence
            AND o.state = 'running' FOR SHARE;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    ELSIF v_ends THEN
        SELECT r.session_id INTO v_session FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run;
        IF v_session IS NOT NULL THEN
            PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = v_session FOR NO KEY UPDATE;
        END IF;
    ELSIF p_state = 'suspended' THEN
        -- Locked first and looked at then: whoever decides takes this lock too, and nobody's answer is overlooked.
        PERFORM FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence FOR NO KEY UPDATE;
        IF EXISTS (
            SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run
                AND (r.cancel_requested_at IS NOT NULL OR r.deadline_at <= clock_timestamp())
        ) OR (p_asked IS NULL AND NOT EXISTS (
            SELECT FROM approvals a WHERE a.tenant_id = p_tenant AND a.root_run_id = p_run AND a.status = 'pending'
                AND a.approval_id <> ALL (coalesce(p_closed, '{}'))
        )) THEN
            v_state := 'queued';
        END IF;
    END IF;
    -- Where there were ceilings until now, what was reserved goes.
    IF EXISTS (SELECT FROM ceilings c WHERE c.tenant_id = p_tenant)
        OR EXISTS (SELECT FROM ledger_holds h WHERE h.tenant_id = p_tenant AND h.run_id = p_run)
    THEN
        SELECT r.cost, r.input_tokens, r.output_tokens, r.model_calls, r.tool_calls, r.last_event_at, r.last_event_fence
        INTO v_old FROM runs r
        WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence AND r.state = 'running'
            AND (p_after IS NULL OR r.last_seq = p_after) AND r.root_run_id IS NOT DISTINCT FROM p_root
        FOR NO KEY UPDATE;
        v_is_charged := FOUND;
    END IF;
    IF v_is_charged THEN
        v_now := clock_timestamp();
        v_cost := coalesce(p_cost, 0) - coalesce(v_old.cost, 0);
        v_input := p_input_tokens - v_old.input_tokens;
        v_output := p_output_tokens - v_old.output_tokens;
        v_model_calls := p_model_calls - v_old.model_calls;
        v_tool_calls := p_tool_calls - v_old.tool_calls;
        v_active_us := CASE WHEN p_root IS NULL AND v_old.last_event_fence = p_fence
            THEN greatest(0, extract(epoch FROM v_now - v_old.last_event_at) * 1000000) ELSE 0 END;
        IF p_announces THEN
            refused := refuse_call(p_tenant, p_run, p_root, v_cost + coalesce(p_held_cost, 0),
                v_input + coalesce(p_held_input, 0), v_output + coalesce(p_held_output, 0), v_model_calls,
                v_tool_calls, v_active_us);
            IF refused IS NOT NULL THEN
                RETURN NEXT;
                RETURN;
            END IF;
            -- Nobody waits longer for the ledger below, either.
            PERFORM set_config('lock_timeout', '2s', true);
        END IF;
    END IF;
    UPDATE runs r SET
        state = v_state,
        last_seq = r.last_seq + v_count,
        input_tokens = p_input_tokens,
        cached_tokens = p_cached_tokens,
        output_tokens = p_output_tokens,
        usage_source = p_usage_source,
        model_calls = p_model_calls,
        tool_calls = p_tool_calls,
        iterations = coalesce(p_iterations, r.iterations),
        output_text = p_output_text,
        error_code = p_error_code,
        error_detail = p_error_detail,
        prompt_version = p_prompt_version,
        prompt_fingerprint = p_prompt_fingerprint,
        model = coalesce(p_model, r.model),
        input = coalesce(p_input, r.input),
        cost = p_cost,
        worker_id = CASE WHEN v_state = 'running' THEN r.worker_id END,
        lease_expires_at = CASE WHEN v_state = 'running' THEN r.lease_expires_at END,
        queued_at = CASE WHEN v_state = 'queued' THEN clock_timestamp() ELSE r.queued_at END,
        (last_event_at, last_event_fence, active_us, ended_at) = (
            SELECT n.at, p_fence,
                r.active_us + CASE WHEN p_root IS NULL AND r.last_event_fence = p_fence
                    THEN greatest(0, extract(epoch FROM n.at - r.last_event_at) * 1000000)::bigint ELSE 0 END,
                CASE WHEN v_ends THEN n.at END
            -- One instant, looked at when the row is ours.
            FROM (SELECT coalesce(v_now, clock_timestamp()) AS at OFFSET 0) AS n)
    WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence AND r.state = 'running'
        AND (p_after IS NULL OR r.last_seq = p_after) AND r.root_run_id IS NOT DISTINCT FROM p_root
    RETURNING r.last_seq - v_count, r.run_day, r.last_event_at, r.session_id, r.session_seq,
        r.blocked, coalesce(r.state_owner, r.agent), r.caller, r.resumes
    INTO v_first, v_day, v_at, v_session, v_session_seq, v_blocked, v_owner, v_caller, v_resumes;
    IF FOUND THEN
        RETURN QUERY
            INSERT INTO events AS e (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
            SELECT p_tenant, v_day, p_run, v_first + n.place::integer, n.kind, v_at, p_fence, n.payload
            FROM unnest(p_kinds, p_payloads) WITH ORDINALITY AS n (kind, payload, place)
            ORDER BY n.place
            RETURNING e.seq, e.at, NULL::text;
        IF v_ends AND v_session IS NOT NULL THEN
            PERFORM end_turn(p_tenant, v_session, v_session_seq, p_run, v_at,
                CASE WHEN NOT v_blocked THEN p_items END, CASE WHEN NOT v_blocked THEN p_last_agent END);
        END IF;
        IF p_state_keys IS NOT NULL THEN
            PERFORM store_state(p_tenant, v_session, v_owner, v_caller, p_state_keys, p_state_values);
        END IF;
        IF p_asked IS NOT NULL THEN
            PERFORM put_questions(p_tenant, p_run, v_at, p_asked);
        END IF;
        IF p_closed IS NOT NULL THEN
            -- What somebody has decided meanwhile stays.
            UPDATE approvals a SET status = c.status, decided_at = v_at
            FROM unnest(p_closed, p_closed_statuses) AS c (approval_id, status)
            WHERE a.tenant_id = p_tenant AND a.approval_id = c.approval_id AND a.run_id = p_run
                AND a.status = 'pending';
        END IF;
        IF v_ends THEN
            PERFORM end_questions(p_tenant, p_run, p_root, v_at);
            IF v_resumes IS NOT NULL AND p_items IS NOT NULL AND NOT v_blocked THEN
                PERFORM empty_turns(p_tenant, p_run);
            END IF;
            IF p_root IS NULL THEN
                PERFORM enqueue_deliveries(p_tenant, 'run.terminated', p_run, p_run, v_at);
            END IF;
        END IF;
        IF v_is_charged THEN
            -- The last lock: nobody waits for the ledger longer than a commit takes.
            PERFORM charge_ledger(p_tenant, p_run, v_at, v_cost, v_input, v_output, v_model_calls, v_tool_calls,
                v_active_us, p_usage_source <> 'provider' AND (v_input | v_output) <> 0,
                CASE WHEN NOT v_ends THEN p_held_cost END, p_held_input, p_held_output, p_announces);
        END IF;
    ELSIF p_after IS NOT NULL THEN
        RETURN QUERY
            WITH stored AS (
                SELECT e.seq, e.at, e.kind, e.payload FROM runs r
                JOIN events e ON e.tenant_id = r.tenant_id AND e.run_day = r.run_day AND e.run_id = r.run_id
                WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence
                    AND r.last_seq = p_after + v_count AND e.seq > p_after AND e.fence = p_fence
            )
            SELECT s.seq, s.at, NULL::text FROM stored s
            WHERE p_kinds = (SELECT array_agg(o.kind ORDER BY o.seq) FROM stored o)
                AND p_payloads = (SELECT array_agg(o.payload ORDER BY o.seq) FROM stored o)
            ORDER BY s.seq;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION submit_run, append_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION submit_run, append_events TO runwright_app;
