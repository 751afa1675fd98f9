"""Tenants as an operator sees them: made, set, erased."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from app.errors import Conflict, FieldProblem, InvalidRequest, NotFound
from app.ids import TenantId, is_id
from app.policy.approvers import ApproverRule
from app.policy.ceilings import Ceiling
from app.ports.catalogue import Catalogue
from app.ports.tenancy import OperatorStore, TenantChanges, TenantRecord
from app.service.agents import is_agent_name

_NOT_HERE: Final = "this deployment does not have it"


async def create_tenant(store: OperatorStore, name: str, *, actor: str) -> TenantRecord:
    """Raises Conflict (``tenant_exists``), and InvalidRequest for a name that reads like a tenant's id: who names a
    tenant may give either."""
    if is_id("ten", name):
        problem = FieldProblem(pointer="/name", detail="must not read like a tenant's id")
        raise InvalidRequest("a tenant can't be named so", problems=[problem])
    tenant = await store.create_tenant(name, actor=actor)
    if tenant is None:
        raise Conflict("there is a tenant of that name", code="tenant_exists")
    return tenant


async def get_tenant(store: OperatorStore, tenant_id: str) -> TenantRecord:
    """Raises NotFound."""
    tenant = await store.get_tenant(TenantId(tenant_id)) if is_id("ten", tenant_id) else None
    if tenant is None:
        raise _unknown()
    return tenant


async def get_usable_tenant(store: OperatorStore, tenant_id: str) -> TenantRecord:
    """Raises NotFound, and Conflict (``tenant_erasing``) for one that is going."""
    tenant = await get_tenant(store, tenant_id)
    if tenant.erasing:
        raise Conflict("the tenant is being erased", code="tenant_erasing")
    return tenant


async def find_named(store: OperatorStore, tenant_id: str) -> TenantId:
    """The tenant that a body names in ``tenant_id``. Raises InvalidRequest (``unknown_tenant``)."""
    try:
        return (await get_tenant(store, tenant_id)).tenant_id
    except NotFound:
        raise unknown_tenant() from None


def unknown_tenant() -> InvalidRequest:
    """About a body's ``tenant_id``."""
    problem = FieldProblem(pointer="/tenant_id", detail="there is no such tenant")
    return InvalidRequest("the tenant is not known", code="unknown_tenant", problems=[problem])


async def list_tenants(
    store: OperatorStore, *, limit: int, after: str | None
) -> tuple[Sequence[TenantRecord], str | None]:
    """Up to ``limit`` tenants by name, and the name after which the next page begins; None on the last one."""
    found = await store.list_tenants(limit=limit + 1, after=after)
    page = found[:limit]
    return page, page[-1].name if len(found) > limit else None


async def change_tenant(
    store: OperatorStore, tenant_id: str, changes: TenantChanges, *, catalogue: Catalogue, actor: str
) -> TenantRecord:
    """What is left out stays; what is given replaces what there was, whole.

    Raises NotFound, Conflict (``tenant_erasing``), InvalidRequest (``unknown_name`` for tools and models that this
    deployment does not have).
    """
    tenant = await get_usable_tenant(store, tenant_id)
    check_changes(changes, catalogue)
    if not changes:
        return tenant
    updated = await store.set_tenant(tenant.tenant_id, changes, actor=actor)
    if updated is None:
        raise _unknown()
    return updated


def check_changes(changes: TenantChanges, catalogue: Catalogue) -> None:
    """Raises InvalidRequest for settings that could never hold, with a pointer to each."""
    if wrong := [*_find_twice(changes.get("ceilings", ())), *_find_impossible(changes.get("approvers", ()))]:
        raise InvalidRequest("the settings are not what a tenant can have", problems=wrong)
    if unknown := list(_find_unknown(changes, catalogue)):
        raise InvalidRequest("the settings name what is not there", code="unknown_name", problems=unknown)


async def erase_tenant(store: OperatorStore, tenant_id: str, *, actor: str) -> TenantRecord:
    """Begins it: nobody can use the tenant from now on. Asking twice is asking once. Raises NotFound."""
    tenant = await get_tenant(store, tenant_id)
    if not await store.erase_tenant(tenant.tenant_id, actor=actor):
        raise _unknown()
    # As it was asked for, also where the erasure has come to its end already.
    return await store.get_tenant(tenant.tenant_id) or tenant


def tool_names(catalogue: Catalogue) -> Collection[str]:
    return {tool.name for tool in catalogue.tools()}


def model_names(catalogue: Catalogue) -> Collection[str]:
    return {model.name for model in catalogue.models()}


def _find_twice(ceilings: Sequence[Ceiling]) -> Iterator[FieldProblem]:
    seen: set[tuple[str, int]] = set()
    for index, ceiling in enumerate(ceilings):
        if (ceiling.dimension, ceiling.window_seconds) in seen:
            yield FieldProblem(pointer=f"/ceilings/{index}", detail="there is one of this dimension and window already")
        seen.add((ceiling.dimension, ceiling.window_seconds))


def _find_impossible(rules: Sequence[ApproverRule]) -> Iterator[FieldProblem]:
    """A rule about an agent that there can't be would leave its calls to whoever may decide."""
    for index, rule in enumerate(rules):
        for place, name in enumerate(rule.agents or ()):
            if not is_agent_name(name):
                yield FieldProblem(pointer=f"/approvers/{index}/agents/{place}", detail="no agent can have that name")


def _find_unknown(changes: TenantChanges, catalogue: Catalogue) -> Iterator[FieldProblem]:
    tools = tool_names(catalogue)
    yield from _find_strays("/tools", changes.get("tools"), tools)
    yield from _find_strays("/models", changes.get("models"), model_names(catalogue))
    rules: Sequence[ApproverRule] = changes.get("approvers", ())
    for index, rule in enumerate(rules):
        yield from _find_strays(f"/approvers/{index}/tools", rule.tools, tools)


def _find_strays(pointer: str, names: Collection[str] | None, known: Collection[str]) -> Iterator[FieldProblem]:
    for index, name in enumerate(names or ()):
        if name not in known:
            yield FieldProblem(pointer=f"{pointer}/{index}", detail=_NOT_HERE)


def _unknown() -> NotFound:
    return NotFound("there is no such tenant")
