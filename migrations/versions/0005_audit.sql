-- Who changed what. Row triggers write it, so that no way of changing a thing goes round it; the actor is app.actor of
-- the transaction. before, after: digests of the whole row; details: JSON. Rows outlive their tenant.
CREATE TABLE audit (
    audit_id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tenant_id text COLLATE "C",
    actor text NOT NULL,
    action text COLLATE "C" NOT NULL,
    target text NOT NULL,
    before text COLLATE "C",
    after text COLLATE "C",
    details text NOT NULL,
    CONSTRAINT pk_audit PRIMARY KEY (audit_id)
);
CREATE INDEX ix_audit_tenant ON audit (tenant_id, audit_id);

SELECT guard_by_tenant('audit');
GRANT SELECT, INSERT ON audit TO runwright_scheduler;
CREATE POLICY scheduler_reads ON audit FOR SELECT TO runwright_scheduler USING (true);
CREATE POLICY scheduler_writes ON audit FOR INSERT TO runwright_scheduler WITH CHECK (true);

CREATE FUNCTION refuse_to_change_audit() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the audit trail is only added to'
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'audit_only_grows';
END
$$;
CREATE TRIGGER audit_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON audit FOR EACH STATEMENT
    EXECUTE FUNCTION refuse_to_change_audit();

-- For functions of the owner and the scheduler, and for nobody who logs in as the service.
CREATE FUNCTION write_audit(
    p_tenant text, p_action text, p_target text, p_before jsonb, p_after jsonb, p_details jsonb
) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    INSERT INTO audit (tenant_id, actor, action, target, before, after, details)
    VALUES (p_tenant, coalesce(nullif(current_setting('app.actor', true), ''), 'unknown'), p_action, p_target,
        encode(sha256(convert_to(p_before::text, 'UTF8')), 'hex'),
        encode(sha256(convert_to(p_after::text, 'UTF8')), 'hex'), p_details::text)
$$;

-- {column: {before, after}} of those that differ. A row that came or went has only one side.
CREATE FUNCTION list_changes(p_before jsonb, p_after jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(n.name, CASE
            WHEN p_before IS NULL THEN jsonb_build_object('after', p_after -> n.name)
            WHEN p_after IS NULL THEN jsonb_build_object('before', p_before -> n.name)
            ELSE jsonb_build_object('before', p_before -> n.name, 'after', p_after -> n.name) END), '{}')
    FROM jsonb_object_keys(coalesce(p_after, p_before)) AS n (name)
    WHERE coalesce(p_before -> n.name, 'null') <> coalesce(p_after -> n.name, 'null')
$$;

CREATE FUNCTION audit_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_before jsonb;
    v_after jsonb;
    v_row jsonb;
    v_action text;
    v_target text;
    v_details jsonb;
BEGIN
    -- A secret's hash is told to nobody, and its last use is no change.
    IF TG_OP <> 'INSERT' THEN
        v_before := to_jsonb(OLD) - 'secret_hash' - 'last_used_at';
    END IF;
    IF TG_OP <> 'DELETE' THEN
        v_after := to_jsonb(NEW) - 'secret_hash' - 'last_used_at';
    END IF;
    v_row := coalesce(v_after, v_before);
    CASE TG_TABLE_NAME
        WHEN 'tenants' THEN
            v_action := CASE TG_OP WHEN 'INSERT' THEN 'tenant.created' WHEN 'UPDATE' THEN 'tenant.changed'
                ELSE 'tenant.erased' END;
            v_target := v_row ->> 'tenant_id';
            v_details := list_changes(v_before, v_after);
        WHEN 'ceilings' THEN
            v_action := 'tenant.changed';
            v_target := v_row ->> 'tenant_id';
            -- The amount as text: no digit of it is lost to whoever reads JSON's numbers as floats.
            v_before := v_before || jsonb_build_object('limit_amount', v_before ->> 'limit_amount');
            v_after := v_after || jsonb_build_object('limit_amount', v_after ->> 'limit_amount');
            v_details := jsonb_build_object('ceiling', jsonb_strip_nulls(jsonb_build_object(
                'before', v_before - 'tenant_id', 'after', v_after - 'tenant_id')));
        WHEN 'keys' THEN
            v_action := CASE
                WHEN TG_OP = 'INSERT' THEN 'key.created'
                WHEN TG_OP = 'DELETE' OR OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL THEN 'key.revoked'
                WHEN v_before - 'expires_at' = v_after - 'expires_at' AND OLD.secret_hash = NEW.secret_hash
                    THEN 'key.rotated'
                ELSE 'key.changed' END;
            v_target := v_row ->> 'key_id';
            v_details := list_changes(v_before, v_after);
        WHEN 'pauses' THEN
            v_action := CASE TG_OP WHEN 'DELETE' THEN 'pause.ended' ELSE 'pause.added' END;
            v_target := v_row ->> 'pause_id';
            v_details := list_changes(v_before, v_after);
        WHEN 'agents' THEN
            v_action := CASE WHEN OLD.retired = NEW.retired THEN 'agent.changed'
                WHEN NEW.retired THEN 'agent.retired' ELSE 'agent.revived' END;
            v_target := v_row ->> 'name';
            v_details := jsonb_build_object('version', NEW.newest_version);
        WHEN 'approvals' THEN
            v_action := 'approval.decided';
            v_target := v_row ->> 'approval_id';
            v_details := jsonb_build_object('decision', NEW.decision, 'subject', NEW.decided_by, 'run_id', NEW.run_id);
        WHEN 'workers' THEN
            v_action := 'worker.drained';
            v_target := v_row ->> 'worker_id';
            v_details := '{}';
    END CASE;
    PERFORM write_audit(v_row ->> 'tenant_id', v_action, v_target, v_before, v_after, v_details);
    RETURN NULL;
END
$$;

-- The tools of a definition that go out only after a person allowed the call. JSON may hold escapes that text can't.
CREATE FUNCTION approval_tools(p_definition text) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT regexp_replace(p_definition, '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1?', 'g')::jsonb
        -> 'approval_required_tools'
$$;

-- The owner's: it alone may look at the version before. In the rows of one tenant, like everything that the owner does.
CREATE FUNCTION audit_agent_version() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    v_before agent_versions;
BEGIN
    PERFORM set_config('app.tenant_id', NEW.tenant_id, true);
    SELECT * INTO v_before FROM agent_versions v
    WHERE v.tenant_id = NEW.tenant_id AND v.name = NEW.name AND v.version < NEW.version
    ORDER BY v.version DESC LIMIT 1;
    IF TG_OP = 'UPDATE' THEN
        v_before := OLD;
    END IF;
    PERFORM write_audit(NEW.tenant_id, 'agent.stored', NEW.name,
        CASE WHEN v_before.version IS NOT NULL THEN to_jsonb(v_before) END, to_jsonb(NEW),
        jsonb_build_object('version', NEW.version, 'approval_required_tools', jsonb_build_object(
            'before', approval_tools(v_before.definition), 'after', approval_tools(NEW.definition))));
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION refuse_to_change_audit, write_audit, list_changes, audit_change, approval_tools,
    audit_agent_version FROM PUBLIC;
GRANT EXECUTE ON FUNCTION list_changes TO runwright_scheduler;
GRANT EXECUTE ON FUNCTION write_audit TO runwright_owner;
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION write_audit OWNER TO runwright_scheduler;
ALTER FUNCTION audit_change OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;

CREATE TRIGGER tenants_are_audited AFTER INSERT OR DELETE ON tenants FOR EACH ROW EXECUTE FUNCTION audit_change();
CREATE TRIGGER tenants_changes_are_audited AFTER UPDATE ON tenants FOR EACH ROW
    WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION audit_change();
CREATE TRIGGER ceilings_are_audited AFTER INSERT OR DELETE ON ceilings FOR EACH ROW EXECUTE FUNCTION audit_change();
CREATE TRIGGER ceilings_changes_are_audited AFTER UPDATE ON ceilings FOR EACH ROW
    WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION audit_change();
CREATE TRIGGER keys_are_audited AFTER INSERT OR DELETE ON keys FOR EACH ROW EXECUTE FUNCTION audit_change();
-- All columns but the last use, which is written all the time.
CREATE TRIGGER keys_changes_are_audited AFTER UPDATE OF key_id, tenant_id, subject, scopes, secret_hash, created_at,
    expires_at, revoked_at, groups, description, replaces ON keys FOR EACH ROW
    WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION audit_change();
CREATE TRIGGER pauses_are_audited AFTER INSERT OR UPDATE OR DELETE ON pauses FOR EACH ROW
    EXECUTE FUNCTION audit_change();
CREATE TRIGGER agents_are_audited AFTER UPDATE ON agents FOR EACH ROW
    -- A greater version is told with itself.
    WHEN (OLD.retired <> NEW.retired OR OLD.newest_version > NEW.newest_version) EXECUTE FUNCTION audit_change();
CREATE TRIGGER agent_versions_are_audited AFTER INSERT OR UPDATE ON agent_versions FOR EACH ROW
    EXECUTE FUNCTION audit_agent_version();
CREATE TRIGGER approvals_are_audited AFTER UPDATE ON approvals FOR EACH ROW
    WHEN (OLD.status = 'pending' AND NEW.status IN ('approved', 'denied')) EXECUTE FUNCTION audit_change();
CREATE TRIGGER workers_are_audited AFTER UPDATE OF drain_requested_at ON workers FOR EACH ROW
    WHEN (OLD.drain_requested_at IS NULL AND NEW.drain_requested_at IS NOT NULL) EXECUTE FUNCTION audit_change();
