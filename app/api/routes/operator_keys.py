"""``/tenants/{id}/keys`` and ``/operators/keys``: made, listed, rotated, revoked."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import documents
from app.api.bodies import parse, read_body
from app.api.deps import ApiDeps, Deps, OperatorCaller
from app.api.negotiation import read_query, refuse_idempotency_key
from app.api.schemas import story
from app.api.schemas.common import page
from app.api.schemas.operator_keys import (
    CreatedKeyView,
    CreateKey,
    CreateOperatorKey,
    KeyPage,
    RotateKey,
    view_created_key,
    view_key,
)
from app.service import operator_keys
from app.service.operator_keys import CreatedKey

router: Final = APIRouter(tags=["operator"])

_NO_STORE: Final = {"Cache-Control": {"schema": {"type": "string", "const": "no-store"}, "required": True}}
_SHOWN_ONCE: Final = {201: documents.answer("The key, with its secret", CreatedKeyView, headers=_NO_STORE)}
_KEY_EXAMPLE: Final = {
    "subject": story.SERVICE,
    "scopes": ["runs:read", "runs:write"],
    "description": "the site's backend",
}
_OPERATOR_EXAMPLE: Final = {"subject": story.OPERATOR, "lifetime_seconds": 7_776_000}
_ROTATE_EXAMPLE: Final = {"overlap_seconds": 3_600}
_ROTATED: Final = "With the rights of the old one, which expires when the overlap is over. Until then both are valid."
_REVOKED: Final = "At once, in every process; streams that were opened with it end. Revoking twice is revoking once."


@router.post(
    "/tenants/{tenant_id}/keys",
    operation_id="createKey",
    summary="Create a key of a tenant",
    description="Its secret is answered here and never again.",
    status_code=201,
    responses=documents.answers(_SHOWN_ONCE, 404, 413, "idempotency_key_unsupported", "tenant_erasing"),
    openapi_extra={"requestBody": documents.body(CreateKey, example=_KEY_EXAMPLE)},
)
async def create_key(tenant_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    refuse_idempotency_key(request.headers)
    wanted = parse(CreateKey, await read_body(request)).to_request()
    created = await operator_keys.create_key(deps.operator, tenant_id, wanted, ids=deps.ids, actor=caller.actor)
    return _answer_created(created)


@router.get(
    "/tenants/{tenant_id}/keys",
    operation_id="listKeys",
    summary="List a tenant's keys, oldest first",
    description="Also those that are revoked or expired.",
    responses=documents.answers({200: documents.answer("All of them", KeyPage)}, 404),
)
async def list_keys(tenant_id: str, request: Request, deps: Deps, _: OperatorCaller) -> Response:
    read_query(request)
    return await _answer_list(deps, tenant_id)


@router.post(
    "/tenants/{tenant_id}/keys/{key_id}/rotate",
    operation_id="rotateKey",
    summary="Make a successor of a key",
    description=_ROTATED,
    status_code=201,
    responses=documents.answers(
        _SHOWN_ONCE, 404, 413, "idempotency_key_unsupported", "key_not_valid", "tenant_erasing"
    ),
    openapi_extra={"requestBody": documents.body(RotateKey, example=_ROTATE_EXAMPLE)},
)
async def rotate_key(tenant_id: str, key_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    return await _rotate(request, deps, tenant_id, key_id, actor=caller.actor)


@router.delete(
    "/tenants/{tenant_id}/keys/{key_id}",
    operation_id="revokeKey",
    summary="Revoke a key",
    description=_REVOKED,
    status_code=204,
    responses=documents.answers({204: documents.answer("It is not valid any more")}, 404),
)
async def revoke_key(tenant_id: str, key_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    await operator_keys.revoke_key(deps.operator, tenant_id, key_id, actor=caller.actor)
    return Response(status_code=204)


@router.post(
    "/operators/keys",
    operation_id="createOperatorKey",
    summary="Create an operator's key",
    description="It belongs to no tenant and reads no run. Its secret is answered here and never again.",
    status_code=201,
    responses=documents.answers(_SHOWN_ONCE, 413, "idempotency_key_unsupported"),
    openapi_extra={"requestBody": documents.body(CreateOperatorKey, example=_OPERATOR_EXAMPLE)},
)
async def create_operator_key(request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    refuse_idempotency_key(request.headers)
    wanted = parse(CreateOperatorKey, await read_body(request)).to_request()
    created = await operator_keys.create_key(deps.operator, None, wanted, ids=deps.ids, actor=caller.actor)
    return _answer_created(created)


@router.get(
    "/operators/keys",
    operation_id="listOperatorKeys",
    summary="List operators' keys, oldest first",
    description="Also those that are revoked or expired.",
    responses=documents.answers({200: documents.answer("All of them", KeyPage)}),
)
async def list_operator_keys(request: Request, deps: Deps, _: OperatorCaller) -> Response:
    read_query(request)
    return await _answer_list(deps, None)


@router.post(
    "/operators/keys/{key_id}/rotate",
    operation_id="rotateOperatorKey",
    summary="Make a successor of an operator's key",
    description=_ROTATED,
    status_code=201,
    responses=documents.answers(
        _SHOWN_ONCE, 404, 413, "idempotency_key_unsupported", "key_not_valid", "tenant_erasing"
    ),
    openapi_extra={"requestBody": documents.body(RotateKey, example=_ROTATE_EXAMPLE)},
)
async def rotate_operator_key(key_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    return await _rotate(request, deps, None, key_id, actor=caller.actor)


@router.delete(
    "/operators/keys/{key_id}",
    operation_id="revokeOperatorKey",
    summary="Revoke an operator's key",
    description=_REVOKED,
    status_code=204,
    responses=documents.answers({204: documents.answer("It is not valid any more")}, 404),
)
async def revoke_operator_key(key_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    await operator_keys.revoke_key(deps.operator, None, key_id, actor=caller.actor)
    return Response(status_code=204)


async def _rotate(request: Request, deps: ApiDeps, tenant_id: str | None, key_id: str, *, actor: str) -> Response:
    read_query(request)
    refuse_idempotency_key(request.headers)
    rotation = parse(RotateKey, await read_body(request)).to_rotation()
    created = await operator_keys.rotate_key(deps.operator, tenant_id, key_id, rotation, ids=deps.ids, actor=actor)
    return _answer_created(created)


async def _answer_list(deps: ApiDeps, tenant_id: str | None) -> Response:
    keys = await operator_keys.list_keys(deps.operator, tenant_id)
    return JSONResponse(page([view_key(key).model_dump(mode="json") for key in keys], None))


def _answer_created(created: CreatedKey) -> Response:
    # No cache on the way keeps a secret.
    headers = {"Cache-Control": "no-store"}
    return JSONResponse(view_created_key(created).model_dump(mode="json"), status_code=201, headers=headers)
