"""``/runs/{id}/resume`` and ``/runs/{id}/rerun``: a run once more."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api import codes, documents
from app.api.bodies import parse, read_optional_body
from app.api.deps import Deps, RunsWriter
from app.api.negotiation import read_query
from app.api.run_answers import LOCATION, REPLAYED, WAITED, announce, answer_run, read_key
from app.api.schemas import story
from app.api.schemas.runs import RerunRun, ResumeRun, RunView
from app.auth import Scope
from app.service import again
from app.service.subjects import check_user

router: Final = APIRouter(tags=["runs"])

_HEADERS: Final = {**LOCATION, **WAITED, **REPLAYED}
_PARAMETERS: Final[list[dict[str, Any]]] = [documents.IDEMPOTENCY_KEY, documents.PREFER]


def _answers(*more: str) -> dict[int | str, dict[str, Any]]:
    successes = {
        200: documents.answer("With `Prefer: wait`: the new run is at its end", RunView, headers=_HEADERS),
        202: documents.answer("Accepted: the new run", RunView, headers=_HEADERS),
    }
    return documents.answers(successes, 404, 413, *codes.OF_IDEMPOTENCY, *codes.OF_NEW_RUNS, *more)


@router.post(
    "/runs/{run_id}/resume",
    operation_id="resumeRun",
    summary="Go on from a run whose worker was lost, or which did not know what became of a call",
    description="A new run with all that was said and done before, the same versions, ceilings and time, and the same "
    "idempotency keys for its calls; once for each run. `resolutions` name every call whose outcome is not known, and "
    "no other one: 422 `resolution_missing` and `unknown_call` point to them.",
    status_code=202,
    responses=_answers(
        "resolution_missing", "run_already_resumed", "run_not_resumable", "run_not_terminal", "unknown_call"
    ),
    openapi_extra={
        "parameters": _PARAMETERS,
        "requestBody": documents.body(ResumeRun, required=False, example={"resolutions": {story.CALL_ID: "succeeded"}}),
    },
)
async def resume_run(run_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    deps.drain.refuse_new()
    read_query(request)
    document = await read_optional_body(request)
    wanted = parse(ResumeRun, document)
    key = read_key(request, caller, document, route=f"POST /runs/{run_id}/resume")
    async with deps.store.begin(caller.tenant_id) as tx:
        submitted = await again.resume(
            tx, caller.principal, run_id, wanted.resolutions, admission=deps.admission, key=key
        )
        check_user(caller.principal, submitted.run.record.user)
    headers = announce(deps, submitted)
    return await answer_run(request, deps, submitted.run, scope=Scope.RUNS_WRITE, headers=headers, at_once=202)


@router.post(
    "/runs/{run_id}/rerun",
    operation_id="rerunRun",
    summary="The same run once more, from its beginning",
    description="A new run with the input, the versions, the ceilings and the time that the run had. It has to have "
    "ended.",
    status_code=202,
    responses=_answers("run_has_parent", "run_not_terminal"),
    openapi_extra={
        "parameters": _PARAMETERS,
        "requestBody": documents.body(RerunRun, required=False, example={}),
    },
)
async def rerun_run(run_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    deps.drain.refuse_new()
    read_query(request)
    document = await read_optional_body(request)
    parse(RerunRun, document)
    key = read_key(request, caller, document, route=f"POST /runs/{run_id}/rerun")
    async with deps.store.begin(caller.tenant_id) as tx:
        submitted = await again.rerun(tx, caller.principal, run_id, admission=deps.admission, key=key)
        check_user(caller.principal, submitted.run.record.user)
    headers = announce(deps, submitted)
    return await answer_run(request, deps, submitted.run, scope=Scope.RUNS_WRITE, headers=headers, at_once=202)
