CREATE OR REPLACE FUNCTION write_audit(
    p_tenant text, p_action text, p_target text, p_before jsonb, p_after jsonb, p_details jsonb
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO audit (tenant_id, actor, action, target, before, after, details)
    VALUES (p_tenant, coalesce(nullif(current_setting('app.actor', true), ''), 'unknown'), p_action, p_target,
        encode(sha256(convert_to(p_before::text, 'UTF8')), 'hex'),
        encode(sha256(convert_to(p_after::text, 'UTF8')), 'hex'), p_details::text)
$$;
DROP FUNCTION digest_for_audit;
DROP TABLE audit_key;
