"""What a request's headers and query ask for, read strictly: nothing is accepted and then ignored."""

import datetime
import re
from collections.abc import Collection, Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from app.api.problems import pointer_to
from app.errors import FieldProblem, InvalidRequest, MalformedRequest, NotFound
from app.service.tree import START, Position, unknown_position

EVENT_STREAM: Final = "text/event-stream"
DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 200

_WAIT: Final = re.compile(r'\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?:;.*)?', re.IGNORECASE)
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_NUMBER: Final = re.compile(r"[0-9]{1,15}")
# A number of more digits is no event's: the log counts in 32 bits.
_POSITION: Final = re.compile(r"[1-9][0-9]{0,8}(?:\.[1-9][0-9]{0,8}){0,63}")
_PLACE: Final = re.compile(r"[0-9.]{1,700}", re.ASCII)
_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def wants_event_stream(headers: Headers) -> bool:
    """True where ``text/event-stream`` is named and nothing says that JSON is liked better; ``*/*`` gets JSON."""
    liking = {"application/json": 0.0, EVENT_STREAM: 0.0}
    for item in ",".join(headers.getlist("accept")).split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        if name in liking:
            liking[name] = max(liking[name], _read_quality(parameters))
    return liking[EVENT_STREAM] > 0 and liking[EVENT_STREAM] >= liking["application/json"]


def _read_quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def wanted_wait(headers: Headers, *, at_most: int) -> int | None:
    """Seconds of ``Prefer: wait=N`` (RFC 7240), capped; None without it. A preference that is no number is none."""
    for item in ",".join(headers.getlist("prefer")).split(","):
        if match := _WAIT.fullmatch(item):
            return min(int(match[1]), at_most)
    return None


def idempotency_key(headers: Headers) -> str | None:
    """Raises MalformedRequest (``invalid_idempotency_key``)."""
    keys = headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1 or not _KEY.fullmatch(keys[0]):
        raise MalformedRequest(
            "an Idempotency-Key is 1 to 255 visible ASCII characters", code="invalid_idempotency_key"
        )
    return keys[0]


def refuse_idempotency_key(headers: Headers) -> None:
    """For a route that does twice what it is asked twice. Raises MalformedRequest (``idempotency_key_unsupported``)."""
    if "idempotency-key" in headers:
        raise MalformedRequest(
            "this route takes no Idempotency-Key: a second request is a second one",
            code="idempotency_key_unsupported",
        )


def event_position(request: HTTPConnection, query: Mapping[str, list[str]]) -> int:
    """The number after which to read: ``Last-Event-ID``, else ``?after=``, else 0.

    The header wins: an EventSource that reconnects keeps its URL. Raises MalformedRequest (``unknown_event_id``).
    """
    text = _position_text(request, query)
    if not _NUMBER.fullmatch(text):
        raise unknown_position()
    return int(text)


def tree_position(request: HTTPConnection, query: Mapping[str, list[str]]) -> Position:
    """The same where a run is read with its children: numbers joined by dots."""
    text = _position_text(request, query)
    if text == "0":
        return START
    if not _POSITION.fullmatch(text):
        raise unknown_position()
    return tuple(map(int, text.split(".")))


def _position_text(request: HTTPConnection, query: Mapping[str, list[str]]) -> str:
    after = one_value(query, "after")
    if after is not None and not _PLACE.fullmatch(after):
        # Also where the header wins: what is ignored is not taken unread.
        raise unknown_position()
    return request.headers.get("last-event-id") or after or "0"


def wants_children(query: Mapping[str, list[str]]) -> bool:
    """Whether ``?include=children`` is there. Raises InvalidRequest for anything else to include."""
    text = one_value(query, "include")
    if text not in (None, "children"):
        raise bad_parameter("include", "must be children")
    return text is not None


def read_query(
    request: HTTPConnection, *, known: Collection[str] = (), prefix: str | None = None
) -> dict[str, list[str]]:
    """The query's parameters. Raises InvalidRequest for a name that is neither known nor begins with ``prefix``."""
    values: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        if name not in known and not (prefix and name.startswith(prefix)):
            raise bad_parameter(name, "unknown parameter")
        values.setdefault(name, []).append(value)
    return values


def one_value(query: Mapping[str, list[str]], name: str) -> str | None:
    values = query.get(name, [])
    if len(values) > 1:
        raise bad_parameter(name, "may be given once")
    return values[0] if values else None


def limit_of(query: Mapping[str, list[str]]) -> int:
    text = one_value(query, "limit")
    if text is None:
        return DEFAULT_LIMIT
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_LIMIT:
        raise bad_parameter("limit", f"must be a number from 1 to {MAX_LIMIT}")
    return int(text)


def read_version(text: str, told: str) -> int:
    """A version in the path. Raises NotFound, which says ``told``, for a text that is none."""
    # At most nine digits: what is longer is no version, and no column would hold it.
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and text[0] != "0"):
        raise NotFound(told)
    return int(text)


def instant_of(query: Mapping[str, list[str]], name: str) -> float | None:
    """Epoch seconds of an RFC 3339 time."""
    text = one_value(query, name)
    if text is None:
        return None
    try:
        if not _INSTANT.fullmatch(text):
            raise ValueError
        instant = datetime.datetime.fromisoformat(text.upper()).timestamp()
        # Rounded to microseconds it has to be an instant still, in UTC: another zone or a ninth digit leads past the
        # calendar's ends.
        datetime.datetime.fromtimestamp(instant, tz=datetime.UTC)
        return instant
    except (ValueError, OverflowError):
        raise bad_parameter(name, "must be a time as in 2026-01-31T12:00:00.000Z") from None


def bad_parameter(name: str, detail: str) -> InvalidRequest:
    """A query's parameter is pointed to as if the query were a member of the request."""
    return InvalidRequest(
        "a parameter of the query is wrong", problems=[FieldProblem(pointer=pointer_to("query", name), detail=detail)]
    )
