-- Places by weight are no turns. claim_runs, claim_ending_runs and renew_claims stay until the script of the release
-- before drops them.
TRUNCATE tenant_queue;
DROP FUNCTION sweep_waiting_runs, hello_worker, deployment_waits;
DROP FUNCTION is_paused;
DROP INDEX ix_runs_queued_agent;
REVOKE SELECT, UPDATE ON SEQUENCE claim_turns FROM runwright_scheduler;
