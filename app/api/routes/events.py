"""``/runs/{id}/events``: the log of a run, as pages and as a stream."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api import documents
from app.api.deps import ApiDeps, Caller, Deps, RunsReader, keeps_scope
from app.api.negotiation import bad_parameter, event_position, limit_of, one_value, read_query, wants_event_stream
from app.api.schemas.runs import EventPage
from app.api.sse import EventStream, wire_event
from app.auth import Scope
from app.service import runs
from app.service.cursors import Listing
from app.service.follow import check_position, follow

router: Final = APIRouter(tags=["runs"])

_EXAMPLE: Final = (
    "retry: 3000\n\n"
    "id: 1\nevent: run_queued\n"
    'data: {"seq":1,"run_id":"run_…","kind":"run_queued","at":"2026-01-31T12:00:00.000Z","…":"…"}\n\n'
    'event: answer_delta\ndata: {"iteration":1,"attempt":1,"offset":0,"text":"Four "}\n\n'
    ": ping\n\n"
)


@router.get(
    "/runs/{run_id}/events",
    operation_id="listRunEvents",
    summary="Read or follow a run's events",
    description="As JSON: a page of events, oldest first. As `text/event-stream`: replay, then live, until the run has "
    "ended. Each stored event is a frame with its `seq` as `id`; text as it is generated comes as `answer_delta` and "
    "`answer_snapshot` frames without one. Coming back with `Last-Event-ID` misses nothing.",
    responses=documents.answers(
        {
            200: documents.answer(
                "A page of events, or the stream",
                EventPage,
                content={"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
            ),
            204: documents.answer("A stream only: the run has ended, and all of it was read"),
        },
        400,
        404,
    ),
    openapi_extra={
        "parameters": [
            documents.LAST_EVENT_ID,
            documents.query("after", "Only events after this number", type="integer", minimum=0),
            documents.LIMIT,
            documents.CURSOR,
        ]
    },
)
async def list_run_events(run_id: str, request: Request, deps: Deps, caller: RunsReader) -> Response:
    if wants_event_stream(request.headers):
        return await _stream(run_id, request, deps, caller)
    query = read_query(request, known=("after", "limit", "cursor"))
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /runs/{id}/events", where={"run": run_id})
    after = event_position(request, query)
    if cursor := one_value(query, "cursor"):
        if "after" in query:
            raise bad_parameter("after", "a cursor says where to go on")
        (after,) = deps.cursors.open(listing, cursor)
    async with deps.store.begin(caller.tenant_id) as tx:
        run = await runs.get(tx, run_id)
        check_position(run, after)
        events = await tx.events_after(run.run_id, after, limit=limit + 1)
    next_cursor = deps.cursors.seal(listing, [events[limit - 1].seq]) if len(events) > limit else None
    return Response(
        # Spliced, not parsed and written again: what is sent is what was committed.
        '{"items":[%s],"next_cursor":%s}'  # noqa: UP031 - braces of JSON
        % (
            ",".join(wire_event(run.run_id, event) for event in events[:limit]),
            "null" if next_cursor is None else f'"{next_cursor}"',
        ),
        media_type="application/json",
    )


async def _stream(run_id: str, request: Request, deps: ApiDeps, caller: Caller) -> Response:
    deps.drain.refuse_new()
    after = event_position(request, read_query(request, known=("after",)))
    async with deps.store.begin(caller.tenant_id) as tx:
        run = await runs.get(tx, run_id)
    if not check_position(run, after):
        # Stops a browser's EventSource, which would come back for ever.
        return Response(status_code=204)
    still_allowed = keeps_scope(request, deps, Scope.RUNS_READ)
    frames = follow(deps.reading, caller.tenant_id, run.run_id, after=after, still_allowed=still_allowed)
    return EventStream(run.run_id, frames, deps=deps)
