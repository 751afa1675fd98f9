"""Keys as an operator hands them out: made, rotated, revoked. A secret is told once, and only its hash is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from app.auth import Scope, hash_secret, new_secret
from app.errors import Conflict, FieldProblem, InvalidRequest, NotFound
from app.ids import KeyId, TenantId, is_id
from app.ports.clock import IdSource
from app.ports.tenancy import KeyInfo, NewKey, OperatorStore
from app.service.operator import get_tenant, get_usable_tenant

_OPERATORS: Final = frozenset({Scope.OPERATOR})


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRequest:
    """A key as an operator asks for it. ``lifetime_seconds`` None: it does not expire."""

    subject: str | None
    scopes: frozenset[Scope]
    groups: frozenset[str] = frozenset()
    description: str = ""
    lifetime_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotation:
    """How long a key and its successor are both valid, and how long the successor is: with None, for as long as the
    key was made for."""

    overlap_seconds: float
    lifetime_seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CreatedKey:
    """``secret`` is told this once."""

    info: KeyInfo
    secret: str = field(repr=False)


async def create_key(
    store: OperatorStore, tenant_id: str | None, request: KeyRequest, *, ids: IdSource, actor: str
) -> CreatedKey:
    """A key of a tenant, or with None an operator's. Raises NotFound, Conflict (``tenant_erasing``), and InvalidRequest
    for a key that could not do what it is for."""
    _check(request, is_operators=tenant_id is None)
    owner = None if tenant_id is None else (await get_usable_tenant(store, tenant_id)).tenant_id
    secret = new_secret()
    key = NewKey(
        key_id=KeyId(ids.new("key")),
        tenant_id=owner,
        subject=request.subject,
        scopes=frozenset(scope.value for scope in request.scopes),
        groups=request.groups,
        description=request.description,
        lifetime_seconds=request.lifetime_seconds,
        secret_hash=hash_secret(secret),
    )
    info = await store.add_key(key, actor=actor)
    if info is None:
        raise NotFound("there is no such tenant")
    return CreatedKey(info=info, secret=secret)


async def list_keys(store: OperatorStore, tenant_id: str | None) -> Sequence[KeyInfo]:
    """The oldest first, also those that are revoked or expired. None: the operators'. Raises NotFound."""
    return await store.list_keys(await _find_owner(store, tenant_id))


async def rotate_key(
    store: OperatorStore,
    tenant_id: str | None,
    key_id: str,
    rotation: Rotation,
    *,
    ids: IdSource,
    actor: str,
) -> CreatedKey:
    """A successor with the same rights; both are valid until the overlap is over. Raises NotFound, and Conflict
    (``key_not_valid``) for a key that is revoked or expired."""
    owner = await _find_owner(store, tenant_id)
    key, line = await _find_key(store, owner, key_id)
    secret = new_secret()
    lifetime_seconds = rotation.lifetime_seconds
    if lifetime_seconds is None:
        lifetime_seconds = _lifetime_of(line)
    successor = NewKey(
        key_id=KeyId(ids.new("key")),
        tenant_id=owner,
        subject=key.subject,
        scopes=key.scopes,
        groups=key.groups,
        description=key.description,
        lifetime_seconds=lifetime_seconds,
        secret_hash=hash_secret(secret),
    )
    info = await store.rotate_key(key.key_id, owner, successor, overlap_seconds=rotation.overlap_seconds, actor=actor)
    if info is None:
        raise Conflict("the key is not valid any more: create another one", code="key_not_valid")
    return CreatedKey(info=info, secret=secret)


async def revoke_key(store: OperatorStore, tenant_id: str | None, key_id: str, *, actor: str) -> None:
    """At once, in every process. Revoking twice is revoking once. Raises NotFound."""
    owner = await _find_owner(store, tenant_id)
    if not is_id("key", key_id) or not await store.revoke_key(KeyId(key_id), owner, actor=actor):
        raise _unknown()


def _check(request: KeyRequest, *, is_operators: bool) -> None:
    problems: list[FieldProblem] = []
    if not request.scopes:
        problems.append(FieldProblem(pointer="/scopes", detail="must name at least one scope"))
    elif is_operators != (Scope.OPERATOR in request.scopes) or (is_operators and request.scopes != _OPERATORS):
        told = f"{Scope.OPERATOR} is for operators' keys, and the only scope of these"
        problems.append(FieldProblem(pointer="/scopes", detail=told))
    needs_subject = is_operators or Scope.APPROVALS_DECIDE in request.scopes
    if needs_subject and request.subject is None:
        problems.append(FieldProblem(pointer="/subject", detail="must say whose it is: what this key does is recorded"))
    if problems:
        raise InvalidRequest("a key can't be made so", problems=problems)


def _lifetime_of(keys: Sequence[KeyInfo]) -> float | None:
    # A key that was rotated ends with the overlap: how long it was made for is told by its newest successor.
    newest = max(keys, key=lambda key: (key.created_at, key.key_id))
    return None if newest.expires_at is None else newest.expires_at - newest.created_at


async def _find_key(store: OperatorStore, owner: TenantId | None, key_id: str) -> tuple[KeyInfo, Sequence[KeyInfo]]:
    """The key, and its line: itself, those that were made for it, and for these."""
    keys = await store.list_keys(owner) if is_id("key", key_id) else ()
    key = next((key for key in keys if key.key_id == key_id), None)
    if key is None:
        raise _unknown()
    line = {key.key_id: key}
    for other in keys:
        # The oldest come first: each is met after the one that it was made for.
        if other.replaces in line:
            line[other.key_id] = other
    return key, list(line.values())


async def _find_owner(store: OperatorStore, tenant_id: str | None) -> TenantId | None:
    return None if tenant_id is None else (await get_tenant(store, tenant_id)).tenant_id


def _unknown() -> NotFound:
    return NotFound("there is no such key")
