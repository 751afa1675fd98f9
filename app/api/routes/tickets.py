"""``/stream-tickets``: for who opens streams and can't set headers."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import documents
from app.api.bodies import parse, read_body
from app.api.deps import AnyKey, Deps
from app.api.negotiation import read_query
from app.api.schemas import story
from app.api.schemas.tickets import CreateTicket, TicketView, view_ticket
from app.service import tickets

router: Final = APIRouter(tags=["streams"])


@router.post(
    "/stream-tickets",
    operation_id="createStreamTicket",
    summary="Get a ticket to a stream",
    description="For a browser, whose EventSource and WebSocket can't send a key. The ticket opens this one stream as "
    "`?ticket=…`, beside any other parameters and for any number of reconnects, for 15 minutes or as long as the key "
    "is valid, whichever is shorter. It needs the scope that the stream needs, gives no other right, and ends with "
    "its key: an open stream is closed at the next ping. Past its time it is refused, while a stream that is open "
    "with it is closed at the next ping, too; whoever goes on gets a new one and comes back with the last event's id.",
    status_code=201,
    responses=documents.answers({201: documents.answer("The ticket", TicketView)}, 400, 404, 413, 415),
    openapi_extra={"requestBody": documents.body(CreateTicket, example={"resource": f"/runs/{story.RUN_ID}/events"})},
)
async def create_stream_ticket(request: Request, deps: Deps, principal: AnyKey) -> Response:
    read_query(request)
    wanted = parse(CreateTicket, await read_body(request))
    issued = await tickets.give(deps.store, deps.tickets, principal, wanted.resource)
    return JSONResponse(view_ticket(issued).model_dump(mode="json"), status_code=201)
