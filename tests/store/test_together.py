"""What several runs or requests ask for in one statement is stored and told as if each had asked alone."""

import asyncio
from collections.abc import Sequence

import pytest

from app.errors import LeaseLost
from app.events import RunState
from app.execution.system import SystemClock, Uuid7Ids
from app.ids import ApprovalId, RunId, SessionId, TenantId, WorkerId
from app.policy import Spend
from app.ports.desk import ApprovalStatus, ClosedApproval
from app.ports.records import Claim, NewRun, RunUpdate
from app.ports.sessions import NewSession
from app.store.database import Database
from app.store.keys import PostgresKeyStore
from app.store.operator import PostgresOperatorStore
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.ageing import locked
from tests.store.operating import ACTOR, new_key, new_tenant
from tests.store.support import (
    AGENT,
    NUL,
    new_run,
    query,
    question,
    read,
    submit,
    terminated,
    update,
    wait_for_rows,
    warned,
)

OTHER = TenantId("ten_other")
SESSION = SessionId("ses_" + "0" * 26)
SOMEBODY_WAITS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
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


async def append_two(work: PostgresWorkStore, claims: Sequence[Claim]) -> list[list[int]]:
    """Two events to each log. Their numbers."""
    told = [work.append_if_owner(claim, [warned("a"), warned("b")], update()) for claim in claims]
    return [[event.seq for event in events] for events in await asyncio.gather(*told)]


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


async def test_each_append_of_several_names_its_own_fence(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    stale, other = await claimed(work, empty_database, [new_run(tenant_id), new_run(OTHER)])
    elsewhere = PostgresWorkStore(empty_database, SystemClock())
    await elsewhere.release(stale)
    [held] = await elsewhere.claim(WorkerId("w"), limit=9, lease_seconds=30)
    await work.load(held)
    claims = (held, stale, other)
    told = await asyncio.gather(
        *(work.append_if_owner(claim, [warned()], update()) for claim in claims), return_exceptions=True
    )
    assert [claim.fence for claim in claims] == [2, 1, 1]
    assert [isinstance(one, LeaseLost) for one in told] == [False, True, False]


async def test_whoever_appends_to_several_runs_locks_them_in_one_order(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls
) -> None:
    runs = [
        new_run(TenantId("ten_b"), run_id=RunId(f"run_{1:026}")),
        new_run(TenantId("ten_a"), run_id=RunId(f"run_{2:026}")),
    ]
    claims = await claimed(work, empty_database, runs)
    async with locked(empty_urls.superuser_url, "SELECT FROM runs WHERE tenant_id = 'ten_a' FOR UPDATE"):
        told = [asyncio.create_task(work.append_if_owner(claim, [warned()], update())) for claim in claims]
        await wait_for_rows(empty_urls.superuser_url, SOMEBODY_WAITS)
        free = await query(
            empty_urls.superuser_url, "SELECT tenant_id FROM runs WHERE tenant_id = 'ten_b' FOR UPDATE NOWAIT"
        )
    assert [row["tenant_id"] for row in free] == ["ten_b"]
    assert [event.seq for events in await asyncio.gather(*told) for event in events] == [2, 2]


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


async def test_a_child_takes_its_roots_locks_in_a_transaction_of_its_own(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    root, beside = await claimed(work, empty_database, [new_run(tenant_id), new_run(tenant_id)])
    child = new_run(tenant_id, parent_run_id=root.run_id, root_run_id=root.run_id, depth=1)
    claim = (await work.adopt(root, child)).claim
    await work.load(claim)
    claims = [claim, root, beside]
    await asyncio.gather(*(work.append_if_owner(one, [warned()], update()) for one in claims))
    assert await transactions(empty_urls, [one.run_id for one in claims]) == 2


async def test_a_run_of_which_nothing_is_remembered_goes_alone_each_time(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    claims = await claimed(work, empty_database, [new_run(tenant_id), new_run(tenant_id)])
    unread = PostgresWorkStore(empty_database, SystemClock())
    await unread.append_if_owner(claims[0], [warned()], update())
    await unread.append_if_owner(claims[1], [warned()], update())
    await asyncio.gather(*(unread.append_if_owner(claim, [warned()], update()) for claim in claims))
    assert await transactions(empty_urls, [claim.run_id for claim in claims]) == 4


async def test_appends_go_together_each_time_and_each_log_goes_on(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    claims = await claimed(work, empty_database, [new_run(tenant_id), new_run(tenant_id)])
    stored = [await append_two(work, claims) for _ in range(3)]
    assert stored == [[[2, 3], [2, 3]], [[4, 5], [4, 5]], [[6, 7], [6, 7]]]
    assert await transactions(empty_urls, [claim.run_id for claim in claims]) == 3


@pytest.mark.parametrize(
    "special",
    [
        update(rewritten_input="anew"),
        update(RunState.SUSPENDED),
        update(asked=(question(),)),
        update(closed=(ClosedApproval(approval_id=ApprovalId("apr_none"), status=ApprovalStatus.CANCELLED),)),
        update(held=Spend(output_tokens=1), announces=True),
        update(state_delta={"key": "value"}),
    ],
    ids=["input", "suspended", "asks", "closes", "reserves", "state"],
)
async def test_what_a_statement_for_several_runs_has_no_place_for_goes_alone(
    work: PostgresWorkStore,
    empty_database: Database,
    empty_urls: DatabaseUrls,
    tenant_id: TenantId,
    special: RunUpdate,
) -> None:
    claims = await claimed(work, empty_database, [new_run(tenant_id) for _ in range(3)])
    updates = [special, update(), update()]
    await asyncio.gather(
        *(work.append_if_owner(claim, [warned()], one) for claim, one in zip(claims, updates, strict=True))
    )
    assert await transactions(empty_urls, [claim.run_id for claim in claims]) == 2


async def test_an_input_that_is_rewritten_beside_others_is_kept(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId
) -> None:
    claims = await claimed(work, empty_database, [new_run(tenant_id), new_run(tenant_id)])
    updates = [update(rewritten_input="one"), update(rewritten_input="two")]
    await asyncio.gather(
        *(work.append_if_owner(claim, [warned()], one) for claim, one in zip(claims, updates, strict=True))
    )
    assert [(await read(empty_database, tenant_id, claim.run_id)).input for claim in claims] == ["one", "two"]


async def test_a_log_that_has_ended_or_was_lost_is_not_remembered(
    work: PostgresWorkStore, empty_database: Database, empty_urls: DatabaseUrls, tenant_id: TenantId
) -> None:
    lost, ended, released = await claimed(work, empty_database, [new_run(tenant_id) for _ in range(3)])
    remembered = set(work._appends._known)
    await query(empty_urls.superuser_url, "UPDATE runs SET fence = fence + 1 WHERE run_id = $1", lost.run_id)
    with pytest.raises(LeaseLost):
        await work.append_if_owner(lost, [warned()], update())
    await work.append_if_owner(ended, [terminated()], update(RunState.COMPLETED))
    await work.release(released)
    assert remembered == {(claim.run_id, claim.fence) for claim in (lost, ended, released)}
    assert dict(work._appends._known) == {}


async def test_of_too_many_logs_the_oldest_is_forgotten(
    work: PostgresWorkStore, empty_database: Database, tenant_id: TenantId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.appends._LOGS_REMEMBERED", 2)
    claims = await claimed(work, empty_database, [new_run(tenant_id) for _ in range(3)])
    [await work.load(claim) for claim in claims]
    assert list(work._appends._known) == [(claim.run_id, claim.fence) for claim in claims[1:]]


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
