"""What several runs or requests ask for in one statement is stored and told as if each had asked alone."""

import asyncio
from collections.abc import Sequence

import pytest

from app.errors import LeaseLost
from app.events import RunState
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import RunId, SessionId, TenantId, WorkerId
from app.ports.records import Claim, NewRun
from app.ports.sessions import NewSession
from app.store.database import Database
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.operating import ACTOR, new_key, new_tenant
from tests.store.support import AGENT, NUL, new_run, query, read, submit, terminated, update, warned

OTHER = TenantId("ten_other")
SESSION = SessionId("ses_" + "0" * 26)
_TRANSACTIONS = (
    "SELECT count(DISTINCT xmin::text) AS count FROM events WHERE run_id = ANY ($1) AND kind <> 'run_queued'"
)


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


async def claimed(work: PostgresWorkStore, database: Database, runs: Sequence[NewRun]) -> list[Claim]:
    """All of them, loaded, in this order."""
    for run in runs:
        await submit(database, run)
    claims = {claim.run_id: claim for claim in await work.claim(WorkerId("w"), limit=100, lease_seconds=30)}
    await asyncio.gather(*(work.load(claim) for claim in claims.values()))
    return [claims[run.run_id] for run in runs]


async def transactions(urls: DatabaseUrls, runs: Sequence[RunId]) -> int:
    [row] = await query(urls.superuser_url, _TRANSACTIONS, runs)
    count: int = row["count"]
    return count


async def test_runs_that_are_loaded_together_are_each_told_their_own(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    runs = [new_run(tenant_id, input="one"), new_run(OTHER, input="two"), new_run(tenant_id, input="three")]
    claims = await claimed(work, empty_database, runs)
    stale = Claim(
        run_id=runs[2].run_id, tenant_id=tenant_id, worker_id=WorkerId("w"), fence=9, recoveries=0, lease_until=0
    )
    told = await asyncio.gather(*map(work.load, (*claims[:2], stale)), return_exceptions=True)
    assert [one.record.input for one in told[:2] if not isinstance(one, BaseException)] == ["one", "two"]
    assert [one.record.tenant_id for one in told[:2] if not isinstance(one, BaseException)] == [tenant_id, OTHER]
    assert isinstance(told[2], LeaseLost)


async def test_appends_of_several_runs_are_one_transaction(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    claims = await claimed(work, empty_database, [new_run(tenant_id), new_run(OTHER), new_run(tenant_id)])
    bodies = [[warned("a"), warned(NUL)], [warned("b")], [warned("c"), warned("d"), warned("e")]]
    stored = await asyncio.gather(
        *(work.append_if_owner(claim, told, update()) for claim, told in zip(claims, bodies, strict=True))
    )
    assert [[event.body for event in events] for events in stored] == bodies
    assert [[event.seq for event in events] for events in stored] == [[2, 3], [2], [2, 3, 4]]
    assert await transactions(empty_urls, [claim.run_id for claim in claims]) == 1


async def test_what_was_appended_together_is_found_in_each_log_and_row(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    one, two = await claimed(work, empty_database, [new_run(tenant_id), new_run(OTHER)])
    ended = update(RunState.COMPLETED, output_text=NUL, model_calls=2, model="m", iterations=3, last_agent="clerk")
    failed = update(RunState.FAILED, error_code="boom", error_detail=NUL, tool_calls=5)
    await asyncio.gather(
        work.append_if_owner(one, [warned(), terminated()], ended),
        work.append_if_owner(two, [terminated(RunState.FAILED)], failed),
    )
    first, second = [await read(empty_database, claim.tenant_id, claim.run_id) for claim in (one, two)]
    assert (first.state, first.output_text, first.model_calls, first.last_seq) == (RunState.COMPLETED, NUL, 2, 3)
    assert (first.model, first.iterations, first.error_code) == ("m", 3, None)
    assert (second.state, second.error_code, second.error_detail) == (RunState.FAILED, "boom", NUL)
    assert (second.tool_calls, second.last_seq, second.output_text) == (5, 2, None)


async def test_a_lost_lease_among_others_stores_nothing_and_costs_them_nothing(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    one, two = await claimed(work, empty_database, [new_run(tenant_id), new_run(tenant_id)])
    await query(empty_urls.superuser_url, "UPDATE runs SET fence = fence + 1 WHERE run_id = $1", one.run_id)
    told = await asyncio.gather(
        *(work.append_if_owner(claim, [warned()], update()) for claim in (one, two)), return_exceptions=True
    )
    assert isinstance(told[0], LeaseLost)
    assert (await read(empty_database, tenant_id, one.run_id)).last_seq == 1
    assert (await read(empty_database, tenant_id, two.run_id)).last_seq == 2


async def test_an_append_that_the_database_refuses_costs_those_beside_it_nothing(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    one, two = await claimed(work, empty_database, [new_run(tenant_id), new_run(tenant_id)])
    await work.append_if_owner(one, [terminated()], update())
    told = await asyncio.gather(
        *(work.append_if_owner(claim, [warned()], update()) for claim in (one, two)), return_exceptions=True
    )
    assert isinstance(told[0], Exception)
    assert (await read(empty_database, tenant_id, one.run_id)).last_seq == 2
    assert (await read(empty_database, tenant_id, two.run_id)).last_seq == 2


async def test_a_run_of_a_session_takes_its_locks_in_a_transaction_of_its_own(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    async with PostgresTenantStore(empty_database).begin(tenant_id) as tx:
        await tx.put_agent(AGENT)
        session = await tx.insert_session(NewSession(session_id=SESSION, agent=AGENT.name))
    runs = [new_run(tenant_id, session_id=session.session_id), new_run(tenant_id), new_run(tenant_id)]
    claims = await claimed(work, empty_database, runs)
    await asyncio.gather(*(work.append_if_owner(claim, [terminated()], update(RunState.COMPLETED)) for claim in claims))
    assert await transactions(empty_urls, [claim.run_id for claim in claims]) == 2


async def test_runs_that_are_put_in_together_are_each_as_if_alone(
    empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    tenants = PostgresTenantStore(empty_database)
    runs = [
        new_run(tenant_id, input=NUL, user=NUL, needs=frozenset({"model:b", "tool:a"}), priority=3),
        new_run(OTHER, model="m", deadline_at=4_000_000_000.0, output_schema={"type": "object"}),
        new_run(tenant_id, on_ledger_error="warn"),
    ]
    stored = await asyncio.gather(*map(tenants.insert_run, runs))
    assert list(stored) == [await read(empty_database, run.tenant_id, run.run_id) for run in runs]
    assert [run.run_id for run in stored] == [run.run_id for run in runs]
    alone = [await tenants.insert_run(one) for one in (new_run(tenant_id, user=NUL, priority=3), new_run(OTHER))]
    assert (stored[0].user, stored[0].priority) == (alone[0].user, alone[0].priority)
    rows = await query(empty_urls.superuser_url, "SELECT count(DISTINCT xmin::text) AS count FROM runs")
    assert rows[0]["count"] == 3


async def test_a_run_with_metadata_is_put_in_with_it(empty_database: Database, tenant_id: TenantId) -> None:
    tenants = PostgresTenantStore(empty_database)
    runs = [new_run(tenant_id, metadata={"ticket": "T-1"}), new_run(tenant_id), new_run(tenant_id)]
    stored = await asyncio.gather(*map(tenants.insert_run, runs))
    assert [dict(run.metadata) for run in stored] == [{"ticket": "T-1"}, {}, {}]


async def test_looks_at_runs_of_several_tenants_find_each_ones_own(
    empty_database: Database, tenant_id: TenantId
) -> None:
    tenants = PostgresTenantStore(empty_database)
    mine, theirs = [await submit(empty_database, new_run(who)) for who in (tenant_id, OTHER)]
    asked = [(tenant_id, mine), (tenant_id, theirs), (OTHER, theirs)]
    found = await asyncio.gather(*(tenants.look(who, run.run_id) for who, run in asked))
    assert [one and one.record for one in found] == [mine, None, theirs]


async def test_facts_of_several_tenants_are_each_ones_own(empty_database: Database, tenant_id: TenantId) -> None:
    tenants = PostgresTenantStore(empty_database)
    await submit(empty_database, new_run(tenant_id))
    names = [(tenant_id, AGENT.name), (OTHER, AGENT.name), (tenant_id, "nobody")]
    facts = await asyncio.gather(*(tenants.admission_facts(who, name, None, max_queued=9) for who, name in names))
    assert [(one.queued, one.version is not None) for one in facts] == [(1, True), (0, False), (1, False)]


async def test_requests_that_come_together_are_counted_each_and_for_each_tenant(
    shared_database: Database,
) -> None:
    operator, keys = PostgresOperatorStore(shared_database, Uuid7Ids()), PostgresKeyStore(shared_database)
    limited, free = [await new_tenant(operator) for _ in range(2)]
    await operator.set_tenant(limited.tenant_id, {"requests_per_minute": 20}, actor=ACTOR)
    one, two = [new_key(tenant.tenant_id) for tenant in (limited, free)]
    for key in (one, two):
        await operator.add_key(key, actor=ACTOR)
    hashes = [one.secret_hash, two.secret_hash, one.secret_hash, b"unknown", one.secret_hash]
    admitted = await asyncio.gather(*map(keys.admit_key, hashes))
    assert [record and record.tenant_id for record in admitted] == [
        limited.tenant_id,
        free.tenant_id,
        limited.tenant_id,
        None,
        limited.tenant_id,
    ]
    assert [record is not None and record.retry_after_seconds is not None for record in admitted] == [
        False,
        False,
        False,
        False,
        True,
    ]


async def test_keys_that_are_looked_up_together_are_each_found(shared_database: Database) -> None:
    operator, keys = PostgresOperatorStore(shared_database, Uuid7Ids()), PostgresKeyStore(shared_database)
    tenant = await new_tenant(operator)
    one, two = new_key(tenant.tenant_id), new_key(None)
    for key in (one, two):
        await operator.add_key(key, actor=ACTOR)
    found = await asyncio.gather(*map(keys.find_key, (two.secret_hash, b"unknown", one.secret_hash)))
    assert [record and record.key_id for record in found] == [two.key_id, None, one.key_id]
