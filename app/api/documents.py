"""Pieces of the API's description that routes share. Nothing here changes what a route does."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel

from app.api.problems import MEDIA_TYPE

_PROBLEM: Final = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
_PROBLEM_HEADERS: Final = {
    401: {"WWW-Authenticate": {"schema": {"type": "string", "const": "Bearer"}, "required": True}},
    429: {"Retry-After": {"schema": {"type": "integer"}, "required": True}},
    503: {"Retry-After": {"schema": {"type": "integer"}}},
}
# Every route that asks for a key: no key, no scope, unknown parameter, too many requests, defect, database away.
_WITH_KEY: Final = (401, 403, 422, 429, 500, 503)

IDEMPOTENCY_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key with the same body within 24 hours is answered as for what the first request made, "
    "with `Idempotency-Replayed: true`",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]*$"},
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
}
LAST_CHANGE_ID: Final[dict[str, Any]] = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "Go on after this change; wins over `after`",
    "schema": {"type": "string"},
}
CURSOR: Final[dict[str, Any]] = {
    "name": "cursor",
    "in": "query",
    "description": "`next_cursor` of the page before, with the same filter",
    "schema": {"type": "string"},
}
LIMIT: Final[dict[str, Any]] = {
    "name": "limit",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
}


def query(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema or {"type": "string"}}


def body(model: type[BaseModel], *, required: bool = True, example: Any) -> dict[str, Any]:
    content = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}, "example": example}
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


def answers(success: Mapping[int, Mapping[str, Any]], *problems: int) -> dict[int | str, dict[str, Any]]:
    """What a route that needs a key may answer: its successes, its own problems, and those of every such route."""
    statuses = sorted({*problems, *_WITH_KEY})
    return {**{status: dict(what) for status, what in success.items()}, **{s: problem_answer(s) for s in statuses}}


def open_answers(success: Mapping[int, Mapping[str, Any]]) -> dict[int | str, dict[str, Any]]:
    """The same for a route that needs none."""
    return {**{status: dict(what) for status, what in success.items()}, 500: problem_answer(500)}


def problem_answer(status: int) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": _PROBLEM}
    if status in _PROBLEM_HEADERS:
        described["headers"] = _PROBLEM_HEADERS[status]
    return described
