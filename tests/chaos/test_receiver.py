"""Who gets the notices of a round."""

import random

import httpx
import pytest

from app.ids import TenantId
from app.ports.webhooks import DeliveryId, DueDelivery, WebhookId
from app.service.signing import WebhookSigner
from tests.chaos.evidence import Received
from tests.chaos.receiver import Receiver

SIGNER = WebhookSigner(b"a secret of at least thirty-two bytes")
TENANT, WEBHOOK = TenantId("ten_1"), WebhookId("whk_1")
DUE = DueDelivery(
    delivery_id=DeliveryId("dlv_1"),
    tenant_id=TENANT,
    webhook_id=WEBHOOK,
    url="http://127.0.0.1/",
    body='{"type": "run.terminated", "data": {"run_id": "run_1"}}',
    attempts=1,
    created_at=0.0,
)


class _Never(random.Random):
    def random(self) -> float:
        return 1.0


@pytest.mark.parametrize(("subject", "is_genuine"), [("run_1", True), ("run_2", False)])
async def test_a_notice_is_kept_with_whether_its_signature_is_the_secrets(subject: str, is_genuine: bool) -> None:
    body = DUE.body.replace("run_1", subject)
    async with Receiver(_Never()) as receiver, httpx.AsyncClient() as client:
        receiver.secret = SIGNER.reveal_secret(TENANT, WEBHOOK)

        answer = await client.post(receiver.url, content=body, headers=dict(SIGNER.sign(DUE, at=1.0)))

    assert answer.status_code == 204
    assert receiver.received == [Received(event="run.terminated", subject=subject, is_genuine=is_genuine)]
