"""Conversations: runs one after the other, what they leave in the history, state that outlives them, and artifacts.

State keys carry their scope: ``app:`` is kept for tenant and root agent, ``user:`` for tenant, root agent and user, any
other for the session. ``temp:`` is kept for nobody: it ends with its run, and is left in its log only.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from app.conversation import Message
from app.ids import RunId, SessionId
from app.ports.records import CancelWish, Claim

# "." and ".." are steps in a path to whoever reads an address.
ARTIFACT_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSession:
    """A session to be made. ``state`` may hold ``app:`` keys where there is an agent, and ``user:`` keys where there is
    a user too."""

    session_id: SessionId
    agent: str | None = None
    user: str | None = None
    title: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRecord:
    """A session as its row tells it. ``runs`` counts all that were submitted to it; ``active_run_id`` is the one whose
    turn it is, None while the session rests. ``last_agent`` is who answered last. State is read apart."""

    session_id: SessionId
    agent: str | None
    user: str | None
    title: str | None
    metadata: Mapping[str, str]
    last_agent: str | None
    active_run_id: RunId | None
    runs: int
    created_at: float
    updated_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFilter:
    """What ``GET /sessions`` may ask for; all conditions hold together."""

    agent: str | None = None
    user: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionMessage:
    """One message of the history. ``session_seq`` counts the session's runs from 1, ``place`` the run's messages from
    0; together they say where a page goes on."""

    session_seq: int
    place: int
    run_id: RunId
    at: float
    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactInfo:
    """An artifact without its bytes. ``version`` counts from 1 for each name of a session; ``sha256`` is 64 hex
    digits, ``size`` in bytes. ``run_id`` is the run that saved it, None for a caller."""

    name: str
    version: int
    content_type: str
    size: int
    sha256: str
    created_at: float
    run_id: RunId | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact(ArtifactInfo):
    """One version of an artifact, with its bytes."""

    data: bytes


class SessionTx(Protocol):
    """The part of a tenant's transaction that keeps sessions. Who changes a session and its runs locks the session
    first: two such transactions never wait for each other."""

    async def insert_session(self, session: NewSession) -> SessionRecord: ...

    async def get_session(self, session_id: SessionId) -> SessionRecord | None: ...

    async def lock_session(self, session_id: SessionId) -> SessionRecord | None:
        """Like ``get_session``; until the transaction ends no run of it is accepted and none ends."""
        ...

    async def list_sessions(
        self, where: SessionFilter, *, limit: int, before: tuple[float, SessionId] | None
    ) -> Sequence[SessionRecord]:
        """Newest first: those created before that instant, or at it with a smaller id."""
        ...

    async def session_states(self, session_ids: Collection[SessionId]) -> Mapping[SessionId, Mapping[str, Any]]:
        """The state of each of them: the session's own keys, and those of its agent and its user."""
        ...

    async def session_messages(
        self, session_id: SessionId, *, limit: int, after: tuple[int, int] | None
    ) -> Sequence[SessionMessage]:
        """Oldest first: those after that run's number and place."""
        ...

    async def history_before(self, run_id: RunId) -> Sequence[Message]:
        """What a run of a session was told of it: the messages of those before it, without those of runs that it goes
        on from. Empty for a run of no session."""
        ...

    async def session_runs_open(self, session_id: SessionId) -> Sequence[RunId]:
        """Runs that have not ended, the one whose turn it is first."""
        ...

    async def interrupt_session(self, session_id: SessionId, wish: CancelWish) -> Sequence[RunId]:
        """Locks the session and writes the wish on each run that has not ended; suspended ones are queued by it.
        Returns them in order."""
        ...

    async def erase_session(self, session_id: SessionId) -> bool:
        """Erases the session, its runs and the runs below them, with all that is kept of them. False, and nothing is
        erased, while a run of it has not ended."""
        ...

    async def put_artifact(self, session_id: SessionId, name: str, *, data: bytes, content_type: str) -> Artifact:
        """The next version of that name. Raises ValueError for an unknown session."""
        ...

    async def get_artifact(self, session_id: SessionId, name: str, version: int | None = None) -> Artifact | None:
        """That version, or the newest one."""
        ...

    async def list_artifacts(self, session_id: SessionId, *, limit: int, after: str | None) -> Sequence[ArtifactInfo]:
        """The newest version of each, by name."""
        ...


class ArtifactStore(Protocol):
    """A worker's way to the artifacts of its run's session. A run below another one uses the session of its root."""

    async def save_artifact(self, claim: Claim, name: str, data: bytes, content_type: str) -> int:
        """Returns the new version. Raises LeaseLost, and ConfigurationError ``no_session`` for a run without one."""
        ...

    async def load_artifact(self, claim: Claim, name: str, version: int | None = None) -> Artifact | None:
        """That version, or the newest one; None also for a run without a session."""
        ...

    async def list_artifacts(self, claim: Claim) -> Sequence[str]:
        """Names, in order."""
        ...
