"""What durability promises of the database itself: its keys, its locks, and what it refuses whoever asks."""

from collections.abc import Sequence

import asyncpg
import pytest

from app.execution.system import SystemClock
from app.ids import RunId, TenantId, WorkerId
from app.settings import Settings
from app.store.database import Database, DatabaseConfig
from app.store.feed import PostgresFeed
from app.store.tables import metadata
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.wiring.schema import open_server
from tests.conftest import DatabaseUrls
from tests.store.ageing import locked
from tests.store.support import new_run, query, question, read, submit, update, warned

TENANT = TenantId("ten_a")
WORKER = WorkerId("w")
# They have a row for each key, set of names and process.
OF_THE_DEPLOYMENT = {"audit", "audit_key", "keys", "lanes", "pauses", "workers"}
IDLE = "SELECT setting::float8 / 1000 AS seconds FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'"
LOCK_RUN = "SELECT FROM runs WHERE run_id = $1 FOR UPDATE"


def test_every_table_but_those_of_the_deployment_has_the_tenant_first_in_its_primary_key() -> None:
    firsts = {table.name: next(iter(table.primary_key.columns)).name for table in metadata.sorted_tables}
    assert {name for name, first in firsts.items() if first != "tenant_id"} == OF_THE_DEPLOYMENT


async def test_events_are_partitioned_by_the_day_of_their_run_which_is_part_of_their_key(
    shared_urls: DatabaseUrls,
) -> None:
    [row] = await query(
        shared_urls.superuser_url,
        "SELECT pg_get_partkeydef('events'::regclass) AS parts, pg_get_constraintdef(oid) AS key"
        " FROM pg_constraint WHERE conrelid = 'events'::regclass AND contype = 'p'",
    )
    assert (row["parts"], row["key"]) == ("RANGE (run_day)", "PRIMARY KEY (tenant_id, run_day, run_id, seq)")


async def test_who_is_paused_in_a_transaction_holds_its_rows_for_less_than_a_third_of_the_default_lease(
    shared_database: Database,
) -> None:
    [row] = await shared_database.fetch(IDLE)
    assert 0 < row["seconds"] < Settings.model_fields["lease_seconds"].default / 3


@pytest.mark.parametrize(("lease_seconds", "expected"), [(1.0, 0.3), (6.0, 1.8), (30.0, 9.0), (3600.0, 9.0)])
async def test_with_any_lease_the_database_ends_what_is_paused_in_time(
    shared_urls: DatabaseUrls, monkeypatch: pytest.MonkeyPatch, lease_seconds: float, expected: float
) -> None:
    monkeypatch.setenv("DATABASE_URL", shared_urls.app_url)
    monkeypatch.setenv("RUNWRIGHT_LEASE_SECONDS", str(lease_seconds))
    settings = Settings.load()
    async with open_server(settings) as config:
        database = Database(config)
        [row] = await database.fetch(IDLE)
        await database.close()
    assert row["seconds"] == pytest.approx(expected)


async def test_a_lapsed_run_that_somebody_holds_keeps_no_other_one_from_the_queue(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    held, other = await submit(empty_database, new_run(TENANT)), await submit(empty_database, new_run(TENANT))
    await work.claim(WORKER, limit=2, lease_seconds=60)
    await query(empty_urls.superuser_url, "UPDATE runs SET lease_expires_at = now() - interval '1 s'")
    async with locked(empty_urls.superuser_url, LOCK_RUN, held.run_id):
        assert await work.requeue_expired() == 1
        assert (await read(empty_database, TENANT, other.run_id)).recoveries == 1
    assert await work.requeue_expired() == 1


async def test_a_lease_whose_row_somebody_holds_costs_a_worker_none_of_its_leases(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    held, other = await submit(empty_database, new_run(TENANT)), await submit(empty_database, new_run(TENANT))
    claims = await work.claim(WORKER, limit=2, lease_seconds=60)
    async with locked(empty_urls.superuser_url, LOCK_RUN, held.run_id):
        renewed = await work.renew(claims, lease_seconds=600)
    left = await query(
        empty_urls.superuser_url, "SELECT run_id FROM runs WHERE lease_expires_at > now() + interval '5 min'"
    )
    assert {run_id: told.extended for run_id, told in renewed.items()} == {held.run_id: False, other.run_id: True}
    assert [row["run_id"] for row in left] == [other.run_id]


async def test_a_run_below_another_is_extended_as_its_root_is(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    await submit(empty_database, new_run(TENANT))
    [root] = await work.claim(WORKER, limit=1, lease_seconds=60)
    below = (await work.adopt(root, new_run(TENANT, parent_run_id=root.run_id))).claim
    async with locked(empty_urls.superuser_url, LOCK_RUN, root.run_id):
        stuck = await work.renew([root, below], lease_seconds=600)
    async with locked(empty_urls.superuser_url, LOCK_RUN, below.run_id):
        free = await work.renew([root, below], lease_seconds=600)
    assert [told.extended for told in (*stuck.values(), *free.values())] == [False, False, True, True]


async def test_a_claim_passes_a_run_that_somebody_holds(empty_urls: DatabaseUrls, empty_database: Database) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    held, other = await submit(empty_database, new_run(TENANT)), await submit(empty_database, new_run(TENANT))
    async with locked(empty_urls.superuser_url, LOCK_RUN, held.run_id):
        taken = await work.claim(WORKER, limit=2, lease_seconds=60)
    assert [claim.run_id for claim in taken] == [other.run_id]


async def test_a_tenant_all_of_whose_runs_somebody_holds_stops_no_other_one(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    await submit(empty_database, new_run(TENANT))
    free = await submit(empty_database, new_run(TenantId("ten_b")))
    async with locked(empty_urls.superuser_url, "SELECT FROM runs WHERE tenant_id = $1 FOR UPDATE", TENANT):
        taken = await work.claim(WORKER, limit=1, lease_seconds=60)
    assert [claim.run_id for claim in taken] == [free.run_id]


async def test_not_even_a_superuser_answers_a_question_again(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    run = await submit(empty_database, new_run(TENANT))
    work = PostgresWorkStore(empty_database, SystemClock())
    [claim] = await work.claim(WORKER, limit=1, lease_seconds=60)
    asked = question()
    await work.append_if_owner(claim, [warned()], update(asked=(asked,)))
    await query(empty_urls.superuser_url, "UPDATE approvals SET status = 'expired', decided_at = now()")
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="is expired and stays so"):
        await query(empty_urls.superuser_url, "UPDATE approvals SET status = 'cancelled'")
    async with PostgresTenantStore(empty_database).begin(TENANT) as tx:
        kept = await tx.get_approval(asked.approval_id)
    assert kept is not None
    assert (kept.run_id, kept.status) == (run.run_id, "expired")


async def test_news_of_many_runs_are_one_notification(shared_urls: DatabaseUrls) -> None:
    feed = PostgresFeed(DatabaseConfig(url=shared_urls.app_url))
    runs = [new_run(TENANT).run_id for _ in range(100)]
    _announce(feed, [*runs, *runs])
    [hint] = feed.take_hints()
    assert hint.split()[2:] == runs


def _announce(feed: PostgresFeed, runs: Sequence[RunId]) -> None:
    for run_id in runs:
        feed.announce_stored(run_id)
