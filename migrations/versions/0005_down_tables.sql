DROP FUNCTION tenant_rules;
-- Its column goes, and the grants of all columns that are taken away with theirs.
REVOKE UPDATE (expires_at, revoked_at) ON keys FROM runwright_scheduler;
DROP TABLE tenant_rates, pauses, ceilings;
REVOKE SELECT (tenant_id) ON tenant_queue FROM runwright_app;
ALTER TABLE tenant_queue DROP COLUMN started_at, DROP COLUMN turn_seconds;
ALTER TABLE workers DROP COLUMN drain_requested_at;
DROP INDEX ix_keys_tenant, ix_tenants_erasing;
ALTER TABLE keys DROP COLUMN replaces, DROP COLUMN last_used_at, DROP COLUMN description, DROP COLUMN groups;
ALTER TABLE tenants
    DROP COLUMN erase_requested_at,
    DROP COLUMN approvers,
    DROP COLUMN on_ledger_error,
    DROP COLUMN budget,
    DROP COLUMN models,
    DROP COLUMN tools,
    DROP COLUMN weight,
    DROP COLUMN requests_per_minute,
    DROP COLUMN max_queued;
