"""Who am I; and for operators: alive, ready, the API's own description."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from app.api import documents, openapi
from app.api.deps import AnyKey, ApiDeps, Deps
from app.api.docs_page import CONTENT_SECURITY_POLICY, render_page
from app.api.negotiation import read_query
from app.api.problems import problem
from app.api.schemas.operations import Limits, Live, Me, Ready, view_limits
from app.ids import TenantId

router: Final = APIRouter(tags=["operations"])

_OK: Final = "ok"
_SKELETON: Final = {"openapi": "3.1.0", "info": {"title": "runwright", "version": "0.1.0"}, "paths": {}}


@router.get(
    "/me",
    operation_id="getMe",
    summary="Tell whose key this is",
    description="Any key may ask, also an operator's.",
    responses=documents.answers({200: documents.answer("The key's tenant, subject, scopes and limits", Me)}),
)
async def get_me(request: Request, deps: Deps, principal: AnyKey) -> Response:
    read_query(request)
    me = Me(
        tenant_id=principal.tenant_id,
        key_id=principal.key_id,
        subject=principal.subject,
        groups=sorted(principal.groups),
        scopes=sorted(principal.scopes),
        limits=None if principal.tenant_id is None else await _find_limits(deps, principal.tenant_id),
    )
    return JSONResponse(me.model_dump(mode="json"))


async def _find_limits(deps: ApiDeps, tenant_id: TenantId) -> Limits:
    async with deps.store.begin(tenant_id) as tx:
        return view_limits(deps.config.rules, await tx.rules())


@router.get(
    "/livez",
    operation_id="isAlive",
    summary="Is the process up?",
    description="Touches neither model nor database.",
    responses=documents.open_answers({200: documents.answer("It is", Live)}),
)
async def is_alive() -> Response:
    return JSONResponse(Live().model_dump())


@router.get(
    "/readyz",
    operation_id="isReady",
    summary="Can it take work?",
    description="The database, its migrations, a model, a worker, the clock: one code for each.",
    responses=documents.open_answers(
        {200: documents.answer("Every check is ok", Ready), 503: documents.problem_answer(503, ["not_ready"])}
    ),
)
async def is_ready(request: Request, deps: Deps) -> Response:
    checks = dict(await deps.check_readiness())
    if deps.drain.is_draining:
        code, detail = "draining", "this process is going away"
    elif all(code == _OK for code in checks.values()):
        return JSONResponse(Ready(checks=checks, warnings=list(await deps.find_warnings())).model_dump())
    else:
        code, detail = "not_ready", "a check is not ok"
    return problem(request.state.request_id, code, detail, status=503, extensions={"checks": checks})


@router.get(
    "/openapi.json",
    operation_id="getDescription",
    summary="This description",
    description="The same as `openapi.yaml`, of this process.",
    response_class=Response,
    responses=documents.open_answers(
        {
            200: documents.answer(
                "OpenAPI 3.1", content={"application/json": {"schema": {"type": "object"}, "example": _SKELETON}}
            )
        }
    ),
)
async def get_description(request: Request) -> Response:
    return JSONResponse(openapi.describe(request.app))


@router.get(
    "/docs",
    operation_id="getDocs",
    summary="This description, as a page",
    description="Loads nothing from anywhere.",
    response_class=Response,
    responses=documents.open_answers(
        {
            200: documents.answer(
                "The page", content={"text/html": {"schema": {"type": "string"}, "example": "<!doctype html>…"}}
            )
        }
    ),
)
async def get_docs(request: Request) -> Response:
    page = render_page(openapi.describe(request.app))
    return HTMLResponse(page, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})
