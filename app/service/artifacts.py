"""Artifacts: bytes that a session keeps by name, each change as a new version."""

from collections.abc import Sequence

from app.errors import FieldProblem, InvalidRequest, NotFound
from app.ids import SessionId, is_id
from app.ports.sessions import ARTIFACT_NAME, Artifact, ArtifactInfo
from app.ports.store import TenantTx
from app.service import sessions


def check_name(name: str) -> None:
    """Raises InvalidRequest for a name that no artifact can have."""
    if not ARTIFACT_NAME.fullmatch(name):
        problem = FieldProblem(
            pointer="/path/name", detail="must be letters, digits, '.', '_', '-' of ASCII, at most 128"
        )
        raise InvalidRequest("an artifact can't have that name", problems=[problem])


async def put(tx: TenantTx, session_id: str, name: str, *, data: bytes, content_type: str) -> Artifact:
    """Stores the next version of that name. Raises NotFound for an unknown session."""
    # Locked, so that it is not erased in between.
    record = await tx.lock_session(SessionId(session_id)) if is_id("ses", session_id) else None
    if record is None:
        raise NotFound("there is no such session")
    return await tx.put_artifact(record.session_id, name, data=data, content_type=content_type)


async def get(tx: TenantTx, session_id: str, name: str, *, version: int | None = None) -> Artifact:
    """That version, or the newest one. Raises NotFound."""
    is_possible = is_id("ses", session_id) and ARTIFACT_NAME.fullmatch(name)
    found = await tx.get_artifact(SessionId(session_id), name, version) if is_possible else None
    if found is None:
        raise NotFound("there is no such artifact or version")
    return found


async def list_page(
    tx: TenantTx, session_id: str, *, limit: int, after: str | None
) -> tuple[Sequence[ArtifactInfo], str | None]:
    """The newest versions of up to ``limit`` artifacts by name, and the name after which the next page begins. Raises
    NotFound."""
    record = await sessions.find(tx, session_id)
    found = await tx.list_artifacts(record.session_id, limit=limit + 1, after=after)
    page = found[:limit]
    return page, page[-1].name if len(found) > limit else None
