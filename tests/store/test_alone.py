"""What is asked in one statement without a transaction around it tells what a transaction would."""

import pytest

from app.agents import Agent
from app.events import RunState
from app.execution.system import SystemClock
from app.ids import RunId, TenantId, WorkerId
from app.ports.records import RunNow
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.store.support import AGENT, new_run, question, read, submit, update, warned

OTHER = TenantId("ten_other")


@pytest.fixture
def tenants(shared_database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(shared_database)


async def test_a_look_tells_what_a_transaction_reads(
    tenants: PostgresTenantStore, shared_database: Database, tenant_id: TenantId
) -> None:
    run = await submit(shared_database, new_run(tenant_id))
    assert await tenants.look(tenant_id, run.run_id) == RunNow(record=run)


async def test_a_look_finds_no_unknown_run_and_no_other_tenants(
    tenants: PostgresTenantStore, shared_database: Database, tenant_id: TenantId
) -> None:
    run = await submit(shared_database, new_run(tenant_id))
    assert await tenants.look(OTHER, run.run_id) is None
    assert await tenants.look(tenant_id, RunId("run_unknown")) is None


async def test_a_look_at_a_suspended_run_tells_its_open_questions_in_order(
    empty_database: Database, tenant_id: TenantId
) -> None:
    run = await submit(empty_database, new_run(tenant_id))
    work = PostgresWorkStore(empty_database, SystemClock())
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=30)
    asked = (question(call_id="call_2"), question(call_id="call_1"))
    await work.append_if_owner(claim, [warned()], update(RunState.SUSPENDED, asked=asked))
    tenants = PostgresTenantStore(empty_database)
    seen = await tenants.look(tenant_id, run.run_id)
    async with tenants.begin(tenant_id) as tx:
        pending = await tx.pending_approvals([run.run_id])
    assert seen is not None
    assert len(pending[run.run_id]) == 2
    assert seen.waiting_for == pending[run.run_id]


async def test_a_look_leaves_no_tenant_behind_on_its_connection(
    tenants: PostgresTenantStore, shared_database: Database, tenant_id: TenantId
) -> None:
    run = await submit(shared_database, new_run(tenant_id))
    await tenants.look(tenant_id, run.run_id)
    assert await shared_database.fetch("SELECT FROM runs") == []


async def test_facts_name_the_newest_version_or_the_one_that_is_meant(
    tenants: PostgresTenantStore, tenant_id: TenantId
) -> None:
    newer = AGENT.model_copy(update={"instructions": "Now otherwise."})
    async with tenants.begin(tenant_id) as tx:
        first, _ = await tx.put_agent(AGENT)
        second, _ = await tx.put_agent(newer)
    newest = await tenants.admission_facts(tenant_id, AGENT.name, None, max_queued=10)
    meant = await tenants.admission_facts(tenant_id, AGENT.name, 1, max_queued=10)
    assert (newest.version, meant.version) == (second, first)


async def test_facts_tell_at_once_that_an_agent_was_retired(tenants: PostgresTenantStore, tenant_id: TenantId) -> None:
    async with tenants.begin(tenant_id) as tx:
        await tx.put_agent(AGENT)
        await tx.retire_agent(AGENT.name)
    facts = await tenants.admission_facts(tenant_id, AGENT.name, None, max_queued=10)
    assert facts.version is not None
    assert facts.version.retired


async def test_facts_of_an_unknown_agent_are_there_without_it(
    tenants: PostgresTenantStore, tenant_id: TenantId
) -> None:
    async with tenants.begin(OTHER) as tx:
        await tx.put_agent(Agent(name="theirs", instructions="Work."))
    facts = await tenants.admission_facts(tenant_id, "theirs", None, max_queued=10)
    assert (facts.version, facts.queued) == (None, 0)


async def test_facts_count_queued_runs_no_further_than_asked(
    tenants: PostgresTenantStore, shared_database: Database, tenant_id: TenantId
) -> None:
    for _ in range(3):
        await submit(shared_database, new_run(tenant_id))
    all_of_them = await tenants.admission_facts(tenant_id, AGENT.name, None, max_queued=10)
    no_further = await tenants.admission_facts(tenant_id, AGENT.name, None, max_queued=2)
    assert (all_of_them.queued, no_further.queued) == (3, 2)


async def test_an_insertion_by_itself_is_committed_when_it_returns(
    tenants: PostgresTenantStore, shared_database: Database, tenant_id: TenantId
) -> None:
    async with tenants.begin(tenant_id) as tx:
        await tx.put_agent(AGENT)
    run = await tenants.insert_run(new_run(tenant_id))
    assert await read(shared_database, tenant_id, run.run_id) == run
