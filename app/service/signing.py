"""Signatures of notices, as Standard Webhooks has them (https://www.standardwebhooks.com).

A webhook's secret is derived from the deployment's and stored nowhere: who reads the database can sign nothing. The
deployment's key has to stay the same for receivers to go on trusting what they get.
"""

import base64
import hashlib
import hmac
import math
from collections.abc import Mapping
from typing import Final

from app.ids import TenantId
from app.ports.webhooks import DueDelivery, WebhookId

_PURPOSE: Final = b"runwright/webhooks/1"
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - how every such secret begins


class WebhookSigner:
    """``deployment_secret``: at least 32 bytes, the same in every process of a deployment and over restarts."""

    def __init__(self, deployment_secret: bytes) -> None:
        if len(deployment_secret) < 32:
            raise ValueError(f"a secret to derive others of has at least 32 bytes, not {len(deployment_secret)}")
        # A key of its own: what seals cursors or digests signs nothing.
        self._key = hmac.digest(deployment_secret, _PURPOSE, hashlib.sha256)

    def reveal_secret(self, tenant_id: TenantId, webhook_id: WebhookId) -> str:
        """What a receiver checks signatures with. To be shown once."""
        return _SECRET_PREFIX + base64.b64encode(self._derive(tenant_id, webhook_id)).decode()

    def sign(self, due: DueDelivery, *, at: float) -> Mapping[str, str]:
        """The headers of one attempt at epoch seconds ``at``: they cover the id, the second and the body."""
        second = str(math.floor(at))
        signed = f"{due.delivery_id}.{second}.{due.body}".encode()
        mac = hmac.digest(self._derive(due.tenant_id, due.webhook_id), signed, hashlib.sha256)
        return {
            "webhook-id": due.delivery_id,
            "webhook-timestamp": second,
            "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
        }

    def _derive(self, tenant_id: TenantId, webhook_id: WebhookId) -> bytes:
        # No id holds a blank, so no two pairs are one text.
        return hmac.digest(self._key, f"{tenant_id} {webhook_id}".encode(), hashlib.sha256)
