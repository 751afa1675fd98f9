"""``/sessions``: create, list, read, erase; and what was said in one."""

from dataclasses import replace
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import codes, documents
from app.api.bodies import parse, read_body
from app.api.deps import Deps, SessionsReader, SessionsWriter
from app.api.negotiation import idempotency_key, limit_of, one_value, read_query
from app.api.schemas import story
from app.api.schemas.common import page
from app.api.schemas.sessions import (
    CreateSession,
    SessionMessagePage,
    SessionPage,
    SessionView,
    view_session,
    view_session_message,
)
from app.ids import SessionId
from app.ports.sessions import SessionFilter
from app.service import sessions
from app.service.cursors import Listing
from app.service.idempotency import IdempotencyKey
from app.service.subjects import settle_user

router: Final = APIRouter(tags=["sessions"])

_EXAMPLE: Final = {"agent": story.AGENT, "user": story.USER, "title": "Kyoto", "state": {"nights": 4}}


@router.post(
    "/sessions",
    operation_id="createSession",
    summary="Create a session",
    description="A conversation: its runs come one after the other, and each is told what was said before.",
    status_code=201,
    responses=documents.answers(
        {
            201: documents.answer(
                "The session",
                SessionView,
                headers={
                    "Location": documents.header("Its address"),
                    "Idempotency-Replayed": documents.header("`true` where an earlier request made it"),
                },
            )
        },
        404,
        413,
        *codes.OF_IDEMPOTENCY,
        "agent_retired",
        "unknown_agent",
        "user_mismatch",
    ),
    openapi_extra={
        "parameters": [documents.IDEMPOTENCY_KEY],
        "requestBody": documents.body(CreateSession, example=_EXAMPLE),
    },
)
async def create_session(request: Request, deps: Deps, caller: SessionsWriter) -> Response:
    read_query(request)
    document = await read_body(request)
    asked = parse(CreateSession, document).to_request()
    wanted = replace(asked, user=settle_user(caller.principal, asked.user))
    key_text = idempotency_key(request.headers)
    key = key_text and IdempotencyKey.of_request(
        route="POST /sessions", principal=caller.principal, key=key_text, canonical_body=document.canonical
    )
    async with deps.store.begin(caller.tenant_id) as tx:
        created = await sessions.create(tx, wanted, ids=deps.ids, key=key or None)
    view = view_session(created.session)
    headers = {"Location": f"/sessions/{view.id}"}
    if created.replayed:
        headers["Idempotency-Replayed"] = "true"
    return JSONResponse(view.model_dump(mode="json"), status_code=201, headers=headers)


@router.get(
    "/sessions",
    operation_id="listSessions",
    summary="List sessions, newest first",
    description="Conditions hold together.",
    responses=documents.answers({200: documents.answer("A page of sessions", SessionPage)}, *codes.OF_CURSORS),
    openapi_extra={
        "parameters": [
            documents.query("agent", "The agent that it was made for", example=story.AGENT),
            documents.query("user", "The user that it was made for", example=story.USER),
            documents.LIMIT,
            documents.CURSOR,
        ]
    },
)
async def list_sessions(request: Request, deps: Deps, caller: SessionsReader) -> Response:
    query = read_query(request, known=("agent", "user", "limit", "cursor"))
    where = SessionFilter(agent=one_value(query, "agent"), user=one_value(query, "user"))
    limit = limit_of(query)
    conditions = {"agent": where.agent, "user": where.user}
    listing = Listing(tenant_id=caller.tenant_id, route="GET /sessions", where=conditions)
    before: tuple[float, SessionId] | None = None
    if cursor := one_value(query, "cursor"):
        created_at, session_id = deps.cursors.open(listing, cursor)
        before = created_at, SessionId(session_id)
    async with deps.store.begin(caller.tenant_id) as tx:
        found, following = await sessions.list_page(tx, where, limit=limit, before=before)
    next_cursor = None if following is None else deps.cursors.seal(listing, following)
    return JSONResponse(page([view_session(session).model_dump(mode="json") for session in found], next_cursor))


@router.get(
    "/sessions/{session_id}",
    operation_id="getSession",
    summary="Read a session",
    description="With its state as it is now: that of the session, and what its agent and user share.",
    responses=documents.answers({200: documents.answer("The session", SessionView)}, 404),
)
async def get_session(session_id: str, request: Request, deps: Deps, caller: SessionsReader) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id) as tx:
        session = await sessions.get(tx, session_id)
    return JSONResponse(view_session(session).model_dump(mode="json"))


@router.get(
    "/sessions/{session_id}/messages",
    operation_id="listSessionMessages",
    summary="Read what was said in a session, oldest first",
    description="What the runs that have ended left in the history: input, answers, calls and their results. A run "
    "that did not complete leaves a note of it; one that never asked a model leaves nothing.",
    responses=documents.answers(
        {200: documents.answer("A page of messages", SessionMessagePage)}, 404, *codes.OF_CURSORS
    ),
    openapi_extra={"parameters": [documents.LIMIT, documents.CURSOR]},
)
async def list_session_messages(session_id: str, request: Request, deps: Deps, caller: SessionsReader) -> Response:
    query = read_query(request, known=("limit", "cursor"))
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /sessions/{id}/messages", where={"session": session_id})
    after: tuple[int, int] | None = None
    if cursor := one_value(query, "cursor"):
        session_seq, place = deps.cursors.open(listing, cursor)
        after = session_seq, place
    async with deps.store.begin(caller.tenant_id) as tx:
        found, following = await sessions.messages_page(tx, session_id, limit=limit, after=after)
    next_cursor = None if following is None else deps.cursors.seal(listing, following)
    items = [view_session_message(message).model_dump(mode="json") for message in found]
    return JSONResponse(page(items, next_cursor))


@router.delete(
    "/sessions/{session_id}",
    operation_id="eraseSession",
    summary="Erase a session",
    description="With it go its runs and theirs, their events, its messages, state and artifacts. What is kept for its "
    "agent or user stays. Refused while a run of it has not ended.",
    status_code=204,
    responses=documents.answers({204: documents.answer("It is gone")}, 404, "session_busy"),
)
async def erase_session(session_id: str, request: Request, deps: Deps, caller: SessionsWriter) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id, actor=caller.principal.actor) as tx:
        await sessions.erase(tx, session_id)
    return Response(status_code=204)
