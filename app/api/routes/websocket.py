"""``/runs/{id}/ws``: a run's stream over a WebSocket (RFC 6455)."""

import asyncio
import re
from collections.abc import Awaitable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter
from starlette import status
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.api import documents
from app.api.deps import ApiDeps, Deps, RunsListener, admit_follower
from app.api.negotiation import read_query
from app.api.origins import check_origin
from app.api.problems import problem
from app.api.run_stream import KNOWN, RunStream, open_run_stream
from app.api.socket_frames import close_code, to_message
from app.auth import Scope
from app.service import runs
from app.service.follow import Farewell

router: Final = APIRouter(tags=["runs"])

# Where a server has to let connections become WebSockets.
SOCKET_PATH: Final = re.compile(rb"/runs/[^/]+/ws")
_WANTED: Final = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Close:
    code: int
    reason: str = ""


@router.websocket("/runs/{run_id}/ws")
async def follow_by_socket(websocket: WebSocket, run_id: str) -> None:
    deps: ApiDeps = websocket.app.state.deps
    # First: a page that may not connect learns nothing else.
    check_origin(websocket, deps.config.allowed_origins)
    caller = await admit_follower(websocket, deps, Scope.RUNS_READ)
    stream = await open_run_stream(websocket, deps, caller, run_id)
    await websocket.accept()
    deps.streams.count += 1
    try:
        close = await _converse(websocket, stream, deps)
        if close is not None:
            await _send_within(websocket.close(close.code, close.reason), deps)
    except TimeoutError:
        # Its client has taken nothing for so long: whoever runs the connection cuts it.
        deps.streams.dropped()
    finally:
        deps.streams.count -= 1


@router.get(
    "/runs/{run_id}/ws",
    operation_id="followRunBySocket",
    summary="Follow a run over a WebSocket",
    description="The stream of `GET /runs/{run_id}/events` over a WebSocket, with the same ids. Each message is a JSON "
    'text, `{"id": "7", "event": "tool_call", "data": {…}}`; text as it is generated has no `id`. Come back with the '
    "last `id` as `after`, and nothing is missed. The server closes with 1000 behind `terminated`, which is the last "
    "event of every run, and at once where that was read already. It closes with 1001 when it goes away, with 1013 "
    "when the reader is too slow or the database is away, and with 1008 when the key is not valid any more or the run "
    "was erased; the reason says which. Nothing is expected from the client: texts are ignored, one over 4,096 bytes "
    "ends the connection with 1009, one of bytes with 1003, and more than 256 frames at once, or 16 a second for long, "
    "with 1008. A page's `Origin` has to be this service's own or a "
    "listed one. What is refused is answered before the upgrade, as a problem; without an upgrade to a WebSocket the "
    "answer is 426.",
    status_code=101,
    responses=documents.answers(
        {101: documents.answer("The connection is a WebSocket from here on")},
        404,
        "origin_not_allowed",
        "two_credentials",
        "unknown_event_id",
        "upgrade_required",
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
        ]
    },
)
async def ask_for_upgrade(run_id: str, request: Request, deps: Deps, caller: RunsListener) -> Response:
    """Who comes here asked for no WebSocket."""
    read_query(request, known=KNOWN)
    async with deps.store.begin(caller.tenant_id) as tx:
        await runs.get(tx, run_id)
    told = "this is a WebSocket: Connection: Upgrade, Upgrade: websocket, Sec-WebSocket-Version: 13"
    return problem(request.state.request_id, "upgrade_required", told, status=426, headers=_WANTED)


async def _converse(websocket: WebSocket, stream: RunStream, deps: ApiDeps) -> _Close | None:
    """Sends the stream until it ends, or until the client does what ends it. How to close; None where the client has
    left. Raises TimeoutError for a client that takes nothing."""
    sending = asyncio.create_task(_send_stream(websocket, stream, deps))
    hearing = asyncio.create_task(_hear(websocket))
    try:
        await asyncio.wait({sending, hearing}, return_when=asyncio.FIRST_COMPLETED)
        return sending.result() if sending.done() else hearing.result()
    finally:
        for task in (sending, hearing):
            task.cancel()
        await asyncio.gather(sending, hearing, return_exceptions=True)


async def _send_stream(websocket: WebSocket, stream: RunStream, deps: ApiDeps) -> _Close | None:
    ended = _Close(code=status.WS_1000_NORMAL_CLOSURE)
    if stream.frames is None:
        return ended
    try:
        async with aclosing(stream.frames) as frames:
            async for frame in frames:
                if isinstance(frame, Farewell):
                    if frame is Farewell.TOO_SLOW:
                        deps.streams.dropped()
                    return _Close(code=close_code(frame), reason=frame.value)
                message = to_message(stream.run_id, frame)
                if message is not None:
                    await _send_within(websocket.send_text(message), deps)
    except WebSocketDisconnect:
        return None
    return ended


async def _send_within(sending: Awaitable[None], deps: ApiDeps) -> None:
    async with asyncio.timeout(deps.config.send_seconds):
        await sending


async def _hear(websocket: WebSocket) -> _Close | None:
    """Until the client leaves, or sends bytes: nothing here speaks binary. Texts are none of our business."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        if message.get("bytes") is not None:
            return _Close(code=status.WS_1003_UNSUPPORTED_DATA, reason="texts only")
