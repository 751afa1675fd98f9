"""What persons have said of questions that several have to answer, as it is kept."""

from typing import Any

import asyncpg
import pytest

from app.execution.system import SystemClock
from app.ids import ApprovalId, TenantId, WorkerId
from app.ports.desk import Approval, ApprovalFilter, ApprovalStatus, Decided, NewApproval, Vote
from app.ports.records import Claim
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import new_run, query, question, submit, update, warned

TENANT = TenantId("ten_a")
STAFF = frozenset({"staff", "\x00 \x1a0"})
ADA = Vote(subject="ada\x00 \x1a0", groups=STAFF, decision="approve")
BOB = Vote(subject="bob", groups=frozenset(), decision="approve")


@pytest.fixture
def store(empty_database: Database) -> PostgresTenantStore:
    return PostgresTenantStore(empty_database)


@pytest.fixture
def work(empty_database: Database) -> PostgresWorkStore:
    return PostgresWorkStore(empty_database, SystemClock())


@pytest.fixture
async def root(empty_database: Database, work: PostgresWorkStore) -> Claim:
    await submit(empty_database, new_run(TENANT))
    [claim] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    return claim


@pytest.fixture
async def asked(work: PostgresWorkStore, root: Claim) -> NewApproval:
    new = question()
    await work.append_if_owner(root, [warned()], update(asked=(new,)))
    return new


async def vote(store: PostgresTenantStore, asked: NewApproval, *votes: Vote) -> Approval:
    async with store.begin(TENANT) as tx:
        await tx.lock_approval(asked.approval_id)
        return [await tx.vote_approval(asked.approval_id, said) for said in votes][-1]


async def decide(store: PostgresTenantStore, asked: NewApproval, **decided: Any) -> Approval:
    async with store.begin(TENANT) as tx:
        await tx.lock_approval(asked.approval_id)
        return await tx.decide_approval(asked.approval_id, Decided(decided_by="eve", **decided))


async def read(store: PostgresTenantStore, asked: NewApproval) -> Approval:
    async with store.begin(TENANT) as tx:
        found = await tx.get_approval(asked.approval_id)
    assert found is not None
    return found


async def test_what_was_said_is_told_with_the_question_the_earliest_first(
    store: PostgresTenantStore, asked: NewApproval
) -> None:
    told = await vote(store, asked, BOB, ADA)
    assert (told.votes, told.status) == ((BOB, ADA), ApprovalStatus.PENDING)
    assert await read(store, asked) == told
    async with store.begin(TENANT) as tx:
        assert await tx.list_approvals(ApprovalFilter(), limit=9, before=None) == [told]
        assert await tx.lock_approval(asked.approval_id) == told


async def test_what_a_person_says_again_replaces_what_he_said(store: PostgresTenantStore, asked: NewApproval) -> None:
    again = Vote(subject="bob", groups=STAFF, decision="retry")
    assert (await vote(store, asked, BOB, ADA, again)).votes == (ADA, again)


async def test_a_decision_tells_how_many_were_needed_and_who_approved(
    store: PostgresTenantStore, asked: NewApproval
) -> None:
    told = await decide(store, asked, decision="approve", approvals_needed=2, earlier=("ada\x00 \x1a0",))
    assert (told.approvals_needed, told.approved_by) == (2, ("ada\x00 \x1a0", "eve"))
    assert (await read(store, asked)).approved_by == told.approved_by


async def test_whoever_denies_has_not_approved(store: PostgresTenantStore, asked: NewApproval) -> None:
    told = await decide(store, asked, decision="deny", approvals_needed=2, earlier=("ada",))
    assert (told.approvals_needed, told.approved_by) == (2, ("ada",))


@pytest.mark.parametrize(("decision", "approved_by"), [("approve", ("eve",)), ("deny", ())])
async def test_what_a_process_of_the_release_before_decided_was_one_persons(
    empty_urls: DatabaseUrls,
    store: PostgresTenantStore,
    asked: NewApproval,
    decision: str,
    approved_by: tuple[str, ...],
) -> None:
    statement = """
        UPDATE approvals SET status = 'approved', decided_at = clock_timestamp(), decided_by = 'eve', decision = $1
    """
    await query(empty_urls.superuser_url, statement, decision)
    told = await read(store, asked)
    assert (told.approvals_needed, told.approved_by) == (1, approved_by)


async def test_nothing_is_said_of_a_question_that_is_decided_or_unknown(
    store: PostgresTenantStore, asked: NewApproval
) -> None:
    await decide(store, asked, decision="approve")
    async with store.begin(TENANT) as tx:
        with pytest.raises(ValueError, match="no question"):
            await tx.vote_approval(asked.approval_id, BOB)
        with pytest.raises(ValueError, match="no question"):
            await tx.vote_approval(ApprovalId("apr_none"), BOB)
    assert (await read(store, asked)).votes == ()


async def test_another_tenant_says_nothing_and_reads_nothing(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, asked: NewApproval
) -> None:
    await vote(store, asked, BOB)
    async with store.begin(TenantId("ten_b")) as tx:
        with pytest.raises(ValueError, match="no question"):
            await tx.vote_approval(asked.approval_id, ADA)
    rows = await query(empty_urls.superuser_url, "SELECT tenant_id, subject FROM approval_votes")
    assert [tuple(row) for row in rows] == [(TENANT, "bob")]


async def test_the_service_takes_nothing_back_that_was_said(empty_urls: DatabaseUrls) -> None:
    connection = await asyncpg.connect(empty_urls.app_url)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("DELETE FROM approval_votes")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("UPDATE approval_votes SET subject = 'eve'")
    finally:
        await connection.close()


async def test_what_was_said_goes_with_the_question(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, asked: NewApproval
) -> None:
    await vote(store, asked, BOB)
    await query(empty_urls.superuser_url, "DELETE FROM approvals")
    assert await query(empty_urls.superuser_url, "SELECT FROM approval_votes") == []


async def test_each_vote_is_in_the_audit_trail(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, asked: NewApproval
) -> None:
    async with store.begin(TENANT, actor="key_1") as tx:
        await tx.vote_approval(asked.approval_id, BOB)
    statement = "SELECT actor, target, before, details FROM audit WHERE action = 'approval.voted'"
    rows = await query(empty_urls.superuser_url, statement)
    assert [tuple(row) for row in rows] == [
        ("key_1", asked.approval_id, None, '{"subject": "bob", "decision": "approve"}')
    ]
