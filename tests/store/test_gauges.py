"""Figures for a scrape."""

import pytest

from app.events import RunState
from app.execution.system import SystemClock
from app.ids import SessionId, TenantId, WorkerId
from app.ports.records import CancelWish
from app.ports.sessions import NewSession
from app.store.database import Database, DatabaseConfig
from app.store.gauges import PostgresGauges
from app.store.tenant import PostgresTenantStore
from app.store.webhooks import PostgresOutbox
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.outbox import add_webhook, send_test, send_tests, take
from tests.store.support import FUTURE, PAST, new_run, query, question, read, submit, terminated, update, warned

TENANTS = [TenantId("ten_a"), TenantId("ten_b")]


async def test_an_empty_deployment_counts_zero_of_each_state(empty_database: Database) -> None:
    snapshot = await PostgresGauges(empty_database).snapshot()
    assert snapshot.runs_by_state == {"queued": 0, "running": 0, "suspended": 0}
    assert snapshot.oldest_queued_seconds == 0


async def test_runs_of_all_tenants_are_counted(empty_database: Database) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    for tenant in TENANTS * 2:
        await submit(empty_database, new_run(tenant))
    claims = await work.claim(WorkerId("w"), limit=2, lease_seconds=60)
    await work.append_if_owner(claims[0], [terminated()], update(RunState.COMPLETED))
    snapshot = await PostgresGauges(empty_database).snapshot()
    assert snapshot.runs_by_state == {"queued": 2, "running": 1, "suspended": 0}


async def test_the_oldest_waiting_run_is_told(empty_urls: DatabaseUrls, empty_database: Database) -> None:
    await submit(empty_database, new_run(TENANTS[0]))
    await query(empty_urls.superuser_url, "UPDATE runs SET queued_at = queued_at - interval '1 hour'")
    assert (await PostgresGauges(empty_database).snapshot()).oldest_queued_seconds == pytest.approx(3600, abs=30)


async def test_a_run_below_another_is_not_counted_beside_it(empty_database: Database) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    await submit(empty_database, new_run(TENANTS[0]))
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    first, second = [new_run(TENANTS[0], parent_run_id=claim.run_id) for _ in range(2)]
    await work.adopt(claim, first)
    adopted = await work.adopt(claim, second)
    await work.append_if_owner(adopted.claim, [warned()], update(RunState.SUSPENDED))
    snapshot = await PostgresGauges(empty_database).snapshot()
    assert snapshot.runs_by_state == {"queued": 0, "running": 1, "suspended": 0}


async def test_a_run_that_waits_for_its_session_is_queued_and_no_sign_of_too_few_workers(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    async with PostgresTenantStore(empty_database).begin(TENANTS[0]) as tx:
        await tx.insert_session(NewSession(session_id=SessionId("ses_1")))
    for _ in range(2):
        await submit(empty_database, new_run(TENANTS[0], session_id="ses_1"))
    await query(empty_urls.superuser_url, "UPDATE runs SET queued_at = queued_at - interval '1 hour' WHERE blocked")
    snapshot = await PostgresGauges(empty_database).snapshot()
    assert snapshot.runs_by_state["queued"] == 2
    assert snapshot.oldest_queued_seconds == pytest.approx(0, abs=30)


async def test_a_queued_run_that_no_worker_has_everything_for_is_told(empty_database: Database) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    for needs in ({"model:a"}, {"model:a", "tool:b"}, {"model:c"}):
        await submit(empty_database, new_run(TENANTS[0], needs=frozenset(needs)))
    await work.hello(WorkerId("w"), frozenset({"model:a"}))
    await work.hello(WorkerId("v"), frozenset({"model:c", "tool:b"}))
    assert (await PostgresGauges(empty_database).snapshot()).unclaimable == 1


async def test_without_a_worker_nobody_can_take_a_run_that_needs_nothing(empty_database: Database) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    await submit(empty_database, new_run(TENANTS[0]))
    before = (await PostgresGauges(empty_database).snapshot()).unclaimable
    await work.hello(WorkerId("w"), frozenset())
    assert (before, (await PostgresGauges(empty_database).snapshot()).unclaimable) == (1, 0)


async def test_a_worker_that_was_not_heard_of_lately_does_not_count(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    await submit(empty_database, new_run(TENANTS[0]))
    await PostgresWorkStore(empty_database, SystemClock()).hello(WorkerId("w"), frozenset())
    await query(empty_urls.superuser_url, "UPDATE workers SET seen_at = now() - interval '3 minutes'")
    assert (await PostgresGauges(empty_database).snapshot()).unclaimable == 1


async def test_a_run_that_runs_or_waits_for_its_session_is_not_unclaimable(empty_database: Database) -> None:
    async with PostgresTenantStore(empty_database).begin(TENANTS[0]) as tx:
        await tx.insert_session(NewSession(session_id=SessionId("ses_1")))
    for _ in range(2):
        await submit(empty_database, new_run(TENANTS[0], session_id="ses_1", needs=frozenset({"x"})))
    await PostgresWorkStore(empty_database, SystemClock()).claim(WorkerId("w"), limit=9, lease_seconds=60)
    assert (await PostgresGauges(empty_database).snapshot()).unclaimable == 0


async def test_a_run_that_only_needs_to_end_is_any_workers(empty_database: Database) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    needs = frozenset({"model:gone"})
    late, cancelled, waiting = [
        await submit(empty_database, new_run(TENANTS[0], needs=needs, deadline_at=at)) for at in (PAST, None, FUTURE)
    ]
    async with PostgresTenantStore(empty_database).begin(TENANTS[0]) as tx:
        await tx.request_cancel(cancelled.run_id, CancelWish(reason=None, requested_by=None))
    await work.hello(WorkerId("w"), frozenset())
    unclaimable = (await PostgresGauges(empty_database).snapshot()).unclaimable
    ending = await work.claim_ending(WorkerId("w"), limit=9, lease_seconds=60)
    assert unclaimable == 1
    assert {claim.run_id for claim in ending} == {late.run_id, cancelled.run_id}
    assert (await read(empty_database, TENANTS[0], waiting.run_id)).state is RunState.QUEUED


async def test_notices_that_have_not_arrived_are_counted_and_the_oldest_is_told(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    first, second = [await add_webhook(empty_database, tenant) for tenant in TENANTS]
    await send_tests(empty_database, first, 2)
    [arrived, late] = await take(empty_database)
    outbox = PostgresOutbox(empty_database)
    await outbox.delivered(arrived, status=200)
    await outbox.failed(late, status=500, error="status", retry_in_seconds=600)
    await send_test(empty_database, second)
    await query(
        empty_urls.superuser_url,
        "UPDATE webhook_deliveries SET created_at = now() - CASE status WHEN 'pending' THEN interval '1 hour'"
        " ELSE interval '1 day' END",
    )
    snapshot = await PostgresGauges(empty_database).snapshot()
    assert snapshot.notices_waiting == 2
    assert snapshot.oldest_notice_seconds == pytest.approx(3600, abs=30)


async def test_open_questions_of_all_tenants_are_counted_and_the_oldest_is_told(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    for tenant in TENANTS:
        await submit(empty_database, new_run(tenant))
    for claim in await work.claim(WorkerId("w"), limit=2, lease_seconds=60):
        asked = (question(), question(expires_at=PAST))
        await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED, asked=asked))
    await query(
        empty_urls.superuser_url,
        "UPDATE approvals SET requested_at = now() - CASE WHEN expires_at IS NULL THEN interval '1 hour'"
        " ELSE interval '1 day' END",
    )
    snapshot = await PostgresGauges(empty_database).snapshot()
    assert snapshot.approvals_pending == 2
    assert snapshot.oldest_approval_seconds == pytest.approx(3600, abs=30)


async def test_in_an_empty_deployment_nothing_waits(empty_database: Database) -> None:
    snapshot = await PostgresGauges(empty_database).snapshot()
    assert (snapshot.unclaimable, snapshot.approvals_pending, snapshot.oldest_approval_seconds) == (0, 0, 0)
    assert (snapshot.notices_waiting, snapshot.oldest_notice_seconds) == (0, 0)


async def test_a_database_that_is_away_says_so(shared_urls: DatabaseUrls) -> None:
    database = Database(DatabaseConfig(url="postgresql://nobody@/none?host=/nonexistent", pool_size=1))
    assert await PostgresGauges(database).check() == "database_unavailable"
    await database.close()


async def test_workers_that_were_heard_of_and_take_runs_are_counted(
    empty_urls: DatabaseUrls, empty_database: Database
) -> None:
    work = PostgresWorkStore(empty_database, SystemClock())
    for name in ("busy", "silent", "sent-away", "other"):
        await work.hello(WorkerId(name), frozenset())
    silent = "UPDATE workers SET seen_at = seen_at - interval '3 minutes' WHERE worker_id = 'silent'"
    sent_away = "UPDATE workers SET drain_requested_at = clock_timestamp() WHERE worker_id = 'sent-away'"
    await query(empty_urls.superuser_url, silent)
    await query(empty_urls.superuser_url, sent_away)
    assert (await PostgresGauges(empty_database).snapshot()).workers == 2
