"""Webhooks: where a tenant wants to be told, and what became of each notice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.auth import Principal
from app.errors import Conflict, FieldProblem, InvalidRequest, NotFound
from app.ids import is_id
from app.ports.clock import IdSource
from app.ports.store import TenantTx
from app.ports.webhooks import Carrier, Delivery, DeliveryId, NewWebhook, Webhook, WebhookEvent, WebhookId
from app.service import idempotency
from app.service.idempotency import IdempotencyKey
from app.service.signing import WebhookSigner

MAX_WEBHOOKS: Final = 16

_WHY: Final[Mapping[str, str]] = {
    "invalid_url": "must be an https URL without a password or a fragment, whose host is known",
    "private_address": "leads to an address that this deployment sends nothing to",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Notices:
    """What webhooks need of the process: who sends to them and with what it is signed."""

    carrier: Carrier
    signer: WebhookSigner


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookRequest:
    """A webhook as a caller asks for it."""

    url: str
    events: tuple[WebhookEvent, ...]
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CreatedWebhook:
    """``secret`` is told this once. ``replayed``: the idempotency key had led to it before."""

    webhook: Webhook
    secret: str
    replayed: bool


async def check_url(carrier: Carrier, url: str) -> None:
    """Looks the address up, so no transaction may be open. Raises InvalidRequest (``invalid_url``,
    ``private_address``)."""
    code = await carrier.check_url(url)
    if code is not None:
        problem = FieldProblem(pointer="/url", detail=_WHY.get(code, "can't be sent to"))
        raise InvalidRequest("nothing can be sent to this URL", code=code, problems=[problem])


async def create(
    tx: TenantTx,
    request: WebhookRequest,
    *,
    ids: IdSource,
    signer: WebhookSigner,
    key: IdempotencyKey | None = None,
) -> CreatedWebhook:
    """Keeps a webhook whose URL was checked. Raises Conflict (``too_many_webhooks``, ``idempotency_in_progress``) and
    InvalidRequest (``idempotency_key_reused``)."""
    if key is not None and (earlier := await idempotency.find_earlier(tx, key)) is not None:
        return _created(await get(tx, earlier), signer, replayed=True)
    if await tx.count_webhooks() >= MAX_WEBHOOKS:
        raise Conflict(f"a tenant has at most {MAX_WEBHOOKS} webhooks", code="too_many_webhooks")
    webhook = await tx.insert_webhook(
        NewWebhook(
            webhook_id=WebhookId(ids.new("whk")),
            url=request.url,
            events=request.events,
            description=request.description,
        )
    )
    if key is not None:
        await idempotency.settle(tx, key, webhook.webhook_id)
    return _created(webhook, signer, replayed=False)


async def get(tx: TenantTx, webhook_id: str) -> Webhook:
    """Raises NotFound for an unknown id, another tenant's, and a text that is no id: the three look the same."""
    webhook = await tx.get_webhook(WebhookId(webhook_id)) if is_id("whk", webhook_id) else None
    if webhook is None:
        raise _unknown()
    return webhook


async def list_page(
    tx: TenantTx, *, limit: int, before: tuple[float, WebhookId] | None
) -> tuple[Sequence[Webhook], tuple[float, WebhookId] | None]:
    """Up to ``limit`` webhooks, newest first, and where the next page begins; None on the last one."""
    found = await tx.list_webhooks(limit=limit + 1, before=before)
    page = found[:limit]
    return page, (page[-1].created_at, page[-1].webhook_id) if len(found) > limit else None


async def delete(tx: TenantTx, webhook_id: str) -> None:
    """Notices to it that wait are dropped. Raises NotFound."""
    if not is_id("whk", webhook_id) or not await tx.delete_webhook(WebhookId(webhook_id)):
        raise _unknown()


async def test(tx: TenantTx, webhook_id: str, *, ids: IdSource) -> Delivery:
    """Sends it a notice of nothing, soon. Raises NotFound, and Conflict (``webhook_disabled``)."""
    webhook = await get(tx, webhook_id)
    if webhook.disabled_at is not None:
        raise Conflict(
            "the receiver said that it is gone; delete this webhook and make another", code="webhook_disabled"
        )
    delivery = await tx.test_webhook(webhook.webhook_id, DeliveryId(ids.new("dlv")))
    if delivery is None:
        raise _unknown()
    return delivery


async def deliveries_page(
    tx: TenantTx, webhook_id: str, *, limit: int, before: tuple[float, DeliveryId] | None
) -> tuple[Sequence[Delivery], tuple[float, DeliveryId] | None]:
    """Up to ``limit`` notices to one webhook, newest first, and where the next page begins. Raises NotFound."""
    webhook = await get(tx, webhook_id)
    found = await tx.list_deliveries(webhook.webhook_id, limit=limit + 1, before=before)
    page = found[:limit]
    return page, (page[-1].created_at, page[-1].delivery_id) if len(found) > limit else None


def key_of(principal: Principal, key: str | None, canonical_body: bytes) -> IdempotencyKey | None:
    """The idempotency key of a creation, where the caller sent one."""
    if key is None:
        return None
    return IdempotencyKey.of_request(
        route="POST /webhooks", principal=principal, key=key, canonical_body=canonical_body
    )


def _created(webhook: Webhook, signer: WebhookSigner, *, replayed: bool) -> CreatedWebhook:
    secret = signer.reveal_secret(webhook.tenant_id, webhook.webhook_id)
    return CreatedWebhook(webhook=webhook, secret=secret, replayed=replayed)


def _unknown() -> NotFound:
    return NotFound("there is no such webhook")
