"""A question about an outcome that is answered later, or never."""

from typing import Any

import pytest

from app import ApprovalDecision, CancellationToken, Deadline, Run, RunState
from app.events import ApprovalDenied, ApprovalRequired, ToolIndeterminate
from app.policy import ApprovalKind, Outcome
from tests.execution.answering import RUN_ID, Lossy, defers, ending, lose, office_of, tells
from tests.execution.desk import Desk, Stores, every, in_turn, one, pays
from tests.execution.fakes import say


def said_later(run: Run[Any], outcome: Outcome, *, place: int = 0) -> ApprovalDecision:
    return ApprovalDecision(approval_id=run.waiting_for[place], approved=True, decided_by="grace", outcome=outcome)


async def test_the_run_waits_for_the_answer_without_a_process() -> None:
    tool = Lossy()
    office = office_of(tool, defers)
    held = await ending(office, tool)
    assert (held.state, held.waiting_for, tool.dispatches) == (
        RunState.SUSPENDED,
        (one(held, ApprovalRequired).approval_id,),
        [1],
    )


@pytest.mark.parametrize(
    ("outcome", "dispatches"), [(Outcome.SUCCEEDED, [1]), (Outcome.FAILED, [1]), (Outcome.RETRY, [1, 2])]
)
async def test_the_run_goes_on_by_an_answer_that_came_later(outcome: Outcome, dispatches: list[int]) -> None:
    tool = Lossy()
    office = office_of(tool, defers)
    held = await ending(office, tool)
    run = await office.runner.resume_with_decision(said_later(held, outcome))
    assert (run.state, tool.dispatches, run.output) == (RunState.COMPLETED, dispatches, "Well.")


async def test_the_open_question_tells_its_kind() -> None:
    stores, tool = Stores(), Lossy()
    office = stores.office(pays(3), say("Well."), pay=tool)
    held = await ending(office, tool)
    [record] = stores.suspensions.pending()
    assert (record.approval_id, record.kind, record.dispatch) == (held.waiting_for[0], ApprovalKind.OUTCOME, 1)


async def test_a_run_that_waits_for_an_outcome_and_is_lost_again_asks_the_same_question() -> None:
    tool, desk = Lossy(), Desk(in_turn(defers, defers, tells(Outcome.SUCCEEDED)))
    office = Stores().office(pays(3), say("Well."), gate=desk, pay=tool)
    held = await ending(office, tool)
    again = await office.runner.resume(RUN_ID)
    run = await office.runner.resume(RUN_ID)
    assert (held.waiting_for, run.state) == (again.waiting_for, RunState.COMPLETED)
    assert len({record.approval_id for record in desk.asked}) == 1


async def test_a_run_that_is_cancelled_while_it_waits_tells_that_nobody_knows() -> None:
    token, tool = CancellationToken(), Lossy()
    office = office_of(tool, defers)
    await ending(office, tool)
    token.cancel("enough")
    run = await office.runner.resume(RUN_ID, cancellation=token)
    assert (run.state, run.error_code, tool.dispatches) == (RunState.CANCELLED, "cancelled", [1])
    assert (one(run, ApprovalDenied).cause, one(run, ToolIndeterminate).call_id) == ("cancelled", "call_1_1")


async def test_the_deadline_ends_a_run_that_waits_for_an_outcome() -> None:
    tool = Lossy()
    office = office_of(tool, defers)
    await lose(office, tool, deadline=Deadline(at=office.clock.now() + 60))
    await office.runner.resume(RUN_ID)
    office.clock.advance(60)
    run = await office.runner.resume(RUN_ID)
    assert (run.error_code, one(run, ApprovalDenied).cause) == ("deadline_exceeded", "cancelled")
    assert len(every(run, ToolIndeterminate)) == 1


async def test_an_answer_that_comes_too_late_leaves_the_outcome_unknown() -> None:
    tool = Lossy()
    office = office_of(tool, defers, approval_ttl_seconds=900)
    held = await ending(office, tool)
    office.clock.advance(900)
    said = ApprovalDecision(
        approval_id=held.waiting_for[0], approved=True, decided_by="grace", outcome=Outcome.SUCCEEDED
    )
    run = await office.runner.resume_with_decision(said)
    assert (run.error_code, one(run, ApprovalDenied).cause, tool.dispatches) == ("tool_indeterminate", "expired", [1])
