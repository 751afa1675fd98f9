-- Keys: what an operator does with them, and the look-up before a tenant is known. As runwright_scheduler.

-- p_key null: all of that tenant's, or the operators'.
CREATE FUNCTION operator_keys(p_tenant text, p_key text DEFAULT NULL)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], groups text[], description text,
    created_at timestamptz, expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz, replaces text)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT k.key_id, k.tenant_id, k.subject, k.scopes, k.groups, k.description, k.created_at, k.expires_at,
        k.revoked_at, k.last_used_at, k.replaces
    FROM keys k
    WHERE (k.tenant_id = p_tenant OR p_tenant IS NULL AND k.tenant_id IS NULL) AND (p_key IS NULL OR k.key_id = p_key)
    ORDER BY k.created_at, k.key_id
$$;

-- No row for an unknown tenant, or one that is going.
CREATE FUNCTION operator_add_key(
    p_actor text, p_key text, p_tenant text, p_subject text, p_scopes text[], p_groups text[], p_description text,
    p_lifetime_seconds double precision, p_secret_hash bytea
)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], groups text[], description text,
    created_at timestamptz, expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz, replaces text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    -- Who marks the tenant waits, and then finds the key.
    PERFORM FROM tenants t WHERE t.tenant_id = p_tenant AND t.erase_requested_at IS NULL FOR SHARE;
    IF p_tenant IS NOT NULL AND NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO keys (key_id, tenant_id, subject, scopes, groups, description, expires_at, secret_hash)
    VALUES (p_key, p_tenant, p_subject, p_scopes, p_groups, p_description,
        clock_timestamp() + make_interval(secs => p_lifetime_seconds), p_secret_hash);
    RETURN QUERY SELECT * FROM operator_keys(p_tenant, p_key);
END
$$;

-- A successor of a key that is still valid, which itself is valid for so long and no longer than it was.
CREATE FUNCTION operator_rotate_key(
    p_actor text, p_old text, p_tenant text, p_new text, p_lifetime_seconds double precision, p_secret_hash bytea,
    p_overlap_seconds double precision
)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], groups text[], description text,
    created_at timestamptz, expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz, replaces text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    -- As above: who marks the tenant revokes the successor too.
    PERFORM FROM tenants t WHERE t.tenant_id = p_tenant FOR SHARE;
    PERFORM FROM keys k WHERE k.key_id = p_old AND k.tenant_id IS NOT DISTINCT FROM p_tenant
        AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp()) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO keys (key_id, tenant_id, subject, scopes, groups, description, expires_at, secret_hash, replaces)
    SELECT p_new, k.tenant_id, k.subject, k.scopes, k.groups, k.description,
        clock_timestamp() + make_interval(secs => p_lifetime_seconds), p_secret_hash, k.key_id
    FROM keys k WHERE k.key_id = p_old;
    UPDATE keys k SET expires_at = least(k.expires_at, clock_timestamp() + make_interval(secs => p_overlap_seconds))
    WHERE k.key_id = p_old;
    RETURN QUERY SELECT * FROM operator_keys(p_tenant, p_new);
END
$$;

CREATE FUNCTION operator_revoke_key(p_actor text, p_key text, p_tenant text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM set_config('app.actor', p_actor, true);
    UPDATE keys k SET revoked_at = coalesce(k.revoked_at, clock_timestamp())
    WHERE k.key_id = p_key AND k.tenant_id IS NOT DISTINCT FROM p_tenant;
    RETURN FOUND;
END
$$;

-- More columns than the release before asks for. Nobody is found of a tenant that is going. A key that has expired is
-- told as revoked: the clock of whoever asks may be behind.
DROP FUNCTION find_key;
CREATE FUNCTION find_key(p_secret_hash bytea)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], expires_at timestamptz, revoked boolean,
    groups text[])
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT k.key_id, k.tenant_id, k.subject, k.scopes, k.expires_at,
            k.revoked_at IS NOT NULL OR coalesce(k.expires_at <= clock_timestamp(), false), k.groups
        FROM keys k LEFT JOIN tenants t ON t.tenant_id = k.tenant_id
        WHERE k.secret_hash = p_secret_hash AND t.erase_requested_at IS NULL;
END
$$;

-- Counts a request against its tenant's requests per minute. Null where it may be served; else the seconds after which
-- the next one would be, and nothing was counted. At once come at most a tenth of a minute's: one row tells when all of
-- them may come again (the generic cell rate algorithm of ITU-T I.371).
CREATE FUNCTION count_request(p_tenant text) RETURNS double precision
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_each interval;
    v_burst interval;
    v_wait double precision;
BEGIN
    SELECT interval '1 minute' / t.requests_per_minute,
        interval '1 minute' * (greatest(t.requests_per_minute / 10, 1)::float8 / t.requests_per_minute)
    INTO v_each, v_burst
    FROM tenants t WHERE t.tenant_id = p_tenant AND t.requests_per_minute IS NOT NULL;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- A crash of the database may let a few requests more in: no request waits for a disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    INSERT INTO tenant_rates AS r (tenant_id, full_at) VALUES (p_tenant, clock_timestamp() + v_each)
    ON CONFLICT (tenant_id) DO UPDATE SET full_at = greatest(r.full_at, clock_timestamp()) + v_each
        WHERE r.full_at + v_each - v_burst <= clock_timestamp();
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT extract(epoch FROM r.full_at + v_each - v_burst - clock_timestamp()) INTO v_wait
    FROM tenant_rates r WHERE r.tenant_id = p_tenant;
    RETURN greatest(v_wait, 0.001);
END
$$;

-- find_key for a request that is to be served. A key that is not valid costs its tenant nothing.
CREATE FUNCTION admit_key(p_secret_hash bytea)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], expires_at timestamptz, revoked boolean,
    groups text[], retry_after_seconds double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT f.key_id, f.tenant_id, f.subject, f.scopes, f.expires_at, f.revoked, f.groups,
            CASE WHEN NOT f.revoked AND f.tenant_id IS NOT NULL THEN count_request(f.tenant_id) END
        FROM find_key(p_secret_hash) AS f;
END
$$;

-- By its id or its name, in this order.
CREATE FUNCTION find_tenant(p_tenant text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (
        SELECT t.tenant_id FROM tenants t
        WHERE (t.tenant_id = p_tenant OR t.name = p_tenant) AND t.erase_requested_at IS NULL
        ORDER BY t.tenant_id <> p_tenant LIMIT 1);
END
$$;

-- find_tenant for a request that is to be served.
CREATE FUNCTION admit_tenant(p_tenant text) RETURNS TABLE (tenant_id text, retry_after_seconds double precision)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT f.tenant_id, count_request(f.tenant_id) FROM find_tenant(p_tenant) AS f (tenant_id)
        WHERE f.tenant_id IS NOT NULL;
END
$$;

-- Never back, and never ahead of the present, whatever the clock of who tells it.
CREATE FUNCTION note_key_uses(p_keys text[], p_instants timestamptz[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM FROM keys k WHERE k.key_id = ANY (p_keys) ORDER BY k.key_id FOR NO KEY UPDATE;
    UPDATE keys k SET last_used_at = least(u.at, clock_timestamp())
    FROM unnest(p_keys, p_instants) AS u (key_id, at)
    WHERE k.key_id = u.key_id AND (k.last_used_at IS NULL OR k.last_used_at < u.at);
END
$$;

REVOKE ALL ON FUNCTION operator_keys, operator_add_key, operator_rotate_key, operator_revoke_key, find_key,
    count_request, admit_key, find_tenant, admit_tenant, note_key_uses FROM PUBLIC;
GRANT EXECUTE ON FUNCTION operator_keys, operator_add_key, operator_rotate_key, operator_revoke_key
    TO runwright_app, runwright_owner;
GRANT EXECUTE ON FUNCTION find_key, admit_key, find_tenant, admit_tenant, note_key_uses TO runwright_app;

-- A new owner needs CREATE on the schema at the moment it becomes one, and at no other.
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION operator_keys OWNER TO runwright_scheduler;
ALTER FUNCTION operator_add_key OWNER TO runwright_scheduler;
ALTER FUNCTION operator_rotate_key OWNER TO runwright_scheduler;
ALTER FUNCTION operator_revoke_key OWNER TO runwright_scheduler;
ALTER FUNCTION find_key OWNER TO runwright_scheduler;
ALTER FUNCTION count_request OWNER TO runwright_scheduler;
ALTER FUNCTION admit_key OWNER TO runwright_scheduler;
ALTER FUNCTION find_tenant OWNER TO runwright_scheduler;
ALTER FUNCTION admit_tenant OWNER TO runwright_scheduler;
ALTER FUNCTION note_key_uses OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
