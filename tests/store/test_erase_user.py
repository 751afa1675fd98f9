"""What belongs to one person is erased, whatever table it lies in, and nothing else is."""

import asyncio

import pytest

from app.execution.erasures import forget_prefixes
from app.ids import RunId, SessionId, TenantId
from app.ports.erasure import UserErased
from app.ports.sessions import NewSession
from app.store.database import Database
from app.store.retention import PostgresErasures
from app.testing import FakeClock
from tests.conftest import DatabaseUrls
from tests.store.ageing import Aged, locked
from tests.store.everywhere import fill_everywhere, find_mentions
from tests.store.support import new_run, query, wait_for_rows

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
USER, TARGET = "ada.lovelace@example.org", "digest-of-a-user"
DONE = UserErased(runs=0, sessions=0, is_open=False, is_done=True)
WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
AUDITED = "SELECT actor, action, target, details::json AS details FROM audit WHERE action = 'user.erased'"


@pytest.fixture
async def aged(empty_urls: DatabaseUrls, empty_database: Database) -> Aged:
    made = Aged(url=empty_urls.superuser_url, database=empty_database)
    await made.tenant(TENANT)
    return made


async def erase(aged: Aged, user: str = USER, *, limit: int = 50, tenant_id: TenantId = TENANT) -> UserErased:
    async with aged.tenants.begin(tenant_id, actor="boss") as tx:
        return await tx.erase_user(user, target=TARGET, limit=limit)


async def is_open(aged: Aged, user: str = USER) -> bool:
    async with aged.tenants.begin(TENANT) as tx:
        return await tx.has_open_runs(user)


async def session_of(
    aged: Aged, user: str | None, *, tenant_id: TenantId = TENANT, session_id: str = "ses_1"
) -> SessionId:
    """With state of its own, of the agent and, where there is one, of the user."""
    state = {"k": 1, "app:k": 1} | ({} if user is None else {"user:k": 1})
    new = NewSession(session_id=SessionId(session_id), agent="clerk", user=user, state=state)
    async with aged.tenants.begin(tenant_id) as tx:
        await tx.insert_session(new)
        await tx.put_artifact(new.session_id, "a", data=b"x", content_type="x/y")
        await tx.remember(route="POST /sessions", subject="s", key=session_id, body_digest="d")
        await tx.settle_key(route="POST /sessions", subject="s", key=session_id, run_id=RunId(session_id))
    return new.session_id


async def state_of(aged: Aged) -> list[tuple[str, str]]:
    found = await query(aged.url, "SELECT scope, owner FROM state_entries ORDER BY scope, owner")
    return [(row["scope"], row["owner"]) for row in found]


async def test_all_that_any_table_keeps_of_a_user_goes(aged: Aged) -> None:
    session_id = await session_of(aged, USER)
    run_id = await aged.ended_run(TENANT, user=USER, session_id=session_id)
    [asked] = await query(aged.url, "SELECT approval_id FROM approvals WHERE run_id = $1", run_id)
    ids = {"run_id": run_id, "root_run_id": run_id, "session_id": session_id, "approval_id": asked["approval_id"]}
    filled = await fill_everywhere(aged.url, TENANT, **ids)
    assert {"runs", "events", "idempotency_keys", "webhook_deliveries", "approval_votes"} <= set(filled)
    assert await erase(aged) == UserErased(runs=2, sessions=1, is_open=False, is_done=True)
    assert await find_mentions(aged.url, USER, *ids.values()) == []


async def test_others_and_the_same_user_of_another_tenant_keep_all(aged: Aged) -> None:
    await aged.tenant(OTHER)
    mine = await session_of(aged, "somebody", session_id="ses_2")
    theirs = await session_of(aged, USER, tenant_id=OTHER, session_id="ses_3")
    kept = [
        await aged.ended_run(TENANT, user="somebody", session_id=mine),
        await aged.ended_run(TENANT, user=None),
        await aged.ended_run(OTHER, user=USER, session_id=theirs),
    ]
    tables = ("runs", "events", "sessions", "session_items", "state_entries", "artifacts", "idempotency_keys")
    before = [await aged.count(table, tenant) for table in tables for tenant in (TENANT, OTHER)]
    await aged.ended_run(TENANT, user=USER)
    await erase(aged)
    assert [await aged.count(table, tenant) for table in tables for tenant in (TENANT, OTHER)] == before
    found = await query(aged.url, "SELECT run_id FROM runs WHERE run_id = ANY ($1)", kept)
    assert len(found) == len(kept)


async def test_state_of_the_user_goes_for_every_agent_and_other_state_stays(aged: Aged) -> None:
    await session_of(aged, "a/b", session_id="ses_1")
    await session_of(aged, "b", session_id="ses_2")
    await erase(aged, "a/b")
    assert await state_of(aged) == [("app", "clerk"), ("session", "ses_2"), ("user", "clerk/b")]


async def test_a_user_of_any_text_is_found(aged: Aged) -> None:
    user = "a\x00b\x1a0/%\U0001f9d1"
    await session_of(aged, user)
    await aged.ended_run(TENANT, user=user)
    assert await erase(aged, user) == UserErased(runs=2, sessions=1, is_open=False, is_done=True)
    assert await state_of(aged) == [("app", "clerk")]


async def test_in_a_session_without_a_user_his_part_goes_and_the_rest_stays(aged: Aged) -> None:
    session_id = await session_of(aged, None)
    kept = await aged.ended_run(TENANT, user="somebody", session_id=session_id)
    run_id = await aged.ended_run(TENANT, user=USER, session_id=session_id)
    await query(aged.url, "UPDATE artifacts SET run_id = $1", kept)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.put_artifact(session_id, "his", data=b"x", content_type="x/y")
    await query(aged.url, "UPDATE artifacts SET run_id = $1 WHERE name = 'his'", run_id)
    assert (await erase(aged)).sessions == 0
    async with aged.tenants.begin(TENANT) as tx:
        said = [message.run_id for message in await tx.session_messages(session_id, limit=9, after=None)]
        artifacts = [artifact.name for artifact in await tx.list_artifacts(session_id, limit=9, after=None)]
    assert (said, artifacts) == ([kept], ["a"])


async def test_one_portion_holds_no_more_than_was_asked_for(aged: Aged) -> None:
    runs = [await aged.ended_run(TENANT, user=USER) for _ in range(3)]
    await session_of(aged, USER)
    told = [await erase(aged, limit=2) for _ in range(4)]
    assert [(erased.runs, erased.sessions, erased.is_done) for erased in told] == [
        (4, 0, False),
        (2, 1, False),
        (0, 0, True),
        (0, 0, True),
    ]
    assert await find_mentions(aged.url, USER, *runs) == []


async def test_an_unknown_user_is_erased_already(aged: Aged) -> None:
    assert await erase(aged, "nobody") == DONE


async def test_a_run_of_his_that_has_not_ended_is_open(aged: Aged) -> None:
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(new_run(TENANT, user=USER))
    assert await is_open(aged)
    assert not await is_open(aged, "somebody")


async def test_somebodys_run_in_his_session_that_has_not_ended_is_open(aged: Aged) -> None:
    session_id = await session_of(aged, USER)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(new_run(TENANT, session_id=session_id))
    assert await is_open(aged)


async def test_a_later_run_of_a_session_that_he_spoke_in_is_open_until_it_has_ended(aged: Aged) -> None:
    session_id = await session_of(aged, None)
    await aged.ended_run(TENANT, user=USER, session_id=session_id)
    assert not await is_open(aged)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(new_run(TENANT, user="somebody", session_id=session_id))
    assert await is_open(aged)


async def test_a_run_that_came_meanwhile_is_left_and_told(aged: Aged) -> None:
    late = new_run(TENANT, user=USER)
    async with aged.tenants.begin(TENANT) as tx:
        await tx.insert_run(late)
    erased = await erase(aged)
    assert (erased.is_open, erased.is_done) == (True, False)
    assert await find_mentions(aged.url, late.run_id) == ["events", "runs"]


async def test_the_audit_trail_tells_it_by_a_digest(aged: Aged) -> None:
    await session_of(aged, USER)
    await erase(aged)
    [row] = await query(aged.url, AUDITED)
    told = (row["actor"], row["target"], row["details"])
    assert told == ("boss", TARGET, '{"done": true, "runs": 0, "sessions": 1}')


async def test_what_models_keep_of_his_prompts_is_forgotten(aged: Aged) -> None:
    await aged.ended_run(TENANT, user=USER)
    forgotten: asyncio.Queue[tuple[TenantId, float]] = asyncio.Queue()

    async def forget(tenant_id: TenantId, before: float) -> None:
        forgotten.put_nowait((tenant_id, before))

    await erase(aged)
    [row] = await query(aged.url, "SELECT extract(epoch FROM clock_timestamp())::float8 AS now")
    async with asyncio.timeout(20):
        job = asyncio.create_task(forget_prefixes(PostgresErasures(aged.database), forget, FakeClock(), 10))
        tenant_id, before = await forgotten.get()
    job.cancel()
    assert tenant_id == TENANT
    assert row["now"] - 10 < before - 60 < row["now"]


async def test_asked_for_by_several_at_once_it_is_done_once(aged: Aged) -> None:
    await session_of(aged, USER)
    for _ in range(3):
        await aged.ended_run(TENANT, user=USER)
    told = await asyncio.gather(*(erase(aged) for _ in range(4)))
    assert sum(erased.runs for erased in told) == 6
    assert [erased.is_done for erased in told] == [True] * 4


async def test_two_users_of_the_same_sessions_never_wait_for_each_other_in_a_circle(aged: Aged) -> None:
    sessions = [await session_of(aged, None, session_id=f"ses_{number}") for number in range(2)]
    for user, session_id in (("one", sessions[0]), ("two", sessions[1]), ("two", sessions[0]), ("one", sessions[1])):
        await aged.ended_run(TENANT, user=user, session_id=session_id)
    async with locked(aged.url, "SELECT FROM sessions WHERE session_id = 'ses_1' FOR UPDATE"):
        one = asyncio.create_task(erase(aged, "one"))
        await wait_for_rows(aged.url, WAITING)
        two = asyncio.create_task(erase(aged, "two"))
        await wait_for_rows(aged.url, f"{WAITING} OFFSET 1")
    assert [(await one).is_done, (await two).is_done] == [True, True]


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"])
async def test_the_trail_of_an_erasure_can_not_be_erased(aged: Aged, statement: str) -> None:
    await erase(aged)
    with pytest.raises(Exception, match="only added to"):
        await query(aged.url, statement)
    assert len(await query(aged.url, AUDITED)) == 1
