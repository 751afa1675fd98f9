-- Roles stay: they belong to the whole cluster.
DROP FUNCTION admin_add_key, admin_ensure_tenant, forget_idempotency_keys, deployment_gauges, find_key,
    requeue_expired_runs, release_claim, renew_claims, claim_ending_runs, claim_runs, load_run, append_events, submit_run,
    ensure_event_partitions;
DROP TABLE idempotency_keys, events, tenant_queue, run_metadata, runs, agent_versions, agents, keys, tenants;
DROP SEQUENCE claim_turns;
DROP FUNCTION refuse_event_after_end, refuse_to_revive_run, guard_by_tenant;
