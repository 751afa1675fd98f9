"""What an operator has paused is not started, what runs of it is told of it, and it waits where it is."""

import asyncio

import asyncpg
import pytest

from app.events import RunState
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import TenantId, WorkerId
from app.ports.records import CancelWish, NewRun
from app.ports.tenancy import Pause, PauseKind
from app.store.database import Database
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_tenant, pause_of
from tests.store.support import AGENT, NUL, new_run, query, question, read, submit, update, wait_for_rows, warned

WORKER = WorkerId("w")
SOMEBODY_WAITS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SELLER = AGENT.model_copy(update={"name": "seller"})
# What this connection alone has read, and has not told the others yet: it tells them between transactions.
READ_OF_INDEXES = """
    SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = 'runs'::regclass
"""
MANY_OF_ONE_AGENT = """
    INSERT INTO runs (tenant_id, run_id, run_day, state, agent, agent_version, input, context, budget, max_llm_calls,
        priority, metadata, created_at, queued_at)
    SELECT $1, 'run_many_' || n, current_date, 'queued', 'clerk', 1, '"hi"', '{}', '{}', 10, 0, '{}', now(), now()
    FROM generate_series(1, 5000) AS n
"""


@pytest.fixture
def operator(empty_database: Database) -> PostgresOperatorStore:
    return PostgresOperatorStore(empty_database, Uuid7Ids())


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


@pytest.fixture
async def mine(operator: PostgresOperatorStore) -> TenantId:
    return (await new_tenant(operator)).tenant_id


@pytest.fixture
async def theirs(operator: PostgresOperatorStore) -> TenantId:
    return (await new_tenant(operator)).tenant_id


@pytest.fixture
async def runs(empty_database: Database, mine: TenantId, theirs: TenantId) -> dict[str, NewRun]:
    """Of two tenants, of two agents, and one that needs a tool and a model."""
    needs = frozenset({"tool:pay", "model:pay-model"})
    made = {
        "plain": new_run(mine),
        "seller": new_run(mine, agent=SELLER),
        "pays": new_run(mine, needs=needs),
        "their seller": new_run(theirs, agent=SELLER),
        "they pay": new_run(theirs, needs=needs),
    }
    for run in made.values():
        await submit(empty_database, run)
    return made


async def claimed(work: PostgresWorkStore, runs: dict[str, NewRun]) -> set[str]:
    taken = {claim.run_id for claim in await work.claim(WORKER, limit=9, lease_seconds=60)}
    return {name for name, run in runs.items() if run.run_id in taken}


def pause(kind: PauseKind, whose: TenantId | None) -> Pause:
    name = {PauseKind.TENANT: whose or "", PauseKind.AGENT: "seller", PauseKind.MODEL: "pay-model"}.get(kind, "pay")
    return pause_of(kind, name, whose)


@pytest.mark.parametrize(
    ("kind", "for_all", "waits"),
    [
        (PauseKind.TENANT, False, {"plain", "seller", "pays"}),
        (PauseKind.AGENT, False, {"seller"}),
        (PauseKind.TOOL, False, {"pays"}),
        (PauseKind.MODEL, False, {"pays"}),
        (PauseKind.TOOL, True, {"pays", "they pay"}),
        (PauseKind.MODEL, True, {"pays", "they pay"}),
    ],
)
async def test_what_is_paused_waits_and_goes_on_when_the_pause_ends(
    operator: PostgresOperatorStore,
    work: PostgresWorkStore,
    mine: TenantId,
    runs: dict[str, NewRun],
    kind: PauseKind,
    for_all: bool,
    waits: set[str],
) -> None:
    added = await operator.add_pause(pause(kind, None if for_all else mine), actor=ACTOR)
    assert added is not None
    assert await claimed(work, runs) == set(runs) - waits
    assert await claimed(work, runs) == set()
    assert await operator.end_pause(added.pause_id, actor=ACTOR)
    assert await claimed(work, runs) == waits


@pytest.mark.parametrize(
    ("kind", "name"),
    [(PauseKind.TOOL, "pay-model"), (PauseKind.MODEL, "pay"), (PauseKind.TOOL, "seller"), (PauseKind.MODEL, NUL)],
)
async def test_a_pause_of_something_else_holds_nobody_up(
    operator: PostgresOperatorStore, work: PostgresWorkStore, runs: dict[str, NewRun], kind: PauseKind, name: str
) -> None:
    await operator.add_pause(pause_of(kind, name), actor=ACTOR)
    assert await claimed(work, runs) == set(runs)


async def test_every_agent_of_a_tenant_may_be_paused(
    operator: PostgresOperatorStore, work: PostgresWorkStore, mine: TenantId, runs: dict[str, NewRun]
) -> None:
    for name in ("clerk", "seller"):
        await operator.add_pause(pause_of(PauseKind.AGENT, name, mine), actor=ACTOR)
    assert await claimed(work, runs) == {"their seller", "they pay"}


async def test_runs_that_are_accepted_meanwhile_wait_too(
    operator: PostgresOperatorStore, work: PostgresWorkStore, mine: TenantId, empty_database: Database
) -> None:
    await operator.add_pause(pause(PauseKind.TENANT, mine), actor=ACTOR)
    run = new_run(mine)
    await submit(empty_database, run)
    assert await work.claim(WORKER, limit=9, lease_seconds=60) == []
    assert (await read(empty_database, mine, run.run_id)).state is RunState.QUEUED


async def test_priority_and_age_hold_among_the_agents_that_are_not_paused(
    operator: PostgresOperatorStore, work: PostgresWorkStore, mine: TenantId, empty_database: Database
) -> None:
    third = AGENT.model_copy(update={"name": "a"})
    made = [
        new_run(mine, agent=third),
        new_run(mine, agent=SELLER, priority=9),
        new_run(mine),
        new_run(mine, agent=third, priority=5),
    ]
    for run in made:
        await submit(empty_database, run)
    await operator.add_pause(pause(PauseKind.AGENT, mine), actor=ACTOR)
    claims = await work.claim(WORKER, limit=9, lease_seconds=60)
    assert [claim.run_id for claim in claims] == [made[3].run_id, made[0].run_id, made[2].run_id]


async def test_a_cancelled_run_of_what_is_paused_ends_all_the_same(
    operator: PostgresOperatorStore,
    work: PostgresWorkStore,
    mine: TenantId,
    runs: dict[str, NewRun],
    empty_database: Database,
) -> None:
    await operator.add_pause(pause(PauseKind.TENANT, mine), actor=ACTOR)
    async with PostgresTenantStore(empty_database).begin(mine) as tx:
        await tx.request_cancel(runs["plain"].run_id, CancelWish(reason=None, requested_by=None))
    [ending] = await work.claim_ending(WORKER, limit=9, lease_seconds=60)
    assert ending.run_id == runs["plain"].run_id


# --- what runs already -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "for_all", "stops"),
    [
        (PauseKind.TENANT, False, {"plain", "seller", "pays"}),
        (PauseKind.AGENT, False, {"seller"}),
        (PauseKind.TOOL, False, {"pays"}),
        (PauseKind.TOOL, True, {"pays", "they pay"}),
        (PauseKind.MODEL, True, {"pays", "they pay"}),
    ],
)
async def test_a_run_that_is_driven_is_told_of_the_pause_and_keeps_its_lease(
    operator: PostgresOperatorStore,
    work: PostgresWorkStore,
    mine: TenantId,
    runs: dict[str, NewRun],
    kind: PauseKind,
    for_all: bool,
    stops: set[str],
) -> None:
    claims = {claim.run_id: claim for claim in await work.claim(WORKER, limit=9, lease_seconds=60)}
    before = await work.renew(claims.values(), lease_seconds=60)
    added = await operator.add_pause(pause(kind, None if for_all else mine), actor=ACTOR)
    after = await work.renew(claims.values(), lease_seconds=60)
    assert added is not None
    assert {renewal.paused for renewal in before.values()} == {False}
    assert {name for name, run in runs.items() if after[run.run_id].paused} == stops
    assert {renewal.extended for renewal in after.values()} == {True}


async def test_a_run_below_another_one_is_paused_when_its_root_is(
    operator: PostgresOperatorStore, work: PostgresWorkStore, mine: TenantId, empty_database: Database
) -> None:
    await submit(empty_database, new_run(mine))
    [root] = await work.claim(WORKER, limit=1, lease_seconds=60)
    child = (await work.adopt(root, new_run(mine, agent=SELLER, parent_run_id=root.run_id))).claim
    await operator.add_pause(pause_of(PauseKind.AGENT, "seller", mine), actor=ACTOR)
    below = await work.renew([root, child], lease_seconds=60)
    await operator.add_pause(pause_of(PauseKind.AGENT, "clerk", mine), actor=ACTOR)
    both = await work.renew([root, child], lease_seconds=60)
    assert [below[claim.run_id].paused for claim in (root, child)] == [False, False]
    assert [both[claim.run_id].paused for claim in (root, child)] == [True, True]


async def test_a_run_that_was_handed_back_waits(
    operator: PostgresOperatorStore, work: PostgresWorkStore, mine: TenantId, empty_database: Database
) -> None:
    await submit(empty_database, new_run(mine))
    [claim] = await work.claim(WORKER, limit=1, lease_seconds=60)
    await operator.add_pause(pause(PauseKind.TENANT, mine), actor=ACTOR)
    await work.release(claim)
    assert await work.claim(WORKER, limit=1, lease_seconds=60) == []


async def test_a_run_that_waits_for_people_is_queued_by_their_answer_and_waits_there(
    operator: PostgresOperatorStore, work: PostgresWorkStore, mine: TenantId, empty_database: Database
) -> None:
    await submit(empty_database, new_run(mine))
    [claim] = await work.claim(WORKER, limit=1, lease_seconds=60)
    await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED, asked=(question(expires_at=1.0),)))
    await operator.add_pause(pause(PauseKind.TENANT, mine), actor=ACTOR)
    assert (await work.sweep_waiting()).queued == 1
    assert await work.claim(WORKER, limit=1, lease_seconds=60) == []


# --- the pauses themselves -------------------------------------------------------------------------------------------


async def test_a_pause_is_told_as_it_was_added(operator: PostgresOperatorStore, mine: TenantId) -> None:
    wanted = pause_of(PauseKind.TOOL, NUL, mine)
    added = await operator.add_pause(wanted, actor=ACTOR)
    assert added is not None
    assert added.paused_at > 1e9
    assert (added.pause_id, added.kind, added.name, added.tenant_id) == (wanted.pause_id, PauseKind.TOOL, NUL, mine)
    assert (added.reason, added.paused_by) == (wanted.reason, ACTOR)
    assert await operator.list_pauses() == [added]


async def test_the_same_thing_is_paused_once(operator: PostgresOperatorStore, mine: TenantId) -> None:
    first = await operator.add_pause(pause(PauseKind.TOOL, mine), actor=ACTOR)
    assert await operator.add_pause(pause(PauseKind.TOOL, mine), actor="other") == first
    for_all = await operator.add_pause(pause(PauseKind.TOOL, None), actor=ACTOR)
    assert await operator.add_pause(pause(PauseKind.TOOL, None), actor=ACTOR) == for_all
    assert await operator.list_pauses() == [first, for_all]


async def test_many_who_pause_the_same_thing_at_once_add_one_pause(operator: PostgresOperatorStore) -> None:
    added = await asyncio.gather(*(operator.add_pause(pause(PauseKind.MODEL, None), actor=ACTOR) for _ in range(10)))
    assert len({found.pause_id for found in added if found is not None}) == 1


async def test_a_pause_that_ended_is_gone(operator: PostgresOperatorStore) -> None:
    added = await operator.add_pause(pause(PauseKind.TOOL, None), actor=ACTOR)
    assert added is not None
    assert [await operator.end_pause(added.pause_id, actor=ACTOR) for _ in range(2)] == [True, False]
    assert await operator.list_pauses() == []


@pytest.mark.parametrize("kind", list(PauseKind))
async def test_an_unknown_tenant_is_not_paused(operator: PostgresOperatorStore, kind: PauseKind) -> None:
    assert await operator.add_pause(pause(kind, TenantId("ten_unknown")), actor=ACTOR) is None


async def test_a_tenant_that_goes_at_this_moment_is_not_paused(
    operator: PostgresOperatorStore, mine: TenantId, empty_urls: DatabaseUrls
) -> None:
    connection = await asyncpg.connect(empty_urls.superuser_url)
    async with connection.transaction():
        await connection.execute("DELETE FROM tenants WHERE tenant_id = $1", mine)
        adding = asyncio.create_task(operator.add_pause(pause_of(PauseKind.TENANT, mine, mine), actor=ACTOR))
        await wait_for_rows(empty_urls.superuser_url, SOMEBODY_WAITS)
    await connection.close()
    assert (await adding, await operator.list_pauses()) == (None, [])


@pytest.mark.parametrize("kind", [PauseKind.TENANT, PauseKind.AGENT])
async def test_a_pause_that_does_not_say_whose_is_refused(operator: PostgresOperatorStore, kind: PauseKind) -> None:
    with pytest.raises(ValueError, match="tenant"):
        await operator.add_pause(pause(kind, None), actor=ACTOR)


async def test_a_paused_tenant_says_so(operator: PostgresOperatorStore, mine: TenantId, theirs: TenantId) -> None:
    await operator.add_pause(pause(PauseKind.TENANT, mine), actor=ACTOR)
    assert {tenant.tenant_id: tenant.paused for tenant in await operator.list_tenants()} == {mine: True, theirs: False}


# --- how it is looked for --------------------------------------------------------------------------------------------


async def test_a_claim_does_not_walk_along_the_runs_of_a_paused_agent(
    operator: PostgresOperatorStore, mine: TenantId, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    await operator.add_pause(pause_of(PauseKind.AGENT, "clerk", mine), actor=ACTOR)
    connection = await asyncpg.connect(empty_urls.superuser_url)
    await connection.execute(MANY_OF_ONE_AGENT, mine)
    await submit(empty_database, new_run(mine, agent=SELLER))
    await connection.execute("VACUUM (ANALYZE) runs")
    async with connection.transaction():
        before = await connection.fetchval(READ_OF_INDEXES)
        claims = await connection.fetch("SELECT run_id FROM claim_runs('w', 9, 60)")
        after = await connection.fetchval(READ_OF_INDEXES)
    await connection.close()
    assert len(claims) == 1
    assert after - before < 100


async def test_a_process_of_the_release_before_renews_as_it_did(
    work: PostgresWorkStore, mine: TenantId, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    run = new_run(mine)
    await submit(empty_database, run)
    await work.claim(WORKER, limit=1, lease_seconds=60)
    [renewed] = await query(
        empty_urls.app_url,
        "SELECT run_id, cancelled, reason, requested_by, extended FROM renew_claims($1, $2, $3, $4)",
        [mine],
        [run.run_id],
        [1],
        60.0,
    )
    assert tuple(renewed) == (run.run_id, False, None, None, True)
