"""Scopes, and the principal whom a key makes of a request."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.auth.keys import hash_secret, read_bearer
from app.errors import Forbidden, Unauthenticated
from app.ids import KeyId, TenantId
from app.ports.store import KeyStore


class Scope(StrEnum):
    """What a key may be allowed. ``operator`` is never mixed with the others."""

    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    APPROVALS_READ = "approvals:read"
    APPROVALS_DECIDE = "approvals:decide"
    AGENTS_READ = "agents:read"
    AGENTS_WRITE = "agents:write"
    SESSIONS_READ = "sessions:read"
    SESSIONS_WRITE = "sessions:write"
    OPERATOR = "operator"


_KNOWN: Final[frozenset[str]] = frozenset(Scope)


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """Who asks. ``tenant_id`` is None for an operator's key; ``subject`` is the person or program behind the key."""

    tenant_id: TenantId | None
    key_id: KeyId
    subject: str | None
    scopes: frozenset[Scope]

    @property
    def actor(self) -> str:
        """The subject, or the key where it has none: what is recorded as having asked."""
        return self.subject or self.key_id

    def tenant_for(self, scope: Scope) -> TenantId:
        """The tenant in which the principal may use this scope. Raises Forbidden where it may not."""
        if scope not in self.scopes:
            raise Forbidden(f"this key has no scope {scope}", code="missing_scope")
        if self.tenant_id is None:
            raise Forbidden("an operator's key belongs to no tenant", code="missing_scope")
        return self.tenant_id


async def authenticate(keys: KeyStore, header: str | None, *, now: float) -> Principal:
    """Makes a principal of an ``Authorization`` header. ``now`` is in epoch seconds.

    Asks the store each time: a revoked key is refused at once. Raises Unauthenticated, with one message for every
    cause, so that nobody learns whether a key ever existed.
    """
    secret = read_bearer(header)
    record = None if secret is None else await keys.find_key(hash_secret(secret))
    if record is None or record.revoked or (record.expires_at is not None and record.expires_at <= now):
        raise Unauthenticated("a valid key is needed: Authorization: Bearer <key>")
    # A scope of a later release is no reason to refuse the others.
    known = frozenset(Scope(scope) for scope in record.scopes if scope in _KNOWN)
    is_operators = record.tenant_id is None
    return Principal(
        tenant_id=record.tenant_id,
        key_id=record.key_id,
        subject=record.subject,
        scopes=known & {Scope.OPERATOR} if is_operators else known - {Scope.OPERATOR},
    )
