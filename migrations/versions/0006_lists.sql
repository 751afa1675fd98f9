-- Each filter of a list finds its rows in the order in which they are told, so that a page costs the same in a table of
-- any size.

CREATE INDEX ix_runs_state ON runs (tenant_id, state, created_at DESC, run_id DESC);
CREATE INDEX ix_runs_agent ON runs (tenant_id, agent, created_at DESC, run_id DESC);
CREATE INDEX ix_runs_session ON runs (tenant_id, session_id, created_at DESC, run_id DESC)
    WHERE session_id IS NOT NULL;

CREATE INDEX ix_approvals_closed ON approvals (tenant_id, status, requested_at DESC, approval_id DESC)
    WHERE status <> 'pending';
CREATE INDEX ix_approvals_agent ON approvals (tenant_id, agent, requested_at DESC, approval_id DESC);
CREATE INDEX ix_approvals_tool ON approvals (tenant_id, tool, requested_at DESC, approval_id DESC);

-- When its run was made: set by the trigger, null nowhere.
ALTER TABLE run_metadata ADD COLUMN created_at timestamptz;

CREATE FUNCTION date_run_metadata() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    SELECT r.created_at INTO NEW.created_at FROM runs r
    WHERE r.tenant_id = NEW.tenant_id AND r.run_id = NEW.run_id;
    RETURN NEW;
END
$$;
REVOKE ALL ON FUNCTION date_run_metadata FROM PUBLIC;

-- Before the rows that are there are dated: a run of a process of the release before may be made meanwhile.
CREATE TRIGGER run_metadata_is_dated BEFORE INSERT ON run_metadata FOR EACH ROW EXECUTE FUNCTION date_run_metadata();

-- Row security holds the owner, too: tenant by tenant, as it lets him.
CREATE FUNCTION tenants_to_date() RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS 'SELECT tenant_id FROM tenants';
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION tenants_to_date OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;
DO $$
DECLARE
    v_tenant text;
BEGIN
    FOR v_tenant IN SELECT tenants_to_date() LOOP
        PERFORM set_config('app.tenant_id', v_tenant, true);
        UPDATE run_metadata m SET created_at = r.created_at FROM runs r
        WHERE m.tenant_id = v_tenant AND r.tenant_id = v_tenant AND r.run_id = m.run_id;
    END LOOP;
    PERFORM set_config('app.tenant_id', '', true);
END
$$;
DROP FUNCTION tenants_to_date;

CREATE INDEX ix_run_metadata_newest ON run_metadata (tenant_id, key, value, created_at DESC, run_id DESC);
