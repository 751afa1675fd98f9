"""Migrations: up, down, again, at once, by whom, and whether they make what the tables say."""

import asyncio

import pytest

from app.errors import ConfigurationError
from app.store.database import Database, DatabaseConfig
from app.store.gauges import PostgresGauges
from app.store.maintenance import maintain
from app.store.migrate import downgrade, find_drift, migrate
from tests.conftest import DatabaseUrls
from tests.store.support import query

LEFT = """
    SELECT relname AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname !~ '^alembic_version'
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""
PARTITION = "SELECT to_regclass($1) IS NOT NULL AS made"


async def test_the_migrations_make_what_the_tables_describe(shared_urls: DatabaseUrls) -> None:
    assert await find_drift(shared_urls.admin_url) == []


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE runs ADD COLUMN forgotten integer",
        "ALTER TABLE runs ALTER COLUMN recoveries TYPE bigint",
        "ALTER TABLE runs ALTER COLUMN budget DROP NOT NULL",
        "ALTER TABLE runs ALTER COLUMN recoveries SET DEFAULT 7",
        "DROP INDEX ix_runs_newest",
        "CREATE TABLE forgotten (tenant_id text)",
    ],
)
async def test_a_database_that_differs_is_found_out(fresh_urls: DatabaseUrls, change: str) -> None:
    await query(fresh_urls.superuser_url, change)
    assert len(await find_drift(fresh_urls.admin_url)) == 1


async def test_migrating_down_leaves_nothing_and_up_again_works(fresh_urls: DatabaseUrls) -> None:
    await downgrade(fresh_urls.admin_url)
    left = await query(fresh_urls.superuser_url, LEFT)
    await migrate(fresh_urls.admin_url)
    assert left == []
    assert await find_drift(fresh_urls.admin_url) == []


async def test_two_processes_that_migrate_at_once_both_end_well(blank_urls: DatabaseUrls) -> None:
    await asyncio.gather(migrate(blank_urls.admin_url), migrate(blank_urls.admin_url))
    assert await find_drift(blank_urls.admin_url) == []


async def test_a_superuser_may_migrate_and_the_tables_are_the_owners(blank_urls: DatabaseUrls) -> None:
    await migrate(blank_urls.superuser_url)
    owners = await query(
        blank_urls.superuser_url, "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname='public'"
    )
    assert [row["tableowner"] for row in owners] == ["runwright_owner"]


async def test_the_application_may_not_migrate(blank_urls: DatabaseUrls) -> None:
    with pytest.raises(ConfigurationError, match="let a superuser run: GRANT runwright_owner") as refused:
        await migrate(blank_urls.app_url)
    assert refused.value.code == "database_role_insufficient"


async def test_a_database_that_was_never_migrated_says_so(blank_urls: DatabaseUrls) -> None:
    database = Database(DatabaseConfig(url=blank_urls.app_url, pool_size=1))
    assert await PostgresGauges(database).check() == "migrations_pending"
    await database.close()


async def test_a_database_of_another_release_says_so(fresh_urls: DatabaseUrls) -> None:
    await query(fresh_urls.superuser_url, "UPDATE alembic_version SET version_num = '0000'")
    database = Database(DatabaseConfig(url=fresh_urls.app_url, pool_size=1))
    assert await PostgresGauges(database).check() == "migrations_pending"
    await database.close()


async def test_a_migrated_database_is_fit(shared_database: Database) -> None:
    assert await PostgresGauges(shared_database).check() is None


async def test_maintenance_makes_the_partitions_that_are_missing(fresh_urls: DatabaseUrls) -> None:
    [today] = await query(fresh_urls.superuser_url, "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD') AS day")
    await query(fresh_urls.superuser_url, f"DROP TABLE events_{today['day']}")
    database = Database(DatabaseConfig(url=fresh_urls.app_url, pool_size=1))
    await maintain(database)
    await database.close()
    assert (await query(fresh_urls.superuser_url, PARTITION, f"events_{today['day']}"))[0]["made"]
