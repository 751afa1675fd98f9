"""Problems that a connection answers in the application's place, as bytes."""

import json
from http import HTTPStatus
from typing import Final

from app.execution.system import Uuid7Ids

_CODES: Final = {400: "malformed_request", 408: "request_timeout", 431: "request_head_too_large"}


def refusal(status: int, detail: str) -> bytes:
    """A whole answer, behind which the connection is closed. ``detail`` is for people."""
    code, request_id = _CODES[status], Uuid7Ids().new("req")
    problem = json.dumps(
        {
            "type": f"urn:runwright:problem:{code}",
            "title": code.replace("_", " ").capitalize(),
            "status": status,
            "detail": detail,
            "instance": f"urn:runwright:request:{request_id}",
            "code": code,
        }
    )
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: application/problem+json",
        f"content-length: {len(problem)}",
        f"x-request-id: {request_id}",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "connection: close",
    )
    return ("\r\n".join(head) + "\r\n\r\n" + problem).encode()
