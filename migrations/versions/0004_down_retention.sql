-- erase_session goes and comes back with the other functions of the release before.
DROP FUNCTION IF EXISTS admin_set_tenant, admin_tenants, drop_empty_event_partition, is_day_empty, erasures_since,
    hold_retention_turn, take_retention_turn, retain_session, retain_run, erase_run, note_erasure,
    erase_session_rows, erase_trees, is_run_needed, list_tree, is_session_due, kept_from;
REVOKE UPDATE (max_running, allow_self_approval, retention) ON tenants FROM runwright_scheduler;
DROP INDEX IF EXISTS ix_runs_ended;
DROP TABLE IF EXISTS retention_turns, erasures;
