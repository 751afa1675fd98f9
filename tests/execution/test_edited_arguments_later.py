"""Other arguments that a person puts long after he was asked, and what a crash does to them."""

import asyncio
import json
from typing import Any

import pytest

from app import ApprovalDecision, HookDecision, HookPoint, Run, RunState
from app.events import ApprovalDenied, ApprovalRequired
from app.policy import Effect
from app.ports.hooks import HookSubject
from tests.execution.answering import RUN_ID, Lossy, at_most, edits, lose
from tests.execution.desk import Desk, Office, Stores, every, grant, granting, in_turn, kinds, one, payer, pays
from tests.execution.fakes import Stall, say
from tests.execution.stage import cut_off


async def waiting(*amounts: int, **fields: Any) -> tuple[Office, Run[Any]]:
    """A run that waits for a word about each of its payments."""
    office = Stores().office(pays(*(amounts or (3,))), say("Well."), **fields)
    return office, await office.run()


def word(run: Run[Any], *, place: int = 0, **arguments: Any) -> ApprovalDecision:
    return granting(run, place=place).model_copy(update={"arguments": arguments})


async def test_arguments_that_come_too_late_never_go_out() -> None:
    office, held = await waiting(approval_ttl_seconds=900)
    office.clock.advance(900)
    run = await office.runner.resume_with_decision(word(held, amount=1))
    assert (run.state, office.paid, one(run, ApprovalDenied).cause) == (RunState.COMPLETED, [], "expired")


async def test_a_decision_that_came_later_may_put_other_arguments() -> None:
    office, held = await waiting()
    run = await office.runner.resume_with_decision(word(held, amount=1))
    assert (run.state, office.paid, len(every(run, ApprovalRequired))) == (RunState.COMPLETED, [1], 1)


@pytest.mark.parametrize(("first", "second", "paid"), [(0, 1, [1, 6]), (1, 0, [5, 1])])
async def test_the_run_waits_for_the_last_question_also_where_one_was_answered_with_an_edit(
    first: int, second: int, paid: list[int]
) -> None:
    office, held = await waiting(5, 6)
    still = await office.runner.resume_with_decision(word(held, place=first, amount=1))
    assert (still.state, tuple(still.waiting_for), office.paid) == (
        RunState.SUSPENDED,
        (held.waiting_for[second],),
        [],
    )
    run = await office.runner.resume_with_decision(granting(held, place=second))
    assert (run.state, office.paid, len(every(run, ApprovalRequired))) == (RunState.COMPLETED, paid, 2)


async def test_a_hook_that_changes_them_suspends_the_run_again() -> None:
    office, held = await waiting(hooks=[at_most(5)])
    again = await office.runner.resume_with_decision(word(held, amount=9))
    assert (again.state, office.paid, len(again.waiting_for)) == (RunState.SUSPENDED, [], 1)
    run = await office.runner.resume_with_decision(granting(again))
    assert (run.state, office.paid) == (RunState.COMPLETED, [5])


class StallsAt(Stall):
    """A policy that lets everything pass, and whose process goes down over one sum."""

    name = "policy"
    points = frozenset({HookPoint.BEFORE_TOOL_DISPATCH})

    def __init__(self, amount: int) -> None:
        super().__init__()
        self._amount = amount

    async def decide(self, subject: HookSubject) -> HookDecision:
        if json.loads(subject.content)["amount"] == self._amount:
            await self.wait()
        return HookDecision.proceed()


async def test_after_a_crash_between_the_edit_and_its_clearance_nobody_is_asked_again() -> None:
    desk, policy = Desk(edits(amount=1)), StallsAt(1)
    office = Stores().office(pays(3), say("Well."), gate=desk, hooks=[policy])
    await cut_off(asyncio.create_task(office.run(run_id=RUN_ID)), policy)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, office.paid, len(desk.asked)) == (RunState.COMPLETED, [1], 1)
    assert kinds(run).count("approval_granted") == 1


async def test_after_a_crash_behind_the_clearance_no_hook_is_asked_again() -> None:
    policy, tool = at_most(100), Lossy()
    desk = Desk(in_turn(edits(amount=1), grant))
    fields = {"pay": tool, "pay_fields": {"effect": Effect.IDEMPOTENT}, "hooks": [policy]}
    office = Stores().office(pays(3), say("Well."), gate=desk, **fields)
    await lose(office, tool, payer())
    run = await office.runner.resume(RUN_ID)
    assert (run.state, tool.calls, len(policy.asked)) == (RunState.COMPLETED, [{"amount": 1}, {"amount": 1}], 2)
