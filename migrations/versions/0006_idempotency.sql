-- Takes an idempotency key for this transaction: true where it was free, or older than p_kept; null where a request that
-- has committed holds it. Inserting waits for one that is being committed, which looking first would not. A request
-- that takes longer than two seconds is not waited for: lock_not_available.
CREATE FUNCTION take_idempotency_key(p_tenant text, p_key_digest text, p_body_digest text, p_kept interval)
RETURNS boolean LANGUAGE sql SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '2s' AS $$
    INSERT INTO idempotency_keys AS k (tenant_id, key_digest, body_digest, created_at)
    VALUES (p_tenant, p_key_digest, p_body_digest, clock_timestamp())
    ON CONFLICT (tenant_id, key_digest) DO UPDATE
        SET body_digest = excluded.body_digest, run_id = NULL, created_at = excluded.created_at
        WHERE k.created_at < clock_timestamp() - p_kept
    RETURNING true
$$;

REVOKE ALL ON FUNCTION take_idempotency_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION take_idempotency_key TO runwright_app;
