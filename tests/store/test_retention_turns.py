"""Whose turn it is, what others are told of erasures, and the space of days that are empty."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.ids import TenantId
from app.ports.retention import Turn
from app.store.database import Database, DatabaseConfig
from app.store.retention import PostgresErasures
from tests.conftest import DatabaseUrls
from tests.store.ageing import KEEPING, Aged
from tests.store.support import query, wait_for_rows

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
TURN, OTHER_TURN = Turn(tenant_id=TENANT, archive=False), Turn(tenant_id=OTHER, archive=False)
DAY = "(clock_timestamp() AT TIME ZONE 'UTC')::date - {days}"
PARTITIONS = """
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'events'::regclass AND c.relname = $1
"""


@pytest.fixture
def aged(empty_urls: DatabaseUrls, empty_database: Database) -> Aged:
    return Aged(url=empty_urls.superuser_url, database=empty_database)


@pytest.fixture
def erasures(empty_database: Database) -> PostgresErasures:
    return PostgresErasures(empty_database)


async def take(aged: Aged, *, hold_seconds: float = 60, archives: bool = False) -> Turn | None:
    return await aged.store.take_turn(hold_seconds=hold_seconds, archives=archives)


async def test_each_tenant_with_a_setting_is_looked_after_once_and_by_one(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await aged.tenant(OTHER, **KEEPING)
    await aged.tenant(TenantId("ten_c"))
    assert [await take(aged) for _ in range(3)] == [TURN, OTHER_TURN, None]


async def test_a_turn_that_nobody_holds_on_to_is_given_to_the_next(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    assert [await take(aged, hold_seconds=0), await take(aged)] == [TURN, TURN]


async def test_a_turn_that_is_held_on_to_is_nobody_elses(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await take(aged, hold_seconds=0)
    await aged.store.hold_turn(TENANT, 60)
    assert await take(aged) is None


async def test_who_was_looked_after_longest_ago_comes_first(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await aged.tenant(OTHER, **KEEPING)
    await aged.store.take_turn(hold_seconds=0, archives=False)
    await aged.store.take_turn(hold_seconds=-1, archives=False)
    assert await take(aged) == OTHER_TURN


async def test_a_tenant_that_wants_an_archive_is_left_to_who_has_one(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING, archive=True)
    assert await take(aged) is None
    assert await take(aged, archives=True) == Turn(tenant_id=TENANT, archive=True)


async def test_two_that_ask_at_once_do_not_get_the_same_tenant(aged: Aged) -> None:
    await aged.tenant(TENANT, **KEEPING)
    await take(aged, hold_seconds=0)
    connection = await asyncpg.connect(aged.url)
    async with connection.transaction():
        first = await connection.fetch("SELECT tenant_id FROM take_retention_turn(false, 60)")
        second = asyncio.create_task(take(aged))
        await wait_for_rows(aged.url, "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    await connection.close()
    assert [row["tenant_id"] for row in first] == [TENANT]
    assert await second is None


async def test_an_erasure_by_a_caller_is_told_with_its_instant(aged: Aged, erasures: PostgresErasures) -> None:
    await aged.tenant(TENANT)
    run_id = await aged.ended_run(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        before = await tx.now()
        await tx.erase_run(run_id)
        after = await tx.now()
    [told] = (await erasures.since(0)).found
    assert told.tenant_id == TENANT
    assert before <= told.at <= after


async def test_the_erasure_of_a_session_is_told(aged: Aged, erasures: PostgresErasures) -> None:
    await aged.tenant(TENANT)
    session_id = await aged.session(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.erase_session(session_id)
    assert [told.tenant_id for told in (await erasures.since(0)).found] == [TENANT]


async def test_what_a_setting_erases_costs_no_text_that_was_made_since(aged: Aged, erasures: PostgresErasures) -> None:
    await aged.tenant(TENANT, **KEEPING)
    run_id = await aged.ended_run(TENANT, days=40)
    await aged.store.erase_due_run(TENANT, run_id)
    async with aged.tenants.begin(TENANT) as tx:
        now = await tx.now()
    [told] = (await erasures.since(0)).found
    assert 39.9 * 86_400 < now - told.at < 40 * 86_400


async def test_an_older_erasure_does_not_take_the_place_of_a_newer_one(aged: Aged, erasures: PostgresErasures) -> None:
    await aged.tenant(TENANT, **KEEPING)
    newer, older = await aged.ended_run(TENANT), await aged.ended_run(TENANT, days=40)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.erase_run(newer)
    first = await erasures.since(0)
    await aged.store.erase_due_run(TENANT, older)
    assert (await erasures.since(0)).found == first.found


async def test_what_was_told_is_not_told_again_once_nothing_older_can_come(
    aged: Aged, erasures: PostgresErasures
) -> None:
    await aged.tenant(TENANT)
    session_id = await aged.session(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.erase_session(session_id)
    first = await erasures.since(0)
    assert (await erasures.since(first.position)).found == []


async def test_an_erasure_that_commits_late_is_told_to_who_has_seen_later_ones(
    empty_urls: DatabaseUrls, aged: Aged, erasures: PostgresErasures
) -> None:
    await aged.tenant(TENANT)
    await aged.tenant(OTHER)
    slow, quick = await aged.session(TENANT), await aged.session(OTHER)
    second = Database(DatabaseConfig(url=empty_urls.app_url, pool_size=1))
    async with aged.tenants.begin(TENANT) as tx:
        await tx.erase_session(slow)
        async with Aged(url=aged.url, database=second).tenants.begin(OTHER) as other:
            await other.erase_session(quick)
        seen = await PostgresErasures(second).since(0)
    late = await erasures.since(seen.position)
    await second.close()
    assert [told.tenant_id for told in seen.found] == [OTHER]
    assert TENANT in [told.tenant_id for told in late.found]


async def test_a_position_of_another_database_is_begun_anew(aged: Aged, erasures: PostgresErasures) -> None:
    await aged.tenant(TENANT)
    session_id = await aged.session(TENANT)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.erase_session(session_id)
    news = await erasures.since(2**62)
    assert [told.tenant_id for told in news.found] == [TENANT]
    assert news.position < 2**62


async def make_partition(url: str, days: int) -> str:
    """The one of a day so long ago, as it was made then."""
    day = DAY.format(days=days)
    [row] = await query(url, f"SELECT 'events_' || to_char({day}, 'YYYYMMDD') AS name, {day} AS day, {day} + 1 AS next")
    await query(url, f"CREATE TABLE {row['name']} (LIKE events INCLUDING DEFAULTS)")
    await query(url, f"ALTER TABLE {row['name']} OWNER TO runwright_owner")
    await query(
        url,
        f"ALTER TABLE events ATTACH PARTITION {row['name']} FOR VALUES FROM ('{row['day']}') TO ('{row['next']}')",
    )
    await query(url, f"SELECT guard_by_tenant('{row['name']}'::regclass)")
    name: str = row["name"]
    return name


async def fill(url: str, days: int) -> None:
    day = DAY.format(days=days)
    await query(
        url,
        "INSERT INTO events (tenant_id, run_day, run_id, seq, kind, at, fence, payload)"
        f" VALUES ('ten_a', {day}, 'run_x', 1, 'run_queued', now(), 0, '{{}}')",
    )


@pytest.fixture
async def apart(fresh_urls: DatabaseUrls) -> AsyncIterator[Aged]:
    """A database whose partitions may be made and dropped."""
    database = Database(DatabaseConfig(url=fresh_urls.app_url, pool_size=2))
    yield Aged(url=fresh_urls.superuser_url, database=database)
    await database.close()


async def test_the_partition_of_an_old_day_is_dropped_when_it_is_empty(apart: Aged) -> None:
    name = await make_partition(apart.url, 40)
    assert [await apart.store.drop_empty_partition() for _ in range(2)] == [True, False]
    assert await query(apart.url, PARTITIONS, name) == []
    assert await query(apart.url, "SELECT to_regclass($1) AS left", name) == [(None,)]


async def test_a_day_of_which_an_event_of_any_tenant_is_left_stays(apart: Aged) -> None:
    name = await make_partition(apart.url, 40)
    await fill(apart.url, 40)
    assert not await apart.store.drop_empty_partition()
    assert len(await query(apart.url, PARTITIONS, name)) == 1


async def test_an_event_that_only_the_last_look_sees_saves_its_day(apart: Aged) -> None:
    name = await make_partition(apart.url, 40)
    await fill(apart.url, 40)
    await query(apart.url, "DROP POLICY scheduler_reads ON events")
    assert not await apart.store.drop_empty_partition()
    assert len(await query(apart.url, PARTITIONS, name)) == 1
    [row] = await query(apart.url, "SELECT relforcerowsecurity AS forced FROM pg_class WHERE relname = $1", name)
    assert row["forced"]


@pytest.mark.parametrize("days", [0, 1, -3])
async def test_today_yesterday_and_the_days_ahead_stay(apart: Aged, days: int) -> None:
    day = DAY.format(days=days)
    [row] = await query(apart.url, f"SELECT 'events_' || to_char({day}, 'YYYYMMDD') AS name")
    name = row["name"] if days < 1 else await make_partition(apart.url, days)
    assert not await apart.store.drop_empty_partition()
    assert len(await query(apart.url, PARTITIONS, name)) == 1


async def test_a_day_is_left_for_the_next_time_while_somebody_reads_events(apart: Aged) -> None:
    await make_partition(apart.url, 40)
    connection = await asyncpg.connect(apart.url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetch("SELECT count(*) FROM events")
    async with asyncio.timeout(20):
        assert not await apart.store.drop_empty_partition()
    await transaction.rollback()
    await connection.close()
    assert await apart.store.drop_empty_partition()
