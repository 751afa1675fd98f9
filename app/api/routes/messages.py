"""``/runs/{id}/messages``: what the model of a run was told, and what it said."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import codes, documents
from app.api.deps import Deps, RunsReader
from app.api.negotiation import limit_of, one_value, read_query
from app.api.schemas.common import page
from app.api.schemas.messages import RunMessagePage, view_run_message
from app.service.cursors import Listing
from app.service.transcript import transcript_page

router: Final = APIRouter(tags=["runs"])


@router.get(
    "/runs/{run_id}/messages",
    operation_id="listRunMessages",
    summary="Read a run's transcript, oldest first",
    description="The prompt of the agent that the run is under, the session's history as far as it fitted, the input, "
    "and all that was said since: after hooks and guardrails have changed it, so what was taken out is not here "
    "either. Results of tools stand in their fences. Of a call that is still out there is no result yet.",
    responses=documents.answers({200: documents.answer("A page of messages", RunMessagePage)}, 404, *codes.OF_CURSORS),
    openapi_extra={"parameters": [documents.LIMIT, documents.CURSOR]},
)
async def list_run_messages(run_id: str, request: Request, deps: Deps, caller: RunsReader) -> Response:
    query = read_query(request, known=("limit", "cursor"))
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /runs/{id}/messages", where={"run": run_id})
    after = 0
    if cursor := one_value(query, "cursor"):
        [after] = deps.cursors.open(listing, cursor)
    async with deps.store.begin(caller.tenant_id) as tx:
        lines, following = await transcript_page(tx, run_id, deps.catalogue, limit=limit, after=after)
    next_cursor = None if following is None else deps.cursors.seal(listing, [following])
    items = [view_run_message(layer, message).model_dump(mode="json") for layer, message in lines]
    return JSONResponse(page(items, next_cursor))
