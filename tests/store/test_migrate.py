"""Migrations: up, down, again, at once, by whom, and whether they make what the tables say."""

import asyncio
from typing import Any

import pytest

from app.errors import ConfigurationError
from app.events import RunState
from app.execution.system import SystemClock
from app.ids import SessionId, TenantId, WorkerId
from app.ports.records import NewRun, RunRecord
from app.ports.sessions import NewSession
from app.store.database import Database, DatabaseConfig
from app.store.gauges import PostgresGauges
from app.store.maintenance import maintain
from app.store.migrate import downgrade, find_drift, migrate
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import new_run, query, question, read, submit, update, warned

LEFT = """
    SELECT relname AS name FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname !~ '^alembic_version'
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""
UNFORCED = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relrowsecurity AND NOT relforcerowsecurity
"""
FUNCTIONS = """
    SELECT pronargs AS arguments FROM pg_proc
    WHERE proname IN ('append_events', 'load_run', 'submit_run') AND pronamespace = 'public'::regnamespace
    ORDER BY proname
"""
CLAIM = "SELECT run_id FROM claim_runs('w', 1, 60)"
FIRST_RELEASES_APPEND = """
    SELECT seq FROM append_events($1, $2, 1, 1, ARRAY['warning'], ARRAY['{}'], 'running', 0, 0, 0, 'provider', 0, 0,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
FIRST_RELEASES_SUBMIT = """
    SELECT run_id FROM submit_run($1, 'run_old', 'clerk', 1, '"hi"', '{}', NULL, NULL, NULL, NULL, '{}', 10, 0, '{}',
        ARRAY[]::text[], ARRAY[]::text[], '{}')
"""
SECOND_RELEASES_APPEND = """
    SELECT seq FROM append_events($1, $2, 1, 1, ARRAY['terminated'], ARRAY['{}'], 'completed', 0, 0, 0, 'provider', 0,
        0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.5)
"""
SECOND_RELEASES_LOAD = """
    SELECT (l.run).*, l.definition, l.seqs, l.kinds, l.instants, l.payloads FROM load_run($1, $2, 1) l
"""
THIRD_RELEASES_SUBMIT = """
    SELECT run_id FROM submit_run($1, 'run_old', 'clerk', 1, '"hi"', '{}', NULL, NULL, NULL, NULL, '{}', 10, 0, '{}',
        ARRAY[]::text[], ARRAY[]::text[], '{}', NULL, NULL, NULL)
"""
THIRD_RELEASES_APPEND = """
    SELECT seq FROM append_events($1, $2, 1, 1, ARRAY['terminated'], ARRAY['{}'], 'completed', 0, 0, 0, 'provider', 0,
        0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.5, NULL, 1, NULL, NULL, NULL, NULL)
"""
THIRD_RELEASES_LOAD = """
    SELECT (l.run).*, l.definition, l.seqs, l.kinds, l.instants, l.payloads, l.team_names, l.team_definitions,
        l.history, l.last_agent, l.state_keys, l.state_values, l.children FROM load_run($1, $2, 1, NULL) l
"""
OWNERS = """
    SELECT proname, proowner::regrole::text AS owner, has_function_privilege('public', oid, 'EXECUTE') AS open
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef ORDER BY proname
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


async def test_a_run_outlives_the_way_down_one_release_and_up_again(fresh_urls: DatabaseUrls) -> None:
    run = await submit_to(fresh_urls, output_schema={"type": "object"})
    await downgrade(fresh_urls.admin_url, revision="0001")
    before = await query(fresh_urls.superuser_url, FUNCTIONS)
    await migrate(fresh_urls.admin_url)
    record = await read_from(fresh_urls, run)
    assert [row["arguments"] for row in before] == [20, 3, 17]
    assert (record.input, record.output_schema, record.cost) == (run.input, None, None)
    assert await find_drift(fresh_urls.admin_url) == []


async def test_a_process_of_the_first_release_goes_on_writing(fresh_urls: DatabaseUrls) -> None:
    run = await submit_to(fresh_urls)
    await query(fresh_urls.app_url, CLAIM)
    [written] = await query(fresh_urls.app_url, FIRST_RELEASES_APPEND, run.tenant_id, run.run_id)
    [submitted] = await query(fresh_urls.app_url, FIRST_RELEASES_SUBMIT, run.tenant_id)
    assert (written["seq"], submitted["run_id"]) == (2, "run_old")


async def test_a_process_of_the_second_release_ends_a_run_of_a_session_and_the_next_one_is_claimed(
    fresh_urls: DatabaseUrls,
) -> None:
    await open_session(fresh_urls)
    first, second = [await submit_to(fresh_urls, session_id="ses_1") for _ in range(2)]
    await query(fresh_urls.app_url, CLAIM)
    [loaded] = await query(fresh_urls.app_url, SECOND_RELEASES_LOAD, first.tenant_id, first.run_id)
    await query(fresh_urls.app_url, SECOND_RELEASES_APPEND, first.tenant_id, first.run_id)
    [claimed] = await query(fresh_urls.app_url, CLAIM)
    assert (loaded["run_id"], loaded["seqs"]) == (first.run_id, [1])
    assert claimed["run_id"] == second.run_id


async def test_runs_of_sessions_outlive_the_way_down_one_release_and_runs_below_others_do_not(
    fresh_urls: DatabaseUrls,
) -> None:
    await open_session(fresh_urls)
    first, second = [await submit_to(fresh_urls, session_id="ses_1", output_schema={}) for _ in range(2)]
    await adopt_in(fresh_urls)
    await downgrade(fresh_urls.admin_url, revision="0002")
    before = await query(fresh_urls.superuser_url, FUNCTIONS)
    runs = await query(fresh_urls.superuser_url, "SELECT run_id, output_schema FROM runs ORDER BY created_at")
    events = await query(fresh_urls.superuser_url, "SELECT DISTINCT run_id FROM events")
    claimed = await query(fresh_urls.app_url, CLAIM)
    await migrate(fresh_urls.admin_url)
    assert [row["arguments"] for row in before] == [21, 3, 18]
    assert [tuple(row) for row in runs] == [(first.run_id, "{}"), (second.run_id, "{}")]
    assert {row["run_id"] for row in events} == {first.run_id, second.run_id}
    assert [row["run_id"] for row in claimed] == [second.run_id]
    assert (await read_from(fresh_urls, first)).session_id is None
    assert await find_drift(fresh_urls.admin_url) == []
    assert await query(fresh_urls.superuser_url, UNFORCED) == []


async def test_a_process_of_the_third_release_goes_on_working(fresh_urls: DatabaseUrls) -> None:
    run = await submit_to(fresh_urls)
    [claimed] = await query(fresh_urls.app_url, CLAIM)
    [loaded] = await query(fresh_urls.app_url, THIRD_RELEASES_LOAD, run.tenant_id, run.run_id)
    [written] = await query(fresh_urls.app_url, THIRD_RELEASES_APPEND, run.tenant_id, run.run_id)
    [submitted] = await query(fresh_urls.app_url, THIRD_RELEASES_SUBMIT, run.tenant_id)
    [again] = await query(fresh_urls.app_url, CLAIM)
    assert claimed["run_id"] == loaded["run_id"] == run.run_id
    assert (written["seq"], submitted["run_id"], again["run_id"]) == (2, "run_old", "run_old")


async def test_a_run_of_the_third_release_is_taken_by_any_worker(fresh_urls: DatabaseUrls) -> None:
    await submit_to(fresh_urls)
    await query(fresh_urls.app_url, CLAIM)
    await query(fresh_urls.app_url, THIRD_RELEASES_SUBMIT, "ten_a")
    [claimed] = await query(fresh_urls.app_url, "SELECT run_id FROM claim_runs('w', 1, 60, ARRAY[]::text[])")
    assert claimed["run_id"] == "run_old"


async def test_functions_over_all_tenants_are_the_same_ones_after_the_way_down_and_up(fresh_urls: DatabaseUrls) -> None:
    before = await query(fresh_urls.superuser_url, OWNERS)
    await downgrade(fresh_urls.admin_url, revision="0003")
    between = await query(fresh_urls.superuser_url, OWNERS)
    await migrate(fresh_urls.admin_url)
    assert await query(fresh_urls.superuser_url, OWNERS) == before
    assert set(between) < set(before)
    assert [row for row in before if row["open"]] == []


async def test_a_run_that_waits_for_people_is_queued_on_the_way_down_and_its_questions_are_gone(
    fresh_urls: DatabaseUrls,
) -> None:
    run = await submit_to(fresh_urls)
    await suspend_in(fresh_urls)
    await downgrade(fresh_urls.admin_url, revision="0003")
    before = await query(fresh_urls.superuser_url, FUNCTIONS)
    [claimed] = await query(fresh_urls.app_url, CLAIM)
    await migrate(fresh_urls.admin_url)
    assert [row["arguments"] for row in before] == [27, 4, 20]
    assert claimed["run_id"] == run.run_id
    assert (await read_from(fresh_urls, run)).state is RunState.RUNNING
    assert await query(fresh_urls.superuser_url, "SELECT FROM approvals") == []
    assert await find_drift(fresh_urls.admin_url) == []
    assert await query(fresh_urls.superuser_url, UNFORCED) == []


async def suspend_in(urls: DatabaseUrls) -> None:
    """Claims a run, which asks people and waits for them."""
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
    work = PostgresWorkStore(database, SystemClock())
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED, asked=(question(),)))
    await database.close()


async def open_session(urls: DatabaseUrls) -> None:
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
    async with PostgresTenantStore(database).begin(TenantId("ten_a")) as tx:
        await tx.insert_session(NewSession(session_id=SessionId("ses_1")))
    await database.close()


async def adopt_in(urls: DatabaseUrls) -> None:
    """Claims a run and makes one below it."""
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
    work = PostgresWorkStore(database, SystemClock())
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.adopt(claim, new_run(claim.tenant_id, parent_run_id=claim.run_id))
    await database.close()


async def submit_to(urls: DatabaseUrls, **changes: Any) -> NewRun:
    run = new_run(TenantId("ten_a"), **changes)
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
    await submit(database, run)
    await database.close()
    return run


async def read_from(urls: DatabaseUrls, run: NewRun) -> RunRecord:
    database = Database(DatabaseConfig(url=urls.app_url, pool_size=1))
    record = await read(database, run.tenant_id, run.run_id)
    await database.close()
    return record


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
