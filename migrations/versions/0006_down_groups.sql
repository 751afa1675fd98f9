ALTER FUNCTION claim_runs RESET enable_seqscan;
DROP FUNCTION admit_keys, submit_runs, append_to_runs;
