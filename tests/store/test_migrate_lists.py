"""Pairs of metadata that were stored before the release that lists along them are found by it."""

import asyncpg

from app.ids import RunId, TenantId
from app.ports.records import RunFilter
from app.store.database import Database, DatabaseConfig
from app.store.migrate import migrate
from app.store.tenant import PostgresTenantStore
from tests.conftest import DatabaseUrls

OLD_RUN = """
    INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, budget, max_llm_calls,
        priority, metadata, created_at, queued_at, ended_at)
    VALUES ($1, $2, current_date, 'completed', 'clerk', 1, '"hi"', '{"pinned":[],"retrieved":[]}',
        '{"limits":{},"sources":{}}', 10, 0, '{"case":"7"}', now(), now(), now())
"""
OLD_PAIR = "INSERT INTO run_metadata (tenant_id, key, value, run_id) VALUES ($1, 'case', '7', $2)"
TENANT = "INSERT INTO tenants (tenant_id, name, created_at) VALUES ($1, $1, now())"
TENANTS = ("ten_a", "ten_b")


async def _store_old_runs(urls: DatabaseUrls) -> None:
    connection = await asyncpg.connect(urls.superuser_url)
    try:
        await connection.executemany(TENANT, [(tenant,) for tenant in TENANTS])
        runs = [(tenant, f"run_{tenant}") for tenant in TENANTS]
        await connection.executemany(OLD_RUN, runs)
        await connection.executemany(OLD_PAIR, runs)
    finally:
        await connection.close()


async def _find(urls: DatabaseUrls, tenant: str) -> list[RunId]:
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
    try:
        async with PostgresTenantStore(database).begin(TenantId(tenant)) as tx:
            found = await tx.list_runs(RunFilter(metadata={"case": "7"}), limit=9, before=(4e9, RunId("run_z")))
            return [run.run_id for run in found]
    finally:
        await database.close()


async def test_runs_of_the_release_before_are_found_by_their_metadata_by_every_tenant(
    blank_urls: DatabaseUrls,
) -> None:
    await migrate(blank_urls.admin_url, revision="0005")
    await _store_old_runs(blank_urls)
    await migrate(blank_urls.admin_url)
    assert [await _find(blank_urls, tenant) for tenant in TENANTS] == [["run_ten_a"], ["run_ten_b"]]
