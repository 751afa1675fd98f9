-- max_running: how many of the tenant's runs may be driven at once; null for as many as there is room for. retention:
-- JSON, null where everything is kept.
ALTER TABLE tenants
    ADD COLUMN max_running integer,
    ADD COLUMN allow_self_approval boolean NOT NULL DEFAULT false,
    ADD COLUMN retention text,
    ADD CONSTRAINT ck_tenants_max_running CHECK (max_running >= 0);

-- lane: stands for what a worker must have to drive the run; empty where any worker will do. resumes: the run that it
-- goes on from. All have defaults, so no row is written again.
ALTER TABLE runs
    ADD COLUMN lane text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN resumes text COLLATE "C",
    ADD COLUMN resumed_by text COLLATE "C",
    ADD COLUMN first_run_id text COLLATE "C",
    ADD COLUMN resolutions text;

DROP INDEX ix_runs_queued;
CREATE INDEX ix_runs_queued ON runs (tenant_id, lane, priority DESC, created_at, run_id)
    WHERE state = 'queued' AND NOT blocked;
-- Runs that were lost, of which those that were lost too often only need to end.
CREATE INDEX ix_runs_recovered ON runs (recoveries DESC) WHERE state = 'queued' AND recoveries > 0;
-- A run is gone on from once.
CREATE UNIQUE INDEX uq_runs_resumes ON runs (tenant_id, resumes) WHERE resumes IS NOT NULL;

-- What the runs of a lane need, sorted. The names are those of the operator's models and tools.
CREATE TABLE lanes (
    lane text COLLATE "C" NOT NULL,
    names text[] NOT NULL,
    CONSTRAINT pk_lanes PRIMARY KEY (lane)
);

-- Who was alive lately, and what he has.
CREATE TABLE workers (
    worker_id text COLLATE "C" NOT NULL,
    names text[] NOT NULL,
    seen_at timestamptz NOT NULL,
    CONSTRAINT pk_workers PRIMARY KEY (worker_id)
);

-- root_run_id: the run that is claimed for the one that asks; the same where that is no child. summary: JSON of what
-- may be shown of the arguments. arguments: those that a person put in their place.
CREATE TABLE approvals (
    tenant_id text COLLATE "C" NOT NULL,
    approval_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    root_run_id text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    tool text NOT NULL,
    call_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    dispatch integer NOT NULL,
    arguments_digest text NOT NULL,
    summary text NOT NULL,
    reason text NOT NULL,
    flagged boolean NOT NULL,
    caller text,
    subject text,
    status text COLLATE "C" NOT NULL DEFAULT 'pending',
    requested_at timestamptz NOT NULL,
    expires_at timestamptz,
    decided_at timestamptz,
    decided_by text,
    decision text COLLATE "C",
    decision_reason text NOT NULL DEFAULT '',
    arguments text,
    edited_digest text,
    CONSTRAINT pk_approvals PRIMARY KEY (tenant_id, approval_id),
    CONSTRAINT ck_approvals_kind CHECK (kind IN ('call', 'outcome')),
    CONSTRAINT ck_approvals_status CHECK (status IN ('pending', 'approved', 'denied', 'expired', 'cancelled')),
    CONSTRAINT ck_approvals_decision CHECK (decision IN ('approve', 'deny', 'succeeded', 'failed', 'retry')),
    CONSTRAINT ck_approvals_decided CHECK (
        (status = 'pending') = (decided_at IS NULL)
        AND (status IN ('approved', 'denied')) = (decided_by IS NOT NULL)
        AND (decided_by IS NULL) = (decision IS NULL))
);

CREATE INDEX ix_approvals_newest ON approvals (tenant_id, requested_at DESC, approval_id DESC);
CREATE INDEX ix_approvals_pending ON approvals (tenant_id, requested_at DESC, approval_id DESC)
    WHERE status = 'pending';
CREATE INDEX ix_approvals_expiry ON approvals (expires_at) WHERE status = 'pending';
CREATE INDEX ix_approvals_root ON approvals (tenant_id, root_run_id);
CREATE INDEX ix_approvals_run ON approvals (tenant_id, run_id);

-- Which cluster this database lies in. What counts transactions there counts them nowhere else: a dump that is restored
-- elsewhere brings numbers that mean nothing.
CREATE FUNCTION current_incarnation() RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT c.system_identifier FROM pg_control_system() AS c
$$;

-- Each status that a question took. Those of this incarnation are ordered by xid and change_id, like the events; those
-- that a dump has brought are before all of them, ordered by change_id. xid is no smaller than that of an earlier change
-- of the same question: whose transaction began before a question was put may close it.
CREATE TABLE approval_changes (
    tenant_id text COLLATE "C" NOT NULL,
    change_id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    incarnation bigint NOT NULL,
    xid bigint NOT NULL,
    approval_id text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    CONSTRAINT pk_approval_changes PRIMARY KEY (tenant_id, change_id)
);
CREATE INDEX ix_approval_changes_order ON approval_changes (tenant_id, incarnation, xid, change_id);
-- To erase a question without reading all of its tenant's changes.
CREATE INDEX ix_approval_changes_approval ON approval_changes (tenant_id, approval_id);

-- Nobody misses a change that takes a greater xid than its own transaction's: while that runs, nothing is shown from its
-- xid on, and so nothing from the greater one on.
CREATE FUNCTION note_approval_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    v_incarnation bigint := current_incarnation();
    v_xid bigint;
BEGIN
    -- Apart (OFFSET 0): a few rows of one question, and not back from the tenant's last change.
    SELECT max(c.xid) INTO v_xid FROM (
        SELECT o.xid FROM approval_changes o
        WHERE o.tenant_id = NEW.tenant_id AND o.approval_id = NEW.approval_id AND o.incarnation = v_incarnation
        OFFSET 0
    ) AS c;
    INSERT INTO approval_changes (tenant_id, incarnation, xid, approval_id, status, at)
    VALUES (NEW.tenant_id, v_incarnation, greatest(pg_current_xact_id()::text::bigint, v_xid), NEW.approval_id,
        NEW.status, coalesce(NEW.decided_at, NEW.requested_at));
    RETURN NULL;
END
$$;

CREATE TRIGGER approvals_are_followed AFTER INSERT OR UPDATE OF status ON approvals FOR EACH ROW
    EXECUTE FUNCTION note_approval_change();

CREATE FUNCTION refuse_to_decide_again() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'approval % is % and stays so', OLD.approval_id, OLD.status
        USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'approvals_decided_once';
END
$$;

CREATE TRIGGER approvals_decided_once BEFORE UPDATE ON approvals FOR EACH ROW
    WHEN (OLD.status <> 'pending') EXECUTE FUNCTION refuse_to_decide_again();

SELECT guard_by_tenant(name::regclass) FROM unnest(ARRAY['approvals', 'approval_changes']) AS name;

-- What was asked never changes; the answer is written once.
GRANT SELECT, INSERT ON approvals, approval_changes TO runwright_app;
GRANT UPDATE (status, decided_at, decided_by, decision, decision_reason, arguments, edited_digest)
    ON approvals TO runwright_app;
GRANT INSERT ON lanes TO runwright_app;
REVOKE ALL ON FUNCTION current_incarnation FROM PUBLIC;
GRANT EXECUTE ON FUNCTION current_incarnation TO runwright_app, runwright_scheduler;

GRANT SELECT (lane, resumes) ON runs TO runwright_scheduler;
ALTER POLICY scheduler_moves ON runs
    USING (state IN ('queued', 'running', 'suspended')) WITH CHECK (state IN ('queued', 'running'));
GRANT SELECT ON lanes TO runwright_scheduler;
GRANT SELECT, INSERT, UPDATE, DELETE ON workers TO runwright_scheduler;

-- Where questions stand, and nothing that people wrote.
GRANT SELECT (tenant_id, approval_id, run_id, root_run_id, kind, status, requested_at, expires_at, decided_at,
    decided_by, decision) ON approvals TO runwright_scheduler;
GRANT UPDATE (status, decided_at) ON approvals TO runwright_scheduler;
CREATE POLICY scheduler_reads ON approvals FOR SELECT TO runwright_scheduler USING (true);
CREATE POLICY scheduler_closes ON approvals FOR UPDATE TO runwright_scheduler
    USING (status = 'pending') WITH CHECK (status = 'expired');
GRANT INSERT ON approval_changes TO runwright_scheduler;
CREATE POLICY scheduler_notes ON approval_changes FOR INSERT TO runwright_scheduler WITH CHECK (true);
GRANT SELECT (tenant_id, approval_id, incarnation, xid, status) ON approval_changes TO runwright_scheduler;
CREATE POLICY scheduler_reads ON approval_changes FOR SELECT TO runwright_scheduler USING (true);
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
