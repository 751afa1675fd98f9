"""Artifacts of a session: bytes under a name, in versions that never change."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from app.ids import RunId, SessionId
from app.ports.sessions import Artifact, ArtifactInfo
from app.store.transaction import TenantTransaction
from app.store.types import escape_text, unescape_text

_ADD: Final = "SELECT version, created_at FROM add_artifact($1, $2, $3, $4, $5, $6, NULL)"
_FACTS: Final = "name, version, content_type, size, sha256, created_at, run_id"
_GET: Final = f"""
    SELECT {_FACTS}, data FROM artifacts
    WHERE tenant_id = $1 AND session_id = $2 AND name = $3 AND ($4::integer IS NULL OR version = $4)
    ORDER BY version DESC LIMIT 1
"""  # noqa: S608 - a constant
_LIST: Final = f"""
    SELECT DISTINCT ON (name) {_FACTS} FROM artifacts
    WHERE tenant_id = $1 AND session_id = $2 AND name > $3 ORDER BY name, version DESC LIMIT $4
"""  # noqa: S608 - a constant
_SESSION_OF: Final = "SELECT session_id FROM runs WHERE tenant_id = $1 AND run_id = $2"
_NAMES: Final = "SELECT DISTINCT name FROM artifacts WHERE tenant_id = $1 AND session_id = $2 ORDER BY name"


class ArtifactTables(TenantTransaction):
    """The part of a tenant's transaction that keeps artifacts."""

    async def put_artifact(self, session_id: SessionId, name: str, *, data: bytes, content_type: str) -> Artifact:
        sha256 = hashlib.sha256(data).hexdigest()
        rows = await self._fetch(_ADD, self.tenant_id, session_id, name, escape_text(content_type), sha256, data)
        if not rows:
            raise ValueError(f"there is no session {session_id}")
        return Artifact(
            name=name,
            version=rows[0]["version"],
            content_type=content_type,
            size=len(data),
            sha256=sha256,
            created_at=rows[0]["created_at"].timestamp(),
            data=data,
        )

    async def get_artifact(self, session_id: SessionId, name: str, version: int | None = None) -> Artifact | None:
        # No artifact has a name that the database would refuse.
        rows = await self._fetch(_GET, self.tenant_id, session_id, escape_text(name), version) if name.isascii() else ()
        return Artifact(**_facts(rows[0]), data=rows[0]["data"]) if rows else None

    async def list_artifacts(self, session_id: SessionId, *, limit: int, after: str | None) -> Sequence[ArtifactInfo]:
        rows = await self._fetch(_LIST, self.tenant_id, session_id, after or "", limit)
        return [ArtifactInfo(**_facts(row)) for row in rows]

    async def session_of(self, run_id: RunId) -> SessionId | None:
        """The session that a run is in, if any."""
        rows = await self._fetch(_SESSION_OF, self.tenant_id, run_id)
        return SessionId(rows[0]["session_id"]) if rows and rows[0]["session_id"] is not None else None

    async def artifact_names(self, session_id: SessionId) -> Sequence[str]:
        return [row["name"] for row in await self._fetch(_NAMES, self.tenant_id, session_id)]


def _facts(row: asyncpg.Record) -> dict[str, Any]:
    return {
        "name": row["name"],
        "version": row["version"],
        "content_type": unescape_text(row["content_type"]),
        "size": row["size"],
        "sha256": row["sha256"],
        "created_at": row["created_at"].timestamp(),
        "run_id": row["run_id"],
    }
