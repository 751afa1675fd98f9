"""The stream of questions: every status that one takes, in the order of commits."""

import pytest

from app.execution.system import SystemClock
from app.ids import TenantId, WorkerId
from app.ports.desk import ApprovalStatus, Decided, NewApproval, Place
from app.ports.records import CancelWish, Claim
from app.store.database import Database
from app.store.tenant import PostgresTenantStore
from app.store.work import PostgresWorkStore
from tests.conftest import DatabaseUrls
from tests.store.support import AGENT, PAST, new_run, query, question, submit, update, warned

TENANT, OTHER = TenantId("ten_a"), TenantId("ten_b")
APPROVE = Decided(decision="approve", decided_by="bob")
START = (0, 0, 0)
RENAMED = AGENT.model_copy(update={"instructions": "Answer at length."})


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


async def ask(work: PostgresWorkStore, claim: Claim, **changes: object) -> NewApproval:
    asked = question(**changes)
    await work.append_if_owner(claim, [warned()], update(asked=(asked,)))
    return asked


async def told(store: PostgresTenantStore, after: Place = START) -> list[tuple[str, str]]:
    async with store.begin(TENANT) as tx:
        changes = await tx.approval_changes(after, limit=100)
    return [(change.approval.approval_id, change.status.value) for change in changes]


async def last(store: PostgresTenantStore) -> Place:
    async with store.begin(TENANT) as tx:
        return await tx.last_approval_change()


async def test_a_question_and_its_answer_are_told_one_after_the_other(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = await ask(work, root)
    async with store.begin(TENANT) as tx:
        answered = await tx.decide_approval(asked.approval_id, APPROVE)
    async with store.begin(TENANT) as tx:
        first, second = await tx.approval_changes(START, limit=10)
    assert [first.status, second.status] == [ApprovalStatus.PENDING, ApprovalStatus.APPROVED]
    assert [first.at, second.at] == [answered.requested_at, answered.decided_at]
    assert first.approval == second.approval == answered
    assert first.position < second.position


async def test_every_way_to_close_a_question_is_told(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    expired, cancelled = await ask(work, root, expires_at=PAST), await ask(work, root)
    await work.sweep_waiting()
    async with store.begin(TENANT) as tx:
        await tx.request_cancel(root.run_id, CancelWish(reason=None, requested_by=None))
    assert await told(store) == [
        (expired.approval_id, "pending"),
        (cancelled.approval_id, "pending"),
        (expired.approval_id, "expired"),
        (cancelled.approval_id, "cancelled"),
    ]


async def test_a_reader_goes_on_behind_what_it_has_read(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    asked = tuple(question() for _ in range(3))
    await work.append_if_owner(root, [warned()], update(asked=asked))
    async with store.begin(TENANT) as tx:
        first = await tx.approval_changes(START, limit=2)
        rest = await tx.approval_changes(first[-1].position, limit=2)
    assert [change.approval.approval_id for change in (*first, *rest)] == [one.approval_id for one in asked]


async def test_the_last_position_is_behind_everything_that_can_be_read(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    assert (await last(store))[1:] == (0, 0)
    await ask(work, root)
    position = await last(store)
    assert await told(store, position) == []
    later = await ask(work, root)
    assert await told(store, position) == [(later.approval_id, "pending")]


async def test_a_change_that_committed_first_waits_for_one_that_began_before_it(
    empty_database: Database, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    slow = await ask(work, root)
    await submit(empty_database, new_run(TENANT))
    [other] = await work.claim(WorkerId("w"), limit=1, lease_seconds=60)
    position = await last(store)
    async with store.begin(TENANT) as tx:
        await tx.decide_approval(slow.approval_id, APPROVE)
        fast = await ask(work, other)
        meanwhile = await told(store, position)
    assert meanwhile == []
    assert await told(store, position) == [(slow.approval_id, "approved"), (fast.approval_id, "pending")]


async def test_who_began_before_a_question_was_put_and_closes_it_is_told_behind_it(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    position = await last(store)
    async with store.begin(TENANT) as tx:
        # Its number is given to the transaction by the first thing that it writes.
        await tx.put_agent(RENAMED)
        asked = await ask(work, root)
        await tx.decide_approval(asked.approval_id, APPROVE)
    assert await told(store, position) == [(asked.approval_id, "pending"), (asked.approval_id, "approved")]


async def test_a_change_that_took_a_greater_number_than_its_own_is_not_missed(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    async with store.begin(TENANT) as tx:
        await tx.put_agent(RENAMED)
        asked = await ask(work, root)
        await tx.decide_approval(asked.approval_id, APPROVE)
        # Somebody reads before it commits, and goes on from there.
        position = await last(store)
        later = await ask(work, root)
        assert await told(store, position) == []
    assert await told(store, position) == [
        (asked.approval_id, "pending"),
        (asked.approval_id, "approved"),
        (later.approval_id, "pending"),
    ]


async def test_another_tenant_is_told_nothing(store: PostgresTenantStore, work: PostgresWorkStore, root: Claim) -> None:
    await ask(work, root)
    async with store.begin(OTHER) as tx:
        assert await tx.approval_changes(START, limit=9) == []
        assert (await tx.last_approval_change())[1:] == (0, 0)


# --- restored elsewhere ----------------------------------------------------------------------------------------------


async def test_what_a_dump_has_brought_is_told_before_all_that_comes(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    old = await ask(work, root)
    await restore_elsewhere(empty_urls)
    new = await ask(work, root)
    async with store.begin(TENANT) as tx:
        await tx.decide_approval(old.approval_id, APPROVE)
    expected = [(old.approval_id, "pending"), (new.approval_id, "pending"), (old.approval_id, "approved")]
    assert await told(store) == expected


async def test_a_reader_that_begins_after_a_dump_was_restored_is_told_what_comes_then(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    await ask(work, root)
    await restore_elsewhere(empty_urls)
    position = await last(store)
    assert await told(store, position) == []
    new = await ask(work, root)
    assert await told(store, position) == [(new.approval_id, "pending")]


async def test_what_a_dump_has_brought_is_read_in_pages(
    empty_urls: DatabaseUrls, store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    old = [await ask(work, root), await ask(work, root)]
    await restore_elsewhere(empty_urls)
    new = await ask(work, root)
    async with store.begin(TENANT) as tx:
        [first] = await tx.approval_changes(START, limit=1)
        [second] = await tx.approval_changes(first.position, limit=1)
        [third] = await tx.approval_changes(second.position, limit=1)
    assert [change.approval.approval_id for change in (first, second, third)] == [
        *(asked.approval_id for asked in old),
        new.approval_id,
    ]


async def test_a_position_of_another_database_is_refused(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    await ask(work, root)
    incarnation, place, change_id = await last(store)
    async with store.begin(TENANT) as tx:
        with pytest.raises(ValueError, match="another database"):
            await tx.approval_changes((incarnation + 1, place, change_id), limit=9)


async def test_a_server_that_has_counted_past_32_bits_is_read_from_as_any_other(
    store: PostgresTenantStore, work: PostgresWorkStore, root: Claim
) -> None:
    await ask(work, root)
    incarnation, _, change_id = await last(store)
    assert await told(store, (incarnation, 2**40, change_id)) == []


async def restore_elsewhere(urls: DatabaseUrls) -> None:
    """What lies there now came with a dump from a cluster that had counted further than this one ever will."""
    await query(
        urls.superuser_url, "UPDATE approval_changes SET incarnation = incarnation - 1, xid = xid + 1000000000000"
    )


async def test_what_was_told_of_a_question_is_never_changed_by_the_service(
    empty_urls: DatabaseUrls, work: PostgresWorkStore, root: Claim
) -> None:
    await ask(work, root)
    with pytest.raises(Exception, match="permission denied"):
        await query(empty_urls.app_url, "UPDATE approval_changes SET status = 'denied'")
