"""Erasing a session: all that is kept of it goes, and nothing else."""

from typing import Any

import pytest

from app.conversation import Message, Role
from app.events import RunState
from app.execution.system import SystemClock
from app.ids import RunId, SessionId, TenantId, WorkerId
from app.ports.records import Claim, NewRun, RunRecord
from app.ports.sessions import NewSession, SessionRecord
from app.store.database import Database
from app.store.tables import metadata
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.ageing import ASK, NOTIFY
from tests.store.support import AGENT, new_run, query, terminated, update

SESSION, SECOND = SessionId("ses_1"), SessionId("ses_2")
OTHER = TenantId("ten_other")
LEFT = """
    SELECT 'runs' AS name FROM runs UNION ALL SELECT 'events' FROM events UNION ALL SELECT 'metadata' FROM run_metadata
    UNION ALL SELECT 'keys' FROM idempotency_keys UNION ALL SELECT 'sessions' FROM sessions
    UNION ALL SELECT 'items' FROM session_items UNION ALL SELECT 'artifacts' FROM artifacts
    UNION ALL SELECT 'approvals' FROM approvals UNION ALL SELECT 'changes' FROM approval_changes
    UNION ALL SELECT 'deliveries' FROM webhook_deliveries UNION ALL SELECT 'holds' FROM ledger_holds
    UNION ALL SELECT scope FROM state_entries ORDER BY 1
"""


@pytest.fixture
def store(empty_database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(empty_database)


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


@pytest.fixture
async def session(store: PostgresTenantStore, tenant_id: TenantId) -> SessionRecord:
    """One that is committed."""
    state = {"a": 0, "app:c": 1, "user:d": 2}
    async with store.begin(tenant_id) as tx:
        await tx.put_agent(AGENT)
        return await tx.insert_session(NewSession(session_id=SESSION, agent="clerk", user="ada", state=state))


async def submit(store: PostgresTenantStore, tenant_id: TenantId, **changes: Any) -> NewRun:
    run = new_run(tenant_id, **{"session_id": SESSION, **changes})
    async with store.begin(tenant_id) as tx:
        await tx.insert_run(run)
    return run


async def claim(work: PostgresWorkStore) -> Claim:
    [claimed] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    return claimed


async def end(work: PostgresWorkStore, claimed: Claim, text: str, **changes: Any) -> None:
    items = (Message(role=Role.USER, content=text),)
    summary = update(RunState.COMPLETED, session_items=items, **changes)
    await work.append_if_owner(claimed, [terminated()], summary)


@pytest.fixture
async def ended(
    empty_urls: DatabaseUrls,
    store: PostgresTenantStore,
    work: PostgresWorkStore,
    tenant_id: TenantId,
    session: SessionRecord,
) -> RunRecord:
    """A session with all that can be kept of it: a run with a child, an artifact, idempotency keys, a question of each
    run and a notice."""
    run = await submit(store, tenant_id, metadata={"k": "v"}, team={"clerk": 1})
    async with store.begin(tenant_id) as tx:
        await tx.remember(route="r", subject="s", key="k", body_digest="d")
        await tx.settle_key(route="r", subject="s", key="k", run_id=run.run_id)
        await tx.remember(route="sessions", subject="s", key="k", body_digest="d")
        await tx.settle_key(route="sessions", subject="s", key="k", run_id=RunId(SESSION))
    claimed = await claim(work)
    child = new_run(tenant_id, parent_run_id=claimed.run_id, metadata={"c": "d"})
    adopted = await work.adopt(claimed, child)
    await query(empty_urls.superuser_url, ASK, tenant_id, run.run_id, run.run_id)
    await query(empty_urls.superuser_url, ASK, tenant_id, child.run_id, run.run_id)
    await query(empty_urls.superuser_url, NOTIFY, tenant_id, run.run_id)
    await work.save_artifact(adopted.claim, "a", b"x", "x/y")
    await work.append_if_owner(adopted.claim, [terminated()], update(RunState.COMPLETED))
    await end(work, claimed, "hello", state_delta={"x": 1})
    async with store.begin(tenant_id) as tx:
        record = await tx.get_run(run.run_id)
    assert record is not None
    return record


async def erase(store: PostgresTenantStore, tenant_id: TenantId) -> bool:
    async with store.begin(tenant_id) as tx:
        return await tx.erase_session(SESSION)


def test_every_table_that_knows_of_a_run_or_a_session_is_looked_at() -> None:
    knowing = [name for name, table in metadata.tables.items() if {"run_id", "session_id", "owner"} & {*table.c.keys()}]
    assert [name for name in knowing if name not in LEFT.split()] == []


async def test_erasing_leaves_nothing_but_what_is_the_agents_and_the_users(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, tenant_id: TenantId, ended: RunRecord
) -> None:
    assert await erase(store, tenant_id)
    left = await query(empty_urls.superuser_url, LEFT)
    assert [row["name"] for row in left] == ["app", "user"]


async def test_erasing_touches_neither_other_sessions_nor_runs_without_one(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, tenant_id: TenantId, ended: RunRecord
) -> None:
    async with store.begin(tenant_id) as tx:
        await tx.insert_session(NewSession(session_id=SECOND, state={"a": 1}))
        await tx.put_artifact(SECOND, "a", data=b"", content_type="x/y")
    kept = [await submit(store, tenant_id, session_id=session_id, metadata={"k": "v"}) for session_id in (SECOND, None)]
    assert await erase(store, tenant_id)
    left = await query(empty_urls.superuser_url, LEFT)
    runs = await query(empty_urls.superuser_url, "SELECT run_id FROM runs ORDER BY created_at")
    assert [row["run_id"] for row in runs] == [run.run_id for run in kept]
    assert [row["name"] for row in left] == (
        ["app", "artifacts"] + ["events"] * 2 + ["metadata"] * 2 + ["runs"] * 2 + ["session", "sessions", "user"]
    )


async def test_another_tenant_erases_nothing(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, tenant_id: TenantId, ended: RunRecord
) -> None:
    before = await query(empty_urls.superuser_url, LEFT)
    assert await erase(store, OTHER)
    assert await query(empty_urls.superuser_url, LEFT) == before


@pytest.mark.parametrize("state", ["queued", "running", "suspended"])
async def test_a_session_with_an_open_run_is_not_erased(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, tenant_id: TenantId, session: SessionRecord, state: str
) -> None:
    await submit(store, tenant_id)
    await query(empty_urls.superuser_url, "UPDATE runs SET state = $1", state)
    assert not await erase(store, tenant_id)
    async with store.begin(tenant_id) as tx:
        assert len(await tx.session_runs_open(SESSION)) == 1
