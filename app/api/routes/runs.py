"""``/runs``: submit, list, read, cancel."""

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import documents
from app.api.bodies import parse, read_body, read_optional_body
from app.api.deps import ApiDeps, Caller, Deps, RunsReader, RunsWriter, keeps_scope
from app.api.negotiation import (
    bad_parameter,
    idempotency_key,
    instant_of,
    limit_of,
    one_value,
    read_query,
    wanted_wait,
    wants_event_stream,
)
from app.api.schemas.common import MAX_METADATA_PAIRS, page
from app.api.schemas.runs import CancelRun, RunPage, RunView, SubmitRun, view_run
from app.api.sse import EventStream
from app.auth import Scope
from app.events import RunState
from app.ids import RunId, SessionId
from app.ports.records import RunFilter, RunRecord
from app.service import runs
from app.service.cursors import Listing
from app.service.follow import follow
from app.service.idempotency import IdempotencyKey
from app.service.schemas import check_output_schema

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
_STREAM: Final = {"text/event-stream": {"schema": {"type": "string"}}}
_LOCATION: Final = {"Location": documents.header("The run's address")}
_WAITED: Final = {"Preference-Applied": documents.header("`wait=N`, where it was asked for")}
_REPLAYED: Final = {"Idempotency-Replayed": documents.header("`true` where the run is an earlier request's")}


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
                    **_LOCATION,
                    **_WAITED,
                    **_REPLAYED,
                    "Content-Location": documents.header("The stream's own address"),
                },
                content=_STREAM,
            ),
            202: documents.answer("Accepted", RunView, headers={**_LOCATION, **_WAITED, **_REPLAYED}),
        },
        400,
        409,
        413,
        415,
        429,
    ),
    openapi_extra={
        "parameters": [documents.IDEMPOTENCY_KEY, documents.PREFER],
        "requestBody": documents.body(
            SubmitRun,
            example={"agent": "trip-planner", "input": "Four nights near Kyoto.", "metadata": {"ticket": "T-1"}},
        ),
    },
)
async def submit_run(request: Request, deps: Deps, caller: RunsWriter) -> Response:
    deps.drain.refuse_new()
    read_query(request)
    document = await read_body(request)
    wanted = parse(SubmitRun, document).to_request()
    if wanted.output_schema is not None:
        await check_output_schema(wanted.output_schema)
    key_text = idempotency_key(request.headers)
    key = key_text and IdempotencyKey.of_request(
        route="POST /runs", principal=caller.principal, key=key_text, canonical_body=document.canonical
    )
    async with deps.store.begin(caller.tenant_id) as tx:
        submitted = await runs.submit(tx, caller.principal, wanted, admission=deps.admission, key=key or None)
    # Committed. Only now may a worker hear of it, and the caller be answered.
    run_id = submitted.run.run_id
    headers = {"Location": f"/runs/{run_id}"}
    if submitted.replayed:
        headers["Idempotency-Replayed"] = "true"
    else:
        for interrupted in submitted.interrupted:
            deps.feed.announce_cancel(interrupted)
        deps.feed.announce_queued()
    if wants_event_stream(request.headers):
        headers["Content-Location"] = f"/runs/{run_id}/events"
        return _stream(request, deps, caller, run_id, headers)
    return await _answer_run(request, deps, submitted.run, headers=headers, at_once=202)


@router.get(
    "/runs",
    operation_id="listRuns",
    summary="List runs, newest first",
    description="Conditions hold together. `metadata.<key>=<value>` filters by metadata, and may be given for several "
    "keys.",
    responses=documents.answers({200: documents.answer("A page of runs", RunPage)}, 400),
    openapi_extra={
        "parameters": [
            documents.query(
                "state",
                "May be repeated: any of them",
                type="array",
                items={"type": "string", "enum": [state.value for state in RunState]},
            ),
            documents.query("agent", "The agent's name"),
            documents.query("session_id", "The session that they belong to"),
            documents.query("parent_run_id", "The run that called their agents as tools"),
            documents.query("user", "As it was sent with the run, or with its session"),
            documents.query("created_after", "Later than this instant", type="string", format="date-time"),
            documents.query("created_before", "Earlier than this instant", type="string", format="date-time"),
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
    return JSONResponse(page([view_run(run).model_dump(mode="json") for run in found], next_cursor))


@router.get(
    "/runs/{run_id}",
    operation_id="getRun",
    summary="Read a run",
    responses=documents.answers(
        {
            200: documents.answer("The run", RunView, headers=_WAITED),
            202: documents.answer("With `Prefer: wait`: the run goes on, or is suspended", RunView, headers=_WAITED),
        },
        404,
    ),
    openapi_extra={"parameters": [documents.PREFER]},
)
async def get_run(run_id: str, request: Request, deps: Deps, caller: RunsReader) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id) as tx:
        run = await runs.get(tx, run_id)
    return await _answer_run(request, deps, run, headers={}, at_once=200)


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
        400,
        404,
        413,
        415,
    ),
    openapi_extra={"requestBody": documents.body(CancelRun, required=False, example={"reason": "not needed any more"})},
)
async def cancel_run(run_id: str, request: Request, deps: Deps, caller: RunsWriter) -> Response:
    read_query(request)
    wish = parse(CancelRun, await read_optional_body(request))
    async with deps.store.begin(caller.tenant_id) as tx:
        run = await runs.cancel(tx, caller.principal, run_id, reason=wish.reason)
    if run.state.is_terminal:
        return _run(run, status=200)
    deps.feed.announce_cancel(run.run_id)
    if run.parent_run_id is not None:
        # A root that waited for people is queued by it.
        deps.feed.announce_queued()
    return _run(run, status=202)


async def _answer_run(
    request: Request, deps: ApiDeps, run: RunRecord, *, headers: dict[str, str], at_once: int
) -> Response:
    """The run now, or with ``Prefer: wait`` once it is at rest: 200 when it has ended, else 202."""
    seconds = wanted_wait(request.headers, at_most=deps.config.max_wait_seconds)
    if seconds is None:
        return _run(run, status=at_once, headers=headers)
    run = await runs.wait(deps.reading, run.tenant_id, run.run_id, seconds=seconds)
    headers["Preference-Applied"] = f"wait={seconds}"
    return _run(run, status=200 if run.state.is_terminal else 202, headers=headers)


def _run(run: RunRecord, *, status: int, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(view_run(run).model_dump(mode="json"), status_code=status, headers=headers)


def _stream(request: Request, deps: ApiDeps, caller: Caller, run_id: RunId, headers: dict[str, str]) -> Response:
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
