"""Every error is a problem (RFC 9457): one body everywhere, and one table from error class to status."""

import json
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from app.errors import (
    AdkError,
    Draining,
    FieldProblem,
    InvalidRequest,
    RequestError,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
)
from app.events.codec import format_instant
from app.service.again import AlreadyResumed
from app.service.approvals import AlreadyDecided
from app.service.sessions import SessionBusy

MEDIA_TYPE: Final = "application/problem+json"

# RequestError's own classes carry their status; the rest of the tree is the server's fault.
# What they say is for the log: it may name hosts.
_SERVER_SIDE: Final[Mapping[type[AdkError], tuple[int, str]]] = {
    StoreUnavailable: (503, "the database does not answer; nothing was done"),
    Draining: (503, "this process is going away; ask again"),
}
_CODE_BY_FRAMEWORK_STATUS: Final = {404: "not_found", 405: "method_not_allowed"}
_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
_RETRY_AFTER_SECONDS: Final = 1.0
MAX_PROBLEMS: Final = 100
# Texts of pydantic that would repeat what was sent, or tell of our code instead of the contract.
_DETAIL_BY_TYPE: Final = {
    "extra_forbidden": "unknown field",
    "missing": "this field is required",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "enum": "is none of the values that are known here",
}


def problem(
    request_id: str,
    code: str,
    detail: str,
    *,
    status: int,
    headers: Mapping[str, str] | None = None,
    extensions: Mapping[str, Any] | None = None,
) -> Response:
    """An answer that is a problem. ``code`` is stable, ``detail`` is for people."""
    body: dict[str, Any] = {
        "type": f"urn:runwright:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "instance": f"urn:runwright:request:{request_id}",
        "code": code,
        **(extensions or {}),
    }
    return Response(json.dumps(body), status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def problem_of(error: Exception, *, request_id: str) -> Response:
    """What a caller is told of an error. Of an unexpected one nothing but that it happened."""
    if isinstance(error, RequestError):
        fields = [{"pointer": field.pointer, "detail": field.detail} for field in error.problems]
        return problem(
            request_id,
            error.code,
            str(error),
            status=error.status,
            headers=_headers_of(error),
            extensions=({"errors": fields} if fields else {}) | _more_of(error),
        )
    if isinstance(error, AdkError) and type(error) in _SERVER_SIDE:
        status, detail = _SERVER_SIDE[type(error)]
        return problem(request_id, error.code, detail, status=status, headers=_retry_after(_RETRY_AFTER_SECONDS))
    if isinstance(error, HTTPException):
        phrase = HTTPStatus(error.status_code)
        code = _CODE_BY_FRAMEWORK_STATUS.get(error.status_code, phrase.phrase.lower().replace(" ", "_"))
        detail = phrase.description or phrase.phrase
        return problem(request_id, code, detail, status=error.status_code, headers=error.headers)
    if isinstance(error, RequestValidationError):
        return problem(request_id, InvalidRequest.code, "the request is not what this route takes", status=422)
    detail = "something went wrong here; the request's id finds it in the log"
    return problem(request_id, AdkError.code, detail, status=500)


async def answer_problem(request: Request, error: Exception) -> Response:
    """The application's handler of every error that is expected."""
    answer = problem_of(error, request_id=request.state.request_id)
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(_allowed_methods(request))
    return answer


def _allowed_methods(request: Request) -> list[str]:
    """All that the path takes (RFC 9110); the router would name those of one route."""
    scopes = {method: {**request.scope, "method": method} for method in _METHODS}
    allowed = [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    ]
    return [*allowed, "HEAD"] if "GET" in allowed else allowed


def invalid_body(error: ValidationError, value: Any) -> InvalidRequest:
    """Makes a pointer of each of pydantic's places, by walking along the value that was validated."""
    fields = [
        FieldProblem(pointer=_pointer(item["loc"], value), detail=_detail(item["type"], item["msg"]))
        for item in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    told = fields[:MAX_PROBLEMS]
    rest = f"; the first {MAX_PROBLEMS} of {len(fields)} problems are told" if len(fields) > len(told) else ""
    return InvalidRequest(f"the body is not what this route takes{rest}", problems=told)


def pointer_to(*names: str | int) -> str:
    """RFC 6901."""
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)


def _pointer(places: Sequence[str | int], value: Any) -> str:
    # Between the names pydantic puts tags of unions, which are nothing in the document.
    path: list[str | int] = []
    for index, place in enumerate(places):
        is_member = isinstance(value, dict) and place in value
        is_item = isinstance(value, list) and isinstance(place, int) and place < len(value)
        if is_member or is_item:
            value = value[place]
            path.append(place)
        elif isinstance(value, dict) and index == len(places) - 1:
            path.append(place)
    return pointer_to(*path)


def _detail(kind: str, message: str) -> str:
    return _DETAIL_BY_TYPE.get(kind, message.removeprefix("Value error, "))


def _headers_of(error: RequestError) -> dict[str, str]:
    headers = {} if error.retry_after_seconds is None else _retry_after(error.retry_after_seconds)
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooLarge):
        # The rest of the body is not read, so nothing can follow it on this connection.
        headers["Connection"] = "close"
    return headers


def _more_of(error: RequestError) -> dict[str, str]:
    """Members that a program needs to go on."""
    match error:
        case SessionBusy():
            return {"active_run_id": error.run_id}
        case AlreadyResumed():
            return {"resumed_by_run_id": error.run_id}
        case AlreadyDecided():
            return {"decided_by": error.decided_by, "decided_at": format_instant(error.decided_at)}
        case _:
            return {}


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(math.ceil(seconds))}
