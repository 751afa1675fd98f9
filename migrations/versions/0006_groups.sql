-- What several runs or requests ask for at the same time, in one statement: each call below it enters the tenant that it
-- is for. Either all of it is done, or nothing.

-- append_events for several runs, in the order of places from 1 on. The events of all of them come one after the other,
-- and p_counts says how many are whose. Each is of a root outside of any session: with their locks in the order of
-- tenants and runs nobody waits in a circle.
CREATE FUNCTION append_to_runs(
    p_tenants text[], p_runs text[], p_fences bigint[], p_afters integer[], p_counts integer[], p_kinds text[],
    p_payloads text[], p_states text[], p_input_tokens bigint[], p_cached_tokens bigint[], p_output_tokens bigint[],
    p_usage_sources text[], p_model_calls integer[], p_tool_calls integer[], p_output_texts text[],
    p_error_codes text[], p_error_details text[], p_prompt_versions text[], p_prompt_fingerprints text[],
    p_models text[], p_costs numeric[], p_iterations integer[], p_last_agents text[], p_announces boolean[]
) RETURNS TABLE (place integer, seq integer, at timestamptz, refused text)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_first integer := 1;
BEGIN
    FOR i IN 1 .. cardinality(p_runs) LOOP
        RETURN QUERY
            SELECT i, a.seq, a.at, a.refused FROM append_events(
                p_tenants[i], p_runs[i], p_fences[i], p_afters[i], p_kinds[v_first : v_first + p_counts[i] - 1],
                p_payloads[v_first : v_first + p_counts[i] - 1], p_states[i], p_input_tokens[i], p_cached_tokens[i],
                p_output_tokens[i], p_usage_sources[i], p_model_calls[i], p_tool_calls[i], p_output_texts[i],
                p_error_codes[i], p_error_details[i], p_prompt_versions[i], p_prompt_fingerprints[i], p_models[i],
                p_cost => p_costs[i], p_iterations => p_iterations[i], p_input => NULL,
                p_last_agent => p_last_agents[i], p_announces => p_announces[i]) AS a;
        v_first := v_first + p_counts[i];
    END LOOP;
END
$$;

-- submit_run for several runs outside of any session and without metadata, that go on from no other. p_needs: of each
-- run its needs, a line each.
CREATE FUNCTION submit_runs(
    p_tenants text[], p_runs text[], p_agents text[], p_agent_versions integer[], p_inputs text[], p_contexts text[],
    p_callers text[], p_subjects text[], p_models text[], p_deadlines timestamptz[], p_budgets text[],
    p_max_llm_calls integer[], p_priorities integer[], p_events text[], p_output_schemas text[], p_teams text[],
    p_needs text[], p_on_ledger_errors text[]
) RETURNS SETOF runs
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    FOR i IN 1 .. cardinality(p_runs) LOOP
        RETURN QUERY
            SELECT s.* FROM submit_run(
                p_tenants[i], p_runs[i], p_agents[i], p_agent_versions[i], p_inputs[i], p_contexts[i], p_callers[i],
                p_subjects[i], p_models[i], p_deadlines[i], p_budgets[i], p_max_llm_calls[i], p_priorities[i], '{}',
                '{}', '{}', p_events[i], p_output_schema => p_output_schemas[i], p_team => p_teams[i],
                p_needs => string_to_array(p_needs[i], E'\n'), p_on_ledger_error => p_on_ledger_errors[i]) AS s;
    END LOOP;
END
$$;

-- admit_key for several requests. Their tenants are counted in order: nobody waits in a circle.
CREATE FUNCTION admit_keys(p_secret_hashes bytea[])
RETURNS TABLE (place bigint, key_id text, tenant_id text, subject text, scopes text[], expires_at timestamptz,
    revoked boolean, groups text[], retry_after_seconds double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT o.place, o.key_id, o.tenant_id, o.subject, o.scopes, o.expires_at, o.revoked, o.groups,
            CASE WHEN NOT o.revoked AND o.tenant_id IS NOT NULL THEN count_request(o.tenant_id) END
        FROM (
            SELECT h.place, f.* FROM unnest(p_secret_hashes) WITH ORDINALITY AS h (secret_hash, place)
            CROSS JOIN LATERAL find_key(h.secret_hash) AS f
            -- Sorted before anything is counted (OFFSET 0).
            ORDER BY f.tenant_id OFFSET 0
        ) AS o;
END
$$;

REVOKE ALL ON FUNCTION append_to_runs, submit_runs, admit_keys FROM PUBLIC;
GRANT EXECUTE ON FUNCTION append_to_runs, submit_runs, admit_keys TO runwright_app;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION admit_keys OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;

-- Its plan is made once for a connection, which may be when the table is empty, and holds until somebody counts its rows:
-- never along all of them, and to the rows that were picked one by one: what a LIMIT lets through is guessed too high,
-- and a hash of all runs that have not ended seems cheaper then.
ALTER FUNCTION claim_runs SET enable_seqscan = off;
ALTER FUNCTION claim_runs SET enable_hashjoin = off;
ALTER FUNCTION claim_runs SET enable_mergejoin = off;
