ALTER FUNCTION claim_runs RESET enable_seqscan;
ALTER FUNCTION claim_runs RESET enable_hashjoin;
ALTER FUNCTION claim_runs RESET enable_mergejoin;
DROP FUNCTION admit_keys, submit_runs, append_to_runs;
