DROP FUNCTION note_key_uses, admit_tenant, find_tenant, admit_key, count_request, find_key, operator_audit,
    operator_drain_worker, operator_workers, operator_end_pause, operator_pauses, operator_add_pause, operator_revoke_key,
    operator_rotate_key, operator_add_key, operator_keys, operator_erase_tenant, operator_cancel_runs,
    ask_runs_to_end, read_names, operator_set_tenant, operator_create_tenant, operator_tenants;

ALTER POLICY scheduler_closes ON approvals WITH CHECK (status = 'expired');
REVOKE UPDATE (cancel_requested_at, cancel_reason, cancel_requested_by) ON runs FROM runwright_scheduler;
REVOKE SELECT (agent) ON runs FROM runwright_scheduler;

-- As the release before has it.
CREATE FUNCTION find_key(p_secret_hash bytea)
RETURNS TABLE (key_id text, tenant_id text, subject text, scopes text[], expires_at timestamptz, revoked boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT k.key_id, k.tenant_id, k.subject, k.scopes, k.expires_at, k.revoked_at IS NOT NULL
        FROM keys k WHERE k.secret_hash = p_secret_hash;
END
$$;
REVOKE ALL ON FUNCTION find_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_key TO runwright_app;
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION find_key OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
