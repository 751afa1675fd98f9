"""Tickets: for who can open a stream but can't set headers. They stand in an address, so they can do little and end
soon.

A ticket is what it says, sealed: whose key asked for it, for which stream, until when. Nothing is stored, and neither
a secret nor a hash of one is in it. Its key is looked up each time, so a ticket ends with it.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import Final

from app.auth.principal import Scope
from app.ids import KeyId, TenantId

TICKET_SECONDS: Final = 900

_PREFIX: Final = "tkt_"
_TICKET: Final = re.compile(r"tkt_[A-Za-z0-9_-]{80,1000}")
_MAC_BYTES: Final = 32
_KEY_BYTES: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticket:
    """``resource`` is the path of one stream, ``scope`` what it needs; ``until_ms`` are milliseconds of the epoch, by
    the store's clock. ``key_id`` stands for the holder of a token, too."""

    tenant_id: TenantId
    key_id: KeyId
    scope: Scope
    resource: str
    until_ms: int


class Tickets:
    """Seals tickets and opens them. ``key``: at least 32 bytes, the same in every process of a deployment, and of no
    other use: what it seals lets somebody in."""

    def __init__(self, key: bytes) -> None:
        if len(key) < _KEY_BYTES:
            raise ValueError(f"a key for tickets has at least {_KEY_BYTES} bytes, not {len(key)}")
        self._key = key

    def seal(self, ticket: Ticket) -> str:
        fields = [ticket.tenant_id, ticket.key_id, ticket.scope, ticket.resource, ticket.until_ms]
        body = json.dumps(fields, separators=(",", ":")).encode()
        return _PREFIX + _encode(self._mac(body) + body)

    def open(self, text: str) -> Ticket | None:
        """The ticket that was sealed here or in another process of the deployment; None for all else. Whether it is
        still good is another question."""
        if not is_ticket(text):
            return None
        encoded = text.removeprefix(_PREFIX)
        try:
            sealed = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        except (binascii.Error, ValueError):
            return None
        mac, body = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        # The last character has bits that mean nothing: one ticket is one text.
        if not hmac.compare_digest(mac, self._mac(body)) or _encode(sealed) != encoded:
            return None
        tenant_id, key_id, scope, resource, until_ms = json.loads(body)
        return Ticket(
            tenant_id=TenantId(tenant_id),
            key_id=KeyId(key_id),
            scope=Scope(scope),
            resource=resource,
            until_ms=until_ms,
        )

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, hashlib.sha256)


def is_ticket(text: str) -> bool:
    """Whether it could be a ticket."""
    return _TICKET.fullmatch(text) is not None


def _encode(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()
