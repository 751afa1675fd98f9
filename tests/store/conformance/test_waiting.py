"""What every WorkStore promises of waiting: nothing that came between the question and the suspension is overlooked,
and nobody waits for longer than there is something to wait for."""

from typing import Any

import pytest

from app.errors import LeaseLost
from app.events import RunState
from app.ports.desk import ApprovalStatus, ClosedApproval, Swept
from app.ports.records import CancelWish, Claim, NewRun
from tests.store.conformance.logs import (
    APPROVE,
    OTHER,
    TENANT_A,
    Log,
    ask,
    ask_and_suspend,
    claim,
    state,
    status,
    submit_and_claim,
    suspend,
)
from tests.store.support import FUTURE, PAST, new_run, question, update, warned

WISH = CancelWish(reason="enough", requested_by="ada")


async def claim_root(log: Log, **changes: Any) -> Claim:
    await log.submit(new_run(TENANT_A, **changes))
    [claimed] = await log.store.claim(OTHER, limit=1, lease_seconds=60)
    return claimed


async def adopt(log: Log, above: Claim, **changes: Any) -> tuple[NewRun, Claim]:
    child = new_run(TENANT_A, parent_run_id=above.run_id, depth=1, path=("clerk", "clerk"), **changes)
    return child, (await log.store.adopt(above, child)).claim


# --- between the question and the suspension -------------------------------------------------------------------------


async def test_a_run_whose_question_was_answered_before_it_is_suspended_is_queued(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask(log, root)
    await log.decide(asked.approval_id, APPROVE)
    await suspend(log, root)
    again = await claim(log)
    assert (again.run_id, again.fence) == (root.run_id, root.fence + 1)
    assert await log.kinds(new_run(TENANT_A, run_id=root.run_id)) == ["run_queued", "warning", "warning"]


async def test_a_run_that_was_queued_instead_is_held_by_nobody(log: Log) -> None:
    root = await claim_root(log)
    await suspend(log, root)
    assert await log.store.requeue_expired() == 0
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(root, [warned()], update())


async def test_a_run_with_an_open_question_is_suspended_though_others_were_answered(log: Log) -> None:
    root = await claim_root(log)
    first, _ = await ask(log, root), await ask(log, root)
    await log.decide(first.approval_id, APPROVE)
    await suspend(log, root)
    assert await state(log, root) is RunState.SUSPENDED


async def test_a_root_waits_for_a_childs_question(log: Log) -> None:
    root = await claim_root(log)
    _, child = await adopt(log, root)
    await ask_and_suspend(log, child)
    await suspend(log, root)
    assert await state(log, root) is RunState.SUSPENDED


async def test_a_child_whose_question_was_answered_is_suspended_and_its_root_queued(log: Log) -> None:
    root = await claim_root(log)
    child, claimed = await adopt(log, root)
    asked = await ask(log, claimed)
    await log.decide(asked.approval_id, APPROVE)
    await suspend(log, claimed)
    assert (await log.record(child)).state is RunState.SUSPENDED
    await suspend(log, root)
    assert await state(log, root) is RunState.QUEUED


async def test_a_run_that_was_cancelled_before_it_is_suspended_is_queued(log: Log) -> None:
    run, root = await submit_and_claim(log)
    await log.request_cancel(run, WISH)
    await ask_and_suspend(log, root)
    assert await state(log, root) is RunState.QUEUED


async def test_a_run_whose_deadline_passed_before_it_is_suspended_is_queued(log: Log) -> None:
    root = await claim_root(log, deadline_at=PAST)
    await ask_and_suspend(log, root)
    assert await state(log, root) is RunState.QUEUED


async def test_a_run_whose_deadline_is_to_come_is_suspended(log: Log) -> None:
    root = await claim_root(log, deadline_at=FUTURE)
    await ask_and_suspend(log, root)
    assert await state(log, root) is RunState.SUSPENDED


async def test_a_question_that_this_append_closes_keeps_nobody_waiting(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask(log, root)
    closed = ClosedApproval(approval_id=asked.approval_id, status=ApprovalStatus.EXPIRED)
    await log.store.append_if_owner(root, [warned()], update(RunState.SUSPENDED, closed=(closed,)))
    assert await state(log, root) is RunState.QUEUED


async def test_a_question_that_this_append_asks_keeps_its_run_waiting_though_another_is_closed(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask(log, root)
    closed = ClosedApproval(approval_id=asked.approval_id, status=ApprovalStatus.EXPIRED)
    both = update(RunState.SUSPENDED, asked=(question(),), closed=(closed,))
    await log.store.append_if_owner(root, [warned()], both)
    assert await state(log, root) is RunState.SUSPENDED


# --- the sweep -------------------------------------------------------------------------------------------------------


async def test_a_sweep_over_nothing_does_nothing(log: Log) -> None:
    assert await log.store.sweep_waiting() == Swept(queued=0, expired=())


async def test_a_sweep_closes_a_question_whose_time_is_over_and_queues_its_run(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask_and_suspend(log, root, expires_at=PAST)
    swept = await log.store.sweep_waiting()
    assert (swept.queued, list(swept.expired)) == (1, [(TENANT_A, asked.approval_id)])
    assert await status(log, asked) is ApprovalStatus.EXPIRED
    assert (await claim(log)).run_id == root.run_id


async def test_a_swept_question_says_when_it_was_closed_and_that_nobody_answered(log: Log) -> None:
    asked = await ask_and_suspend(log, await claim_root(log), expires_at=PAST)
    await log.store.sweep_waiting()
    read = await log.store.find_approval(TENANT_A, asked.approval_id)
    assert read is not None
    assert read.decided_at is not None
    assert (read.decided_by, read.decision) == (None, None)


async def test_a_sweep_leaves_what_waits_with_reason(log: Log) -> None:
    first, second = await claim_root(log, deadline_at=FUTURE), await claim_root(log)
    asked = await ask_and_suspend(log, first, expires_at=FUTURE)
    await ask_and_suspend(log, second)
    assert await log.store.sweep_waiting() == Swept(queued=0, expired=())
    assert await status(log, asked) is ApprovalStatus.PENDING
    assert [await state(log, one) for one in (first, second)] == [RunState.SUSPENDED] * 2


async def test_a_run_with_another_open_question_stays_suspended(log: Log) -> None:
    root = await claim_root(log)
    expired, _ = await ask(log, root, expires_at=PAST), await ask(log, root)
    await suspend(log, root)
    swept = await log.store.sweep_waiting()
    assert (swept.queued, list(swept.expired)) == (0, [(TENANT_A, expired.approval_id)])
    assert await state(log, root) is RunState.SUSPENDED


async def test_a_question_of_a_running_run_expires_too(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask(log, root, expires_at=PAST)
    swept = await log.store.sweep_waiting()
    assert (swept.queued, list(swept.expired)) == (0, [(TENANT_A, asked.approval_id)])
    assert await state(log, root) is RunState.RUNNING


async def test_a_second_sweep_finds_nothing_more(log: Log) -> None:
    await ask_and_suspend(log, await claim_root(log), expires_at=PAST)
    await log.store.sweep_waiting()
    assert await log.store.sweep_waiting() == Swept(queued=0, expired=())


async def test_a_question_that_expired_is_not_answered(log: Log) -> None:
    asked = await ask_and_suspend(log, await claim_root(log), expires_at=PAST)
    await log.store.sweep_waiting()
    with pytest.raises(ValueError, match="no question that waits"):
        await log.decide(asked.approval_id, APPROVE)


async def test_a_childs_question_that_expires_queues_the_root(log: Log) -> None:
    root = await claim_root(log)
    child, claimed = await adopt(log, root)
    await ask_and_suspend(log, claimed, expires_at=PAST)
    await suspend(log, root)
    assert (await log.store.sweep_waiting()).queued == 1
    assert await state(log, root) is RunState.QUEUED
    assert (await log.record(child)).state is RunState.SUSPENDED


async def test_a_suspended_childs_deadline_queues_its_root(log: Log) -> None:
    root = await claim_root(log)
    child, claimed = await adopt(log, root, deadline_at=PAST)
    await ask_and_suspend(log, claimed)
    await suspend(log, root)
    assert await state(log, root) is RunState.SUSPENDED
    assert (await log.store.sweep_waiting()).queued == 1
    assert await state(log, root) is RunState.QUEUED
    assert (await log.record(child)).state is RunState.SUSPENDED
