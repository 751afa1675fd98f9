"""``/pauses``, ``/cancellations``, ``/workers`` and ``/audit``: what an operator does about work, and who did what."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import codes, documents
from app.api.bodies import parse, read_body
from app.api.deps import Deps, OperatorCaller
from app.api.negotiation import bad_parameter, limit_of, one_value, read_query
from app.api.schemas import story
from app.api.schemas.common import page
from app.api.schemas.operator_controls import (
    AddPause,
    AuditPage,
    CancelledView,
    CancelRuns,
    DrainView,
    PausePage,
    PauseView,
    WorkerPage,
    view_entry,
    view_pause,
    view_worker,
)
from app.ids import TenantId, is_id
from app.service import operator_controls as controls
from app.service.cursors import Listing

router: Final = APIRouter(tags=["operator"])

_PAUSE_EXAMPLE: Final = {"kind": "tool", "name": story.TOOL, "reason": "the inn answers nothing"}
_CANCEL_EXAMPLE: Final = {"tool": story.TOOL, "created_before": story.ENDED_AT, "reason": "a wrong price"}
_MAX_ACTION: Final = 64


@router.post(
    "/pauses",
    operation_id="addPause",
    summary="Pause a tenant, an agent, a tool or a model",
    description="Nothing of it starts, and what runs is handed back to the queue. New runs are taken and wait.",
    status_code=201,
    responses=documents.answers(
        {
            201: documents.answer("The pause", PauseView),
            200: documents.answer("It was paused already, by this", PauseView),
        },
        413,
        "unknown_name",
        "unknown_tenant",
    ),
    openapi_extra={"requestBody": documents.body(AddPause, example=_PAUSE_EXAMPLE)},
)
async def add_pause(request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    wanted = parse(AddPause, await read_body(request)).to_request()
    added = await controls.add_pause(deps.operator, wanted, catalogue=deps.catalogue, ids=deps.ids, actor=caller.actor)
    return JSONResponse(view_pause(added.pause).model_dump(mode="json"), status_code=201 if added.is_new else 200)


@router.get(
    "/pauses",
    operation_id="listPauses",
    summary="List what is paused",
    description="With who did it, when and why.",
    responses=documents.answers({200: documents.answer("All pauses", PausePage)}),
)
async def list_pauses(request: Request, deps: Deps, _: OperatorCaller) -> Response:
    read_query(request)
    found = await controls.list_pauses(deps.operator)
    return JSONResponse(page([view_pause(pause).model_dump(mode="json") for pause in found], None))


@router.delete(
    "/pauses/{pause_id}",
    operation_id="endPause",
    summary="End a pause",
    description="What waited can start, unless something else of it is paused too.",
    status_code=204,
    responses=documents.answers({204: documents.answer("It is over")}, 404),
)
async def end_pause(pause_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    await controls.end_pause(deps.operator, pause_id, actor=caller.actor)
    return Response(status_code=204)


@router.post(
    "/cancellations",
    operation_id="cancelRuns",
    summary="Cancel runs by a filter",
    description="Every open run that fits is asked to end, of all tenants unless one is named.",
    responses=documents.answers({200: documents.answer("How many were asked", CancelledView)}, 413, "unknown_tenant"),
    openapi_extra={"requestBody": documents.body(CancelRuns, example=_CANCEL_EXAMPLE)},
)
async def cancel_runs(request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    wanted = parse(CancelRuns, await read_body(request)).to_request()
    cancelled = await controls.cancel_runs(deps.operator, wanted, actor=caller.actor)
    return JSONResponse(CancelledView(cancelled=cancelled).model_dump(mode="json"))


@router.get(
    "/workers",
    operation_id="listWorkers",
    summary="List the workers that were heard of in the last two minutes",
    description="A process is a worker where its role says so; one that is gone is listed a while longer.",
    responses=documents.answers({200: documents.answer("All of them", WorkerPage)}),
)
async def list_workers(request: Request, deps: Deps, _: OperatorCaller) -> Response:
    read_query(request)
    found = await controls.list_workers(deps.operator)
    return JSONResponse(page([view_worker(worker).model_dump(mode="json") for worker in found], None))


@router.post(
    "/workers/{worker_id}/drain",
    operation_id="drainWorker",
    summary="Drain a worker",
    description="It starts nothing more and hands back what it drives, for good: its process has to be started anew.",
    status_code=202,
    responses=documents.answers({202: documents.answer("It will", DrainView)}, 404),
)
async def drain_worker(worker_id: str, request: Request, deps: Deps, caller: OperatorCaller) -> Response:
    read_query(request)
    await controls.drain_worker(deps.operator, worker_id, actor=caller.actor)
    return JSONResponse(DrainView(id=worker_id).model_dump(mode="json"), status_code=202)


@router.get(
    "/audit",
    operation_id="listAudit",
    summary="Read who changed what, newest first",
    description="Conditions hold together. What was done to a tenant outlives it.",
    responses=documents.answers({200: documents.answer("A page of changes", AuditPage)}, *codes.OF_CURSORS),
    openapi_extra={
        "parameters": [
            documents.query("tenant_id", "Whom it concerns", example=story.TENANT_ID),
            documents.query("action", "What was done, as in `key.revoked`", example="key.revoked"),
            documents.LIMIT,
            documents.CURSOR,
        ]
    },
)
async def list_audit(request: Request, deps: Deps, _: OperatorCaller) -> Response:
    query = read_query(request, known=("tenant_id", "action", "limit", "cursor"))
    tenant_id, action, limit = one_value(query, "tenant_id"), one_value(query, "action"), limit_of(query)
    if tenant_id is not None and not is_id("ten", tenant_id):
        raise bad_parameter("tenant_id", "must be a tenant's id")
    if action is not None and len(action) > _MAX_ACTION:
        raise bad_parameter("action", "must be an action as in key.revoked")
    conditions = {"tenant_id": tenant_id, "action": action}
    listing = Listing(tenant_id=TenantId("operator"), route="GET /audit", where=conditions)
    before: int | None = None
    if cursor := one_value(query, "cursor"):
        (before,) = deps.cursors.open(listing, cursor)
    found, following = await controls.audit_page(
        deps.operator, tenant_id=tenant_id, action=action, limit=limit, before=before
    )
    next_cursor = None if following is None else deps.cursors.seal(listing, [following])
    return JSONResponse(page([view_entry(entry).model_dump(mode="json") for entry in found], next_cursor))
