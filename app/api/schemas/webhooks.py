"""Webhooks on the wire."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, StringConstraints

from app.api.schemas import story
from app.api.schemas.common import Instant, View, Wire, instant, told_by
from app.events.codec import format_instant
from app.ports.webhooks import Delivery, DeliveryStatus, Webhook, WebhookEvent
from app.service.webhooks import CreatedWebhook, WebhookRequest


def _refuse_twice(events: list[WebhookEvent]) -> list[WebhookEvent]:
    if len(set(events)) < len(events):
        raise ValueError("names an event twice")
    return events


class TestWebhook(Wire):
    """Nothing: there is nothing to choose."""


class CreateWebhook(Wire):
    """Where to send notices, and of what."""

    url: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] = Field(
        description="https, without a password or a fragment. Its host must have addresses of the public internet, "
        "unless the operator allows others; this is looked at now and before each notice"
    )
    events: Annotated[
        list[WebhookEvent], Field(min_length=1, max_length=len(WebhookEvent)), AfterValidator(_refuse_twice)
    ]
    description: Annotated[str, StringConstraints(max_length=256)] = ""

    def to_request(self) -> WebhookRequest:
        return WebhookRequest(url=self.url, events=tuple(self.events), description=self.description)


_WEBHOOK_EXAMPLE: Final = {
    "id": story.WEBHOOK_ID,
    "url": "https://chat.example/hooks/approvals",
    "events": ["approval.requested"],
    "description": "asks in the team's room",
    "created_at": story.CREATED_AT,
    "disabled_at": None,
}
_DELIVERY_EXAMPLE: Final = {
    "id": story.DELIVERY_ID,
    "webhook_id": story.WEBHOOK_ID,
    "event": "approval.requested",
    "subject": story.APPROVAL_ID,
    "status": "pending",
    "attempts": 1,
    "created_at": story.ASKED_AT,
    "next_attempt_at": "2026-01-31T12:00:06.370Z",
    "delivered_at": None,
    "last_status": 503,
    "last_error": "http_5xx",
}


class WebhookView(View):
    model_config = told_by(_WEBHOOK_EXAMPLE)

    id: str
    url: str
    events: list[WebhookEvent]
    description: str
    created_at: Instant
    disabled_at: Instant | None = Field(
        description="When the receiver answered 410: it is told nothing more. Delete it and make another"
    )


class CreatedWebhookView(WebhookView):
    model_config = told_by({**_WEBHOOK_EXAMPLE, "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"})

    secret: str = Field(
        description="What signatures are checked with (https://www.standardwebhooks.com). Shown this once"
    )


class WebhookPage(View):
    items: list[WebhookView]
    next_cursor: str | None


class DeliveryView(View):
    """A notice to one webhook. Sent at least once: `id` is the header `webhook-id` of every attempt."""

    model_config = told_by(_DELIVERY_EXAMPLE)

    id: str
    webhook_id: str
    event: str = Field(description="`run.terminated`, `approval.requested` or `webhook.test`")
    subject: str = Field(description="The id of the run, the approval or the webhook that it is about")
    status: DeliveryStatus = Field(description="`pending`: it will be tried again. `failed`: it was given up")
    attempts: int
    created_at: Instant
    next_attempt_at: Instant | None
    delivered_at: Instant | None
    last_status: int | None = Field(description="The status that the receiver answered last, where it answered")
    last_error: str | None = Field(description="A class of failure; what the receiver said is not kept")


class DeliveryPage(View):
    items: list[DeliveryView]
    next_cursor: str | None


def view_webhook(webhook: Webhook) -> WebhookView:
    return WebhookView(**_fields_of(webhook))


def view_created(created: CreatedWebhook) -> CreatedWebhookView:
    return CreatedWebhookView(**_fields_of(created.webhook), secret=created.secret)


def view_delivery(delivery: Delivery) -> DeliveryView:
    return DeliveryView(
        id=delivery.delivery_id,
        webhook_id=delivery.webhook_id,
        event=delivery.event,
        subject=delivery.subject,
        status=delivery.status,
        attempts=delivery.attempts,
        created_at=format_instant(delivery.created_at),
        next_attempt_at=instant(delivery.next_attempt_at),
        delivered_at=instant(delivery.delivered_at),
        last_status=delivery.last_status,
        last_error=delivery.last_error,
    )


def _fields_of(webhook: Webhook) -> dict[str, Any]:
    return {
        "id": webhook.webhook_id,
        "url": webhook.url,
        "events": list(webhook.events),
        "description": webhook.description,
        "created_at": format_instant(webhook.created_at),
        "disabled_at": instant(webhook.disabled_at),
    }
