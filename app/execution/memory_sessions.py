"""Sessions in the memory of this process: for conversations of the library, and for tests."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.conversation import Message, clean_json
from app.conversation.text import is_storable
from app.errors import ConfigurationError, SessionBusyError
from app.execution.parts import check_texts, require_texts
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import RunId, SessionId, TenantId
from app.ports.clock import Clock
from app.ports.sessions import Artifact, NewSession, SessionRecord

_APP: Final = "app:"
_USER: Final = "user:"
_TEMP: Final = "temp:"


@dataclass(slots=True)
class _Entry:
    """One session. ``open_runs`` are those that have not ended, by their number."""

    new: NewSession
    created_at: float
    updated_at: float
    last_agent: str | None = None
    last_seq: int = 0
    open_runs: dict[int, RunId] = field(default_factory=dict)
    items: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    artifacts: dict[str, list[Artifact]] = field(default_factory=dict)


class SessionBook:
    """What logs in memory keep beside their runs: histories, state and artifacts. Several logs may share one book."""

    def __init__(self) -> None:
        self._entries: dict[tuple[TenantId, SessionId], _Entry] = {}
        self._state: dict[tuple[TenantId, str, str], dict[str, Any]] = {}

    def add(self, tenant_id: TenantId, session: NewSession, *, now: float) -> SessionRecord:
        """Raises ValueError for an id that is taken."""
        if (tenant_id, session.session_id) in self._entries:
            raise ValueError(f"there is a session {session.session_id} already")
        self._entries[tenant_id, session.session_id] = _Entry(new=session, created_at=now, updated_at=now)
        self.store_state(tenant_id, session.session_id, session.agent, session.user, session.state)
        return self._record(self._entries[tenant_id, session.session_id])

    def find(self, tenant_id: TenantId, session_id: SessionId) -> SessionRecord | None:
        entry = self._entries.get((tenant_id, session_id))
        return None if entry is None else self._record(entry)

    def all(self, tenant_id: TenantId) -> Sequence[SessionRecord]:
        """Oldest first."""
        return [self._record(entry) for (owner, _), entry in self._entries.items() if owner == tenant_id]

    def erase(self, tenant_id: TenantId, session_id: SessionId) -> bool:
        """False, and nothing is erased, while a run of it has not ended."""
        entry = self._entries.get((tenant_id, session_id))
        if entry is not None and entry.open_runs:
            return False
        self._entries.pop((tenant_id, session_id), None)
        self._state.pop((tenant_id, "session", session_id), None)
        return True

    # --- runs --------------------------------------------------------------------------------------------------------

    def admit(self, tenant_id: TenantId, session_id: SessionId, run_id: RunId, *, now: float) -> int:
        """Gives a new run its number. Raises ValueError for an unknown session."""
        entry = self._entries.get((tenant_id, session_id))
        if entry is None:
            raise ValueError(f"there is no session {session_id}")
        entry.last_seq += 1
        entry.updated_at = now
        entry.open_runs[entry.last_seq] = run_id
        return entry.last_seq

    def is_blocked(self, tenant_id: TenantId, session_id: SessionId, seq: int) -> bool:
        """Whether an earlier run of the session has not ended."""
        return any(other < seq for other in self._entries[tenant_id, session_id].open_runs)

    def end_turn(
        self,
        tenant_id: TenantId,
        session_id: SessionId,
        seq: int,
        *,
        items: tuple[Message, ...] | None,
        last_agent: str | None,
        now: float,
    ) -> None:
        """A run has ended: its part of the history is kept, and the next one's turn has come. One that was blocked
        leaves nothing."""
        entry = self._entries[tenant_id, session_id]
        if not self.is_blocked(tenant_id, session_id, seq):
            if items:
                entry.items[seq] = items
            entry.last_agent = last_agent or entry.last_agent
        entry.open_runs.pop(seq, None)
        entry.updated_at = now

    def empty_turns(self, tenant_id: TenantId, session_id: SessionId, seqs: Collection[int]) -> None:
        """Another run tells in its own part of the history what these have said."""
        items = self._entries[tenant_id, session_id].items
        for seq in seqs:
            items.pop(seq, None)

    def withdraw(self, tenant_id: TenantId, session_id: SessionId, seq: int) -> None:
        """A run is forgotten, ended or not: nobody waits for it any more."""
        entry = self._entries.get((tenant_id, session_id))
        if entry is not None:
            entry.open_runs.pop(seq, None)

    def history(
        self,
        tenant_id: TenantId,
        session_id: SessionId,
        *,
        before: int | None = None,
        without: Collection[int] = (),
    ) -> tuple[Message, ...]:
        """The messages of the runs with a smaller number; of all runs without one."""
        items = self._entries[tenant_id, session_id].items
        kept = sorted(seq for seq in items if (before is None or seq < before) and seq not in without)
        return tuple(message for seq in kept for message in items[seq])

    # --- state -------------------------------------------------------------------------------------------------------

    def state(
        self, tenant_id: TenantId, session_id: SessionId | None, agent: str | None, user: str | None
    ) -> dict[str, Any]:
        """What a run of that agent for that user sees in that session."""
        owners = (("session", session_id), ("app", agent), ("user", _user_of(agent, user)))
        merged: dict[str, Any] = {}
        for scope, owner in owners:
            if owner is not None:
                merged |= json.loads(json.dumps(self._state.get((tenant_id, scope, owner), {})))
        return merged

    def store_state(
        self,
        tenant_id: TenantId,
        session_id: SessionId | None,
        agent: str | None,
        user: str | None,
        delta: Mapping[str, Any],
    ) -> None:
        """Stores changes, each where its key's prefix says; None deletes a key. Keys that have nobody to be kept for
        are left out."""
        for key, value in delta.items():
            scope, owner = _place(key, session_id, agent, user)
            if owner is None:
                continue
            kept = self._state.setdefault((tenant_id, scope, owner), {})
            kept.pop(key, None)
            if value is not None:
                kept[key] = json.loads(json.dumps(value))

    # --- artifacts ---------------------------------------------------------------------------------------------------

    def keep_artifact(self, tenant_id: TenantId, session_id: SessionId, artifact: Artifact) -> int:
        """Keeps it as the next version of its name, whatever version it says."""
        versions = self._entries[tenant_id, session_id].artifacts.setdefault(artifact.name, [])
        versions.append(replace(artifact, version=len(versions) + 1))
        return len(versions)

    def artifact(
        self, tenant_id: TenantId, session_id: SessionId, name: str, version: int | None = None
    ) -> Artifact | None:
        """That version, or the newest one."""
        versions = self._entries[tenant_id, session_id].artifacts.get(name, [])
        wanted = len(versions) if version is None else version
        return versions[wanted - 1] if 0 < wanted <= len(versions) else None

    def artifact_names(self, tenant_id: TenantId, session_id: SessionId) -> Sequence[str]:
        return sorted(self._entries[tenant_id, session_id].artifacts)

    def _record(self, entry: _Entry) -> SessionRecord:
        new = entry.new
        return SessionRecord(
            session_id=new.session_id,
            agent=new.agent,
            user=new.user,
            title=new.title,
            metadata=dict(new.metadata),
            last_agent=entry.last_agent,
            active_run_id=entry.open_runs[min(entry.open_runs)] if entry.open_runs else None,
            runs=entry.last_seq,
            created_at=entry.created_at,
            updated_at=entry.updated_at,
        )


def _user_of(agent: str | None, user: str | None) -> str | None:
    return None if agent is None or user is None else f"{agent}/{user}"


def _place(key: str, session_id: SessionId | None, agent: str | None, user: str | None) -> tuple[str, str | None]:
    """The scope of a key and whom it is kept for; None for nobody."""
    if key.startswith(_APP):
        return "app", agent
    if key.startswith(_USER):
        return "user", _user_of(agent, user)
    return "session", None if key.startswith(_TEMP) else session_id


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A conversation as it stood when it was asked for. ``state`` holds the session's keys and, under ``app:`` and
    ``user:``, those of its agent and its user. ``last_agent`` is who answered last; None before the first answer."""

    id: str
    user_id: str
    app_name: str | None
    state: Mapping[str, Any]
    messages: tuple[Message, ...]
    last_agent: str | None
    created_at: float
    updated_at: float


class InMemorySessions:
    """Sessions of the library. They live as long as this object; several runners may share it.

    ``app_name`` is the name of the root agent; a session without one is open to any. Sessions of another user or
    another tenant don't exist.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.book = SessionBook()
        self._clock = SystemClock() if clock is None else clock
        self._ids = Uuid7Ids()

    async def create_session(
        self,
        *,
        user_id: str,
        session_id: str | None = None,
        state: Mapping[str, Any] | None = None,
        app_name: str | None = None,
        tenant: str = "default",
    ) -> Session:
        """Raises ConfigurationError for an id that is taken (``session_exists``), and for state that can't be kept:
        ``temp:`` keys, ``app:`` and ``user:`` keys without an ``app_name``, and values that JSON has no form for."""
        require_texts(tenant=tenant, user_id=user_id)
        check_texts(session_id=session_id, app_name=app_name)
        if state is not None and not isinstance(state, Mapping):
            raise ConfigurationError(f"the state is a mapping, not {type(state).__name__}")
        tenant_id = TenantId(tenant)
        new = NewSession(
            session_id=SessionId(self._ids.new("ses") if session_id is None else session_id),
            agent=app_name,
            user=user_id,
            state=_plain_state(state or {}),
        )
        _check_state(new)
        if self.book.find(tenant_id, new.session_id) is not None:
            raise ConfigurationError(f"there is a session {new.session_id} already", code="session_exists")
        return self._show(tenant_id, self.book.add(tenant_id, new, now=self._clock.now()), app_name)

    async def get_session(
        self, *, session_id: str, user_id: str, app_name: str | None = None, tenant: str = "default"
    ) -> Session | None:
        """The session as it stands; None for one that is not there, or is somebody else's."""
        found = self._find(tenant, session_id, user_id, app_name)
        return None if found is None else self._show(TenantId(tenant), found, app_name or found.agent)

    async def list_sessions(
        self, *, user_id: str, app_name: str | None = None, tenant: str = "default"
    ) -> Sequence[Session]:
        """Oldest first."""
        require_texts(tenant=tenant, user_id=user_id)
        check_texts(app_name=app_name)
        tenant_id = TenantId(tenant)
        return [
            self._show(tenant_id, record, app_name or record.agent)
            for record in self.book.all(tenant_id)
            if _is_of(record, user_id, app_name)
        ]

    async def delete_session(
        self, *, session_id: str, user_id: str, app_name: str | None = None, tenant: str = "default"
    ) -> bool:
        """False where there is no such session. Raises SessionBusyError while a run of it has not ended."""
        if self._find(tenant, session_id, user_id, app_name) is None:
            return False
        if not self.book.erase(TenantId(tenant), SessionId(session_id)):
            raise SessionBusyError(f"a run of the session {session_id} has not ended")
        return True

    async def load_artifact(
        self,
        *,
        session_id: str,
        user_id: str,
        name: str,
        version: int | None = None,
        tenant: str = "default",
    ) -> Artifact | None:
        """What a tool or a callback saved: that version, or the newest one; None where there is none."""
        found = self._find(tenant, session_id, user_id, None)
        return None if found is None else self.book.artifact(TenantId(tenant), found.session_id, name, version)

    async def list_artifacts(self, *, session_id: str, user_id: str, tenant: str = "default") -> Sequence[str]:
        """The names of what was saved, sorted; none for a session that is not there."""
        found = self._find(tenant, session_id, user_id, None)
        return () if found is None else self.book.artifact_names(TenantId(tenant), found.session_id)

    def _find(self, tenant: str, session_id: str, user_id: str, app_name: str | None) -> SessionRecord | None:
        require_texts(tenant=tenant, session_id=session_id, user_id=user_id)
        check_texts(app_name=app_name)
        found = self.book.find(TenantId(tenant), SessionId(session_id))
        return found if found is not None and _is_of(found, user_id, app_name) else None

    def _show(self, tenant_id: TenantId, record: SessionRecord, app_name: str | None) -> Session:
        return Session(
            id=record.session_id,
            user_id=record.user or "",
            app_name=record.agent,
            state=self.book.state(tenant_id, record.session_id, app_name, record.user),
            # Copies: who masks something for display must not change what the next prompt says.
            messages=tuple(
                message.model_copy(deep=True) if message.tool_calls else message
                for message in self.book.history(tenant_id, record.session_id)
            ),
            last_agent=record.last_agent,
            created_at=record.created_at,
            updated_at=record.updated_at,
        )


def _is_of(record: SessionRecord, user_id: str, app_name: str | None) -> bool:
    return record.user == user_id and (app_name is None or record.agent is None or record.agent == app_name)


def _plain_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state as JSON has it. Raises ConfigurationError for what JSON has no form for."""
    keys: Sequence[object] = list(state)
    if stray := [key for key in keys if not isinstance(key, str)]:
        raise ConfigurationError(f"a key of the state is a text, not {stray[0]!r}")
    try:
        plain: dict[str, Any] = clean_json(json.loads(json.dumps(dict(state), allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"the state can't be written as JSON: {error}") from None
    if not is_storable(plain):
        raise ConfigurationError("the state is nested deeper than a log can hold")
    return plain


def _check_state(session: NewSession) -> None:
    for key in session.state:
        if key.startswith(_TEMP):
            raise ConfigurationError(f"{key!r} lives as long as one run: no session keeps it")
        if key.startswith((_APP, _USER)) and session.agent is None:
            raise ConfigurationError(f"{key!r} is kept for an agent, and the session has no app_name")
