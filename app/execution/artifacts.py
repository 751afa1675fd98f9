"""What a run's tools and callbacks keep in its session."""

import mimetypes
import re
from collections.abc import Sequence
from typing import Final

from app.errors import ConfigurationError, ToolExecutionError
from app.ports.records import Claim
from app.ports.sessions import ARTIFACT_NAME, Artifact, ArtifactStore

CONTENT_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}( ?; ?[\x20-\x7e]{1,200})?")


class RunArtifacts:
    """Satisfies ``ArtifactDesk``. ``saved`` holds what was stored at this desk: names to their newest versions."""

    def __init__(self, store: ArtifactStore, claim: Claim, max_bytes: int) -> None:
        self._store = store
        self._claim = claim
        self._max_bytes = max_bytes
        self.saved: dict[str, int] = {}

    async def save(self, name: str, data: bytes | str, content_type: str | None) -> int:
        if not ARTIFACT_NAME.fullmatch(str(name)):
            told = "an artifact's name has 1 to 128 letters, digits, dots, underscores and hyphens"
            raise ToolExecutionError(told, code="artifact_name")
        raw = data.encode(errors="replace") if isinstance(data, str) else bytes(data)
        if len(raw) > self._max_bytes:
            told = f"an artifact has at most {self._max_bytes} bytes, and this one {len(raw)}"
            raise ToolExecutionError(told, code="artifact_too_large")
        kind = content_type or _guess(name, data)
        if not CONTENT_TYPE.fullmatch(kind):
            raise ToolExecutionError(f"{kind!r} is no content type", code="artifact_type")
        try:
            version = await self._store.save_artifact(self._claim, name, raw, kind)
        except ConfigurationError as error:
            raise ToolExecutionError(str(error), code=error.code) from error
        self.saved[name] = version
        return version

    async def load(self, name: str, version: int | None) -> Artifact | None:
        return await self._store.load_artifact(self._claim, name, version)

    async def names(self) -> Sequence[str]:
        return await self._store.list_artifacts(self._claim)


def _guess(name: str, data: bytes | str) -> str:
    guessed, _ = mimetypes.guess_type(name)
    return guessed or ("text/plain; charset=utf-8" if isinstance(data, str) else "application/octet-stream")
