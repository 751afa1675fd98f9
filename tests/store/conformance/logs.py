"""The logs that the suite is run on: what a test needs beside the protocol itself."""

from typing import Any, Protocol

from app.agents import Agent
from app.events import RunState
from app.execution.memory import MemoryWorkStore
from app.execution.memory_sessions import InMemorySessions
from app.execution.system import SystemClock
from app.ids import ApprovalId, SessionId, TenantId, WorkerId
from app.ports.desk import Approval, ApprovalStatus, Decided, NewApproval
from app.ports.records import CancelWish, Claim, NewRun, Renewal, RunRecord
from app.ports.sessions import NewSession, SessionRecord
from app.ports.store import WorkStore
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from app.testing import FakeClock
from tests.store.support import new_run, question, read, submit, update, warned

# What a renewal answers of a claim that holds and was extended.
HELD = Renewal(wish=None, extended=True)


class Log(Protocol):
    """A WorkStore and its other side."""

    store: WorkStore

    async def submit(self, run: NewRun) -> RunRecord: ...

    async def request_cancel(self, run: NewRun, wish: CancelWish) -> RunRecord | None: ...

    async def decide(self, approval_id: ApprovalId, decided: Decided) -> Approval:
        """A person of ``TENANT_A`` answers."""
        ...

    async def record(self, run: NewRun) -> RunRecord: ...

    async def kinds(self, run: NewRun) -> list[str]:
        """The kinds of all stored events, in order."""
        ...

    async def put_agent(self, agent: Agent) -> None: ...

    async def open_session(self, session: NewSession) -> SessionRecord:
        """A session of ``TENANT_A``."""
        ...

    async def session(self, session_id: SessionId) -> SessionRecord: ...

    async def erase_session(self, session_id: SessionId) -> bool: ...


class MemoryLog:
    def __init__(self) -> None:
        self._clock = FakeClock()
        self._sessions = InMemorySessions(self._clock)
        self._memory = MemoryWorkStore(self._clock, self._sessions)
        self.store: WorkStore = self._memory

    async def submit(self, run: NewRun) -> RunRecord:
        return await self._memory.submit(run)

    async def request_cancel(self, run: NewRun, wish: CancelWish) -> RunRecord | None:
        return await self._memory.request_cancel(run.run_id, wish)

    async def decide(self, approval_id: ApprovalId, decided: Decided) -> Approval:
        return self._memory.decide(approval_id, decided)

    async def record(self, run: NewRun) -> RunRecord:
        return self._memory.record(run.run_id)

    async def kinds(self, run: NewRun) -> list[str]:
        return [event.kind for event in self._memory.events(run.run_id)]

    async def put_agent(self, agent: Agent) -> None:
        """Runs bring theirs along."""

    async def open_session(self, session: NewSession) -> SessionRecord:
        return self._sessions.book.add(TENANT_A, session, now=self._clock.now())

    async def session(self, session_id: SessionId) -> SessionRecord:
        found = self._sessions.book.find(TENANT_A, session_id)
        assert found is not None
        return found

    async def erase_session(self, session_id: SessionId) -> bool:
        return self._sessions.book.erase(TENANT_A, session_id)


class PostgresLog:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._tenants = PostgresTenantStore(database)
        self.store: WorkStore = PostgresWorkStore(database, SystemClock())

    async def submit(self, run: NewRun) -> RunRecord:
        return await submit(self._database, run)

    async def request_cancel(self, run: NewRun, wish: CancelWish) -> RunRecord | None:
        async with self._tenants.begin(run.tenant_id) as tx:
            return await tx.request_cancel(run.run_id, wish)

    async def decide(self, approval_id: ApprovalId, decided: Decided) -> Approval:
        async with self._tenants.begin(TENANT_A) as tx:
            await tx.lock_approval(approval_id)
            return await tx.decide_approval(approval_id, decided)

    async def record(self, run: NewRun) -> RunRecord:
        return await read(self._database, run.tenant_id, run.run_id)

    async def kinds(self, run: NewRun) -> list[str]:
        async with self._tenants.begin(run.tenant_id) as tx:
            return [row.kind for row in await tx.events_after(run.run_id, 0, limit=1000)]

    async def put_agent(self, agent: Agent) -> None:
        async with self._tenants.begin(TENANT_A) as tx:
            await tx.put_agent(agent)

    async def open_session(self, session: NewSession) -> SessionRecord:
        async with self._tenants.begin(TENANT_A) as tx:
            return await tx.insert_session(session)

    async def session(self, session_id: SessionId) -> SessionRecord:
        async with self._tenants.begin(TENANT_A) as tx:
            found = await tx.get_session(session_id)
        assert found is not None
        return found

    async def erase_session(self, session_id: SessionId) -> bool:
        async with self._tenants.begin(TENANT_A) as tx:
            return await tx.erase_session(session_id)


APPROVE, DENY = Decided(decision="approve", decided_by="bob"), Decided(decision="deny", decided_by="bob")

TENANT_A, TENANT_B = TenantId("ten_a"), TenantId("ten_b")
WORKER, OTHER = WorkerId("wrk_1"), WorkerId("wrk_2")


async def claim(log: Log, worker: WorkerId = WORKER, *, lease_seconds: float = 60.0) -> Claim:
    [claimed] = await log.store.claim(worker, limit=1, lease_seconds=lease_seconds)
    return claimed


async def submit_and_claim(log: Log, *, lease_seconds: float = 60.0) -> tuple[NewRun, Claim]:
    run = new_run(TENANT_A)
    await log.submit(run)
    return run, await claim(log, lease_seconds=lease_seconds)


async def ask(log: Log, claimed: Claim, *, state: RunState = RunState.RUNNING, **changes: Any) -> NewApproval:
    """Puts a question to people; with ``state`` suspended the run waits for the answer."""
    asked = question(**changes)
    await log.store.append_if_owner(claimed, [warned()], update(state, asked=(asked,)))
    return asked


async def ask_and_suspend(log: Log, claimed: Claim, **changes: Any) -> NewApproval:
    return await ask(log, claimed, state=RunState.SUSPENDED, **changes)


async def suspend(log: Log, claimed: Claim) -> None:
    await log.store.append_if_owner(claimed, [warned()], update(RunState.SUSPENDED))


async def status(log: Log, asked: NewApproval) -> ApprovalStatus:
    found = await log.store.find_approval(TENANT_A, asked.approval_id)
    assert found is not None
    return found.status


async def state(log: Log, claimed: Claim) -> RunState:
    return (await log.record(new_run(TENANT_A, run_id=claimed.run_id))).state
