"""Signatures that receivers check with a package that nobody here wrote."""

import base64
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from app.ids import TenantId
from app.ports.webhooks import DeliveryId, DueDelivery, WebhookId
from app.service.signing import WebhookSigner

SECRET = b"a secret of the tests, 32 bytes.."
SIGNER = WebhookSigner(SECRET)
DUE = DueDelivery(
    delivery_id=DeliveryId("dlv_1"),
    tenant_id=TenantId("ten_a"),
    webhook_id=WebhookId("whk_1"),
    url="https://hooks.test/",
    body='{"type":"webhook.test"}',
    attempts=1,
    created_at=0.0,
)


def verify(due: DueDelivery, *, body: str, at: float, signer: WebhookSigner = SIGNER) -> None:
    """As a receiver of the webhook of ``DUE`` does."""
    secret = SIGNER.reveal_secret(DUE.tenant_id, DUE.webhook_id)
    Verifier(secret).verify(body, dict(signer.sign(due, at=at)), json_parse=False)


@given(body=st.text(st.characters(exclude_categories=["Cs"])))
def test_the_receiver_accepts_what_was_signed(body: str) -> None:
    verify(replace(DUE, body=body), body=body, at=time.time())


def test_a_changed_body_is_refused() -> None:
    with pytest.raises(WebhookVerificationError):
        verify(DUE, body=DUE.body + " ", at=time.time())


@pytest.mark.parametrize(
    "other",
    [replace(DUE, tenant_id=TenantId("ten_b")), replace(DUE, webhook_id=WebhookId("whk_2"))],
    ids=["tenant", "webhook"],
)
def test_what_is_signed_for_another_webhook_is_refused(other: DueDelivery) -> None:
    with pytest.raises(WebhookVerificationError):
        verify(other, body=DUE.body, at=time.time())


def test_what_another_deployment_signs_is_refused() -> None:
    with pytest.raises(WebhookVerificationError):
        verify(DUE, body=DUE.body, at=time.time(), signer=WebhookSigner(b"another secret of 32 bytes, also."))


@pytest.mark.parametrize("seconds", [-400, 400])
def test_an_old_notice_that_is_sent_once_more_by_a_stranger_is_refused(seconds: float) -> None:
    with pytest.raises(WebhookVerificationError):
        verify(DUE, body=DUE.body, at=time.time() + seconds)


def test_the_signature_covers_the_id() -> None:
    headers = {**SIGNER.sign(DUE, at=time.time()), "webhook-id": "dlv_2"}
    with pytest.raises(WebhookVerificationError):
        Verifier(SIGNER.reveal_secret(DUE.tenant_id, DUE.webhook_id)).verify(DUE.body, headers)


def test_a_secret_has_the_form_that_receivers_know() -> None:
    secret = SIGNER.reveal_secret(DUE.tenant_id, DUE.webhook_id)
    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32


def test_a_secret_is_the_same_after_a_restart() -> None:
    again = WebhookSigner(SECRET).reveal_secret(DUE.tenant_id, DUE.webhook_id)
    assert again == SIGNER.reveal_secret(DUE.tenant_id, DUE.webhook_id)


def test_a_deployment_secret_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        WebhookSigner(b"x" * 31)
