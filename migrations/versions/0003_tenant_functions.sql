-- The same functions with more arguments, which have defaults: processes of the release before go on calling them.
-- Locks are taken in one order everywhere: session, root, run below it, next run of the session, state.
DROP FUNCTION submit_run, append_events, load_run;

-- Stores changes of state, each where its key's prefix says; a value of null deletes the key. Keys that have nobody to
-- be kept for are left out. One after the other in one order: two runs of one user never wait for each other.
CREATE FUNCTION store_state(
    p_tenant text, p_session text, p_agent text, p_caller text, p_keys text[], p_values text[]
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_change record;
BEGIN
    FOR v_change IN
        SELECT s.scope, s.owner, s.key, s.value FROM (
            SELECT 'app' AS scope, p_agent AS owner, c.key, c.value
            FROM unnest(p_keys, p_values) AS c (key, value) WHERE starts_with(c.key, 'app:')
            UNION ALL
            SELECT 'user', p_agent || '/' || p_caller, c.key, c.value
            FROM unnest(p_keys, p_values) AS c (key, value) WHERE starts_with(c.key, 'user:')
            UNION ALL
            SELECT 'session', p_session, c.key, c.value
            FROM unnest(p_keys, p_values) AS c (key, value)
            WHERE NOT starts_with(c.key, 'app:') AND NOT starts_with(c.key, 'user:') AND NOT starts_with(c.key, 'temp:')
        ) AS s
        WHERE s.owner IS NOT NULL ORDER BY s.scope, s.owner, s.key
    LOOP
        IF v_change.value IS NULL THEN
            DELETE FROM state_entries e
            WHERE e.tenant_id = p_tenant AND e.scope = v_change.scope AND e.owner = v_change.owner
                AND e.key_digest = sha256(convert_to(v_change.key, 'UTF8'));
        ELSE
            INSERT INTO state_entries (tenant_id, scope, owner, key_digest, key, value)
            VALUES (p_tenant, v_change.scope, v_change.owner, sha256(convert_to(v_change.key, 'UTF8')), v_change.key,
                v_change.value)
            ON CONFLICT (tenant_id, scope, owner, key_digest) DO UPDATE SET value = excluded.value;
        END IF;
    END LOOP;
END
$$;

-- No row comes back for an unknown session.
CREATE FUNCTION submit_run(
    p_tenant text, p_run text, p_agent text, p_agent_version integer, p_input text, p_context text, p_caller text,
    p_subject text, p_model text, p_deadline_at timestamptz, p_budget text, p_max_llm_calls integer,
    p_priority integer, p_metadata text, p_metadata_keys text[], p_metadata_values text[], p_event text,
    p_output_schema text DEFAULT NULL, p_session text DEFAULT NULL, p_team text DEFAULT NULL
) RETURNS SETOF runs
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz;
    v_day date;
    v_seq integer;
    v_blocked boolean := false;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
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
    v_now := clock_timestamp();
    v_day := (v_now AT TIME ZONE 'UTC')::date;
    RETURN QUERY
        INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, caller, subject,
            model, deadline_at, budget, max_llm_calls, priority, metadata, created_at, queued_at, last_seq,
            output_schema, session_id, session_seq, blocked, team, state_owner)
        VALUES (p_tenant, p_run, v_day, 'queued', p_agent, p_agent_version, p_input, p_context, p_caller, p_subject,
            p_model, p_deadline_at, p_budget, p_max_llm_calls, p_priority, p_metadata, v_now, v_now, 1,
            p_output_schema, p_session, v_seq, v_blocked, p_team, p_agent)
        RETURNING *;
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    VALUES (p_tenant, v_day, p_run, 1, 'run_queued', v_now, 0, p_event);
    INSERT INTO run_metadata (tenant_id, key, value, run_id)
    SELECT p_tenant, m.key, m.value, p_run FROM unnest(p_metadata_keys, p_metadata_values) AS m (key, value);
END
$$;

-- Takes the run below another one, under the fence of their root: makes it, or goes on with it. One that has ended
-- comes back as it is. No row comes back when the fence is old or the parent does not run.
CREATE FUNCTION adopt_run(
    p_tenant text, p_root text, p_parent text, p_fence bigint, p_worker text, p_run text, p_agent text,
    p_agent_version integer, p_input text, p_context text, p_caller text, p_subject text, p_model text,
    p_deadline_at timestamptz, p_budget text, p_max_llm_calls integer, p_priority integer, p_metadata text,
    p_metadata_keys text[], p_metadata_values text[], p_event text, p_output_schema text, p_team text,
    p_depth integer, p_path text[]
) RETURNS SETOF runs
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_now timestamptz;
    v_day date;
    v_owner text;
    v_recoveries integer;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    -- Locked until the end: nobody else claims the root meanwhile.
    SELECT coalesce(o.state_owner, o.agent), o.recoveries INTO v_owner, v_recoveries
    FROM runs o WHERE o.tenant_id = p_tenant AND o.run_id = p_root AND o.fence = p_fence AND o.state = 'running'
        AND o.parent_run_id IS NULL FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_parent <> p_root AND NOT EXISTS (
        SELECT FROM runs o WHERE o.tenant_id = p_tenant AND o.run_id = p_parent AND o.root_run_id = p_root
            AND o.fence = p_fence AND o.state = 'running'
    ) THEN
        RETURN;
    END IF;
    RETURN QUERY
        UPDATE runs r SET
            state = 'running',
            -- It was left running by a claim that was lost, perhaps; its root has counted that, and knows the most.
            recoveries = CASE WHEN r.state = 'running' AND r.fence < p_fence
                THEN least(r.recoveries + 1, v_recoveries) ELSE r.recoveries END,
            fence = p_fence,
            worker_id = p_worker
        WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.parent_run_id = p_parent
            AND r.state IN ('running', 'suspended')
        RETURNING r.*;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT r.* FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.parent_run_id = p_parent;
    IF FOUND THEN
        RETURN;
    END IF;
    v_now := clock_timestamp();
    v_day := (v_now AT TIME ZONE 'UTC')::date;
    RETURN QUERY
        INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, caller, subject,
            model, deadline_at, budget, max_llm_calls, priority, metadata, created_at, queued_at, started_at, last_seq,
            output_schema, fence, worker_id, parent_run_id, root_run_id, depth, path, team, state_owner)
        VALUES (p_tenant, p_run, v_day, 'running', p_agent, p_agent_version, p_input, p_context, p_caller, p_subject,
            p_model, p_deadline_at, p_budget, p_max_llm_calls, p_priority, p_metadata, v_now, v_now, v_now, 1,
            p_output_schema, p_fence, p_worker, p_parent, p_root, p_depth, p_path, p_team, v_owner)
        RETURNING *;
    INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)
    VALUES (p_tenant, v_day, p_run, 1, 'run_queued', v_now, p_fence, p_event);
    INSERT INTO run_metadata (tenant_id, key, value, run_id)
    SELECT p_tenant, m.key, m.value, p_run FROM unnest(p_metadata_keys, p_metadata_values) AS m (key, value);
END
$$;

-- Promise 4: the fence is compared in the statement that takes the row. No row comes back when it is old.
-- p_after is the number of the last event that the caller knows: an append whose answer was lost may be sent again,
-- and is then answered with what it stored the first time. p_root is the root of a run below another one.
CREATE FUNCTION append_events(
    p_tenant text, p_run text, p_fence bigint, p_after integer, p_kinds text[], p_payloads text[], p_state text,
    p_input_tokens bigint, p_cached_tokens bigint, p_output_tokens bigint, p_usage_source text,
    p_model_calls integer, p_tool_calls integer, p_output_text text, p_error_code text, p_error_detail text,
    p_prompt_version text, p_prompt_fingerprint text, p_model text, p_input text, p_cost numeric DEFAULT NULL,
    p_root text DEFAULT NULL, p_iterations integer DEFAULT NULL, p_items text DEFAULT NULL,
    p_last_agent text DEFAULT NULL, p_state_keys text[] DEFAULT NULL, p_state_values text[] DEFAULT NULL
) RETURNS TABLE (seq integer, at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_count integer := cardinality(p_kinds);
    v_ends boolean := p_state NOT IN ('queued', 'running', 'suspended');
    v_first integer;
    v_day date;
    v_at timestamptz;
    v_session text;
    v_session_seq integer;
    v_blocked boolean;
    v_owner text;
    v_caller text;
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
    END IF;
    UPDATE runs r SET
        state = p_state,
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
        worker_id = CASE WHEN p_state = 'running' THEN r.worker_id END,
        lease_expires_at = CASE WHEN p_state = 'running' THEN r.lease_expires_at END,
        queued_at = CASE WHEN p_state = 'queued' THEN clock_timestamp() ELSE r.queued_at END,
        ended_at = CASE WHEN v_ends THEN clock_timestamp() END
    WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence AND r.state = 'running'
        AND (p_after IS NULL OR r.last_seq = p_after) AND r.root_run_id IS NOT DISTINCT FROM p_root
    RETURNING r.last_seq - v_count, r.run_day, coalesce(r.ended_at, clock_timestamp()), r.session_id, r.session_seq,
        r.blocked, coalesce(r.state_owner, r.agent), r.caller
    INTO v_first, v_day, v_at, v_session, v_session_seq, v_blocked, v_owner, v_caller;
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

-- What the end of a run means for its session, which is locked: its part of the history, and the next one's turn.
CREATE FUNCTION end_turn(
    p_tenant text, p_session text, p_seq integer, p_run text, p_at timestamptz, p_items text, p_last_agent text
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    IF p_items IS NOT NULL THEN
        INSERT INTO session_items (tenant_id, session_id, session_seq, run_id, messages, created_at)
        VALUES (p_tenant, p_session, p_seq, p_run, p_items, p_at);
    END IF;
    UPDATE sessions s SET last_agent = coalesce(p_last_agent, s.last_agent), updated_at = p_at
    WHERE s.tenant_id = p_tenant AND s.session_id = p_session;
    UPDATE runs r SET
        blocked = false,
        queued_at = CASE WHEN r.state = 'queued' THEN clock_timestamp() ELSE r.queued_at END
    WHERE r.tenant_id = p_tenant AND r.blocked AND r.run_id = (
        SELECT n.run_id FROM runs n WHERE n.tenant_id = p_tenant AND n.session_id = p_session
            AND n.state IN ('queued', 'running', 'suspended') ORDER BY n.session_seq LIMIT 1);
END
$$;

-- All that a drive needs. No row comes back when the claim no longer holds. p_root is the root of a run below another
-- one: then definition and team are the root's.
CREATE FUNCTION load_run(p_tenant text, p_run text, p_fence bigint, p_root text DEFAULT NULL)
RETURNS TABLE (run runs, definition text, seqs integer[], kinds text[], instants timestamptz[], payloads text[],
    team_names text[], team_definitions text[], history text[], last_agent text, state_keys text[],
    state_values text[], children text)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_session text;
    v_session_seq integer;
    v_owner text;
    v_caller text;
    v_agent text;
    v_version integer;
    v_team text;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    SELECT r.session_id, r.session_seq, coalesce(r.state_owner, r.agent), r.caller, r.agent, r.agent_version, r.team
    INTO v_session, v_session_seq, v_owner, v_caller, v_agent, v_version, v_team
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
    IF v_session IS NOT NULL THEN
        SELECT array_agg(i.messages ORDER BY i.session_seq) INTO history FROM session_items i
        WHERE i.tenant_id = p_tenant AND i.session_id = v_session AND i.session_seq < v_session_seq;
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
            history, last_agent, state_keys, state_values, children
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

-- The next version of an artifact, in the session of the run's root, under the root's fence. No row comes back when the
-- fence is old, and version null for a run without a session.
CREATE FUNCTION save_artifact(
    p_tenant text, p_root text, p_run text, p_fence bigint, p_name text, p_content_type text, p_sha256 text,
    p_data bytea
) RETURNS TABLE (version integer)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_session text;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    SELECT r.session_id INTO v_session FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_root;
    PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = v_session FOR NO KEY UPDATE;
    PERFORM FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_root AND r.fence = p_fence
        AND r.state = 'running' FOR SHARE;
    IF NOT FOUND OR NOT EXISTS (
        SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run AND r.fence = p_fence
            AND r.state = 'running' AND coalesce(r.root_run_id, r.run_id) = p_root
    ) THEN
        RETURN;
    END IF;
    IF v_session IS NULL THEN
        RETURN QUERY SELECT NULL::integer;
    ELSE
        RETURN QUERY SELECT a.version FROM add_artifact(p_tenant, v_session, p_name, p_content_type, p_sha256, p_data,
            p_run) AS a;
    END IF;
END
$$;

-- The next version of that name in a session, which is locked by it. No row comes back for an unknown session.
CREATE FUNCTION add_artifact(
    p_tenant text, p_session text, p_name text, p_content_type text, p_sha256 text, p_data bytea, p_run text
) RETURNS TABLE (version integer, created_at timestamptz)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = p_session FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
        INSERT INTO artifacts AS n (tenant_id, session_id, name, version, content_type, size, sha256, data, created_at,
            run_id)
        SELECT p_tenant, p_session, p_name, coalesce(max(a.version), 0) + 1, p_content_type, octet_length(p_data),
            p_sha256, p_data, clock_timestamp(), p_run
        FROM artifacts a WHERE a.tenant_id = p_tenant AND a.session_id = p_session AND a.name = p_name
        RETURNING n.version, n.created_at;
END
$$;

-- Erases a session, its runs and the runs below them, with all that is kept of them. False, and nothing is erased,
-- while a run of it has not ended. The owner's: the service itself may delete none of it. Each statement names the
-- tenant.
CREATE FUNCTION erase_session(p_tenant text, p_session text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_runs text[];
    v_run record;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    PERFORM FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = p_session FOR UPDATE;
    IF EXISTS (
        SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session
            AND r.state IN ('queued', 'running', 'suspended')
    ) THEN
        RETURN false;
    END IF;
    WITH RECURSIVE doomed AS (
        SELECT r.run_id FROM runs r WHERE r.tenant_id = p_tenant AND r.session_id = p_session
        UNION ALL
        SELECT r.run_id FROM doomed d JOIN runs r ON r.tenant_id = p_tenant AND r.parent_run_id = d.run_id
    )
    SELECT array_agg(d.run_id) INTO v_runs FROM doomed d;
    FOR v_run IN SELECT r.run_day, r.run_id FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = ANY (v_runs)
    LOOP
        -- The day leads to the one partition.
        DELETE FROM events e WHERE e.tenant_id = p_tenant AND e.run_day = v_run.run_day AND e.run_id = v_run.run_id;
    END LOOP;
    DELETE FROM run_metadata m WHERE m.tenant_id = p_tenant AND m.run_id = ANY (v_runs);
    -- Those that led to its runs, and to the session itself.
    DELETE FROM idempotency_keys k WHERE k.tenant_id = p_tenant AND k.run_id = ANY (v_runs || p_session);
    DELETE FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = ANY (v_runs);
    DELETE FROM session_items i WHERE i.tenant_id = p_tenant AND i.session_id = p_session;
    DELETE FROM artifacts a WHERE a.tenant_id = p_tenant AND a.session_id = p_session;
    DELETE FROM state_entries e WHERE e.tenant_id = p_tenant AND e.scope = 'session' AND e.owner = p_session;
    DELETE FROM sessions s WHERE s.tenant_id = p_tenant AND s.session_id = p_session;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION store_state, submit_run, adopt_run, append_events, end_turn, load_run, save_artifact,
    add_artifact, erase_session FROM PUBLIC;
GRANT EXECUTE ON FUNCTION store_state, submit_run, adopt_run, append_events, end_turn, load_run, save_artifact,
    add_artifact, erase_session TO runwright_app;
