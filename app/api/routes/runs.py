"""``/runs``: submit, list, read, cancel, erase."""

from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import codes, documents
from app.api.bodies import parse, read_body, read_optional_body
from app.api.deps import ApiDeps, Caller, Deps, RunsReader, RunsWriter, keeps_scope
from app.api.negotiation import (
    bad_parameter,
    instant_of,
    limit_of,
    one_value,
    read_query,
    wanted_wait,
    wants_event_stream,
)
from app.api.routes.events import RUN_STREAM_EXAMPLE
from app.api.run_answers import (
    LOCATION,
    REPLAYED,
    WAITED,
    announce,
    answer_new,
    answer_run,
    read_key,
    show_run,
    write_run,
)
from app.api.schemas import story
from app.api.schemas.common import MAX_METADATA_PAIRS, page
from app.api.schemas.runs import CancelRun, RunPage, RunView, SubmitRun
from app.api.sse import EventStream
from app.auth import Scope
from app.events import RunState
from app.ids import RunId, SessionId
from app.ports.records import RunFilter, RunNow
from app.service import runs
from app.service.cursors import Listing
from app.service.follow import follow
from app.service.runs import RunRequest
from app.service.schemas import check_output_schema
from app.service.subjects import settle_user

router: Final = APIRouter(tags=["runs"])

_METADATA: Final = "metadata."
_FILTERS: Final = (
    "state",
    "agent",
    "session_id",
    "parent_run_id",
    "user",
    "created_after",
    "created_before",
    "limit",
    "cursor",
)
_STREAM: Final = {"text/event-stream": {"schema": {"type": "string"}, "example": RUN_STREAM_EXAMPLE}}
_SUBMIT: Final = {"agent": story.AGENT, "input": story.INPUT, "metadata": story.METADATA}
_SUBMIT_TO_SESSION: Final = {
    "agent": story.AGENT,
    "input": [
        {"role": "user", "content": "Which town near Kyoto is quiet?"},
        {"role": "assistant", "content": "Uji is."},
        {"role": "user", "content": story.INPUT},
    ],
    "session_id": story.SESSION_ID,
    "user": story.USER,
    "timeout_seconds": 600,
    "budget": {"max_tool_calls": 5},
}
_SUBMIT_STRUCTURED: Final = {
    "agent": story.AGENT,
    "input": story.INPUT,
    "output_schema": {
        "type": "object",
        "properties": {"place": {"type": "string"}, "nights": {"type": "integer"}},
        "required": ["place", "nights"],
    },
}


@router.post(
    "/runs",
    operation_id="submitRun",
    summary="Submit a run",
    description="The run is committed before it is answered. With `Accept: text/event-stream` the answer is the run's "
    "event stream.",
    status_code=202,
    responses=documents.answers(
        {
            200: documents.answer(
                "The run is at its end (with `Prefer: wait`), or its event stream",
                RunView,
                headers={
                    **LOCATION,
                    **WAITED,
                    **REPLAYED,
                    "Content-Location": documents.header("The stream's own address"),
                },
                content=_STREAM,
            ),
            202: documents.answer("Accepted", RunView, headers={**LOCATION, **WAITED, **REPLAYED}),
        },
        413,
        *codes.OF_NEW_RUNS,
        *codes.OF_IDEMPOTENCY,
        "session_busy",
        "session_mismatch",
        "unknown_session",
    ),
    openapi_extra={
        "parameters": [documents.IDEMPOTENCY_KEY, documents.PREFER],
        "requestBody": documents.body(
            SubmitRun, example=_SUBMIT, in_a_session=_SUBMIT_TO_SESSION, structured=_SUBMIT_STRUCTURED
        ),
    },
)
async def submit_run(request: Request, deps: Deps, caller: RunsWriter) -> Response:
    deps.drain.refuse_new()
    read_query(request)
    document = await read_body(request)
    asked = parse(SubmitRun, document).to_request()
    wanted = replace(asked, user=settle_user(caller.principal, asked.user))
    if wanted.output_schema is not None:
        await check_output_schema(wanted.output_schema)
    key = read_key(request, caller, document, route="POST /runs")
    if key is None and wanted.session_id is None:
        return await _submit_alone(request, deps, caller, wanted)
    async with deps.store.begin(caller.tenant_id) as tx:
        submitted = await runs.submit(tx, caller.principal, wanted, admission=deps.admission, key=key)
    headers = announce(deps, submitted)
    if wants_event_stream(request.headers):
        return _stream(request, deps, caller, submitted.run.record.run_id, headers)
    return await answer_run(request, deps, submitted.run, scope=Scope.RUNS_WRITE, headers=headers, at_once=202)


@router.get(
    "/runs",
    operation_id="listRuns",
    summary="List runs, newest first",
    description="Conditions hold together. `metadata.<key>=<value>` filters by metadata, and may be given for several "
    "keys.",
    responses=documents.answers({200: documents.answer("A page of runs", RunPage)}, *codes.OF_CURSORS),
    openapi_extra={
        "parameters": [
            documents.query(
                "state",
                "May be repeated: any of them",
                example=["completed"],
                type="array",
                items={"type": "string", "enum": [state.value for state in RunState]},
            ),
            documents.query("agent", "The agent's name", example=story.AGENT),
            documents.query("session_id", "The session that they belong to", example=story.SESSION_ID),
            documents.query("parent_run_id", "The run that called their agents as tools", example=story.RUN_ID),
            documents.query("user", "As it was sent with the run, or with its session", example=story.USER),
            documents.instant("created_after", "Later than this instant", example=story.DAY_BEFORE),
            documents.instant("created_before", "Earlier than this instant", example=story.ENDED_AT),
            documents.LIMIT,
            documents.CURSOR,
        ]
    },
)
async def list_runs(request: Request, deps: Deps, caller: RunsReader) -> Response:
    query = read_query(request, known=_FILTERS, prefix=_METADATA)
    where = _read_filter(query)
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /runs", where=_without_position(query))
    before: tuple[float, RunId] | None = None
    if cursor := one_value(query, "cursor"):
        created_at, run_id = deps.cursors.open(listing, cursor)
        before = created_at, RunId(run_id)
    async with deps.store.begin(caller.tenant_id) as tx:
        found, following = await runs.list_page(tx, where, limit=limit, before=before)
    next_cursor = None if following is None else deps.cursors.seal(listing, following)
    return JSONResponse(page([show_run(run) for run in found], next_cursor))


@router.get(
    "/runs/{run_id}",
    operation_id="getRun",
    summary="Read a run",
    description="With `Prefer: wait` as soon as it is at rest: ended (200), or suspended until people have decided, or "
    "still at work when the time is over (202).",
    responses=documents.answers(
        {
            200: documents.answer("The run", RunView, headers=WAITED),
            202: documents.answer("With `Prefer: wait`: the run goes on, or is suspended", RunView, headers=WAITED),
        },
        404,
    ),
    openapi_extra={"parameters": [documents.PREFER]},
)
async def get_run(run_id: str, request: Request, deps: Deps, caller: RunsReader) -> Response:
    read_query(request)
    run = await runs.look_alone(deps.store, caller.tenant_id, run_id)
    return await answer_run(request, deps, run, scope=Scope.RUNS_READ, headers={}, at_once=200)


@router.delete(
    "/runs/{run_id}",
    operation_id="eraseRun",
    summary="Erase a run",
    description="With it go the runs that it started, their events, their approvals, and what they left in its "
    "session's history. Refused while it has not ended, or one that goes on from it, or a later one of its session; a "
    "run that another one started goes with that.",
    status_code=204,
    responses=documents.answers({204: documents.answer("It is gone")}, 404, "run_has_parent", "run_not_terminal"),
)
async def erase_run(run_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id, actor=caller.principal.actor) as tx:
        await runs.erase(tx, run_id)
    return Response(status_code=204)


@router.post(
    "/runs/{run_id}/cancel",
    operation_id="cancelRun",
    summary="Ask for a run's end",
    description="Never lost: a wish that arrives before any worker has the run is kept. Asking again changes nothing. "
    "With a run end those that it started; a run that was started by another one ends alone, and its caller is told.",
    status_code=202,
    responses=documents.answers(
        {
            200: documents.answer("The run had ended before, and is unchanged", RunView),
            202: documents.answer("The wish is kept", RunView),
        },
        404,
        413,
    ),
    openapi_extra={"requestBody": documents.body(CancelRun, required=False, example={"reason": "not needed any more"})},
)
async def cancel_run(run_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    read_query(request)
    wish = parse(CancelRun, await read_optional_body(request))
    async with deps.store.begin(caller.tenant_id) as tx:
        run = await runs.cancel(tx, caller.principal, run_id, reason=wish.reason)
    now = RunNow(record=run)
    if run.state.is_terminal:
        return write_run(now, status=200)
    deps.feed.announce_cancel(run.run_id)
    # Its open questions are withdrawn by it, and a run that waited for people is queued.
    deps.feed.announce_approvals(caller.tenant_id)
    deps.feed.announce_queued()
    return write_run(now, status=202)


async def _submit_alone(request: Request, deps: ApiDeps, caller: Caller, wanted: RunRequest) -> Response:
    """A run that nothing else has to be committed with. Who waits for it listens before it is there, and needs no look
    at what was just made."""
    admission = deps.admission
    run_id = runs.new_run_id(admission)
    waits = wanted_wait(request.headers, at_most=deps.config.max_wait_seconds) is not None
    heard = deps.feed.subscribe_end(run_id) if waits else None
    try:
        submitted = await runs.submit_alone(
            deps.store, caller.tenant_id, caller.principal, wanted, admission=admission, run_id=run_id
        )
        headers = announce(deps, submitted)
        if wants_event_stream(request.headers):
            return _stream(request, deps, caller, run_id, headers)
        return await answer_new(request, deps, submitted.run, headers=headers, heard=heard)
    finally:
        if heard is not None:
            heard.close()


def _stream(request: Request, deps: ApiDeps, caller: Caller, run_id: RunId, headers: dict[str, str]) -> Response:
    headers["Content-Location"] = f"/runs/{run_id}/events"
    still_allowed = keeps_scope(request, deps, Scope.RUNS_WRITE)
    frames = follow(deps.reading, caller.tenant_id, run_id, after=0, still_allowed=still_allowed)
    return EventStream(run_id, frames, deps=deps, headers=headers)


def _read_filter(query: dict[str, list[str]]) -> RunFilter:
    known = {state.value for state in RunState}
    if not known.issuperset(query.get("state", [])):
        raise bad_parameter("state", f"must be one of {', '.join(sorted(known))}")
    keys = [name for name in query if name.startswith(_METADATA)]
    if len(keys) > MAX_METADATA_PAIRS:
        raise bad_parameter("metadata", f"a run has at most {MAX_METADATA_PAIRS} pairs")
    return RunFilter(
        states=tuple(RunState(state) for state in dict.fromkeys(query.get("state", []))),
        agent=one_value(query, "agent"),
        session_id=_session_id(one_value(query, "session_id")),
        parent_run_id=_run_id(one_value(query, "parent_run_id")),
        user=one_value(query, "user"),
        created_after=instant_of(query, "created_after"),
        created_before=instant_of(query, "created_before"),
        metadata={name.removeprefix(_METADATA): one_value(query, name) or "" for name in keys},
    )


def _session_id(text: str | None) -> SessionId | None:
    return None if text is None else SessionId(text)


def _run_id(text: str | None) -> RunId | None:
    return None if text is None else RunId(text)


def _without_position(query: dict[str, list[str]]) -> dict[str, Any]:
    return {name: sorted(values) for name, values in query.items() if name not in ("limit", "cursor")}
