"""``/sessions/{id}/artifacts``: bytes of a session by name, in versions."""

import re
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.api import codes, documents
from app.api.deps import Deps, SessionsReader, SessionsWriter
from app.api.negotiation import limit_of, one_value, read_query, read_version
from app.api.schemas import story
from app.api.schemas.common import page
from app.api.schemas.sessions import ArtifactPage, ArtifactView, view_artifact
from app.errors import MalformedRequest, UnsupportedMediaType
from app.ports.sessions import Artifact
from app.service import artifacts
from app.service.cursors import Listing

router: Final = APIRouter(tags=["sessions"])

_BYTES: Final = {
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": story.ARTIFACT_TEXT}
}
_ANY_TYPE: Final = "Bytes of any type: the `Content-Type` that they come with is kept"
_READING: Final = "Its bytes, as they came. `Content-Disposition` keeps a browser from running them."
_UNNAMED: Final = "application/octet-stream"
# RFC 9110: two tokens, and whatever parameters.
_CONTENT_TYPE: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+/[\w!#$%&'*+.^`|~-]+( ?;[\x20-\x7e]*)?", re.ASCII)
_CONTENT_TYPE_CHARS: Final = 255
_E_TAG: Final = {"ETag": documents.header("The bytes' SHA-256, in quotes")}
# Somebody's bytes under our address: nothing in them may run there.
_INERT: Final = {"Content-Security-Policy": "default-src 'none'; sandbox"}
_READ: Final = documents.answers(
    {
        200: documents.answer(
            "The bytes, under the type that they came with",
            headers={
                **_E_TAG,
                "Content-Disposition": documents.header("`attachment`, with the name"),
                "Artifact-Version": documents.header("Which version it is", type="integer"),
            },
            content={**_BYTES, "*/*": _BYTES["application/octet-stream"]},
        )
    },
    404,
)


@router.put(
    "/sessions/{session_id}/artifacts/{name}",
    operation_id="putArtifact",
    summary="Store an artifact",
    description="The body is the artifact, as it is; it becomes the next version of that name.",
    status_code=201,
    responses=documents.answers(
        {
            201: documents.answer(
                "The new version",
                ArtifactView,
                headers={"Location": documents.header("The version's address"), **_E_TAG},
            )
        },
        400,
        404,
        415,
        "artifact_too_large",
    ),
    openapi_extra={"requestBody": {"required": True, "description": _ANY_TYPE, "content": _BYTES}},
)
async def put_artifact(session_id: str, name: str, request: Request, deps: Deps, caller: SessionsWriter) -> Response:
    read_query(request)
    artifacts.check_name(name)
    content_type = _content_type(request)
    data = bytearray()
    # The outer layer ends the stream at the limit.
    async for chunk in request.stream():
        data += chunk
    async with deps.store.begin(caller.tenant_id) as tx:
        stored = await artifacts.put(tx, session_id, name, data=bytes(data), content_type=content_type)
    headers = {
        "Location": f"/sessions/{session_id}/artifacts/{name}/versions/{stored.version}",
        "ETag": f'"{stored.sha256}"',
    }
    return JSONResponse(view_artifact(stored).model_dump(mode="json"), status_code=201, headers=headers)


@router.get(
    "/sessions/{session_id}/artifacts",
    operation_id="listArtifacts",
    summary="List the newest version of each artifact, by name",
    description="Without their bytes.",
    responses=documents.answers({200: documents.answer("A page of artifacts", ArtifactPage)}, 404, *codes.OF_CURSORS),
    openapi_extra={"parameters": [documents.LIMIT, documents.CURSOR]},
)
async def list_artifacts(session_id: str, request: Request, deps: Deps, caller: SessionsReader) -> Response:
    query = read_query(request, known=("limit", "cursor"))
    limit = limit_of(query)
    listing = Listing(tenant_id=caller.tenant_id, route="GET /sessions/{id}/artifacts", where={"session": session_id})
    after: str | None = None
    if cursor := one_value(query, "cursor"):
        (after,) = deps.cursors.open(listing, cursor)
    async with deps.store.begin(caller.tenant_id) as tx:
        found, following = await artifacts.list_page(tx, session_id, limit=limit, after=after)
    next_cursor = None if following is None else deps.cursors.seal(listing, [following])
    return JSONResponse(page([view_artifact(item).model_dump(mode="json") for item in found], next_cursor))


@router.get(
    "/sessions/{session_id}/artifacts/{name}",
    operation_id="getArtifact",
    summary="Read the newest version of an artifact",
    description=_READING,
    response_class=Response,
    responses=_READ,
)
async def get_artifact(session_id: str, name: str, request: Request, deps: Deps, caller: SessionsReader) -> Response:
    read_query(request)
    async with deps.store.begin(caller.tenant_id) as tx:
        found = await artifacts.get(tx, session_id, name)
    return _serve(found)


@router.get(
    "/sessions/{session_id}/artifacts/{name}/versions/{version}",
    operation_id="getArtifactVersion",
    summary="Read one version of an artifact",
    description=_READING,
    response_class=Response,
    responses=_READ,
)
async def get_artifact_version(
    session_id: str, name: str, version: str, request: Request, deps: Deps, caller: SessionsReader
) -> Response:
    read_query(request)
    number = read_version(version, "there is no such artifact or version")
    async with deps.store.begin(caller.tenant_id) as tx:
        found = await artifacts.get(tx, session_id, name, version=number)
    return _serve(found)


def _content_type(request: Request) -> str:
    """As it was sent: it is only given back. Raises UnsupportedMediaType for bytes that are said to be compressed,
    which would be forgotten; MalformedRequest for what is no header of a type."""
    if "content-encoding" in request.headers:
        raise UnsupportedMediaType("an artifact is stored as it comes: it can't be compressed on the way")
    given = request.headers.getlist("content-type") or [_UNNAMED]
    if len(given) > 1 or len(given[0]) > _CONTENT_TYPE_CHARS or not _CONTENT_TYPE.fullmatch(given[0]):
        raise MalformedRequest(f"Content-Type is one media type, of at most {_CONTENT_TYPE_CHARS} characters")
    return given[0]


def _serve(artifact: Artifact) -> Response:
    headers = {
        **_INERT,
        "Content-Type": artifact.content_type,
        "Content-Disposition": f'attachment; filename="{artifact.name}"',
        "ETag": f'"{artifact.sha256}"',
        "Artifact-Version": str(artifact.version),
    }
    return Response(artifact.data, headers=headers)
