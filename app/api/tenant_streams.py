"""What the routes that stream all of a tenant have in common: how they are asked for, and how they are described."""

from typing import Any, Final

from starlette.requests import Request

from app.api import documents
from app.api.deps import TICKET, ApiDeps
from app.api.negotiation import one_value, read_query, wants_event_stream
from app.api.schemas import story
from app.errors import NotAcceptable

_FIRST_ID: Final = "retry: 3000\nid: Zm9v…\n\n"
_PING: Final = ": ping\n\n"


def describe_stream(frame: str, what: str, *parameters: dict[str, Any]) -> dict[str, Any]:
    """What ``responses`` and ``openapi_extra`` of such a route are. ``frame`` is an example of one, ``what`` the plural
    of what it tells; ``parameters`` are those that not every such stream has."""
    example = _FIRST_ID + frame + _PING
    stream = {"text/event-stream": {"schema": {"type": "string"}, "example": example}}
    after = documents.query("after", f"Only {what} after this one: the `id` of a frame", example=story.PLACE)
    return {
        "responses": documents.answers(
            {200: documents.answer("The stream", content=stream)}, 406, "two_credentials", "unknown_event_id"
        ),
        "openapi_extra": {"parameters": [documents.LAST_CHANGE_ID, after, *parameters]},
    }


def read_wish(request: Request, deps: ApiDeps, *, known: tuple[str, ...]) -> tuple[dict[str, list[str]], str | None]:
    """The query, of which ``known`` are the stream's own parameters, and the id behind which to begin.

    Raises NotAcceptable where the stream was not named, Draining where this process takes no new readers, and
    InvalidRequest.
    """
    if not wants_event_stream(request.headers):
        raise NotAcceptable("this is a stream only; name it: Accept: text/event-stream")
    deps.drain.refuse_new()
    query = read_query(request, known=("after", TICKET, *known))
    after = one_value(query, "after")
    # The header wins: an EventSource that reconnects keeps its URL.
    return query, request.headers.get("last-event-id") or after
