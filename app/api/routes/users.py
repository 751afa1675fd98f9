"""``/users/{user}``: erase what belongs to a person."""

import re
from typing import Annotated, Final
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import documents
from app.api.deps import Deps, RunsWriter, SessionsWriter
from app.api.negotiation import read_query
from app.api.problems import pointer_to
from app.api.schemas.users import ErasedUserView
from app.errors import FieldProblem, InvalidRequest
from app.service import erasure

router: Final = APIRouter(tags=["sessions"])

# As for the user of a run.
_LONGEST: Final = 256
_RAW: Final = re.compile(rb"/users/((?:[^%/]|%[0-9A-Fa-f]{2})*)")
# Only described: what the name is, is read from what was sent.
_User = Annotated[
    str,
    Path(
        description="Percent-encoded, also a slash in it",
        json_schema_extra={"minLength": 1, "maxLength": _LONGEST},
    ),
]


@router.delete(
    "/users/{user:path}",
    operation_id="eraseUser",
    summary="Erase a user",
    description="The runs and sessions that name this user go, with all that is kept of them, also in sessions without "
    "a user; and the state that is kept for the user. Needs both scopes. Refused while a run of it has not ended. May "
    "be asked again: what was erased before is not counted.",
    responses=documents.answers(
        {200: documents.answer("Nothing of the user is left", ErasedUserView)}, "user_has_open_runs", "user_mismatch"
    ),
)
async def erase_user(user: _User, request: Request, deps: Deps, caller: SessionsWriter, _: RunsWriter) -> Response:
    read_query(request)
    erased = await erasure.erase_user(
        deps.store, caller.principal, caller.tenant_id, _read_user(request), digest=deps.digest
    )
    view = ErasedUserView(runs=erased.runs, sessions=erased.sessions)
    return JSONResponse(view.model_dump(mode="json"))


def _read_user(request: Request) -> str:
    """What was sent, byte for byte: the server's own reading would take a slash that is a part of the name for one
    that parts the path. Raises InvalidRequest."""
    root: str = request.scope.get("root_path", "")
    match = _RAW.fullmatch(request.scope["raw_path"].removeprefix(root.encode()))
    try:
        user = "" if match is None else unquote_to_bytes(match[1]).decode()
    except UnicodeDecodeError:
        user = ""
    if not 1 <= len(user) <= _LONGEST:
        detail = f"must be 1 to {_LONGEST} characters in UTF-8, percent-encoded"
        raise InvalidRequest(
            "this is no user", problems=[FieldProblem(pointer=pointer_to("path", "user"), detail=detail)]
        )
    return user
