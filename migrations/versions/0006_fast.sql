-- What a request asks for by itself, in one statement without a transaction around it. Run with the rights of whoever
-- calls: row security holds inside.

-- What has to be known of a tenant before a run of it is accepted, in one row: the time, its rules, how many of its runs
-- are queued (counted no further than its own limit or p_max_queued), and the agent's version, or the newest one; null
-- where there is none.
CREATE FUNCTION admission_facts(p_tenant text, p_agent text, p_version integer, p_max_queued bigint)
RETURNS TABLE (now double precision, rules text, queued bigint, version integer, digest text, definition text,
    created_at timestamptz, retired boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_limit bigint;
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    SELECT least(t.max_queued, p_max_queued) INTO v_limit FROM tenants t WHERE t.tenant_id = p_tenant;
    v_limit := coalesce(v_limit, p_max_queued);
    RETURN QUERY
        SELECT extract(epoch FROM clock_timestamp())::float8, tenant_rules(p_tenant),
            -- Those that wait for a worker and those that wait for their session lie in different indexes.
            least(v_limit,
                (SELECT count(*) FROM (SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.state = 'queued'
                    AND NOT r.blocked LIMIT v_limit) AS waiting)
                + (SELECT count(*) FROM (SELECT FROM runs r WHERE r.tenant_id = p_tenant AND r.state = 'queued'
                    AND r.blocked AND r.session_id IS NOT NULL LIMIT v_limit) AS held_back)),
            f.version, f.digest, f.definition, f.created_at, f.retired
        FROM (SELECT) AS one LEFT JOIN (
            SELECT v.version, v.digest, v.definition, v.created_at, a.retired
            FROM agents a JOIN agent_versions v ON v.tenant_id = a.tenant_id AND v.name = a.name
            WHERE a.tenant_id = p_tenant AND a.name = p_agent AND v.version = coalesce(p_version, a.newest_version)
        ) AS f ON true;
END
$$;

-- A run, and the open questions that it waits for, the oldest first, where it is suspended.
CREATE FUNCTION look_at_run(p_tenant text, p_run text) RETURNS TABLE (run runs, pending text[])
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM set_config('app.tenant_id', p_tenant, true);
    RETURN QUERY
        SELECT r, CASE WHEN r.state = 'suspended' THEN (
            SELECT array_agg(a.approval_id ORDER BY a.requested_at, a.approval_id) FROM approvals a
            WHERE a.tenant_id = p_tenant AND a.status = 'pending'
                AND CASE WHEN r.parent_run_id IS NULL THEN a.root_run_id ELSE a.run_id END = p_run
                AND (a.expires_at IS NULL OR a.expires_at > clock_timestamp())) END
        FROM runs r WHERE r.tenant_id = p_tenant AND r.run_id = p_run;
END
$$;

REVOKE ALL ON FUNCTION admission_facts, look_at_run FROM PUBLIC;
GRANT EXECUTE ON FUNCTION admission_facts, look_at_run TO runwright_app;
