-- Questions that several persons have to approve, and what each has said.

-- approvals_needed: how many persons had to say so when it was decided. approved_by: JSON of their names, in the order
-- in which they said it. NULL where it was not decided, or by a process of the release before.
ALTER TABLE approvals
    ADD COLUMN approvals_needed integer,
    ADD COLUMN approved_by text,
    ADD CONSTRAINT ck_approvals_counted CHECK ((approvals_needed IS NULL) = (approved_by IS NULL)) NOT VALID;
ALTER TABLE approvals VALIDATE CONSTRAINT ck_approvals_counted;
GRANT UPDATE (approvals_needed, approved_by) ON approvals TO runwright_app;

-- What a person has said of a question that others have to say, too. groups: JSON of those that he was in when he said
-- it. Goes with the question.
CREATE TABLE approval_votes (
    tenant_id text COLLATE "C" NOT NULL,
    approval_id text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    groups text NOT NULL,
    decision text COLLATE "C" NOT NULL,
    at timestamptz NOT NULL,
    CONSTRAINT pk_approval_votes PRIMARY KEY (tenant_id, approval_id, subject),
    CONSTRAINT fk_approval_votes_approval FOREIGN KEY (tenant_id, approval_id)
        REFERENCES approvals (tenant_id, approval_id) ON DELETE CASCADE,
    CONSTRAINT ck_approval_votes_decision CHECK (decision IN ('approve', 'succeeded', 'failed', 'retry'))
);

SELECT guard_by_tenant('approval_votes');
GRANT SELECT, INSERT, UPDATE (groups, decision, at) ON approval_votes TO runwright_app;

CREATE FUNCTION audit_vote() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    PERFORM write_audit(NEW.tenant_id, 'approval.voted', NEW.approval_id, to_jsonb(OLD), to_jsonb(NEW),
        jsonb_build_object('decision', NEW.decision, 'subject', NEW.subject));
    RETURN NULL;
END
$$;
REVOKE ALL ON FUNCTION audit_vote FROM PUBLIC;
GRANT CREATE ON SCHEMA public TO runwright_scheduler;
ALTER FUNCTION audit_vote OWNER TO runwright_scheduler;
REVOKE CREATE ON SCHEMA public FROM runwright_scheduler;

CREATE TRIGGER approval_votes_are_audited AFTER INSERT OR UPDATE ON approval_votes FOR EACH ROW
    EXECUTE FUNCTION audit_vote();
