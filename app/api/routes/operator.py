"""``/tenants``: what an operator makes, sets and erases. No run, agent or session can be read here."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import codes, documents
from app.api.bodies import parse, read_body
from app.api.deps import Deps, OperatorCaller
from app.api.negotiation import limit_of, one_value, read_query
from app.api.schemas.common import page
from app.api.schemas.operator import (
    CHANGE_EXAMPLE,
    ChangeTenant,
    CreateTenant,
    TenantPage,
    TenantView,
    view_tenant,
)
from app.ids import TenantId
from app.service import operator
from app.service.cursors import Listing

router: Final = APIRouter(tags=["operator"])

# No tenant's: a cursor of this list is good for every operator and for nobody else.
_LISTING: Final = Listing(tenant_id=TenantId("operator"), route="GET /tenants", where={})


@router.post(
    "/tenants",
    operation_id="createTenant",
    summary="Create a tenant",
    description="It may use all that there is until its settings are changed, and has no key yet.",
    status_code=201,
    responses=documents.answers(
        {201: documents.answer("The tenant", TenantView, headers={"Location": documents.header("Its address")})},
        413,
        "tenant_exists",
    ),
    openapi_extra={"requestBody": documents.body(CreateTenant, example={"name": "acme"})},
)
async def create_tenant(request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    wanted = parse(CreateTenant, await read_body(request))
    tenant = await operator.create_tenant(deps.operator, wanted.name, actor=caller.actor)
    view = view_tenant(tenant)
    return JSONResponse(view.model_dump(mode="json"), status_code=201, headers={"Location": f"/tenants/{view.id}"})


@router.get(
    "/tenants",
    operation_id="listTenants",
    summary="List tenants, by name",
    description="Also those that are being erased.",
    responses=documents.answers({200: documents.answer("A page of tenants", TenantPage)}, *codes.OF_CURSORS),
    openapi_extra={"parameters": [documents.LIMIT, documents.CURSOR]},
)
async def list_tenants(request: Request, deps: Deps, _: OperatorCaller) -> Response:
    query = read_query(request, known=("limit", "cursor"))
    limit = limit_of(query)
    after: str | None = None
    if cursor := one_value(query, "cursor"):
        (after,) = deps.cursors.open(_LISTING, cursor)
    found, following = await operator.list_tenants(deps.operator, limit=limit, after=after)
    next_cursor = None if following is None else deps.cursors.seal(_LISTING, [following])
    return JSONResponse(page([view_tenant(tenant).model_dump(mode="json") for tenant in found], next_cursor))


@router.get(
    "/tenants/{tenant_id}",
    operation_id="getTenant",
    summary="Read a tenant",
    description="Its settings, and whether it is paused. Nothing of its runs.",
    responses=documents.answers({200: documents.answer("The tenant", TenantView)}, 404),
)
async def get_tenant(tenant_id: str, request: Request, deps: Deps, _: OperatorCaller) -> Response:
    read_query(request)
    tenant = await operator.get_tenant(deps.operator, tenant_id)
    return JSONResponse(view_tenant(tenant).model_dump(mode="json"))


@router.patch(
    "/tenants/{tenant_id}",
    operation_id="changeTenant",
    summary="Change a tenant's settings",
    description="They hold at once, also for runs that are there already.",
    responses=documents.answers(
        {200: documents.answer("The tenant, as it is now", TenantView)}, 404, 413, "tenant_erasing", "unknown_name"
    ),
    openapi_extra={"requestBody": documents.body(ChangeTenant, example=CHANGE_EXAMPLE)},
)
async def change_tenant(tenant_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    changes = parse(ChangeTenant, await read_body(request)).to_changes()
    tenant = await operator.change_tenant(
        deps.operator, tenant_id, changes, catalogue=deps.catalogue, actor=caller.actor
    )
    return JSONResponse(view_tenant(tenant).model_dump(mode="json"))


@router.delete(
    "/tenants/{tenant_id}",
    operation_id="eraseTenant",
    summary="Erase a tenant",
    description="Its keys are revoked at once and its open runs are asked to end; then everything of it is erased, "
    "last the tenant itself, which is unknown from then on. What was archived, and the audit trail, stay.",
    status_code=202,
    responses=documents.answers({202: documents.answer("The tenant, which is going", TenantView)}, 404),
)
async def erase_tenant(tenant_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    tenant = await operator.erase_tenant(deps.operator, tenant_id, actor=caller.actor)
    return JSONResponse(view_tenant(tenant).model_dump(mode="json"), status_code=202)
