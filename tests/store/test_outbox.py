"""Who takes a notice from the outbox, and what becomes of it."""

import asyncio

import pytest

from app.ids import TenantId
from app.ports.webhooks import DeliveryStatus
from app.store.database import Database
from app.store.webhooks import PostgresOutbox
from tests.conftest import DatabaseUrls
from tests.store.outbox import (
    add_webhook,
    deliveries_of,
    delivery_of,
    end_run,
    let_time_pass,
    read_webhook,
    send_test,
    send_tests,
    take,
    take_one,
)
from tests.store.support import new_run, query

ERASED_LONG_AGO = "SELECT forget_deliveries(interval '0 seconds', $1) AS count"


async def test_a_notice_that_was_taken_is_nobody_elses(empty_database: Database, tenant_id: TenantId) -> None:
    await send_test(empty_database, await add_webhook(empty_database, tenant_id))
    assert len(await take(empty_database)) == 1
    assert await take(empty_database) == []


async def test_a_notice_that_was_taken_and_never_marked_comes_again(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await send_test(empty_database, await add_webhook(empty_database, tenant_id))
    first = await take_one(empty_database)
    await let_time_pass(empty_urls.superuser_url)
    again = await take_one(empty_database)
    assert (again.delivery_id, again.body) == (first.delivery_id, first.body)
    assert (first.attempts, again.attempts) == (1, 2)


async def test_a_notice_is_held_for_as_long_as_was_asked(empty_database: Database, tenant_id: TenantId) -> None:
    await send_test(empty_database, await add_webhook(empty_database, tenant_id))
    await take(empty_database, hold_seconds=0.05)
    await asyncio.sleep(0.1)
    assert len(await take(empty_database)) == 1


async def test_carriers_that_take_at_once_share(empty_database: Database, tenant_id: TenantId) -> None:
    webhooks = [await add_webhook(empty_database, tenant_id) for _ in range(4)]
    sent = [notice.delivery_id for webhook in webhooks for notice in await send_tests(empty_database, webhook, 5)]
    rounds = await asyncio.gather(*(take(empty_database, limit=6) for _ in range(4)))
    rest = await take(empty_database)
    taken = [due.delivery_id for due in (*rest, *(due for one in rounds for due in one))]
    assert sorted(taken) == sorted(sent)


async def test_no_more_is_taken_than_was_asked_for(empty_database: Database, tenant_id: TenantId) -> None:
    await send_tests(empty_database, await add_webhook(empty_database, tenant_id), 3)
    assert len(await take(empty_database, limit=2)) == 2


async def test_the_oldest_notice_to_a_webhook_comes_first(empty_database: Database, tenant_id: TenantId) -> None:
    first, *_ = await send_tests(empty_database, await add_webhook(empty_database, tenant_id), 3)
    [due] = await take(empty_database, limit=1)
    assert due.delivery_id == first.delivery_id


async def test_a_webhook_with_many_notices_holds_up_no_other(empty_database: Database, tenant_id: TenantId) -> None:
    busy = await add_webhook(empty_database, tenant_id)
    await send_tests(empty_database, busy, 20)
    await take(empty_database, limit=4)
    quiet = await add_webhook(empty_database, TenantId("ten_quiet"))
    await send_test(empty_database, quiet)
    [due] = await take(empty_database, limit=1)
    assert due.webhook_id == quiet.webhook_id


async def test_only_so_many_notices_are_under_way_to_one_webhook(empty_database: Database, tenant_id: TenantId) -> None:
    await send_tests(empty_database, await add_webhook(empty_database, tenant_id), 10)
    first = await take(empty_database)
    assert (len(first), await take(empty_database)) == (8, [])
    await PostgresOutbox(empty_database).delivered(first[0], status=200)
    assert len(await take(empty_database)) == 1


async def test_a_delivered_notice_is_over(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await send_test(empty_database, await add_webhook(empty_database, tenant_id))
    due = await take_one(empty_database)
    await PostgresOutbox(empty_database).delivered(due, status=204)
    await let_time_pass(empty_urls.superuser_url)
    assert await take(empty_database) == []
    told = await delivery_of(empty_database, due)
    assert (told.status, told.attempts, told.last_status, told.last_error, told.next_attempt_at) == (
        DeliveryStatus.DELIVERED,
        1,
        204,
        None,
        None,
    )
    assert told.delivered_at is not None


async def test_what_is_over_is_kept_without_its_text(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await send_tests(empty_database, await add_webhook(empty_database, tenant_id), 2)
    arrived, lost = await take(empty_database)
    await PostgresOutbox(empty_database).delivered(arrived, status=204)
    await PostgresOutbox(empty_database).failed(lost, status=None, error="timeout", retry_in_seconds=None)
    rows = await query(empty_urls.superuser_url, "SELECT FROM webhook_deliveries WHERE body IS NOT NULL")
    assert rows == []


async def test_a_notice_that_failed_waits_for_its_next_time(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await send_test(empty_database, await add_webhook(empty_database, tenant_id))
    due = await take_one(empty_database)
    await PostgresOutbox(empty_database).failed(due, status=503, error="http_5xx", retry_in_seconds=500)
    assert await take(empty_database) == []
    told = await delivery_of(empty_database, due)
    assert (told.status, told.last_status, told.last_error) == (DeliveryStatus.PENDING, 503, "http_5xx")
    assert told.next_attempt_at == pytest.approx(told.created_at + 500, abs=20)
    await let_time_pass(empty_urls.superuser_url)
    assert (await take_one(empty_database)).attempts == 2


async def test_a_notice_that_was_given_up_is_over(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await send_test(empty_database, await add_webhook(empty_database, tenant_id))
    due = await take_one(empty_database)
    await PostgresOutbox(empty_database).failed(due, status=None, error="timeout", retry_in_seconds=None)
    await let_time_pass(empty_urls.superuser_url)
    assert await take(empty_database) == []
    told = await delivery_of(empty_database, due)
    assert (told.status, told.last_error, told.delivered_at) == (DeliveryStatus.FAILED, "timeout", None)


async def test_a_carrier_that_was_away_for_too_long_fails_nothing(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await send_test(empty_database, await add_webhook(empty_database, tenant_id))
    stale = await take_one(empty_database)
    await let_time_pass(empty_urls.superuser_url)
    await take_one(empty_database)
    before = await delivery_of(empty_database, stale)
    await PostgresOutbox(empty_database).failed(stale, status=500, error="http_5xx", retry_in_seconds=None)
    await PostgresOutbox(empty_database).failed(stale, status=500, error="http_5xx", retry_in_seconds=0)
    assert await delivery_of(empty_database, stale) == before


async def test_what_a_slow_carrier_delivered_is_delivered(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await send_test(empty_database, await add_webhook(empty_database, tenant_id))
    slow = await take_one(empty_database)
    await let_time_pass(empty_urls.superuser_url)
    second = await take_one(empty_database)
    await PostgresOutbox(empty_database).delivered(slow, status=200)
    await PostgresOutbox(empty_database).failed(second, status=500, error="http_5xx", retry_in_seconds=0)
    assert (await delivery_of(empty_database, slow)).status is DeliveryStatus.DELIVERED


async def test_a_webhook_whose_receiver_is_gone_is_told_nothing_more(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    webhook = await add_webhook(empty_database, tenant_id)
    await send_tests(empty_database, webhook, 2)
    [due] = await take(empty_database, limit=1)
    await PostgresOutbox(empty_database).failed(due, status=410, error="gone", retry_in_seconds=None, disable=True)
    await end_run(empty_database, new_run(tenant_id))
    assert (await read_webhook(empty_database, webhook)).disabled_at is not None
    assert await take(empty_database) == []
    told = [(one.status, one.last_error) for one in await deliveries_of(empty_database, webhook)]
    assert told == [(DeliveryStatus.FAILED, "webhook_disabled"), (DeliveryStatus.FAILED, "gone")]


async def test_the_end_of_one_webhook_is_not_the_end_of_the_others(
    empty_database: Database, tenant_id: TenantId
) -> None:
    gone = await add_webhook(empty_database, tenant_id)
    await send_test(empty_database, gone)
    due = await take_one(empty_database)
    await PostgresOutbox(empty_database).failed(due, status=410, error="gone", retry_in_seconds=None, disable=True)
    other = await add_webhook(empty_database, tenant_id)
    await end_run(empty_database, new_run(tenant_id))
    assert len(await deliveries_of(empty_database, gone)) == 1
    assert (await take_one(empty_database)).webhook_id == other.webhook_id


async def test_a_notice_whose_webhook_is_gone_is_dropped_when_it_is_taken(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    webhook = await add_webhook(empty_database, tenant_id)
    await send_test(empty_database, webhook)
    # As where the run ended at the moment at which the webhook was deleted.
    await query(empty_urls.superuser_url, "DELETE FROM webhooks WHERE webhook_id = $1", webhook.webhook_id)
    assert await take(empty_database) == []
    assert await query(empty_urls.superuser_url, "SELECT FROM webhook_deliveries") == []


async def test_notices_that_are_over_are_forgotten_and_others_kept(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    webhook = await add_webhook(empty_database, tenant_id)
    await send_tests(empty_database, webhook, 3)
    first, second, _ = await take(empty_database)
    await PostgresOutbox(empty_database).delivered(first, status=200)
    await PostgresOutbox(empty_database).failed(second, status=400, error="http_4xx", retry_in_seconds=None)
    counts = [(await empty_database.fetch(ERASED_LONG_AGO, limit))[0]["count"] for limit in (1, 100)]
    assert counts == [1, 1]
    assert [one.status for one in await deliveries_of(empty_database, webhook)] == [DeliveryStatus.PENDING]


async def test_notices_that_ended_lately_are_kept(empty_database: Database, tenant_id: TenantId) -> None:
    webhook = await add_webhook(empty_database, tenant_id)
    await send_test(empty_database, webhook)
    await PostgresOutbox(empty_database).delivered(await take_one(empty_database), status=200)
    [row] = await empty_database.fetch("SELECT forget_deliveries(interval '30 days', 100) AS count")
    assert row["count"] == 0
    assert len(await deliveries_of(empty_database, webhook)) == 1
