"""What the tests of webhooks and their outbox stand on."""

import json
import secrets
from collections.abc import Sequence
from typing import Any

from app.events import RunState
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import RunId, TenantId, WorkerId
from app.ports.records import Claim, NewRun
from app.ports.webhooks import Delivery, DeliveryId, DueDelivery, NewWebhook, Webhook, WebhookEvent, WebhookId
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.webhooks import PostgresOutbox
from app.store.work import PostgresWorkStore
from tests.store.support import query, submit, terminated, update

URL = "https://hooks.example/in"
ALL_EVENTS = tuple(WebhookEvent)


async def add_webhook(
    database: Database, tenant_id: TenantId, *, events: tuple[WebhookEvent, ...] = ALL_EVENTS, url: str = URL
) -> Webhook:
    new = NewWebhook(webhook_id=WebhookId(f"whk_{secrets.token_hex(13)}"), url=url, events=events)
    async with PostgresTenantStore(database).begin(tenant_id) as tx:
        return await tx.insert_webhook(new)


async def send_test(database: Database, webhook: Webhook) -> Delivery:
    """Puts a notice of nothing into the outbox."""
    async with PostgresTenantStore(database).begin(webhook.tenant_id) as tx:
        notice = await tx.test_webhook(webhook.webhook_id, DeliveryId(Uuid7Ids().new("dlv")))
        assert notice is not None
        return notice


async def send_tests(database: Database, webhook: Webhook, count: int) -> list[Delivery]:
    return [await send_test(database, webhook) for _ in range(count)]


async def deliveries_of(database: Database, webhook: Webhook) -> Sequence[Delivery]:
    async with PostgresTenantStore(database).begin(webhook.tenant_id) as tx:
        return await tx.list_deliveries(webhook.webhook_id, limit=100, before=None)


async def delivery_of(database: Database, due: DueDelivery) -> Delivery:
    async with PostgresTenantStore(database).begin(due.tenant_id) as tx:
        [found] = [
            one
            for one in await tx.list_deliveries(due.webhook_id, limit=100, before=None)
            if one.delivery_id == due.delivery_id
        ]
        return found


async def read_webhook(database: Database, webhook: Webhook) -> Webhook:
    async with PostgresTenantStore(database).begin(webhook.tenant_id) as tx:
        found = await tx.get_webhook(webhook.webhook_id)
        assert found is not None
        return found


async def take(database: Database, *, limit: int = 100, hold_seconds: float = 60.0) -> list[DueDelivery]:
    return list(await PostgresOutbox(database).take_due(limit=limit, hold_seconds=hold_seconds))


async def take_one(database: Database) -> DueDelivery:
    [due] = await take(database)
    return due


async def let_time_pass(superuser_url: str) -> None:
    """What was to wait, or is held, waits no longer."""
    await query(
        superuser_url,
        "UPDATE webhook_deliveries SET next_attempt_at = clock_timestamp() - interval '1 second',"
        " held_until = CASE WHEN held_until IS NOT NULL THEN clock_timestamp() - interval '1 second' END"
        " WHERE status = 'pending'",
    )


async def start_run(database: Database, run: NewRun) -> Claim:
    await submit(database, run)
    claims = await PostgresWorkStore(database, SystemClock()).claim(WorkerId("w"), limit=100, lease_seconds=60)
    [claim] = [claim for claim in claims if claim.run_id == run.run_id]
    return claim


async def end_run(database: Database, run: NewRun, state: RunState = RunState.COMPLETED, **changes: Any) -> RunId:
    """Submits a run and lets it end."""
    claim = await start_run(database, run)
    work = PostgresWorkStore(database, SystemClock())
    await work.append_if_owner(claim, [terminated(state)], update(state, **changes))
    return run.run_id


def said(due: DueDelivery) -> dict[str, Any]:
    """What a notice says."""
    return dict(json.loads(due.body))
