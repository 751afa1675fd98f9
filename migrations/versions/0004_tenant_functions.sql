-- The same functions with more arguments, which have defaults: processes of the release before go on calling them.
-- Locks are taken in one order everywhere: session, root, run below it, question, next run of the session, state.
DROP FUNCTION submit_run, append_events, load_run;

-- The runs that this one goes on from, the first one first.
CREATE FUNCTION runs_before(p_tenant text, p_run text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_runs text[];
BEGIN
    WITH RECURSIVE before AS (
        SELECT r.resumes AS run_id, 1 AS step FROM runs r
        WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.resumes IS NOT NULL
        UNION ALL
        SELECT r.resumes, b.step + 1 FROM before b
        JOIN runs r ON r.tenant_id = p_tenant AND r.run_id = b.run_id AND r.resumes IS NOT NULL
    )
    SELECT array_agg(b.run_id ORDER BY b.step DESC) INTO v_runs FROM before b;
    RETURN coalesce(v_runs, '{}');
END
$$;

-- Keeps the questions that a run has put to people, with what its row tells of it.
CREATE FUNCTION put_questions(p_tenant text, p_run text, p_at timestamptz, p_asked text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    INSERT INTO approvals (tenant_id, approval_id, run_id, root_run_id, agent, tool, call_id, kind, dispatch,
        arguments_digest, summary, reason, flagged, caller, subject, requested_at, expires_at)
    SELECT p_tenant, a.approval_id, p_run, coalesce(r.root_run_id, r.run_id), a.agent, a.tool, a.call_id, a.kind,
        a.dispatch, a.arguments_digest, a.summary, a.reason, a.flagged, r.caller, r.subject, p_at,
        CASE WHEN a.asked_at IS NULL THEN to_timestamp(a.expires_at)
            ELSE p_at + make_interval(secs => a.expires_at - a.asked_at) END
    FROM json_to_recordset(p_asked::json) AS a (approval_id text, agent text, tool text, call_id text, kind text,
        dispatch integer, arguments_digest text, summary text, reason text, flagged boolean,
        expires_at double precision, asked_at double precision)
    JOIN runs r ON r.tenant_id = p_tenant AND r.run_id = p_run;
    PERFORM enqueue_deliveries(p_tenant, 'approval.requested', a.approval_id, p_run, p_at)
    FROM json_to_recordset(p_asked::json) AS a (approval_id text);
END
$$;

-- Nobody has to answer what an ended run has asked, or a run below it.
CREATE FUNCTION end_questions(p_tenant text, p_run text, p_root text, p_at timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    UPDATE approvals a SET status = 'cancelled', decided_at = p_at
    WHERE a.tenant_id = p_tenant AND a.root_run_id = coalesce(p_root, p_run) AND a.status = 'pending'
        AND (p_root IS NULL OR a.run_id = p_run);
END
$$;

-- The run tells in its own part of the history what those said that it goes on from. The owner's: the service itself may
-- change none of it.
CREATE FUNCTION empty_turns(p_tenant text, p_run text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    UPDATE session_items i SET messages = '[]'
    FROM unnest(runs_before(p_tenant, p_run)) AS b (run_id)
    JOIN runs r ON r.tenant_id = p_tenant AND r.run_id = b.run_id
    WHERE i.tenant_id = p_tenant AND i.session_id = r.session_id AND i.session_seq = r.session_seq;
END
$$;

-- A question as it stands now; lapsed: its time is over, whoever has written that down or not.
CREATE FUNCTION find_approval(p_tenant text, p_approval text) RETURNS TABLE (approval approvals, lapsed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    RETURN QUERY
        SELECT a, a.expires_at IS NOT NULL AND a.expires_at <= clock_timestamp() FROM approvals a
        WHERE a.tenant_id = p_tenant AND a.approval_id = p_approval;
END
$$;

-- No row comes back for an unknown session, for an unknown run to go on from, and for one that another run has gone on
-- from already. p_needs is sorted.
CREATE FUNCTION submit_run(
    p_tenant text, p_run text, p_agent text, p_agent_version integer, p_input text, p_context text, p_caller text,
    p_subject text, p_model text, p_deadline_at timestamptz, p_budget text, p_max_llm_calls integer,
    p_priority integer, p_metadata text, p_metadata_keys text[], p_metadata_values text[], p_event text,
    p_output_schema text DEFAULT NULL, p_session text DEFAULT NULL, p_team text DEFAULT NULL,
    p_needs text[] DEFAULT NULL, p_resumes text DEFAULT NULL, p_first text DEFAULT NULL,
    p_resolutions text DEFAULT NULL
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
            resolutions)
        VALUES (p_tenant, p_run, v_day, 'queued', p_agent, p_agent_version, p_input, p_context, p_caller, p_subject,
            p_model, p_deadline_at, p_budget, p_max_llm_calls, p_priority, p_metadata, v_now, v_now, 1,
            p_output_schema, p_session, v_seq, v_blocked, p_team, p_agent, v_lane, p_resumes, p_first,
            p_resolutions)
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
-- is to be suspended is queued instead where nothing keeps it waiting: a decision, a cancel or the deadline came between
-- the question and this append.
CREATE FUNCTION append_events(
    p_tenant text, p_run text, p_fence bigint, p_after integer, p_kinds text[], p_payloads text[], p_state text,
    p_input_tokens bigint, p_cached_tokens bigint, p_output_tokens bigint, p_usage_source text,
    p_model_calls integer, p_tool_calls integer, p_output_text text, p_error_code text, p_error_detail text,
    p_prompt_version text, p_prompt_fingerprint text, p_model text, p_input text, p_cost numeric DEFAULT NULL,
    p_root text DEFAULT NULL, p_iterations integer DEFAULT NULL, p_items text DEFAULT NULL,
    p_last_agent text DEFAULT NULL, p_state_keys text[] DEFAULT NULL, p_state_values text[] DEFAULT NULL,
    p_asked text DEFAULT NULL, p_closed text[] DEFAULT NULL, p_closed_statuses text[] DEFAULT NULL
) RETURNS TABLE (seq integer, at timestamptz)
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
        ended_at = CASE WHEN v_ends THEN clock_timestamp() END
    WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence AND r.state = 'running'
        AND (p_after IS NULL OR r.last_seq = p_after) AND r.root_run_id IS NOT DISTINCT FROM p_root
    RETURNING r.last_seq - v_count, r.run_day, coalesce(r.ended_at, clock_timestamp()), r.session_id, r.session_seq,
        r.blocked, coalesce(r.state_owner, r.agent), r.caller, r.resumes
    INTO v_first, v_day, v_at, v_session, v_session_seq, v_blocked, v_owner, v_caller, v_resumes;
    IF FOUND THEN
        RETURN QUERY
            INSERT INTO events AS e (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
            SELECT p_tenant, v_day, p_run, v_first + n.place::integer, n.kind, v_at, p_fence, n.payload
            FROM unnest(p_kinds, p_payloads) WITH ORDINALITY AS n (kind, payload, place)
            ORDER BY n.place
            RETURNING e.seq, e.at;
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

-- All that a drive needs. No row comes back when the claim no longer holds. p_root is the root of a run below another
-- one: then definition and team are the root's. before_ tells the logs of the runs that it goes on from, the first run's
-- first; what those left in the history is not in it.
CREATE FUNCTION load_run(p_tenant text, p_run text, p_fence bigint, p_root text DEFAULT NULL)
RETURNS TABLE (run runs, definition text, seqs integer[], kinds text[], instants timestamptz[], payloads text[],
    team_names text[], team_definitions text[], history text[], last_agent text, state_keys text[],
    state_values text[], children text, before_runs text[], before_seqs integer[], before_kinds text[],
    before_instants timestamptz[], before_payloads text[])
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_session text;
    v_session_seq integer;
    v_owner text;
    v_caller text;
    v_agent text;
    v_version integer;
    v_team text;
    v_resumes text;
    v_before text[] := '{}';
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    SELECT r.session_id, r.session_seq, coalesce(r.state_owner, r.agent), r.caller, r.agent, r.agent_version, r.team,
        r.resumes
    INTO v_session, v_session_seq, v_owner, v_caller, v_agent, v_version, v_team, v_resumes
    FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run;
    IF p_root IS NOT NULL THEN
        -- What an agent may do below another one is the root's to say, not its own definition's.
        SELECT o.agent, o.agent_version, o.team INTO v_agent, v_version, v_team FROM runs o
        WHERE o.tenant_id = p_tenant AND o.run_id = p_root AND o.fence = p_fence AND o.state = 'running';
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF v_team IS NOT NULL THEN
        SELECT array_agg(v.name), array_agg(v.definition) INTO team_names, team_definitions
        FROM json_each_text(v_team::json) AS t (name, version)
        JOIN agent_versions v ON v.tenant_id = p_tenant AND v.name = t.name AND v.version = t.version::integer;
    END IF;
    IF v_resumes IS NOT NULL THEN
        v_before := runs_before(p_tenant, p_run);
        SELECT array_agg(e.run_id ORDER BY b.place, e.seq), array_agg(e.seq ORDER BY b.place, e.seq),
            array_agg(e.kind ORDER BY b.place, e.seq), array_agg(e.at ORDER BY b.place, e.seq),
            array_agg(e.payload ORDER BY b.place, e.seq)
        INTO before_runs, before_seqs, before_kinds, before_instants, before_payloads
        FROM unnest(v_before) WITH ORDINALITY AS b (run_id, place)
        JOIN runs r ON r.tenant_id = p_tenant AND r.run_id = b.run_id
        JOIN events e ON e.tenant_id = p_tenant AND e.run_day = r.run_day AND e.run_id = r.run_id;
    END IF;
    IF v_session IS NOT NULL THEN
        SELECT array_agg(i.messages ORDER BY i.session_seq) INTO history FROM session_items i
        WHERE i.tenant_id = p_tenant AND i.session_id = v_session AND i.session_seq < v_session_seq
            AND i.run_id <> ALL (v_before);
        SELECT s.last_agent INTO last_agent FROM sessions s
        WHERE s.tenant_id = p_tenant AND s.session_id = v_session;
    END IF;
    SELECT array_agg(e.key), array_agg(e.value) INTO state_keys, state_values FROM state_entries e
    WHERE e.tenant_id = p_tenant AND ((e.scope = 'app' AND e.owner = v_owner)
        OR (e.scope = 'user' AND e.owner = v_owner || '/' || v_caller)
        OR (e.scope = 'session' AND e.owner = v_session));
    IF EXISTS (SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.parent_run_id = p_run) THEN
        WITH RECURSIVE below AS (
            SELECT r.run_id FROM runs r WHERE r.tenant_id = p_tenant AND r.parent_run_id = p_run
            UNION ALL
            SELECT r.run_id FROM below b JOIN runs r ON r.tenant_id = p_tenant AND r.parent_run_id = b.run_id
        )
        SELECT json_agg(json_build_object('run_id', r.run_id, 'parent_run_id', r.parent_run_id,
            'input_tokens', r.input_tokens, 'cached_tokens', r.cached_tokens, 'output_tokens', r.output_tokens,
            'source', r.usage_source, 'cost', r.cost::text, 'model_calls', r.model_calls, 'tool_calls', r.tool_calls,
            'iterations', r.iterations) ORDER BY r.created_at, r.run_id) INTO children
        FROM below b JOIN runs r ON r.tenant_id = p_tenant AND r.run_id = b.run_id;
    END IF;
    RETURN QUERY
        SELECT r, v.definition, log.seqs, log.kinds, log.instants, log.payloads, team_names, team_definitions,
            history, last_agent, state_keys, state_values, children, before_runs, before_seqs, before_kinds,
            before_instants, before_payloads
        FROM runs r
        JOIN agent_versions v ON v.tenant_id = r.tenant_id AND v.name = v_agent AND v.version = v_version
        CROSS JOIN LATERAL (
            SELECT array_agg(e.seq ORDER BY e.seq) AS seqs, array_agg(e.kind ORDER BY e.seq) AS kinds,
                array_agg(e.at ORDER BY e.seq) AS instants, array_agg(e.payload ORDER BY e.seq) AS payloads
            FROM events e
            WHERE e.tenant_id = r.tenant_id AND e.run_day = r.run_day AND e.run_id = r.run_id
        ) AS log
        WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence AND r.state = 'running'
            AND r.root_run_id IS NOT DISTINCT FROM p_root;
END
$$;

REVOKE ALL ON FUNCTION runs_before, put_questions, end_questions, empty_turns, find_approval, submit_run, append_events,
    load_run FROM PUBLIC;
GRANT EXECUTE ON FUNCTION runs_before, put_questions, end_questions, empty_turns, find_approval, submit_run,
    append_events, load_run TO runwright_app;
