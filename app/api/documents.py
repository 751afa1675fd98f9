"""Pieces of the API's description that routes share. Nothing here changes what a route does."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel

from app.api.codes import EVERYWHERE, OF_BODIES, status_of, tell
from app.api.problems import MEDIA_TYPE
from app.api.schemas import story

_PROBLEM: Final = {"schema": {"$ref": "#/components/schemas/Problem"}}
_PROBLEM_HEADERS: Final = {
    401: {"WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}, "required": True}},
    429: {"Retry-After": {"schema": {"type": "integer"}, "required": True}},
    503: {"Retry-After": {"schema": {"type": "integer"}}},
}
# Every route that asks for a key: no key, no scope, unknown parameter, too many requests, defect, database away.
_WITH_KEY: Final = (401, 403, 422, 429, 500, 503)
_TAKES_BODY: Final = 413

IDEMPOTENCY_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key with the same body within 24 hours is answered as for what the first request made, "
    "with `Idempotency-Replayed: true`",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]*$"},
    "example": "order-4711",
}
PREFER: Final[dict[str, Any]] = {
    "name": "Prefer",
    "in": "header",
    "description": "`wait=N`: answer when the run is at rest, and after N seconds at the latest (RFC 7240)",
    "schema": {"type": "string"},
    "example": "wait=10",
}
LAST_EVENT_ID: Final[dict[str, Any]] = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "Go on after this event; wins over `after`; empty: not given",
    "schema": {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)*)?$"},
    "example": "7",
}
LAST_CHANGE_ID: Final[dict[str, Any]] = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "Go on after this change; wins over `after`",
    "schema": {"type": "string"},
    "example": story.PLACE,
}
CURSOR: Final[dict[str, Any]] = {
    "name": "cursor",
    "in": "query",
    "description": "`next_cursor` of the page before, with the same filter",
    "schema": {"type": "string"},
    "example": story.CURSOR,
}
LIMIT: Final[dict[str, Any]] = {
    "name": "limit",
    "in": "query",
    "description": "How many the page has at most",
    "schema": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
    "example": 20,
}


def query(name: str, description: str, *, example: Any = None, **schema: Any) -> dict[str, Any]:
    described = {"name": name, "in": "query", "description": description, "schema": schema or {"type": "string"}}
    return described if example is None else {**described, "example": example}


def instant(name: str, description: str, *, example: str) -> dict[str, Any]:
    return query(name, description, example=example, type="string", format="date-time")


def body(model: type[BaseModel], *, required: bool = True, example: Any, **more: Any) -> dict[str, Any]:
    """``example`` is the plainest one. ``more`` are further ones by name."""
    content: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
    if more:
        named = {"plain": example, **more}
        content["examples"] = {name: {"value": value} for name, value in named.items()}
    else:
        content["example"] = example
    return {"required": required, "content": {"application/json": content}}


def answer(description: str, model: type[BaseModel] | None = None, **more: Any) -> dict[str, Any]:
    """An answer that is no error. ``more``: ``headers``, further ``content``, an ``example``."""
    example = more.pop("example", None)
    if model is not None:
        content = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
        if example is not None:
            content["example"] = example
        more["content"] = {"application/json": content, **more.get("content", {})}
    return {"description": description, **more}


def header(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "schema": schema or {"type": "string"}}


def answers(success: Mapping[int, Mapping[str, Any]], *problems: int | str) -> dict[int | str, dict[str, Any]]:
    """What a route that needs a key may answer: its successes, its own problems, and those of every such route.

    A problem is named by its code, or by its status where it has the codes only that any route may have with it. A
    route that names 413 takes JSON, and may say all that is said of any such body.
    """
    codes = [*(problem for problem in problems if isinstance(problem, str))]
    if _TAKES_BODY in problems:
        codes += OF_BODIES
    statuses = {*_WITH_KEY, *(problem for problem in problems if isinstance(problem, int)), *map(status_of, codes)}
    described: dict[int | str, dict[str, Any]] = {status: dict(what) for status, what in success.items()}
    return described | {status: problem_answer(status, codes) for status in sorted(statuses)}


def open_answers(success: Mapping[int, Mapping[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """The same for a route that needs none."""
    return {**{status: dict(what) for status, what in success.items()}, 500: problem_answer(500)}


def problem_answer(status: int, codes: Iterable[str] = ()) -> dict[str, Any]:
    """``codes`` are those that one route has beside those of all; only the ones of this status are told."""
    of_status = {code for code in codes if status_of(code) == status}
    told = tell(sorted({*EVERYWHERE.get(status, ()), *of_status}))
    phrase = HTTPStatus(status).phrase
    description = f"{phrase}:\n{told}" if told else phrase
    described: dict[str, Any] = {"description": description, "content": {MEDIA_TYPE: dict(_PROBLEM)}}
    if status in _PROBLEM_HEADERS:
        described["headers"] = _PROBLEM_HEADERS[status]
    return described
