-- Digests in the trail are keyed: whoever reads them can't try out what a row may have held. The key is two secrets of
-- 64 bytes, for the inner and the outer hash (as in HMAC, RFC 2104), made here and read by write_audit alone.
CREATE TABLE audit_key (
    one boolean NOT NULL DEFAULT true,
    inner_key bytea NOT NULL,
    outer_key bytea NOT NULL,
    CONSTRAINT pk_audit_key PRIMARY KEY (one),
    CONSTRAINT ck_audit_key_one CHECK (one)
);
INSERT INTO audit_key (inner_key, outer_key)
SELECT string_agg(uuid_send(gen_random_uuid()), '') FILTER (WHERE n <= 4),
    string_agg(uuid_send(gen_random_uuid()), '') FILTER (WHERE n > 4)
FROM generate_series(1, 8) AS n;
GRANT SELECT ON audit_key TO runwright_scheduler;

CREATE FUNCTION digest_for_audit(p_row jsonb) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT encode(sha256(k.outer_key || sha256(k.inner_key || convert_to(p_row::text, 'UTF8'))), 'hex')
    FROM audit_key k WHERE p_row IS NOT NULL
$$;
REVOKE ALL ON FUNCTION digest_for_audit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION digest_for_audit TO runwright_scheduler;

CREATE OR REPLACE FUNCTION write_audit(
    p_tenant text, p_action text, p_target text, p_before jsonb, p_after jsonb, p_details jsonb
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO audit (tenant_id, actor, action, target, before, after, details)
    VALUES (p_tenant, coalesce(nullif(current_setting('app.actor', true), ''), 'unknown'), p_action, p_target,
        digest_for_audit(p_before), digest_for_audit(p_after), p_details::text)
$$;
