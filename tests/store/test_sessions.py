"""Sessions in a tenant's transaction: what requests read, interrupt and erase."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.conversation import Message, Role
from app.events import RunState
from app.execution.system import SystemClock
from app.ids import SessionId, TenantId, WorkerId
from app.ports.desk import ApprovalStatus
from app.ports.records import CancelWish, Claim, NewRun, RunFilter
from app.ports.sessions import NewSession, SessionFilter, SessionRecord
from app.store.database import Database
from app.store.tenant import PostgresTenantStore, PostgresTenantTx
from app.store.work import PostgresWorkStore
from tests.store.support import AGENT, NUL, new_run, question, terminated, update, warned

SESSION, SECOND = SessionId("ses_1"), SessionId("ses_2")
OTHER = TenantId("ten_other")
WISH = CancelWish(reason=NUL, requested_by="ada")
STATE = {"a": {"b": [NUL, None]}, "app:c": 1, "user:d": 2}


@pytest.fixture
def store(empty_database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(empty_database)


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


@pytest.fixture
async def tx(store: PostgresTenantStore, tenant_id: TenantId) -> AsyncIterator[PostgresTenantTx]:
    async with store.begin(tenant_id) as tx:
        await tx.put_agent(AGENT)
        yield tx


@pytest.fixture
async def session(store: PostgresTenantStore, tenant_id: TenantId) -> SessionRecord:
    """One that is committed."""
    async with store.begin(tenant_id) as tx:
        await tx.put_agent(AGENT)
        return await tx.insert_session(NewSession(session_id=SESSION, agent="clerk", user=NUL, state=STATE))


async def submit(store: PostgresTenantStore, tenant_id: TenantId, **changes: Any) -> NewRun:
    run = new_run(tenant_id, **{"session_id": SESSION, **changes})
    async with store.begin(tenant_id) as tx:
        await tx.insert_run(run)
    return run


async def claim(work: PostgresWorkStore) -> Claim:
    [claimed] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    return claimed


async def end(work: PostgresWorkStore, claimed: Claim, *texts: str, **changes: Any) -> None:
    items = tuple(Message(role=Role.USER, content=text) for text in texts)
    summary = update(RunState.COMPLETED, session_items=items, **changes)
    await work.append_if_owner(claimed, [terminated()], summary)


# --- the session itself ----------------------------------------------------------------------------------------------


async def test_a_session_comes_back_as_it_was_made(tx: PostgresTenantTx) -> None:
    new = NewSession(session_id=SESSION, agent="clerk", user=NUL, title=NUL, metadata={NUL: NUL})
    made = await tx.insert_session(new)
    assert (made.agent, made.user, made.title, made.metadata) == ("clerk", NUL, NUL, {NUL: NUL})
    assert (made.last_agent, made.active_run_id, made.runs) == (None, None, 0)
    assert made.created_at == made.updated_at
    assert await tx.get_session(SESSION) == made


async def test_an_unknown_session_is_none(tx: PostgresTenantTx) -> None:
    assert await tx.get_session(SESSION) is None
    assert await tx.lock_session(SESSION) is None


async def test_another_tenants_session_does_not_exist(store: PostgresTenantStore, session: SessionRecord) -> None:
    async with store.begin(OTHER) as tx:
        assert await tx.lock_session(SESSION) is None
        assert await tx.session_states([SESSION]) == {SESSION: {}}
        assert await tx.list_sessions(SessionFilter(), limit=9, before=None) == []


async def test_a_session_is_changed_by_a_run_that_is_submitted_and_by_one_that_ends(
    store: PostgresTenantStore, work: PostgresWorkStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    await submit(store, tenant_id)
    async with store.begin(tenant_id) as tx:
        busy = await tx.get_session(SESSION)
    await end(work, await claim(work))
    async with store.begin(tenant_id) as tx:
        rests = await tx.get_session(SESSION)
    assert busy is not None
    assert rests is not None
    assert session.updated_at < busy.updated_at < rests.updated_at


# --- state -----------------------------------------------------------------------------------------------------------


async def test_the_state_is_the_sessions_its_agents_and_its_users(tx: PostgresTenantTx) -> None:
    await tx.insert_session(NewSession(session_id=SESSION, agent="clerk", user=NUL, state=STATE))
    await tx.insert_session(NewSession(session_id=SECOND, agent="clerk", user="bob", state={"e": 3}))
    assert await tx.session_states([SESSION, SECOND]) == {SESSION: STATE, SECOND: {"e": 3, "app:c": 1}}


async def test_a_session_without_an_agent_has_only_state_of_its_own(tx: PostgresTenantTx) -> None:
    await tx.insert_session(NewSession(session_id=SESSION, agent="clerk", user="ada", state=STATE))
    await tx.insert_session(NewSession(session_id=SECOND, user="ada", state=STATE))
    assert await tx.session_states([SECOND]) == {SECOND: {"a": STATE["a"]}}


# --- lists -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def three(store: PostgresTenantStore, tenant_id: TenantId) -> list[SessionRecord]:
    """Oldest first."""
    made = []
    for new in (
        NewSession(session_id=SessionId("ses_c"), agent="clerk", user="ada"),
        NewSession(session_id=SessionId("ses_a"), agent="clerk", user=NUL),
        NewSession(session_id=SessionId("ses_b")),
    ):
        async with store.begin(tenant_id) as tx:
            made.append(await tx.insert_session(new))
    return made


async def test_sessions_are_listed_newest_first_and_page_by_page(
    three: list[SessionRecord], tx: PostgresTenantTx
) -> None:
    first = await tx.list_sessions(SessionFilter(), limit=2, before=None)
    rest = await tx.list_sessions(SessionFilter(), limit=9, before=(first[-1].created_at, first[-1].session_id))
    assert [*first, *rest] == three[::-1]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (SessionFilter(agent="clerk"), ["ses_a", "ses_c"]),
        (SessionFilter(user=NUL), ["ses_a"]),
        (SessionFilter(agent="clerk", user="ada"), ["ses_c"]),
        (SessionFilter(agent="other"), []),
    ],
)
async def test_sessions_are_found_by_agent_and_user(
    three: list[SessionRecord], tx: PostgresTenantTx, where: SessionFilter, found: list[str]
) -> None:
    assert [record.session_id for record in await tx.list_sessions(where, limit=9, before=None)] == found


async def test_runs_are_found_by_session(
    store: PostgresTenantStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    run = await submit(store, tenant_id)
    await submit(store, tenant_id, session_id=None)
    async with store.begin(tenant_id) as tx:
        found = await tx.list_runs(RunFilter(session_id=SESSION), limit=9, before=None)
    assert [record.run_id for record in found] == [run.run_id]


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def told(
    store: PostgresTenantStore, work: PostgresWorkStore, tenant_id: TenantId, session: SessionRecord
) -> list[NewRun]:
    """Three runs: two messages, none, three messages."""
    runs = []
    for texts in (("a", NUL), (), ("c", "d", "e")):
        runs.append(await submit(store, tenant_id))
        await end(work, await claim(work), *texts)
    return runs


async def test_messages_are_read_oldest_first_with_the_runs_that_left_them(
    told: list[NewRun], tx: PostgresTenantTx
) -> None:
    messages = await tx.session_messages(SESSION, limit=9, after=None)
    assert [one.message.content for one in messages] == ["a", NUL, "c", "d", "e"]
    assert [(one.session_seq, one.place) for one in messages] == [(1, 0), (1, 1), (3, 0), (3, 1), (3, 2)]
    assert [one.run_id for one in messages] == [told[0].run_id] * 2 + [told[2].run_id] * 3


async def read_all(tx: PostgresTenantTx, size: int) -> list[str]:
    """Page by page."""
    read: list[str] = []
    after = None
    while page := await tx.session_messages(SESSION, limit=size, after=after):
        read += [one.message.content for one in page]
        after = (page[-1].session_seq, page[-1].place)
    return read


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
async def test_pages_of_messages_of_any_size_leave_none_out(
    told: list[NewRun], tx: PostgresTenantTx, size: int
) -> None:
    assert await read_all(tx, size) == ["a", NUL, "c", "d", "e"]


# --- busy ------------------------------------------------------------------------------------------------------------


async def test_open_runs_are_told_in_their_order(
    store: PostgresTenantStore, work: PostgresWorkStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    runs = [await submit(store, tenant_id, priority=priority) for priority in (0, 5, 9)]
    await end(work, await claim(work))
    async with store.begin(tenant_id) as tx:
        assert await tx.session_runs_open(SESSION) == [run.run_id for run in runs[1:]]


async def test_interrupting_asks_every_open_run_to_end_and_queues_a_suspended_one(
    store: PostgresTenantStore, work: PostgresWorkStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    runs = [await submit(store, tenant_id) for _ in range(2)]
    asked = question()
    await work.append_if_owner(await claim(work), [warned()], update(RunState.SUSPENDED, asked=(asked,)))
    async with store.begin(tenant_id) as tx:
        interrupted = await tx.interrupt_session(SESSION, WISH)
        records = [await tx.get_run(run.run_id) for run in runs]
        withdrawn = await tx.get_approval(asked.approval_id)
    assert interrupted == [run.run_id for run in runs]
    told = [(record.state, record.cancel_reason, record.cancel_requested_by) for record in records if record]
    assert told == [(RunState.QUEUED, NUL, "ada")] * 2
    assert withdrawn is not None
    assert withdrawn.status is ApprovalStatus.CANCELLED


async def test_interrupting_keeps_a_wish_that_was_there(
    store: PostgresTenantStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    run = await submit(store, tenant_id)
    async with store.begin(tenant_id) as tx:
        await tx.request_cancel(run.run_id, CancelWish(reason="first", requested_by=None))
        await tx.interrupt_session(SESSION, WISH)
        record = await tx.get_run(run.run_id)
    assert record is not None
    assert record.cancel_reason == "first"


async def test_while_a_session_is_locked_no_run_of_it_is_accepted(
    store: PostgresTenantStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    async with store.begin(tenant_id) as tx:
        locked = await tx.lock_session(SESSION)
        waiting = asyncio.create_task(submit(store, tenant_id))
        await asyncio.wait([waiting], timeout=0.1)
        waited = not waiting.done()
    await waiting
    assert waited
    assert locked == session


async def test_while_a_session_is_locked_no_run_of_it_ends(
    store: PostgresTenantStore, work: PostgresWorkStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    await submit(store, tenant_id)
    claimed = await claim(work)
    async with store.begin(tenant_id) as tx:
        await tx.lock_session(SESSION)
        ending = asyncio.create_task(end(work, claimed))
        await asyncio.wait([ending], timeout=0.1)
        waited = not ending.done()
        late = new_run(tenant_id, session_id=SESSION)
        await tx.insert_run(late)
    await ending
    assert waited
    assert (await claim(work)).run_id == late.run_id


async def test_what_a_locked_session_says_is_true_after_a_wait(
    store: PostgresTenantStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    async def look() -> SessionRecord | None:
        async with store.begin(tenant_id) as tx:
            return await tx.lock_session(SESSION)

    async with store.begin(tenant_id) as tx:
        run = new_run(tenant_id, session_id=SESSION)
        await tx.insert_run(run)
        waiting = asyncio.create_task(look())
        await asyncio.wait([waiting], timeout=0.1)
    seen = await waiting
    assert seen is not None
    assert (seen.active_run_id, seen.runs) == (run.run_id, 1)


async def test_ends_and_submissions_at_once_leave_one_run_to_claim(
    store: PostgresTenantStore, work: PostgresWorkStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    await submit(store, tenant_id)
    ending = [end(work, await claim(work))]
    await asyncio.gather(*ending, *(submit(store, tenant_id) for _ in range(5)))
    claims = await work.claim(WorkerId("w"), limit=9, lease_seconds=60)
    async with store.begin(tenant_id) as tx:
        runs = await tx.session_runs_open(SESSION)
    assert [one.run_id for one in claims] == runs[:1]
    assert len(runs) == 5


async def test_a_run_that_waits_for_its_session_counts_as_queued(
    store: PostgresTenantStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    for _ in range(3):
        await submit(store, tenant_id)
    async with store.begin(tenant_id) as tx:
        assert [await tx.count_queued(up_to=up_to) for up_to in (1, 2, 3, 9)] == [1, 2, 3, 3]


# --- artifacts -------------------------------------------------------------------------------------------------------


async def test_an_artifact_comes_back_as_it_was_put(tx: PostgresTenantTx) -> None:
    await tx.insert_session(NewSession(session_id=SESSION))
    first = await tx.put_artifact(SESSION, "a", data=b"\x00\xff", content_type=NUL)
    second = await tx.put_artifact(SESSION, "a", data=b"", content_type="x/y")
    assert (first.version, first.size, first.content_type, first.run_id) == (1, 2, NUL, None)
    assert await tx.get_artifact(SESSION, "a", 1) == first
    assert await tx.get_artifact(SESSION, "a") == second
    assert await tx.get_artifact(SESSION, "a", 3) is None


async def test_an_artifact_of_an_unknown_session_is_a_mistake(tx: PostgresTenantTx) -> None:
    with pytest.raises(ValueError, match="no session"):
        await tx.put_artifact(SESSION, "a", data=b"", content_type="x/y")


async def test_artifacts_are_listed_by_name_in_their_newest_versions(tx: PostgresTenantTx) -> None:
    await tx.insert_session(NewSession(session_id=SESSION))
    for name in ("b", "a", "C", "b"):
        await tx.put_artifact(SESSION, name, data=b"x", content_type="x/y")
    first = await tx.list_artifacts(SESSION, limit=2, after=None)
    rest = await tx.list_artifacts(SESSION, limit=9, after=first[-1].name)
    assert [(one.name, one.version) for one in [*first, *rest]] == [("C", 1), ("a", 1), ("b", 2)]


async def test_artifacts_put_at_once_get_one_version_each(
    store: PostgresTenantStore, tenant_id: TenantId, session: SessionRecord
) -> None:
    async def put() -> int:
        async with store.begin(tenant_id) as tx:
            return (await tx.put_artifact(SESSION, "a", data=b"x", content_type="x/y")).version

    assert sorted(await asyncio.gather(*(put() for _ in range(4)))) == [1, 2, 3, 4]
