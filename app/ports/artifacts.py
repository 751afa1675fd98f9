"""What a tool or a callback may keep beside the conversation: bytes by name, each time as a new version."""

from collections.abc import Sequence
from typing import Protocol

from app.errors import ToolExecutionError
from app.ports.sessions import Artifact


class ArtifactDesk(Protocol):
    """The artifacts of one run's session. A run that belongs to none finds nothing, and can't save anything
    (ToolExecutionError ``no_session``)."""

    async def save(self, name: str, data: bytes | str, content_type: str | None) -> int:
        """Stores a version and returns its number, from 1 on. It stays, whatever becomes of the call. Raises
        ToolExecutionError for a name or a size that can't be (``artifact_name``, ``artifact_too_large``)."""
        ...

    async def load(self, name: str, version: int | None) -> Artifact | None:
        """That version, or the newest one; None where there is none."""
        ...

    async def names(self) -> Sequence[str]:
        """Every name, sorted."""
        ...


class NoArtifacts:
    """There is no session: nothing can be kept in it."""

    async def save(self, name: str, data: bytes | str, content_type: str | None) -> int:
        raise ToolExecutionError("the run belongs to no session, where artifacts are kept", code="no_session")

    async def load(self, name: str, version: int | None) -> Artifact | None:
        return None

    async def names(self) -> Sequence[str]:
        return ()
