DROP TABLE approval_votes;
DROP FUNCTION audit_vote;
ALTER TABLE approvals DROP COLUMN approvals_needed, DROP COLUMN approved_by;
