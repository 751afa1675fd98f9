"""Sessions of a tenant: who talks with whom, what was said, and the state that outlives a run."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import asyncpg

from app.conversation import Message
from app.ids import RunId, SessionId
from app.ports.records import CancelWish
from app.ports.sessions import NewSession, SessionFilter, SessionMessage, SessionRecord
from app.store.approvals import CLOSE_QUESTIONS
from app.store.rows import dump_json, dump_state, load_messages, load_state, to_instant
from app.store.transaction import TenantTransaction
from app.store.types import escape_optional, escape_text, unescape_optional

_INSERT: Final = """
    INSERT INTO sessions (tenant_id, session_id, agent, caller, title, metadata, created_at, updated_at)
    SELECT $1, $2, $3, $4, $5, $6, n.at, n.at FROM (SELECT clock_timestamp() AS at) AS n
"""
_STORE_STATE: Final = "SELECT store_state($1, $2, $3, $4, $5, $6)"
_LOCK: Final = "SELECT FROM sessions WHERE tenant_id = $1 AND session_id = $2 FOR NO KEY UPDATE"
_IS_OPEN: Final = "state IN ('queued', 'running', 'suspended')"
_RECORD: Final = f"""
    SELECT s.session_id, s.agent, s.caller, s.title, s.metadata, s.last_agent, s.last_seq, s.created_at, s.updated_at,
        (SELECT r.run_id FROM runs r WHERE r.tenant_id = s.tenant_id AND r.session_id = s.session_id AND r.{_IS_OPEN}
            ORDER BY r.session_seq LIMIT 1) AS active_run_id
    FROM sessions s
"""  # noqa: S608 - a constant
_GET: Final = f"{_RECORD} WHERE s.tenant_id = $1 AND s.session_id = $2"
# One look-up along the key for each scope of each session.
_STATES: Final = """
    SELECT s.session_id, array_agg(e.key) AS keys, array_agg(e.value) AS values
    FROM sessions s
    CROSS JOIN LATERAL (VALUES ('session', s.session_id), ('app', s.agent), ('user', s.agent || '/' || s.caller))
        AS o (scope, owner)
    JOIN state_entries e ON e.tenant_id = s.tenant_id AND e.scope = o.scope AND e.owner = o.owner
    WHERE s.tenant_id = $1 AND s.session_id = ANY ($2) GROUP BY s.session_id
"""
_MESSAGES: Final = """
    SELECT session_seq, run_id, messages, created_at FROM session_items
    WHERE tenant_id = $1 AND session_id = $2 AND session_seq >= $3 AND messages <> '[]' ORDER BY session_seq LIMIT $4
"""
# As load_run tells it to whoever drives the run.
_HISTORY: Final = """
    SELECT i.messages FROM runs r
    JOIN session_items i ON i.tenant_id = r.tenant_id AND i.session_id = r.session_id AND i.session_seq < r.session_seq
        AND i.run_id <> ALL (runs_before(r.tenant_id, r.run_id))
    WHERE r.tenant_id = $1 AND r.run_id = $2 ORDER BY i.session_seq
"""
_OPEN: Final = f"""
    SELECT run_id FROM runs WHERE tenant_id = $1 AND session_id = $2 AND {_IS_OPEN} ORDER BY session_seq
"""  # noqa: S608 - a constant
_INTERRUPT: Final = f"""
    UPDATE runs SET cancel_requested_at = clock_timestamp(), cancel_reason = $3, cancel_requested_by = $4,
        queued_at = CASE WHEN state = 'suspended' THEN clock_timestamp() ELSE queued_at END,
        state = CASE WHEN state = 'suspended' THEN 'queued' ELSE state END
    WHERE tenant_id = $1 AND session_id = $2 AND {_IS_OPEN} AND cancel_requested_at IS NULL RETURNING run_id
"""  # noqa: S608 - a constant
_ERASE: Final = "SELECT erase_session($1, $2) AS erased"


class SessionTables(TenantTransaction):
    """The part of a tenant's transaction that keeps sessions."""

    async def insert_session(self, session: NewSession) -> SessionRecord:
        caller = escape_optional(session.user)
        await self._fetch(
            _INSERT,
            self.tenant_id,
            session.session_id,
            session.agent,
            caller,
            escape_optional(session.title),
            dump_json(dict(session.metadata)),
        )
        if session.state:
            keys, values = dump_state(session.state)
            await self._fetch(_STORE_STATE, self.tenant_id, session.session_id, session.agent, caller, keys, values)
        stored = await self.get_session(session.session_id)
        assert stored is not None
        return stored

    async def get_session(self, session_id: SessionId) -> SessionRecord | None:
        rows = await self._fetch(_GET, self.tenant_id, session_id)
        return _to_record(rows[0]) if rows else None

    async def lock_session(self, session_id: SessionId) -> SessionRecord | None:
        # Read when it is locked: what it says of the session's runs then stays true.
        await self._fetch(_LOCK, self.tenant_id, session_id)
        return await self.get_session(session_id)

    async def list_sessions(
        self, where: SessionFilter, *, limit: int, before: tuple[float, SessionId] | None
    ) -> Sequence[SessionRecord]:
        arguments: list[Any] = [self.tenant_id, limit]
        conditions = ["s.tenant_id = $1"]
        if where.agent is not None:
            arguments.append(where.agent)
            conditions.append(f"s.agent = ${len(arguments)}")
        if where.user is not None:
            arguments.append(escape_text(where.user))
            conditions.append(f"s.caller = ${len(arguments)}")
        if before is not None:
            arguments += [to_instant(before[0]), before[1]]
            conditions.append(f"(s.created_at, s.session_id) < (${len(arguments) - 1}, ${len(arguments)})")
        # Only places are put in, never a value.
        matching = f"{_RECORD} WHERE {' AND '.join(conditions)}"
        statement = f"{matching} ORDER BY s.created_at DESC, s.session_id DESC LIMIT $2"
        return [_to_record(row) for row in await self._fetch(statement, *arguments)]

    async def session_states(self, session_ids: Collection[SessionId]) -> Mapping[SessionId, Mapping[str, Any]]:
        states: dict[SessionId, Mapping[str, Any]] = {session_id: {} for session_id in session_ids}
        for row in await self._fetch(_STATES, self.tenant_id, list(session_ids)):
            states[SessionId(row["session_id"])] = load_state(row["keys"], row["values"])
        return states

    async def session_messages(
        self, session_id: SessionId, *, limit: int, after: tuple[int, int] | None
    ) -> Sequence[SessionMessage]:
        position = (0, 0) if after is None else after
        # Each of these items holds a message at least, and of the first one all may have been read.
        rows = await self._fetch(_MESSAGES, self.tenant_id, session_id, position[0], limit + 1)
        messages = [
            SessionMessage(
                session_seq=row["session_seq"],
                place=place,
                run_id=RunId(row["run_id"]),
                at=row["created_at"].timestamp(),
                message=message,
            )
            for row in rows
            for place, message in enumerate(load_messages(row["messages"]))
            if (row["session_seq"], place) > position
        ]
        return messages[:limit]

    async def history_before(self, run_id: RunId) -> Sequence[Message]:
        rows = await self._fetch(_HISTORY, self.tenant_id, run_id)
        return [message for row in rows for message in load_messages(row["messages"])]

    async def session_runs_open(self, session_id: SessionId) -> Sequence[RunId]:
        return [RunId(row["run_id"]) for row in await self._fetch(_OPEN, self.tenant_id, session_id)]

    async def interrupt_session(self, session_id: SessionId, wish: CancelWish) -> Sequence[RunId]:
        await self._fetch(_LOCK, self.tenant_id, session_id)
        reason, requested_by = escape_optional(wish.reason), escape_optional(wish.requested_by)
        ending = await self._fetch(_INTERRUPT, self.tenant_id, session_id, reason, requested_by)
        await self._fetch(CLOSE_QUESTIONS, self.tenant_id, [row["run_id"] for row in ending])
        return await self.session_runs_open(session_id)

    async def erase_session(self, session_id: SessionId) -> bool:
        [row] = await self._fetch(_ERASE, self.tenant_id, session_id)
        erased: bool = row["erased"]
        return erased


def _to_record(row: asyncpg.Record) -> SessionRecord:
    active = row["active_run_id"]
    return SessionRecord(
        session_id=SessionId(row["session_id"]),
        agent=row["agent"],
        user=unescape_optional(row["caller"]),
        title=unescape_optional(row["title"]),
        metadata=json.loads(row["metadata"]),
        last_agent=row["last_agent"],
        active_run_id=None if active is None else RunId(active),
        runs=row["last_seq"],
        created_at=row["created_at"].timestamp(),
        updated_at=row["updated_at"].timestamp(),
    )
