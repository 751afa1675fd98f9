"""Notices to other services: who wants them, the outbox, and who carries them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

from app.ids import TenantId

WebhookId = NewType("WebhookId", str)
DeliveryId = NewType("DeliveryId", str)


class WebhookEvent(StrEnum):
    """What a webhook may be told of."""

    APPROVAL_REQUESTED = "approval.requested"
    RUN_TERMINATED = "run.terminated"


class DeliveryStatus(StrEnum):
    """PENDING: not taken yet, and tried again. FAILED: given up."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewWebhook:
    webhook_id: WebhookId
    url: str
    events: tuple[WebhookEvent, ...]
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Webhook:
    """``disabled_at`` is set where the receiver said that it is gone (410)."""

    webhook_id: WebhookId
    tenant_id: TenantId
    url: str
    events: tuple[WebhookEvent, ...]
    description: str
    created_at: float
    disabled_at: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """One notice to one webhook. ``subject`` is the id of what it is about. ``last_error`` names a class of failure and
    never what the receiver sent."""

    delivery_id: DeliveryId
    webhook_id: WebhookId
    event: str
    subject: str
    status: DeliveryStatus
    attempts: int
    created_at: float
    next_attempt_at: float | None
    delivered_at: float | None
    last_status: int | None
    last_error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DueDelivery:
    """A notice to be sent now. ``body`` is the JSON text that is signed; made once, the same in every attempt."""

    delivery_id: DeliveryId
    tenant_id: TenantId
    webhook_id: WebhookId
    url: str
    body: str
    attempts: int
    created_at: float


class WebhookTx(Protocol):
    """The part of a tenant's transaction that keeps webhooks."""

    async def insert_webhook(self, webhook: NewWebhook) -> Webhook: ...

    async def get_webhook(self, webhook_id: WebhookId) -> Webhook | None: ...

    async def list_webhooks(self, *, limit: int, before: tuple[float, WebhookId] | None) -> Sequence[Webhook]: ...

    async def delete_webhook(self, webhook_id: WebhookId) -> bool:
        """False where there is none. Notices to it that wait are dropped."""
        ...

    async def count_webhooks(self) -> int: ...

    async def test_webhook(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> Delivery | None:
        """Puts a notice of nothing (``webhook.test``) into the outbox. None where there is no such webhook."""
        ...

    async def list_deliveries(
        self, webhook_id: WebhookId, *, limit: int, before: tuple[float, DeliveryId] | None
    ) -> Sequence[Delivery]: ...


class Outbox(Protocol):
    """The carriers' side, over all tenants. Raises StoreUnavailable."""

    async def take_due(self, *, limit: int, hold_seconds: float) -> Sequence[DueDelivery]:
        """Takes notices whose time has come; nobody else gets them for so long."""
        ...

    async def delivered(self, due: DueDelivery, *, status: int) -> None: ...

    async def failed(
        self, due: DueDelivery, *, status: int | None, error: str, retry_in_seconds: float | None, disable: bool = False
    ) -> None:
        """``retry_in_seconds`` None gives it up. ``disable``: the webhook gets no more notices."""
        ...


class Carrier(Protocol):
    """Sends one request to an address that a tenant named."""

    async def check_url(self, url: str) -> str | None:
        """What is wrong with an address: ``invalid_url`` or ``private_address``; None where it may be sent to."""
        ...

    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes, timeout_seconds: float) -> int:
        """The status of the answer, whose body is not read. Raises DeliveryError."""
        ...


class DeliveryError(Exception):
    """A notice that did not arrive. ``code`` names the class of failure."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code
