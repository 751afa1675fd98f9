"""Questions in a tenant's transaction: lists, pages, what waits, and who may answer."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.events import RunState
from app.execution.system import SystemClock
from app.ids import AgentName, ApprovalId, RunId, TenantId, WorkerId
from app.ports.desk import Approval, ApprovalFilter, ApprovalStatus, Decided, NewApproval
from app.ports.records import Claim
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import FUTURE, PAST, new_run, query, question, submit, update, warned

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
APPROVE = Decided(decision="approve", decided_by="bob")
CLOSED_ROWS = {
    "answered without a name": "status = 'approved', decided_at = now(), decision = 'approve'",
    "answered without a decision": "status = 'approved', decided_at = now(), decided_by = 'bob'",
    "closed without a time": "status = 'cancelled'",
    "expired by a person": "status = 'expired', decided_at = now(), decided_by = 'bob', decision = 'deny'",
    "open and decided": "decided_by = 'bob', decision = 'approve'",
}


@pytest.fixture
def store(empty_database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(empty_database)


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


@pytest.fixture
async def root(empty_database: Database, work: PostgresWorkStore) -> Claim:
    return await start(empty_database, work)


async def start(database: Database, work: PostgresWorkStore, tenant_id: TenantId = TENANT) -> Claim:
    await submit(database, new_run(tenant_id))
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    return claim


async def ask(work: PostgresWorkStore, claim: Claim, **changes: Any) -> NewApproval:
    asked = question(**changes)
    await work.append_if_owner(claim, [warned()], update(asked=(asked,)))
    return asked


async def adopt(work: PostgresWorkStore, above: Claim) -> Claim:
    return (await work.adopt(above, new_run(TENANT, parent_run_id=above.run_id))).claim


async def decide(store: PostgresTenantStore, asked: NewApproval, decided: Decided = APPROVE) -> None:
    async with store.begin(TENANT) as tx:
        await tx.decide_approval(asked.approval_id, decided)


async def listed(store: PostgresTenantStore, tenant_id: TenantId = TENANT, **where: Any) -> list[ApprovalId]:
    async with store.begin(tenant_id) as tx:
        found = await tx.list_approvals(ApprovalFilter(**where), limit=100, before=None)
    return [approval.approval_id for approval in found]


def ids(*asked: NewApproval) -> list[ApprovalId]:
    return [question.approval_id for question in asked]


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_the_newest_question_comes_first(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    first, second = await ask(work, root), await ask(work, root)
    assert await listed(store) == ids(second, first)


async def test_questions_of_one_moment_are_ordered_by_their_ids(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = tuple(question(approval_id=f"apr_{name}") for name in "bac")
    await work.append_if_owner(root, [warned()], update(asked=asked))
    assert await listed(store) == ["apr_c", "apr_b", "apr_a"]


async def pages(store: PostgresTenantStore) -> list[list[ApprovalId]]:
    """All questions, two a page."""
    read: list[Sequence[Approval]] = []
    before: tuple[float, ApprovalId] | None = None
    async with store.begin(TENANT) as tx:
        while page := await tx.list_approvals(ApprovalFilter(), limit=2, before=before):
            read.append(page)
            before = (page[-1].requested_at, page[-1].approval_id)
    return [[approval.approval_id for approval in page] for page in read]


async def test_pages_hold_each_question_once(store: PostgresTenantStore, work: PostgresWorkStore, root: Claim) -> None:
    asked = tuple(question(approval_id=f"apr_{name}") for name in "abc")
    await work.append_if_owner(root, [warned()], update(asked=asked))
    later = await ask(work, root)
    assert await pages(store) == [[later.approval_id, "apr_c"], ["apr_b", "apr_a"]]


async def test_a_list_is_asked_for_one_status(store: PostgresTenantStore, work: PostgresWorkStore, root: Claim) -> None:
    pending, approved, denied = await ask(work, root), await ask(work, root), await ask(work, root)
    await decide(store, approved)
    await decide(store, denied, Decided(decision="deny", decided_by="bob"))
    assert await listed(store, statuses=(ApprovalStatus.PENDING,)) == ids(pending)
    assert await listed(store, statuses=(ApprovalStatus.APPROVED,)) == ids(approved)
    assert await listed(store, statuses=(ApprovalStatus.DENIED,)) == ids(denied)
    assert await listed(store, statuses=(ApprovalStatus.CANCELLED,)) == []


async def test_a_list_is_asked_for_several_statuses(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    pending, approved, denied = await ask(work, root), await ask(work, root), await ask(work, root)
    await decide(store, approved)
    await decide(store, denied, Decided(decision="deny", decided_by="bob"))
    assert await listed(store, statuses=(ApprovalStatus.PENDING, ApprovalStatus.DENIED)) == ids(denied, pending)


async def test_a_question_whose_time_is_over_is_listed_as_expired_and_not_as_pending(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    lapsed, pending = await ask(work, root, expires_at=PAST), await ask(work, root, expires_at=FUTURE)
    assert await listed(store, statuses=(ApprovalStatus.PENDING,)) == ids(pending)
    assert await listed(store, statuses=(ApprovalStatus.EXPIRED,)) == ids(lapsed)
    await work.sweep_waiting()
    assert await listed(store, statuses=(ApprovalStatus.EXPIRED,)) == ids(lapsed)


async def test_an_answered_question_stays_answered_when_its_time_is_over(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = await ask(work, root, expires_at=PAST)
    await decide(store, asked)
    assert await listed(store, statuses=(ApprovalStatus.APPROVED,)) == ids(asked)
    assert await listed(store, statuses=(ApprovalStatus.EXPIRED,)) == []


async def test_a_list_is_asked_for_the_asking_run_or_its_root(
    empty_database: Database, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    child = await adopt(work, root)
    mine, childs = await ask(work, root), await ask(work, child)
    await ask(work, await start(empty_database, work))
    assert await listed(store, run_id=root.run_id) == ids(childs, mine)
    assert await listed(store, run_id=child.run_id) == ids(childs)
    assert await listed(store, run_id=RunId("run_none")) == []


async def test_a_list_is_asked_for_an_agent_and_a_tool_together(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    wanted = await ask(work, root, agent=AgentName("payer"), tool="pay\x00")
    await ask(work, root, agent=AgentName("payer"), tool="look")
    await ask(work, root, tool="pay\x00")
    assert await listed(store, agent="payer", tool="pay\x00") == ids(wanted)
    assert len(await listed(store, agent="payer")) == 2
    assert len(await listed(store, tool="pay\x00")) == 2


async def test_another_tenant_sees_locks_and_answers_no_question(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = await ask(work, root)
    async with store.begin(OTHER) as tx:
        assert await tx.get_approval(asked.approval_id) is None
        assert await tx.lock_approval(asked.approval_id) is None
        assert await tx.pending_approvals([root.run_id]) == {}
        with pytest.raises(ValueError, match="no question that waits"):
            await tx.decide_approval(asked.approval_id, APPROVE)
    assert await listed(store, OTHER) == []
    assert await listed(store, statuses=(ApprovalStatus.PENDING,)) == ids(asked)


async def test_a_question_is_read_by_its_id(store: PostgresTenantStore, work: PostgresWorkStore, root: Claim) -> None:
    asked = await ask(work, root, expires_at=PAST)
    async with store.begin(TENANT) as tx:
        read, locked = await tx.get_approval(asked.approval_id), await tx.lock_approval(asked.approval_id)
        assert await tx.get_approval(ApprovalId("apr_none")) is None
        assert await tx.lock_approval(ApprovalId("apr_none")) is None
    assert read is not None
    assert read == locked == await work.find_approval(TENANT, asked.approval_id)
    assert read.status is ApprovalStatus.EXPIRED


# --- what waits ------------------------------------------------------------------------------------------------------


async def test_open_questions_are_told_by_root_the_oldest_first(
    empty_database: Database, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    child, other = await adopt(work, root), await start(empty_database, work)
    first, second, theirs = await ask(work, child), await ask(work, root), await ask(work, other)
    async with store.begin(TENANT) as tx:
        pending = await tx.pending_approvals([root.run_id, other.run_id, RunId("run_none")])
    assert pending == {root.run_id: tuple(ids(first, second)), other.run_id: tuple(ids(theirs))}


async def test_a_run_below_another_one_is_told_its_own_questions(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    child = await adopt(work, root)
    lowest = await adopt(work, child)
    mine = await ask(work, child)
    await ask(work, lowest)
    await ask(work, root)
    async with store.begin(TENANT) as tx:
        assert await tx.pending_approvals([child.run_id]) == {child.run_id: tuple(ids(mine))}


async def test_a_root_without_an_open_question_is_left_out(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    answered = await ask(work, root)
    await ask(work, root, expires_at=PAST)
    await decide(store, answered)
    async with store.begin(TENANT) as tx:
        assert await tx.pending_approvals([root.run_id]) == {}
        assert await tx.pending_approvals([]) == {}


# --- who may answer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_tenant_says_whether_its_people_approve_their_own_calls(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, allowed: bool
) -> None:
    await query(
        empty_urls.superuser_url,
        "INSERT INTO tenants (tenant_id, name, allow_self_approval) VALUES ($1, 'a', $2)",
        TENANT,
        allowed,
    )
    async with store.begin(TENANT) as tx:
        assert (await tx.rules()).allow_self_approval is allowed


async def test_an_unknown_tenant_allows_nothing(store: PostgresTenantStore) -> None:
    async with store.begin(TENANT) as tx:
        assert (await tx.rules()).allow_self_approval is False


# --- what the database itself refuses --------------------------------------------------------------------------------


async def test_an_answered_question_is_not_answered_again_whoever_tries(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    await decide(store, await ask(work, root))
    with pytest.raises(Exception, match="stays so"):
        await query(empty_urls.superuser_url, "UPDATE approvals SET decision = 'deny', status = 'denied'")


@pytest.mark.parametrize("change", CLOSED_ROWS.values(), ids=CLOSED_ROWS.keys())
async def test_a_half_closed_question_is_refused(
    empty_urls: DatabaseUrls, work: PostgresWorkStore, root: Claim, change: str
) -> None:
    await ask(work, root)
    with pytest.raises(Exception, match="ck_approvals_decided"):
        await query(empty_urls.superuser_url, f"UPDATE approvals SET {change}")


# --- runs that go on from others -------------------------------------------------------------------------------------


async def test_the_run_that_goes_on_from_another_one_is_found(
    empty_database: Database, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    again = new_run(TENANT, resumes=root.run_id, first_run_id=root.run_id)
    await submit(empty_database, again)
    async with store.begin(TENANT) as tx:
        assert await tx.find_resumed(root.run_id) == again.run_id
        assert await tx.find_resumed(again.run_id) is None
    async with store.begin(OTHER) as tx:
        assert await tx.find_resumed(root.run_id) is None


async def test_logs_are_told_from_the_first_run_to_this_one(
    empty_database: Database, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    stored = await work.append_if_owner(root, [warned("x")], update(RunState.RUNNING))
    again = new_run(TENANT, resumes=root.run_id, first_run_id=root.run_id)
    await submit(empty_database, again)
    async with store.begin(TENANT) as tx:
        logs, [own], none = (
            await tx.logs_before(again.run_id),
            await tx.logs_before(root.run_id),
            await tx.logs_before(RunId("run_none")),
        )
    assert [[(event.run_id, event.kind) for event in log] for log in logs] == [
        [(root.run_id, "run_queued"), (root.run_id, "warning")],
        [(again.run_id, "run_queued")],
    ]
    assert logs[0][1:] == stored
    assert own == logs[0]
    assert none == ()


async def test_a_refused_second_run_leaves_the_transaction_fit(
    empty_database: Database, store: PostgresTenantStore, root: Claim
) -> None:
    first = new_run(TENANT, resumes=root.run_id, first_run_id=root.run_id)
    await submit(empty_database, first)
    async with store.begin(TENANT) as tx:
        with pytest.raises(ValueError, match="go on from"):
            await tx.insert_run(new_run(TENANT, resumes=root.run_id, first_run_id=root.run_id))
        assert await tx.find_resumed(root.run_id) == first.run_id


async def test_another_tenants_run_is_not_gone_on_from(empty_database: Database, root: Claim) -> None:
    with pytest.raises(ValueError, match="go on from"):
        await submit(empty_database, new_run(OTHER, resumes=root.run_id, first_run_id=root.run_id))
