"""Scopes, and the principal whom a key or a token makes of a request."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.errors import Forbidden
from app.ids import KeyId, TenantId


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


def read_scopes(texts: Iterable[str]) -> frozenset[Scope]:
    """Those that are known here: one of a later release is no reason to refuse the others."""
    return frozenset(Scope(text) for text in texts if text in _KNOWN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    """Who asks. ``tenant_id`` is None for an operator's key; ``subject`` is the person or program behind the key, and
    ``groups`` what they belong to. ``user`` is the only one in whose name they may ask; None: they name any.
    ``good_until``, in epoch seconds, is when what they showed ends; None: at no known time."""

    tenant_id: TenantId | None
    key_id: KeyId
    subject: str | None
    scopes: frozenset[Scope]
    groups: frozenset[str] = frozenset()
    user: str | None = None
    good_until: float | None = None

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
