"""Webhooks of a tenant, and the outbox of notices to them over all tenants."""

from collections.abc import Sequence
from typing import Final

import asyncpg

from app.ids import TenantId
from app.ports.webhooks import (
    Delivery,
    DeliveryId,
    DeliveryStatus,
    DueDelivery,
    NewWebhook,
    Webhook,
    WebhookEvent,
    WebhookId,
)
from app.store.database import Database, store_errors
from app.store.rows import to_epoch, to_instant
from app.store.transaction import TenantTransaction
from app.store.types import escape_text, unescape_text

_INSERT: Final = """
    INSERT INTO webhooks (tenant_id, webhook_id, url, events, description, created_at)
    VALUES ($1, $2, $3, $4, $5, clock_timestamp()) RETURNING *
"""
_GET: Final = "SELECT * FROM webhooks WHERE tenant_id = $1 AND webhook_id = $2"
_LIST: Final = """
    SELECT * FROM webhooks WHERE tenant_id = $1 AND ($3::timestamptz IS NULL OR (created_at, webhook_id) < ($3, $4))
    ORDER BY created_at DESC, webhook_id DESC LIMIT $2
"""
_DELETE: Final = "DELETE FROM webhooks WHERE tenant_id = $1 AND webhook_id = $2 RETURNING true"
_DROP_NOTICES: Final = "DELETE FROM webhook_deliveries WHERE tenant_id = $1 AND webhook_id = $2"
# Held to the transaction's end: who counts and then adds is alone with it.
_LOCK_COUNT: Final = "SELECT pg_advisory_xact_lock(hashtextextended('runwright.webhooks/' || $1, 0))"
_COUNT: Final = "SELECT count(*) AS count FROM webhooks WHERE tenant_id = $1"
_TEST: Final = """
    INSERT INTO webhook_deliveries (tenant_id, delivery_id, webhook_id, event, subject, body, created_at,
        next_attempt_at)
    SELECT $1, $3, w.webhook_id, 'webhook.test', w.webhook_id,
        write_body('webhook.test', n.at, describe_event($1, 'webhook.test', w.webhook_id)), n.at, n.at
    FROM webhooks w CROSS JOIN (SELECT clock_timestamp() AS at) AS n
    WHERE w.tenant_id = $1 AND w.webhook_id = $2 RETURNING *
"""
_DELIVERIES: Final = """
    SELECT * FROM webhook_deliveries
    WHERE tenant_id = $1 AND webhook_id = $2 AND ($4::timestamptz IS NULL OR (created_at, delivery_id) < ($4, $5))
    ORDER BY created_at DESC, delivery_id DESC LIMIT $3
"""

_TAKE: Final = "SELECT tenant_id, delivery_id FROM take_deliveries($1, $2, $3)"
_OPEN: Final = "SELECT * FROM open_deliveries($1, $2)"
# Arrived is arrived, also where the carrier was so slow that another one has the notice now.
_DELIVERED: Final = """
    UPDATE webhook_deliveries SET status = 'delivered', ended_at = clock_timestamp(), last_status = $3,
        last_error = NULL, body = NULL, next_attempt_at = NULL, held_until = NULL
    WHERE tenant_id = $1 AND delivery_id = $2 AND status = 'pending'
"""
# The number of attempts is the fence: it rose if another carrier has the notice now.
_RETRY: Final = """
    UPDATE webhook_deliveries SET last_status = $4, last_error = $5, held_until = NULL,
        next_attempt_at = clock_timestamp() + make_interval(secs => $6)
    WHERE tenant_id = $1 AND delivery_id = $2 AND status = 'pending' AND attempts = $3
"""
_GIVE_UP: Final = """
    UPDATE webhook_deliveries SET status = 'failed', ended_at = clock_timestamp(), last_status = $4, last_error = $5,
        body = NULL, next_attempt_at = NULL, held_until = NULL
    WHERE tenant_id = $1 AND delivery_id = $2 AND status = 'pending' AND attempts = $3
"""
_DISABLE: Final = """
    UPDATE webhooks SET disabled_at = clock_timestamp()
    WHERE tenant_id = $1 AND webhook_id = $2 AND disabled_at IS NULL
"""
# So many notices go to one webhook at a time, over all processes.
_EACH: Final = 8


class WebhookTables(TenantTransaction):
    """The part of a tenant's transaction that keeps webhooks."""

    async def insert_webhook(self, webhook: NewWebhook) -> Webhook:
        events = [event.value for event in webhook.events]
        description = escape_text(webhook.description)
        [row] = await self._fetch(_INSERT, self.tenant_id, webhook.webhook_id, webhook.url, events, description)
        return _to_webhook(row)

    async def get_webhook(self, webhook_id: WebhookId) -> Webhook | None:
        rows = await self._fetch(_GET, self.tenant_id, webhook_id)
        return _to_webhook(rows[0]) if rows else None

    async def list_webhooks(self, *, limit: int, before: tuple[float, WebhookId] | None) -> Sequence[Webhook]:
        position = (None, None) if before is None else (to_instant(before[0]), before[1])
        return [_to_webhook(row) for row in await self._fetch(_LIST, self.tenant_id, limit, *position)]

    async def delete_webhook(self, webhook_id: WebhookId) -> bool:
        if not await self._fetch(_DELETE, self.tenant_id, webhook_id):
            return False
        # A notice that is put there at this moment is dropped when it is taken.
        await self._fetch(_DROP_NOTICES, self.tenant_id, webhook_id)
        return True

    async def count_webhooks(self) -> int:
        """Until the transaction ends nobody else counts this tenant's."""
        await self._fetch(_LOCK_COUNT, self.tenant_id)
        [row] = await self._fetch(_COUNT, self.tenant_id)
        count: int = row["count"]
        return count

    async def test_webhook(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> Delivery | None:
        rows = await self._fetch(_TEST, self.tenant_id, webhook_id, delivery_id)
        return _to_delivery(rows[0]) if rows else None

    async def list_deliveries(
        self, webhook_id: WebhookId, *, limit: int, before: tuple[float, DeliveryId] | None
    ) -> Sequence[Delivery]:
        position = (None, None) if before is None else (to_instant(before[0]), before[1])
        rows = await self._fetch(_DELIVERIES, self.tenant_id, webhook_id, limit, *position)
        return [_to_delivery(row) for row in rows]


class PostgresOutbox:
    """Satisfies ``ports.webhooks.Outbox``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take_due(self, *, limit: int, hold_seconds: float) -> Sequence[DueDelivery]:
        taken = await self._database.fetch(_TAKE, limit, _EACH, hold_seconds)
        if not taken:
            return []
        # Who goes over all tenants sees no texts; those are read in each tenant's name.
        tenants, deliveries = [row["tenant_id"] for row in taken], [row["delivery_id"] for row in taken]
        return [_to_due(row) for row in await self._database.fetch(_OPEN, tenants, deliveries)]

    async def delivered(self, due: DueDelivery, *, status: int) -> None:
        async with self._database.enter_tenant(due.tenant_id) as driver:
            with store_errors():
                await driver.execute(_DELIVERED, due.tenant_id, due.delivery_id, status)

    async def failed(
        self, due: DueDelivery, *, status: int | None, error: str, retry_in_seconds: float | None, disable: bool = False
    ) -> None:
        place = (due.tenant_id, due.delivery_id, due.attempts, status, error)
        async with self._database.enter_tenant(due.tenant_id) as driver:
            with store_errors():
                if retry_in_seconds is None:
                    await driver.execute(_GIVE_UP, *place)
                else:
                    await driver.execute(_RETRY, *place, retry_in_seconds)
                if disable:
                    await driver.execute(_DISABLE, due.tenant_id, due.webhook_id)


def _to_webhook(row: asyncpg.Record) -> Webhook:
    return Webhook(
        webhook_id=WebhookId(row["webhook_id"]),
        tenant_id=TenantId(row["tenant_id"]),
        url=row["url"],
        events=tuple(WebhookEvent(event) for event in row["events"]),
        description=unescape_text(row["description"]),
        created_at=row["created_at"].timestamp(),
        disabled_at=to_epoch(row["disabled_at"]),
    )


def _to_delivery(row: asyncpg.Record) -> Delivery:
    status = DeliveryStatus(row["status"])
    return Delivery(
        delivery_id=DeliveryId(row["delivery_id"]),
        webhook_id=WebhookId(row["webhook_id"]),
        event=row["event"],
        subject=row["subject"],
        status=status,
        attempts=row["attempts"],
        created_at=row["created_at"].timestamp(),
        next_attempt_at=to_epoch(row["next_attempt_at"]),
        delivered_at=to_epoch(row["ended_at"]) if status is DeliveryStatus.DELIVERED else None,
        last_status=row["last_status"],
        last_error=row["last_error"],
    )


def _to_due(row: asyncpg.Record) -> DueDelivery:
    return DueDelivery(
        delivery_id=DeliveryId(row["delivery_id"]),
        tenant_id=TenantId(row["tenant_id"]),
        webhook_id=WebhookId(row["webhook_id"]),
        url=row["url"],
        body=row["body"],
        attempts=row["attempts"],
        created_at=row["created_at"].timestamp(),
    )
