"""Cursors: where a list goes on. Opaque to clients, and useless anywhere but where they were given out."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.errors import MalformedRequest
from app.ids import TenantId

_MAC_BYTES: Final = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What is being listed. A cursor of another tenant, route or filter is refused."""

    tenant_id: TenantId
    route: str
    where: Mapping[str, Any]


class Cursors:
    """``secret``: at least 32 bytes, the same in every process of a deployment and over restarts."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < 32:
            raise ValueError(f"a secret for cursors has at least 32 bytes, not {len(secret)}")
        self._secret = secret

    def seal(self, listing: Listing, position: Sequence[str | float | int]) -> str:
        body = json.dumps(list(position), separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(listing, body) + body).rstrip(b"=").decode()

    def open(self, listing: Listing, cursor: str) -> list[Any]:
        """The position that was sealed for this listing. Raises MalformedRequest (``invalid_cursor``) for all else."""
        try:
            sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            sealed = b""
        mac, body = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(listing, body)):
            raise MalformedRequest("the cursor was not given out for this list and filter", code="invalid_cursor")
        position: list[Any] = json.loads(body)
        return position

    def _mac(self, listing: Listing, body: bytes) -> bytes:
        scope = json.dumps([listing.tenant_id, listing.route, listing.where], sort_keys=True).encode()
        # The length in front keeps scope and body apart.
        message = len(scope).to_bytes(8, "big") + scope + body
        return hmac.digest(self._secret, message, hashlib.sha256)[:_MAC_BYTES]
