"""A tenant's transaction: agents, runs, their lists, cancels, idempotency keys."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from app.agents import Agent
from app.events import RunState, decode_event
from app.execution.system import SystemClock
from app.ids import RunId, TenantId, WorkerId
from app.ports.records import CancelWish, RememberedAnswer, RunFilter, RunRecord
from app.store.database import Database, DatabaseConfig
from app.store.tenant import PostgresTenantStore, PostgresTenantTx
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import AGENT, NUL, new_run, query, question, submit, update, warned

WISH = CancelWish(reason="enough", requested_by="ada")
OTHER = TenantId("ten_other")


@pytest.fixture
def store(shared_database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(shared_database)


@pytest.fixture
async def tx(store: PostgresTenantStore, tenant_id: TenantId) -> AsyncIterator[PostgresTenantTx]:
    async with store.begin(tenant_id) as tx:
        yield tx


def agent(instructions: str, name: str = "clerk") -> Agent:
    return Agent(name=name, instructions=instructions)


# --- agents ----------------------------------------------------------------------------------------------------------


async def test_the_first_definition_is_version_one(tx: PostgresTenantTx) -> None:
    stored, is_new = await tx.put_agent(AGENT)
    assert (stored.version, stored.agent, stored.digest, stored.retired, is_new) == (
        1,
        AGENT,
        AGENT.digest(),
        False,
        True,
    )


async def test_an_equal_definition_is_no_new_version(tx: PostgresTenantTx) -> None:
    first, _ = await tx.put_agent(AGENT)
    assert await tx.put_agent(AGENT) == (first, False)


async def test_a_definition_that_differs_from_the_newest_is_a_new_version_even_an_old_one(tx: PostgresTenantTx) -> None:
    await tx.put_agent(agent("one"))
    await tx.put_agent(agent("two"))
    third, is_new = await tx.put_agent(agent("one"))
    assert (third.version, is_new) == (3, True)


async def test_every_version_stays_readable(tx: PostgresTenantTx) -> None:
    await tx.put_agent(agent("one"))
    await tx.put_agent(agent("two"))
    first, newest = await tx.get_agent("clerk", 1), await tx.get_agent("clerk")
    assert first is not None
    assert newest is not None
    assert (first.agent.instructions, newest.agent.instructions) == ("one", "two")


async def test_an_unknown_agent_or_version_is_none(tx: PostgresTenantTx) -> None:
    await tx.put_agent(AGENT)
    assert await tx.get_agent("nobody") is None
    assert await tx.get_agent("clerk", 2) is None


async def test_a_retired_agent_says_so_and_leaves_the_list(tx: PostgresTenantTx) -> None:
    await tx.put_agent(AGENT)
    assert await tx.retire_agent("clerk")
    found = await tx.get_agent("clerk")
    assert found is not None
    assert found.retired
    assert await tx.list_agents(limit=10, after=None) == []


async def test_retiring_an_unknown_agent_is_false(tx: PostgresTenantTx) -> None:
    assert not await tx.retire_agent("nobody")


async def test_an_equal_definition_revives_a_retired_agent(tx: PostgresTenantTx) -> None:
    await tx.put_agent(AGENT)
    await tx.retire_agent("clerk")
    revived, is_new = await tx.put_agent(AGENT)
    assert (revived.version, revived.retired, is_new) == (1, False, False)


async def test_versions_go_on_counting_after_a_retirement(tx: PostgresTenantTx) -> None:
    await tx.put_agent(agent("one"))
    await tx.retire_agent("clerk")
    revived, is_new = await tx.put_agent(agent("two"))
    assert (revived.version, revived.retired, is_new) == (2, False, True)


async def test_agents_are_listed_by_name_from_a_name_on(tx: PostgresTenantTx) -> None:
    for name in ("b", "a.b", "a", "a-b"):
        await tx.put_agent(agent("x", name))
    first = await tx.list_agents(limit=2, after=None)
    rest = await tx.list_agents(limit=9, after=first[-1].agent.name)
    assert [one.agent.name for one in [*first, *rest]] == ["a", "a-b", "a.b", "b"]


async def test_writers_at_once_make_one_version_each(store: PostgresTenantStore, tenant_id: TenantId) -> None:
    async def put(instructions: str) -> int:
        async with store.begin(tenant_id) as tx:
            return (await tx.put_agent(agent(instructions)))[0].version

    versions = await asyncio.gather(*(put(f"number {n}") for n in range(4)))
    assert sorted(versions) == [1, 2, 3, 4]


async def test_nul_in_an_agent_comes_back(tx: PostgresTenantTx) -> None:
    await tx.put_agent(agent(NUL))
    found = await tx.get_agent("clerk")
    assert found is not None
    assert found.agent.instructions == NUL


# --- runs ------------------------------------------------------------------------------------------------------------


async def test_a_run_is_inserted_with_its_first_event(tx: PostgresTenantTx, tenant_id: TenantId) -> None:
    run = new_run(tenant_id)
    await tx.put_agent(AGENT)
    record = await tx.insert_run(run)
    [event] = await tx.events_after(run.run_id, 0, limit=10)
    assert (record.state, record.last_seq, record.created_at) == (RunState.QUEUED, 1, event.at)
    assert (event.seq, event.kind) == (1, "run_queued")
    assert decode_event(event.kind, event.payload).kind == "run_queued"
    assert await tx.get_run(run.run_id) == record


@pytest.mark.parametrize("changes", [{"agent_version": None}, {"tenant_id": OTHER}])
async def test_a_run_without_version_or_of_another_tenant_is_a_mistake(
    tx: PostgresTenantTx, tenant_id: TenantId, changes: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="names its agent's version"):
        await tx.insert_run(new_run(tenant_id, **changes) if "tenant_id" not in changes else new_run(OTHER))


async def test_what_a_failed_block_wrote_is_not_there(store: PostgresTenantStore, tenant_id: TenantId) -> None:
    run = new_run(tenant_id)
    with contextlib.suppress(RuntimeError):
        async with store.begin(tenant_id) as tx:
            await tx.put_agent(AGENT)
            await tx.insert_run(run)
            raise RuntimeError
    async with store.begin(tenant_id) as tx:
        assert await tx.get_run(run.run_id) is None


async def test_events_are_read_from_a_number_on_and_no_more_than_asked(
    empty_database: Database, tenant_id: TenantId
) -> None:
    run = new_run(tenant_id)
    await submit(empty_database, run)
    work = PostgresWorkStore(empty_database, SystemClock())
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    stored = await work.append_if_owner(claim, [warned("a"), warned("b"), warned("c")], update())
    async with PostgresTenantStore(empty_database).begin(tenant_id) as tx:
        rows = await tx.events_after(run.run_id, 1, limit=2)
    assert [(row.seq, row.at, row.payload) for row in rows] == [(e.seq, e.at, e.payload) for e in stored[:2]]


async def test_the_stores_clock_is_close_to_ours(tx: PostgresTenantTx) -> None:
    assert await tx.now() == pytest.approx(SystemClock().now(), abs=5)


# --- lists -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def three(shared_database: Database, tenant_id: TenantId) -> list[RunRecord]:
    """Oldest first."""
    first = new_run(tenant_id, user="ada", metadata={"k": NUL, "only": "first"})
    second = new_run(tenant_id, user=NUL, metadata={"k": NUL})
    third = new_run(tenant_id, agent=agent("x", "other"), metadata={"k": "else"})
    return [await submit(shared_database, run) for run in (first, second, third)]


async def ids(tx: PostgresTenantTx, where: RunFilter) -> list[RunId]:
    return [record.run_id for record in await tx.list_runs(where, limit=10, before=None)]


async def test_runs_are_listed_newest_first(three: list[RunRecord], tx: PostgresTenantTx) -> None:
    assert await tx.list_runs(RunFilter(), limit=10, before=None) == three[::-1]


async def test_a_page_goes_on_where_the_last_one_ended(three: list[RunRecord], tx: PostgresTenantTx) -> None:
    [newest] = await tx.list_runs(RunFilter(), limit=1, before=None)
    rest = await tx.list_runs(RunFilter(), limit=10, before=(newest.created_at, newest.run_id))
    assert [newest, *rest] == three[::-1]


async def test_runs_are_found_by_agent(three: list[RunRecord], tx: PostgresTenantTx) -> None:
    assert await ids(tx, RunFilter(agent="other")) == [three[2].run_id]


async def test_runs_are_found_by_user(three: list[RunRecord], tx: PostgresTenantTx) -> None:
    assert await ids(tx, RunFilter(user=NUL)) == [three[1].run_id]


async def test_runs_are_found_by_state(three: list[RunRecord], tx: PostgresTenantTx) -> None:
    assert len(await ids(tx, RunFilter(states=(RunState.QUEUED, RunState.FAILED)))) == 3
    assert await ids(tx, RunFilter(states=(RunState.FAILED,))) == []


async def test_runs_are_found_by_when_they_were_made(three: list[RunRecord], tx: PostgresTenantTx) -> None:
    between = RunFilter(created_after=three[0].created_at, created_before=three[2].created_at)
    assert await ids(tx, between) == [three[1].run_id]


async def test_runs_are_found_by_all_pairs_of_metadata_together(three: list[RunRecord], tx: PostgresTenantTx) -> None:
    assert await ids(tx, RunFilter(metadata={"k": NUL})) == [three[1].run_id, three[0].run_id]
    assert await ids(tx, RunFilter(metadata={"k": NUL, "only": "first"})) == [three[0].run_id]
    assert await ids(tx, RunFilter(metadata={"k": "first"})) == []


@pytest.mark.parametrize(("up_to", "counted"), [(2, 2), (3, 3), (9, 3)])
async def test_waiting_runs_are_counted_up_to_a_number(
    three: list[RunRecord], tx: PostgresTenantTx, up_to: int, counted: int
) -> None:
    assert await tx.count_queued(up_to=up_to) == counted


# --- cancel ----------------------------------------------------------------------------------------------------------


async def test_a_cancel_queues_a_suspended_run(
    shared_urls: DatabaseUrls, shared_database: Database, store: PostgresTenantStore, tenant_id: TenantId
) -> None:
    run = new_run(tenant_id)
    await submit(shared_database, run)
    await query(shared_urls.superuser_url, "UPDATE runs SET state = 'suspended' WHERE run_id = $1", run.run_id)
    async with store.begin(tenant_id) as tx:
        record = await tx.request_cancel(run.run_id, WISH)
    assert record is not None
    assert (record.state, record.cancel_reason) == (RunState.QUEUED, "enough")


async def test_nobody_holds_a_run_that_was_suspended(
    empty_urls: DatabaseUrls, empty_database: Database, tenant_id: TenantId
) -> None:
    await submit(empty_database, new_run(tenant_id))
    work = PostgresWorkStore(empty_database, SystemClock())
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED, asked=(question(),)))
    [row] = await query(empty_urls.superuser_url, "SELECT worker_id, lease_expires_at FROM runs")
    assert tuple(row) == (None, None)


async def test_another_tenants_run_can_not_be_seen_or_cancelled(
    shared_database: Database, store: PostgresTenantStore, tenant_id: TenantId
) -> None:
    run = new_run(tenant_id)
    await submit(shared_database, run)
    async with store.begin(OTHER) as tx:
        assert await tx.get_run(run.run_id) is None
        assert await tx.request_cancel(run.run_id, WISH) is None
        assert await tx.events_after(run.run_id, 0, limit=10) == []


# --- idempotency keys ------------------------------------------------------------------------------------------------

KEY = {"route": "POST /runs", "subject": NUL, "key": NUL}


async def test_a_new_key_is_taken(tx: PostgresTenantTx) -> None:
    assert await tx.remember(**KEY, body_digest="d") is None


async def test_a_settled_key_tells_what_it_led_to(store: PostgresTenantStore, tenant_id: TenantId) -> None:
    async with store.begin(tenant_id) as tx:
        await tx.remember(**KEY, body_digest="d")
        await tx.settle_key(**KEY, run_id=RunId("run_x"))
    async with store.begin(tenant_id) as tx:
        found = await tx.remember(**KEY, body_digest="other")
    assert found == RememberedAnswer(body_digest="d", run_id=RunId("run_x"))


async def test_a_key_is_scoped_to_route_subject_and_tenant(store: PostgresTenantStore, tenant_id: TenantId) -> None:
    async with store.begin(tenant_id) as tx:
        await tx.remember(**KEY, body_digest="d")
        assert await tx.remember(**{**KEY, "route": "else"}, body_digest="d") is None
        assert await tx.remember(**{**KEY, "subject": "else"}, body_digest="d") is None
    async with store.begin(TenantId(f"{tenant_id}2")) as tx:
        assert await tx.remember(**KEY, body_digest="d") is None


async def test_a_key_of_a_request_that_failed_is_free_again(store: PostgresTenantStore, tenant_id: TenantId) -> None:
    with contextlib.suppress(RuntimeError):
        async with store.begin(tenant_id) as tx:
            await tx.remember(**KEY, body_digest="d")
            raise RuntimeError
    async with store.begin(tenant_id) as tx:
        assert await tx.remember(**KEY, body_digest="d") is None


async def test_a_second_request_waits_for_the_first_and_is_told_its_run(
    store: PostgresTenantStore, tenant_id: TenantId
) -> None:
    async def second() -> RememberedAnswer | None:
        async with store.begin(tenant_id) as tx:
            return await tx.remember(**KEY, body_digest="d")

    async with store.begin(tenant_id) as tx:
        await tx.remember(**KEY, body_digest="d")
        waiting = asyncio.create_task(second())
        await asyncio.wait([waiting], timeout=0.1)
        waited = not waiting.done()
        await tx.settle_key(**KEY, run_id=RunId("run_x"))
    assert waited
    assert await waiting == RememberedAnswer(body_digest="d", run_id=RunId("run_x"))


async def test_a_key_is_kept_for_a_day(
    shared_urls: DatabaseUrls, store: PostgresTenantStore, tenant_id: TenantId
) -> None:
    async with store.begin(tenant_id) as tx:
        await tx.remember(**KEY, body_digest="d")
        await tx.settle_key(**KEY, run_id=RunId("run_x"))
    await query(
        shared_urls.superuser_url,
        "UPDATE idempotency_keys SET created_at = created_at - interval '24 hours 1 second' WHERE tenant_id = $1",
        tenant_id,
    )
    async with store.begin(tenant_id) as tx:
        assert await tx.remember(**KEY, body_digest="other") is None
        assert await tx.remember(**KEY, body_digest="d") == RememberedAnswer(body_digest="other", run_id=None)


# --- a pool of one ---------------------------------------------------------------------------------------------------


async def test_a_pool_of_one_connection_serves_many_at_once(shared_urls: DatabaseUrls, tenant_id: TenantId) -> None:
    database = Database(DatabaseConfig(url=shared_urls.app_url, pool_size=1))
    records = await asyncio.gather(*(submit(database, new_run(tenant_id)) for _ in range(5)))
    await database.close()
    assert len({record.run_id for record in records}) == 5
