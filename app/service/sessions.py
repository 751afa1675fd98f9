"""Sessions: create, read, list, erase; and a run's place in its session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from app.auth import Principal
from app.errors import Conflict, FieldProblem, InvalidRequest, NotFound
from app.ids import RunId, SessionId, is_id
from app.ports.clock import IdSource
from app.ports.records import CancelWish
from app.ports.sessions import NewSession, SessionFilter, SessionMessage, SessionRecord
from app.ports.store import TenantTx
from app.service import idempotency
from app.service.agents import is_agent_name
from app.service.idempotency import IdempotencyKey

_APP: Final = "app:"
_USER: Final = "user:"
_TEMP: Final = "temp:"


class OnBusy(StrEnum):
    """What becomes of a run whose session has one that has not ended: it waits, is refused, or ends the others."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


class SessionBusy(Conflict):
    """A run of the session has not ended. ``run_id`` is the one whose turn it is."""

    code = "session_busy"

    def __init__(self, run_id: RunId) -> None:
        super().__init__(f"{run_id} of this session has not ended")
        self.run_id = run_id


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRequest:
    """A session as a caller asks for it."""

    agent: str | None = None
    user: str | None = None
    title: str | None = None
    state: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A session with its state: its own keys, and those of its agent and its user."""

    record: SessionRecord
    state: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Created:
    """``replayed``: the idempotency key had led to it before."""

    session: Session
    replayed: bool


async def create(tx: TenantTx, request: SessionRequest, *, ids: IdSource, key: IdempotencyKey | None = None) -> Created:
    """Raises InvalidRequest (``unknown_agent``, ``idempotency_key_reused``; ``invalid_request`` for state that would
    belong to nobody) and Conflict (``agent_retired``, ``idempotency_in_progress``)."""
    if key is not None and (earlier := await idempotency.find_earlier(tx, key)) is not None:
        return Created(session=await get(tx, earlier), replayed=True)
    _check_scopes(request)
    if request.agent is not None:
        await _check_agent(tx, request.agent)
    session_id = SessionId(ids.new("ses"))
    record = await tx.insert_session(
        NewSession(
            session_id=session_id,
            agent=request.agent,
            user=request.user,
            title=request.title,
            state=request.state,
            metadata=request.metadata,
        )
    )
    if key is not None:
        await idempotency.settle(tx, key, session_id)
    [session] = await _with_states(tx, [record])
    return Created(session=session, replayed=False)


async def get(tx: TenantTx, session_id: str) -> Session:
    """Raises NotFound for an unknown id, another tenant's, and a text that is no id: the three look the same."""
    [session] = await _with_states(tx, [await find(tx, session_id)])
    return session


async def find(tx: TenantTx, session_id: str) -> SessionRecord:
    """The same without its state."""
    record = await tx.get_session(SessionId(session_id)) if is_id("ses", session_id) else None
    if record is None:
        raise NotFound("there is no such session")
    return record


async def list_page(
    tx: TenantTx, where: SessionFilter, *, limit: int, before: tuple[float, SessionId] | None
) -> tuple[Sequence[Session], tuple[float, SessionId] | None]:
    """Up to ``limit`` sessions, newest first, and where the next page begins; None on the last one."""
    if where.agent is not None and not is_agent_name(where.agent):
        # No session has it, and the database would refuse some of the texts that are no name.
        return (), None
    found = await tx.list_sessions(where, limit=limit + 1, before=before)
    page = found[:limit]
    following = (page[-1].created_at, page[-1].session_id) if len(found) > limit else None
    return await _with_states(tx, page), following


async def messages_page(
    tx: TenantTx, session_id: str, *, limit: int, after: tuple[int, int] | None
) -> tuple[Sequence[SessionMessage], tuple[int, int] | None]:
    """Up to ``limit`` messages of the history, oldest first, and the place behind which the next page begins. Raises
    NotFound."""
    record = await find(tx, session_id)
    found = await tx.session_messages(record.session_id, limit=limit + 1, after=after)
    page = found[:limit]
    return page, (page[-1].session_seq, page[-1].place) if len(found) > limit else None


async def erase(tx: TenantTx, session_id: str) -> None:
    """Erases the session, its runs, and all that is kept of them. Raises NotFound, and SessionBusy while a run of it
    has not ended."""
    record = await tx.lock_session(SessionId(session_id)) if is_id("ses", session_id) else None
    if record is None:
        raise NotFound("there is no such session")
    if running := await tx.session_runs_open(record.session_id):
        raise SessionBusy(running[0])
    if not await tx.erase_session(record.session_id):
        raise NotFound("there is no such session")


async def take_place(tx: TenantTx, principal: Principal, session: SessionRecord, on_busy: OnBusy) -> tuple[RunId, ...]:
    """Makes sure that a new run may stand behind the others of its session, which is locked. Returns the runs that it
    was asked to end. Raises SessionBusy."""
    if on_busy is OnBusy.REJECT and (running := await tx.session_runs_open(session.session_id)):
        raise SessionBusy(running[0])
    if on_busy is OnBusy.INTERRUPT:
        wish = CancelWish(reason="interrupted by a newer run of its session", requested_by=principal.actor)
        return tuple(await tx.interrupt_session(session.session_id, wish))
    return ()


async def lock_for_run(tx: TenantTx, session_id: str) -> SessionRecord:
    """The session that a run is submitted to: until the transaction ends no other run is. Raises InvalidRequest
    (``unknown_session``)."""
    record = await tx.lock_session(SessionId(session_id)) if is_id("ses", session_id) else None
    if record is None:
        problem = FieldProblem(pointer="/session_id", detail="there is no such session")
        raise InvalidRequest("the session is not known", code="unknown_session", problems=[problem])
    return record


def check_match(session: SessionRecord, *, agent: str, user: str | None) -> None:
    """Raises InvalidRequest (``session_mismatch``) for a run of another agent or user than the session's."""
    problems = []
    if session.agent is not None and session.agent != agent:
        problems.append(FieldProblem(pointer="/agent", detail="the session is another agent's"))
    if session.user is not None and user is not None and session.user != user:
        problems.append(FieldProblem(pointer="/user", detail="the session is another user's"))
    if problems:
        raise InvalidRequest("the run does not fit its session", code="session_mismatch", problems=problems)


async def _with_states(tx: TenantTx, records: Sequence[SessionRecord]) -> Sequence[Session]:
    states = await tx.session_states([record.session_id for record in records]) if records else {}
    return [Session(record=record, state=states.get(record.session_id, {})) for record in records]


async def _check_agent(tx: TenantTx, name: str) -> None:
    version = await tx.get_agent(name) if is_agent_name(name) else None
    if version is None:
        problem = FieldProblem(pointer="/agent", detail="there is no such agent")
        raise InvalidRequest("the agent is not known", code="unknown_agent", problems=[problem])
    if version.retired:
        raise Conflict("the agent is retired; put its definition again to revive it", code="agent_retired")


def _check_scopes(request: SessionRequest) -> None:
    """State that is kept for an agent or a user needs to know which."""
    problems = [
        FieldProblem(pointer=f"/state/{_escape(key)}", detail=why)
        for key in request.state
        if (why := _why_not(key, request)) is not None
    ]
    if problems:
        raise InvalidRequest("the state has keys that the session can't have", problems=problems)


def _why_not(key: str, request: SessionRequest) -> str | None:
    if key.startswith(_TEMP):
        return "temp: lives as long as one run: no session keeps it"
    if key.startswith(_APP) and request.agent is None:
        return "app: is kept for an agent, and the session has none"
    if key.startswith(_USER) and (request.agent is None or request.user is None):
        return "user: is kept for an agent and a user, and the session lacks one"
    return None


def _escape(key: str) -> str:
    """RFC 6901."""
    return key.replace("~", "~0").replace("/", "~1")
