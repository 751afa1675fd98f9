"""Idempotent creation: the same key with the same body is the same run or session (IETF httpapi, Idempotency-Key)."""

import hashlib
from dataclasses import dataclass
from typing import Final

from app.auth import Principal
from app.errors import Conflict, InvalidRequest
from app.ids import RunId
from app.ports.store import TenantTx

_RETRY_AFTER_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class IdempotencyKey:
    """A client's key for one request. It holds within tenant, subject and ``route``; ``body_digest`` is of the
    body's canonical JSON, in hexadecimal."""

    route: str
    owner: str
    key: str
    body_digest: str

    @classmethod
    def of_request(cls, *, route: str, principal: Principal, key: str, canonical_body: bytes) -> "IdempotencyKey":
        # A key without a subject is an owner of its own, which no subject's name can collide with.
        owner = f"key:{principal.key_id}" if principal.subject is None else f"subject:{principal.subject}"
        digest = hashlib.sha256(canonical_body).hexdigest()
        return cls(route=route, owner=owner, key=key, body_digest=digest)


async def find_earlier(tx: TenantTx, key: IdempotencyKey) -> str | None:
    """Takes the key for this transaction (None), or tells the id of what it led to before.

    Raises InvalidRequest (``idempotency_key_reused``) for another body, Conflict (``idempotency_in_progress``) while
    the first request goes on. Only a commit remembers: after a refused request the key is free.
    """
    earlier = await tx.remember(route=key.route, subject=key.owner, key=key.key, body_digest=key.body_digest)
    if earlier is None:
        return None
    if earlier.body_digest != key.body_digest:
        raise InvalidRequest("this Idempotency-Key was used with another body", code="idempotency_key_reused")
    if earlier.run_id is None:
        raise Conflict(
            "the first request with this Idempotency-Key goes on",
            code="idempotency_in_progress",
            retry_after_seconds=_RETRY_AFTER_SECONDS,
        )
    return earlier.run_id


async def settle(tx: TenantTx, key: IdempotencyKey, created_id: str) -> None:
    """Writes the id of what the key led to; remembered when the transaction commits."""
    # The store keeps an id and asks nothing of it: the route says what it is of.
    await tx.settle_key(route=key.route, subject=key.owner, key=key.key, run_id=RunId(created_id))
