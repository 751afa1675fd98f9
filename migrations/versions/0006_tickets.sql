-- Who may still use a ticket: the key that asked for it, or, where a token did (p_key null), its tenant. As
-- runwright_scheduler. Columns as find_key's; past p_until told as revoked, by the one clock that all processes share.
CREATE FUNCTION find_holder(p_tenant text, p_key text, p_until timestamptz)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], expires_at timestamptz, revoked boolean,
    groups text[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT k.key_id, t.tenant_id, k.subject, k.scopes, k.expires_at,
            p_until <= clock_timestamp() OR k.revoked_at IS NOT NULL
                OR coalesce(k.expires_at <= clock_timestamp(), false),
            k.groups
        FROM tenants t LEFT JOIN keys k ON k.key_id = p_key AND k.tenant_id = t.tenant_id
        WHERE t.tenant_id = p_tenant AND t.erase_requested_at IS NULL AND (p_key IS NULL OR k.key_id IS NOT NULL);
END
$$;

-- find_holder for a request that is to be served.
CREATE FUNCTION admit_holder(p_tenant text, p_key text, p_until timestamptz)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], expires_at timestamptz, revoked boolean,
    groups text[], retry_after_seconds double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT f.key_id, f.tenant_id, f.subject, f.scopes, f.expires_at, f.revoked, f.groups,
            CASE WHEN NOT f.revoked THEN count_request(f.tenant_id) END
        FROM find_holder(p_tenant, p_key, p_until) AS f;
END
$$;

REVOKE ALL ON FUNCTION find_holder, admit_holder FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_holder, admit_holder TO runwright_app;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION find_holder OWNER TO runwright_scheduler;
ALTER FUNCTION admit_holder OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
