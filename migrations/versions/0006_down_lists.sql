DROP TRIGGER run_metadata_is_dated ON run_metadata;
DROP FUNCTION date_run_metadata;
DROP INDEX ix_run_metadata_newest;
ALTER TABLE run_metadata DROP COLUMN created_at;
DROP INDEX ix_approvals_tool, ix_approvals_agent, ix_approvals_closed, ix_runs_session, ix_runs_agent, ix_runs_state;
