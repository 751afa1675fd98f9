"""``/runs/{id}/events``: the log of a run, as pages and as a stream."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api import codes, documents
from app.api.deps import ApiDeps, Caller, Deps, RunsFollower
from app.api.frames import wire_event
from app.api.negotiation import (
    bad_parameter,
    event_position,
    limit_of,
    one_value,
    read_query,
    tree_position,
    wants_children,
    wants_event_stream,
)
from app.api.run_stream import open_run_stream
from app.api.schemas import story
from app.api.schemas.runs import EventPage
from app.api.sse import EventStream, wire_tree_event
from app.ports.store import TenantTx
from app.service import runs
from app.service.cursors import Listing
from app.service.follow import check_position
from app.service.tree import Position, open_walk

router: Final = APIRouter(tags=["runs"])

RUN_STREAM_EXAMPLE: Final = (
    "retry: 3000\n\n"
    "id: 1\nevent: run_queued\n"
    f'data: {{"seq":1,"run_id":"{story.RUN_ID}","kind":"run_queued","at":"{story.CREATED_AT}","…":"…"}}\n\n'
    'event: answer_delta\ndata: {"iteration":1,"attempt":1,"offset":0,"text":"Four "}\n\n'
    ": ping\n\n"
)


@router.get(
    "/runs/{run_id}/events",
    operation_id="listRunEvents",
    summary="Read or follow a run's events",
    description="As JSON: a page of events, oldest first. As `text/event-stream`: replay, then live, until the run has "
    "ended. Each stored event is a frame with its `seq` as `id`; text as it is generated comes as `answer_delta` and "
    "`answer_snapshot` frames without one. Coming back with `Last-Event-ID` misses nothing. "
    "With `include=children` the runs that this one started are read too: behind the `tool_call` that started one come "
    "that run's events, and then what followed. An `id` is the path of numbers to an event: `7.3` is event 3 of the "
    "run that event 7 started. Text says in `run_id` whose it is.",
    responses=documents.answers(
        {
            200: documents.answer(
                "A page of events, or the stream",
                EventPage,
                content={"text/event-stream": {"schema": {"type": "string"}, "example": RUN_STREAM_EXAMPLE}},
            ),
            204: documents.answer("A stream only: the run has ended, and all of it was read"),
        },
        404,
        406,
        *codes.OF_CURSORS,
        "two_credentials",
        "unknown_event_id",
    ),
    openapi_extra={
        "parameters": [
            documents.LAST_EVENT_ID,
            documents.query(
                "after", "Only events after this one", example="7", type="string", pattern=r"^[0-9]+(\.[0-9]+)*$"
            ),
            documents.query(
                "include", "Read the runs that it started, too", example="children", type="string", enum=["children"]
            ),
            documents.LIMIT,
            documents.CURSOR,
        ]
    },
)
async def list_run_events(run_id: str, request: Request, deps: Deps, caller: RunsFollower) -> Response:
    if wants_event_stream(request.headers):
        return await _stream(run_id, request, deps, caller)
    query = read_query(request, known=("after", "include", "limit", "cursor"))
    limit = limit_of(query)
    with_children = wants_children(query)
    where = {"run": run_id, "include": "children"} if with_children else {"run": run_id}
    listing = Listing(tenant_id=caller.tenant_id, route="GET /runs/{id}/events", where=where)
    after = tree_position(request, query) if with_children else (event_position(request, query),)
    if cursor := one_value(query, "cursor"):
        if "after" in query:
            raise bad_parameter("after", "a cursor says where to go on")
        after = tuple(deps.cursors.open(listing, cursor))
    read = _read_tree if with_children else _read_log
    async with deps.store.begin(caller.tenant_id) as tx:
        items, last = await read(tx, run_id, after, limit)
    next_cursor = "null" if last is None else f'"{deps.cursors.seal(listing, last)}"'
    # Spliced, not parsed and written again: what is sent is what was committed.
    page = f'{{"items":[{",".join(items)}],"next_cursor":{next_cursor}}}'
    return Response(page, media_type="application/json")


async def _read_log(tx: TenantTx, run_id: str, after: Position, limit: int) -> tuple[list[str], Position | None]:
    """A page of the run's events as JSON texts, and the place of its last one where there are more."""
    run = await runs.get(tx, run_id)
    check_position(run, after[0])
    events = await tx.events_after(run.run_id, after[0], limit=limit + 1)
    page = events[:limit]
    return [wire_event(run.run_id, event) for event in page], (page[-1].seq,) if len(events) > limit else None


async def _read_tree(tx: TenantTx, run_id: str, after: Position, limit: int) -> tuple[list[str], Position | None]:
    walk = await open_walk(tx, await runs.get(tx, run_id), after)
    events = await walk.read(tx, limit=limit + 1)
    page = events[:limit]
    return [wire_tree_event(item) for item in page], page[-1].position if len(events) > limit else None


async def _stream(run_id: str, request: Request, deps: ApiDeps, caller: Caller) -> Response:
    stream = await open_run_stream(request, deps, caller, run_id)
    if stream.frames is None:
        # Stops a browser's EventSource, which would come back for ever.
        return Response(status_code=204)
    return EventStream(stream.run_id, stream.frames, deps=deps)
