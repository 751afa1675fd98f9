"""Webhooks of a tenant as they are kept."""

import asyncio
import secrets

import pytest

from app.ids import TenantId
from app.ports.webhooks import Delivery, DeliveryId, DeliveryStatus, NewWebhook, Webhook, WebhookEvent, WebhookId
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from tests.conftest import DatabaseUrls
from tests.store.outbox import URL, add_webhook, deliveries_of, send_test
from tests.store.support import NUL, query, wait_for_rows

NOBODY = WebhookId("whk_nobody")


async def test_a_webhook_is_read_back_as_it_was_kept(shared_database: Database, tenant_id: TenantId) -> None:
    new = NewWebhook(
        webhook_id=WebhookId("whk_1"), url=URL, events=(WebhookEvent.RUN_TERMINATED,), description=f"for us {NUL}"
    )
    async with PostgresTenantStore(shared_database).begin(tenant_id) as tx:
        kept = await tx.insert_webhook(new)
        now = await tx.now()
    async with PostgresTenantStore(shared_database).begin(tenant_id) as tx:
        read = await tx.get_webhook(new.webhook_id)
    assert read == kept
    assert kept == Webhook(
        webhook_id=new.webhook_id,
        tenant_id=tenant_id,
        url=URL,
        events=(WebhookEvent.RUN_TERMINATED,),
        description=f"for us {NUL}",
        created_at=kept.created_at,
    )
    assert kept.created_at == pytest.approx(now, abs=5)


async def test_another_tenant_has_no_such_webhook(shared_database: Database, tenant_id: TenantId) -> None:
    webhook = await add_webhook(shared_database, tenant_id)
    async with PostgresTenantStore(shared_database).begin(TenantId("ten_other")) as tx:
        assert await tx.get_webhook(webhook.webhook_id) is None
        assert not await tx.delete_webhook(webhook.webhook_id)
        assert await tx.test_webhook(webhook.webhook_id, DeliveryId("dlv_1")) is None
    async with PostgresTenantStore(shared_database).begin(tenant_id) as tx:
        assert await tx.get_webhook(webhook.webhook_id) == webhook


async def test_webhooks_are_listed_newest_first_in_pages(shared_database: Database, tenant_id: TenantId) -> None:
    first = await add_webhook(shared_database, tenant_id)
    second = await add_webhook(shared_database, tenant_id)
    third = await add_webhook(shared_database, tenant_id)
    async with PostgresTenantStore(shared_database).begin(tenant_id) as tx:
        assert await tx.list_webhooks(limit=2, before=None) == [third, second]
        assert await tx.list_webhooks(limit=2, before=(second.created_at, second.webhook_id)) == [first]


async def test_a_deleted_webhook_is_gone_and_so_are_its_notices(shared_database: Database, tenant_id: TenantId) -> None:
    doomed, kept = await add_webhook(shared_database, tenant_id), await add_webhook(shared_database, tenant_id)
    await send_test(shared_database, doomed)
    await send_test(shared_database, kept)
    async with PostgresTenantStore(shared_database).begin(tenant_id) as tx:
        assert await tx.delete_webhook(doomed.webhook_id)
        assert not await tx.delete_webhook(doomed.webhook_id)
    async with PostgresTenantStore(shared_database).begin(tenant_id) as tx:
        assert await tx.get_webhook(doomed.webhook_id) is None
    assert await deliveries_of(shared_database, doomed) == []
    assert len(await deliveries_of(shared_database, kept)) == 1


async def test_who_counts_webhooks_waits_for_who_adds_one(
    shared_urls: DatabaseUrls, shared_database: Database, tenant_id: TenantId
) -> None:
    store = PostgresTenantStore(shared_database)

    async def count() -> int:
        async with store.begin(tenant_id) as tx:
            return await tx.count_webhooks()

    async with store.begin(tenant_id) as tx:
        assert await tx.count_webhooks() == 0
        counting = asyncio.create_task(count())
        await wait_for_rows(
            shared_urls.superuser_url, "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        )
        await tx.insert_webhook(
            NewWebhook(webhook_id=WebhookId("whk_1"), url=URL, events=(WebhookEvent.RUN_TERMINATED,))
        )
    assert await counting == 1


async def test_tenants_are_counted_apart_and_at_once(shared_database: Database, tenant_id: TenantId) -> None:
    await add_webhook(shared_database, tenant_id)
    store = PostgresTenantStore(shared_database)
    async with store.begin(tenant_id) as tx, store.begin(TenantId(f"ten_{secrets.token_hex(13)}")) as other:
        assert (await tx.count_webhooks(), await other.count_webhooks()) == (1, 0)


async def test_a_notice_of_nothing_waits_in_the_outbox(shared_database: Database, tenant_id: TenantId) -> None:
    webhook = await add_webhook(shared_database, tenant_id)
    notice = await send_test(shared_database, webhook)
    assert notice == Delivery(
        delivery_id=notice.delivery_id,
        webhook_id=webhook.webhook_id,
        event="webhook.test",
        subject=webhook.webhook_id,
        status=DeliveryStatus.PENDING,
        attempts=0,
        created_at=notice.created_at,
        next_attempt_at=notice.created_at,
        delivered_at=None,
        last_status=None,
        last_error=None,
    )
    assert await deliveries_of(shared_database, webhook) == [notice]


async def test_there_is_no_notice_to_an_unknown_webhook(shared_database: Database, tenant_id: TenantId) -> None:
    async with PostgresTenantStore(shared_database).begin(tenant_id) as tx:
        assert await tx.test_webhook(NOBODY, DeliveryId("dlv_1")) is None


async def send_tests_are_listed_newest_first_in_pages(shared_database: Database, tenant_id: TenantId) -> None:
    webhook = await add_webhook(shared_database, tenant_id)
    first = await send_test(shared_database, webhook)
    second = await send_test(shared_database, webhook)
    third = await send_test(shared_database, webhook)
    await send_test(shared_database, await add_webhook(shared_database, tenant_id))
    async with PostgresTenantStore(shared_database).begin(tenant_id) as tx:
        before = second.created_at, second.delivery_id
        assert await tx.list_deliveries(webhook.webhook_id, limit=2, before=None) == [third, second]
        assert await tx.list_deliveries(webhook.webhook_id, limit=2, before=before) == [first]


@pytest.mark.parametrize("column", ["body", "event", "subject"])
async def test_who_goes_over_all_tenants_reads_no_text(shared_urls: DatabaseUrls, column: str) -> None:
    allowed = await query(
        shared_urls.superuser_url,
        f"SELECT has_column_privilege('runwright_scheduler', 'webhook_deliveries', '{column}', 'SELECT') AS allowed",
    )
    assert [row["allowed"] for row in allowed] == [False]


async def test_who_goes_over_all_tenants_reads_no_address(shared_urls: DatabaseUrls) -> None:
    readable = await query(
        shared_urls.superuser_url,
        "SELECT attname FROM pg_attribute WHERE attrelid = 'webhooks'::regclass AND attnum > 0"
        " AND has_column_privilege('runwright_scheduler', attrelid, attnum, 'SELECT') ORDER BY attname",
    )
    assert [row["attname"] for row in readable] == ["tenant_id", "webhook_id"]
