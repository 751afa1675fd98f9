"""What every WorkStore promises of questions to people: kept with the append that puts them, closed once, and a run
that waits for them goes on when the last one is."""

from dataclasses import replace
from typing import Any

import pytest

from app.errors import LeaseLost
from app.events import RunState
from app.ids import ApprovalId
from app.policy import ApprovalKind
from app.ports.desk import Approval, ApprovalStatus, ClosedApproval, Decided, NewApproval
from app.ports.records import CancelWish, Claim, NewRun
from tests.store.conformance.logs import (
    APPROVE,
    DENY,
    OTHER,
    TENANT_A,
    TENANT_B,
    Log,
    ask,
    ask_and_suspend,
    claim,
    state,
    status,
    submit_and_claim,
    suspend,
)
from tests.store.support import FUTURE, NUL, PAST, new_run, question, terminated, update, warned

WISH = CancelWish(reason="enough", requested_by="ada")
CLOSED = [ApprovalStatus.EXPIRED, ApprovalStatus.CANCELLED]
# Of each field another value than its default, and text that Postgres would refuse.
FULL: dict[str, Any] = {
    "kind": ApprovalKind.OUTCOME,
    "dispatch": 2,
    "summary": {"amount": {"value": NUL}, "iban": {"type": "string", "length": 22}},
    "reason": NUL,
    "flagged": True,
    "tool": "send_money",
    "expires_at": FUTURE,
}


async def found(log: Log, asked: NewApproval) -> Approval:
    read = await log.store.find_approval(TENANT_A, asked.approval_id)
    assert read is not None
    return read


async def claim_root(log: Log, **changes: Any) -> Claim:
    await log.submit(new_run(TENANT_A, **changes))
    return await claim(log)


async def adopt(log: Log, above: Claim, **changes: Any) -> tuple[NewRun, Claim]:
    child = new_run(TENANT_A, parent_run_id=above.run_id, depth=1, path=("clerk", "clerk"), **changes)
    return child, (await log.store.adopt(above, child)).claim


# --- asked -----------------------------------------------------------------------------------------------------------


async def test_a_question_is_read_back_as_it_was_asked(log: Log) -> None:
    root = await claim_root(log, user=NUL, subject="ada\x00")
    asked = await ask(log, root, **FULL)
    read = await found(log, asked)
    assert read == Approval(
        approval_id=asked.approval_id,
        tenant_id=TENANT_A,
        run_id=root.run_id,
        root_run_id=root.run_id,
        agent=asked.agent,
        tool=asked.tool,
        call_id=asked.call_id,
        kind=ApprovalKind.OUTCOME,
        dispatch=2,
        status=ApprovalStatus.PENDING,
        arguments_digest=asked.arguments_digest,
        summary=FULL["summary"],
        reason=NUL,
        flagged=True,
        user=NUL,
        subject="ada\x00",
        requested_at=read.requested_at,
        expires_at=FUTURE,
    )


async def test_a_question_was_asked_when_its_event_was_stored(log: Log) -> None:
    root = await claim_root(log)
    asked = question()
    [event] = await log.store.append_if_owner(root, [warned()], update(asked=(asked,)))
    assert (await found(log, asked)).requested_at == pytest.approx(event.at, abs=1e-6)


async def test_a_child_asks_for_itself_and_its_root_is_named(log: Log) -> None:
    root = await claim_root(log)
    child, claimed = await adopt(log, root, user="ada", subject="eve")
    read = await found(log, await ask(log, claimed))
    assert (read.run_id, read.root_run_id, read.user, read.subject) == (child.run_id, root.run_id, "ada", "eve")


async def test_a_stale_fence_asks_nothing(log: Log) -> None:
    root = await claim_root(log)
    asked = question()
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(replace(root, fence=9), [warned()], update(asked=(asked,)))
    assert await log.store.find_approval(TENANT_A, asked.approval_id) is None


async def test_an_unknown_question_and_another_tenants_are_not_there(log: Log) -> None:
    asked = await ask(log, await claim_root(log))
    assert await log.store.find_approval(TENANT_A, ApprovalId("apr_none")) is None
    assert await log.store.find_approval(TENANT_B, asked.approval_id) is None


async def test_a_question_whose_time_is_over_is_told_as_expired_before_anybody_wrote_that_down(log: Log) -> None:
    asked = await ask(log, await claim_root(log), expires_at=PAST)
    read = await found(log, asked)
    assert (read.status, read.decided_at) == (ApprovalStatus.EXPIRED, None)


# --- answered --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "taken"),
    [
        ("approve", ApprovalStatus.APPROVED),
        ("deny", ApprovalStatus.DENIED),
        ("succeeded", ApprovalStatus.APPROVED),
        ("failed", ApprovalStatus.APPROVED),
        ("retry", ApprovalStatus.APPROVED),
    ],
)
async def test_an_answer_is_read_back_as_it_was_given(log: Log, decision: Any, taken: ApprovalStatus) -> None:
    asked = await ask(log, await claim_root(log))
    edited: dict[str, Any] = {"arguments": {"amount": NUL}, "edited_digest": "cd" * 32}
    told = await log.decide(asked.approval_id, Decided(decision=decision, decided_by=NUL, reason=NUL, **edited))
    assert told == await found(log, asked)
    assert (told.status, told.decision, told.decided_by, told.decision_reason) == (taken, decision, NUL, NUL)
    assert (told.arguments, told.edited_digest) == ({"amount": NUL}, "cd" * 32)
    assert told.decided_at is not None
    assert told.decided_at >= told.requested_at


async def test_a_question_is_answered_once(log: Log) -> None:
    asked = await ask(log, await claim_root(log))
    first = await log.decide(asked.approval_id, APPROVE)
    with pytest.raises(ValueError, match="no question that waits"):
        await log.decide(asked.approval_id, DENY)
    assert await found(log, asked) == first


async def test_an_unknown_question_is_not_answered(log: Log) -> None:
    with pytest.raises(ValueError, match="no question that waits"):
        await log.decide(ApprovalId("apr_none"), APPROVE)


async def test_an_answer_leaves_a_running_run_where_it_is(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask(log, root)
    await log.decide(asked.approval_id, APPROVE)
    assert await state(log, root) is RunState.RUNNING
    await log.store.append_if_owner(root, [warned()], update())


async def test_the_last_answer_queues_the_suspended_run(log: Log) -> None:
    root = await claim_root(log)
    first, second = await ask(log, root), await ask(log, root)
    await suspend(log, root)
    await log.decide(first.approval_id, APPROVE)
    assert await state(log, root) is RunState.SUSPENDED
    await log.decide(second.approval_id, DENY)
    assert (await claim(log, OTHER)).run_id == root.run_id


async def test_an_answer_for_a_child_queues_its_root(log: Log) -> None:
    root = await claim_root(log)
    child, claimed = await adopt(log, root)
    asked = await ask_and_suspend(log, claimed)
    await suspend(log, root)
    await log.decide(asked.approval_id, APPROVE)
    assert (await claim(log, OTHER)).run_id == root.run_id
    assert (await log.record(child)).state is RunState.SUSPENDED


async def test_a_root_waits_for_what_all_below_it_have_asked(log: Log) -> None:
    root = await claim_root(log)
    _, middle = await adopt(log, root)
    _, lowest = await adopt(log, middle)
    first, second = await ask(log, lowest), await ask(log, root)
    await suspend(log, lowest)
    await suspend(log, middle)
    await suspend(log, root)
    await log.decide(second.approval_id, APPROVE)
    assert await state(log, root) is RunState.SUSPENDED
    await log.decide(first.approval_id, APPROVE)
    assert await state(log, root) is RunState.QUEUED


async def test_another_runs_answer_queues_nothing(log: Log) -> None:
    waiting = await claim_root(log)
    await ask_and_suspend(log, waiting)
    other = await claim_root(log)
    asked = await ask_and_suspend(log, other)
    await log.decide(asked.approval_id, APPROVE)
    assert (await state(log, waiting), await state(log, other)) == (RunState.SUSPENDED, RunState.QUEUED)


# --- closed without a person -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", CLOSED)
async def test_an_append_closes_questions(log: Log, how: Any) -> None:
    root = await claim_root(log)
    asked, other = await ask(log, root), await ask(log, root)
    closed = ClosedApproval(approval_id=asked.approval_id, status=how)
    [event] = await log.store.append_if_owner(root, [warned()], update(closed=(closed,)))
    read = await found(log, asked)
    assert (read.status, read.decided_by, read.decision) == (how, None, None)
    assert read.decided_at == pytest.approx(event.at, abs=1e-6)
    assert await status(log, other) is ApprovalStatus.PENDING


async def test_closing_never_overwrites_an_answer(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask(log, root)
    decided = await log.decide(asked.approval_id, DENY)
    closed = ClosedApproval(approval_id=asked.approval_id, status=ApprovalStatus.EXPIRED)
    await log.store.append_if_owner(root, [warned()], update(closed=(closed,)))
    assert await found(log, asked) == decided


async def test_a_stale_fence_closes_nothing(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask(log, root)
    closed = ClosedApproval(approval_id=asked.approval_id, status=ApprovalStatus.EXPIRED)
    with pytest.raises(LeaseLost):
        await log.store.append_if_owner(replace(root, fence=9), [warned()], update(closed=(closed,)))
    assert await status(log, asked) is ApprovalStatus.PENDING


async def test_a_run_closes_no_question_of_another_one(log: Log) -> None:
    asked = await ask(log, await claim_root(log))
    closed = ClosedApproval(approval_id=asked.approval_id, status=ApprovalStatus.EXPIRED)
    await log.store.append_if_owner(await claim_root(log), [warned()], update(closed=(closed,)))
    assert await status(log, asked) is ApprovalStatus.PENDING


async def test_nobody_has_to_answer_what_an_ended_run_and_those_below_it_have_asked(log: Log) -> None:
    root = await claim_root(log)
    _, child = await adopt(log, root)
    first, second = await ask(log, root), await ask_and_suspend(log, child)
    answered = await ask(log, root)
    await log.decide(answered.approval_id, APPROVE)
    await log.store.append_if_owner(root, [terminated()], update(RunState.COMPLETED))
    assert [await status(log, asked) for asked in (first, second)] == [ApprovalStatus.CANCELLED] * 2
    assert await status(log, answered) is ApprovalStatus.APPROVED


async def test_a_childs_end_closes_its_own_questions_only(log: Log) -> None:
    root = await claim_root(log)
    _, child = await adopt(log, root)
    roots, childs = await ask(log, root), await ask(log, child)
    await log.store.append_if_owner(child, [terminated()], update(RunState.COMPLETED))
    assert (await status(log, roots), await status(log, childs)) == (ApprovalStatus.PENDING, ApprovalStatus.CANCELLED)


async def test_an_ended_run_that_told_how_its_question_closed_is_believed(log: Log) -> None:
    root = await claim_root(log)
    asked = await ask(log, root)
    closed = ClosedApproval(approval_id=asked.approval_id, status=ApprovalStatus.EXPIRED)
    await log.store.append_if_owner(root, [terminated()], update(RunState.COMPLETED, closed=(closed,)))
    assert await status(log, asked) is ApprovalStatus.EXPIRED


async def test_a_cancel_closes_the_questions_of_the_run_and_those_below_it(log: Log) -> None:
    root = await claim_root(log)
    _, claimed = await adopt(log, root)
    first, second = await ask_and_suspend(log, claimed), await ask_and_suspend(log, root)
    await log.request_cancel(new_run(TENANT_A, run_id=root.run_id), WISH)
    assert [await status(log, asked) for asked in (first, second)] == [ApprovalStatus.CANCELLED] * 2
    assert await state(log, root) is RunState.QUEUED


async def test_a_cancel_of_a_child_closes_its_questions_and_those_below_it_only(log: Log) -> None:
    root = await claim_root(log)
    child, middle = await adopt(log, root)
    _, lowest = await adopt(log, middle)
    _, sibling = await adopt(log, root)
    mine, below, beside = await ask(log, middle), await ask(log, lowest), await ask(log, sibling)
    roots = await ask(log, root)
    await log.request_cancel(child, WISH)
    assert [await status(log, asked) for asked in (mine, below)] == [ApprovalStatus.CANCELLED] * 2
    assert [await status(log, asked) for asked in (beside, roots)] == [ApprovalStatus.PENDING] * 2


async def test_a_cancel_of_a_run_that_has_ended_changes_no_question(log: Log) -> None:
    run, root = await submit_and_claim(log)
    asked = await ask(log, root)
    decided = await log.decide(asked.approval_id, APPROVE)
    await log.store.append_if_owner(root, [terminated()], update(RunState.COMPLETED))
    await log.request_cancel(run, WISH)
    assert await found(log, asked) == decided


async def test_a_cancel_keeps_an_answer(log: Log) -> None:
    run, root = await submit_and_claim(log)
    asked = await ask(log, root)
    decided = await log.decide(asked.approval_id, APPROVE)
    await log.request_cancel(run, WISH)
    assert await found(log, asked) == decided


async def test_a_cancelled_question_is_not_answered(log: Log) -> None:
    run, root = await submit_and_claim(log)
    asked = await ask_and_suspend(log, root)
    await log.request_cancel(run, WISH)
    with pytest.raises(ValueError, match="no question that waits"):
        await log.decide(asked.approval_id, APPROVE)
