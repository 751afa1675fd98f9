-- Nobody could answer what suspended runs wait for: the release before ends them, or asks again in its own way. The
-- owner sees them while it is not held.
ALTER TABLE runs NO FORCE ROW LEVEL SECURITY;
UPDATE runs SET state = 'queued', queued_at = clock_timestamp() WHERE state = 'suspended' AND parent_run_id IS NULL;
ALTER TABLE runs FORCE ROW LEVEL SECURITY;

DROP FUNCTION runs_before, put_questions, end_questions, empty_turns, find_approval;
-- submit_run, append_events and load_run stay until the script of the release before drops them.
DROP FUNCTION store_state, adopt_run, end_turn, save_artifact, add_artifact, erase_session;
DROP FUNCTION sweep_waiting_runs, hello_worker, deployment_waits, admin_add_key, admin_ensure_tenant,
    forget_idempotency_keys, deployment_gauges, find_key, requeue_expired_runs, release_claim, renew_claims,
    claim_ending_runs, claim_runs;

ALTER POLICY scheduler_moves ON runs
    USING (state IN ('queued', 'running')) WITH CHECK (state IN ('queued', 'running'));

DROP TABLE approval_changes, approvals, workers, lanes;
DROP FUNCTION note_approval_change, refuse_to_decide_again, current_incarnation;
DROP INDEX uq_runs_resumes, ix_runs_recovered, ix_runs_queued;
ALTER TABLE runs DROP COLUMN resolutions, DROP COLUMN first_run_id, DROP COLUMN resumed_by, DROP COLUMN resumes, DROP COLUMN lane;
CREATE INDEX ix_runs_queued ON runs (tenant_id, priority DESC, created_at, run_id)
    WHERE state = 'queued' AND NOT blocked;
ALTER TABLE tenants DROP COLUMN retention, DROP COLUMN allow_self_approval, DROP COLUMN max_running;
