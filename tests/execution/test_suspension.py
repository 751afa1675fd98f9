"""A gate that defers: the run waits for people without a process, and goes on by a decision."""

import asyncio
from typing import Any

import pytest

from app import (
    AdkError,
    AgentRunner,
    ApprovalDecision,
    BudgetLimits,
    CancellationToken,
    ConfigurationError,
    Deadline,
    DeferringGate,
    HookDecision,
    HookPoint,
    Run,
    RunState,
)
from app.events import ApprovalDenied, ApprovalGranted, RunSuspended, ToolRefused
from app.ids import ApprovalId
from app.policy import ApprovalDenial
from app.ports.approvals import Deferred
from app.providers import ScriptedProvider
from tests.execution.desk import (
    SECRET,
    Delegation,
    Desk,
    Office,
    Stores,
    denying,
    every,
    grant,
    granting,
    in_turn,
    kinds,
    log_text,
    one,
    payer,
    paying,
    pays,
    read_by_model,
)
from tests.execution.fakes import HookSays, call, calls, say
from tests.execution.support import clerk


def suspending(*amounts: int, **fields: Any) -> Office:
    return Stores().office(pays(*(amounts or (3,))), say("Well."), **fields)


async def suspended(*amounts: int, **fields: Any) -> tuple[Office, Run[Any]]:
    office = suspending(*amounts, **fields)
    return office, await office.run()


async def test_a_deferring_gate_suspends_the_run_before_the_call_goes_out() -> None:
    office, run = await suspended()
    assert (run.state, run.state.is_terminal, office.paid) == (RunState.SUSPENDED, False, [])
    assert (run.output, run.error_code, len(office.provider.requests)) == (None, None, 1)


async def test_a_suspended_run_names_what_it_waits_for() -> None:
    _, run = await suspended()
    assert kinds(run)[-1] == "run_suspended"
    assert (len(run.waiting_for), tuple(run.waiting_for)) == (1, one(run, RunSuspended).approval_ids)


async def test_all_questions_of_a_turn_are_asked_before_the_run_is_suspended() -> None:
    office, run = await suspended(1, 2)
    assert (len(set(run.waiting_for)), kinds(run).count("approval_required")) == (2, 2)
    assert (kinds(run).count("run_suspended"), office.paid) == (1, [])


async def test_calls_that_need_no_approval_wait_with_the_one_that_does() -> None:
    office = Stores().office(calls(*call("look").calls, *pays(3).calls), say("Well."))
    run = await office.run()
    assert (run.state, office.look.calls) == (RunState.SUSPENDED, [])


async def test_a_gate_may_answer_one_question_and_defer_another() -> None:
    desk = Desk(in_turn(grant, lambda _: Deferred()))
    office, run = await suspended(1, 2, gate=desk)
    assert (run.state, len(run.waiting_for), office.paid) == (RunState.SUSPENDED, 1, [])
    assert tuple(run.waiting_for) == (desk.asked[1].approval_id,)


async def test_a_hooks_wish_for_approval_suspends_the_run_too() -> None:
    ask = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: HookDecision.require_approval("a large sum"))
    office = suspending(hooks=[ask])
    run = await office.run(payer(approval_required_tools=()))
    assert (run.state, len(run.waiting_for), office.paid) == (RunState.SUSPENDED, 1, [])


async def test_the_store_lists_the_open_questions_and_no_argument() -> None:
    stores = Stores()
    run = await stores.office(call("pay", amount=1, iban=SECRET), say("Well.")).run()
    [record] = stores.suspensions.pending()
    assert (record.approval_id, record.run_id, record.tool) == (run.waiting_for[0], run.run_id, "pay")
    assert SECRET not in record.model_dump_json()


async def test_the_stream_of_a_suspended_run_ends_with_its_suspension() -> None:
    office = suspending()
    told = [event.kind async for event in office.runner.stream(payer(), "Pay.", tenant="acme")]
    assert (told[-1], told.count("approval_required"), "terminated" in told) == ("run_suspended", 1, False)


def test_a_deferring_gate_needs_a_store_for_suspensions() -> None:
    with pytest.raises(ConfigurationError):
        AgentRunner(provider=ScriptedProvider({"model": [say("Well.")]}), approvals=DeferringGate())


async def test_a_gate_can_not_defer_where_nothing_keeps_suspended_runs() -> None:
    office = paying(gate=Desk(lambda _: Deferred()))
    with pytest.raises(ConfigurationError):
        await office.run()
    assert office.paid == []


# --- decisions -------------------------------------------------------------------------------------------------------


async def test_a_granted_call_goes_out_once_and_the_run_ends() -> None:
    office, waiting = await suspended()
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.state, run.output, office.paid, tuple(run.waiting_for)) == (RunState.COMPLETED, "Well.", [3], ())
    assert (run.run_id, one(run, ApprovalGranted).decided_by) == (waiting.run_id, "grace")


async def test_a_denied_call_stays_in_and_the_model_reads_why() -> None:
    office, waiting = await suspended()
    run = await office.runner.resume_with_decision(denying(waiting))
    assert (run.state, office.paid, one(run, ToolRefused).code) == (RunState.COMPLETED, [], "approval_denied")
    assert "too much" in read_by_model(office, turn=2)[0]


async def test_a_denial_ends_the_run_where_the_agent_says_so() -> None:
    office = suspending()
    waiting = await office.run(payer(approval_denial=ApprovalDenial.FAIL_RUN))
    run = await office.runner.resume_with_decision(denying(waiting))
    assert (run.state, run.error_code, office.paid) == (RunState.FAILED, "approval_denied", [])


async def test_the_agent_can_not_grant_its_own_call() -> None:
    office, waiting = await suspended()
    own = ApprovalDecision(approval_id=waiting.waiting_for[0], approved=True, decided_by="clerk")
    run = await office.runner.resume_with_decision(own)
    assert (one(run, ApprovalDenied).cause, office.paid) == ("self_granted", [])


async def test_an_agent_further_up_can_not_grant_what_it_has_asked_for_through_another() -> None:
    inner = suspending()
    delegation = Delegation(inner, payer(name="inner"))
    await Office(call("look"), say("Done."), look=delegation).run(clerk(name="outer", tools=("look",)))
    asked = delegation.runs[0].waiting_for[0]
    own = ApprovalDecision(approval_id=asked, approved=True, decided_by="outer")
    run = await inner.runner.resume_with_decision(own)
    assert (one(run, ApprovalDenied).cause, inner.paid) == ("self_granted", [])


async def test_the_run_waits_until_the_last_question_of_the_turn_is_decided() -> None:
    office, waiting = await suspended(1, 2)
    still = await office.runner.resume_with_decision(granting(waiting, place=0))
    assert (still.state, tuple(still.waiting_for), office.paid) == (
        RunState.SUSPENDED,
        (waiting.waiting_for[1],),
        [],
    )
    run = await office.runner.resume_with_decision(granting(waiting, place=1))
    assert (run.state, office.paid) == (RunState.COMPLETED, [1, 2])


async def test_questions_may_be_decided_in_any_order_and_each_answer_finds_its_call() -> None:
    office, waiting = await suspended(1, 2, 3)
    await office.runner.resume_with_decision(denying(waiting, place=2))
    await office.runner.resume_with_decision(granting(waiting, place=1))
    run = await office.runner.resume_with_decision(denying(waiting, place=0))
    assert (run.state, office.paid) == (RunState.COMPLETED, [2])
    assert [refused.call_id for refused in _refusals(run)] == ["call_1_1", "call_1_3"]


def _refusals(run: Run[Any]) -> list[ToolRefused]:
    found = [event.body for event in run.events if isinstance(event.body, ToolRefused)]
    return sorted(found, key=lambda refused: refused.call_id)


async def test_a_run_can_be_suspended_again_in_a_later_turn() -> None:
    office = Stores().office(pays(1), pays(1), say("Well."))
    first = await office.run()
    second = await office.runner.resume_with_decision(granting(first))
    assert (second.state, office.paid) == (RunState.SUSPENDED, [1])
    assert set(first.waiting_for).isdisjoint(second.waiting_for)
    run = await office.runner.resume_with_decision(denying(second))
    assert (run.state, office.paid) == (RunState.COMPLETED, [1])


async def test_a_decision_outlives_the_process_that_asked() -> None:
    stores = Stores()
    waiting = await stores.office(pays(3), say("Well.")).run()
    later = stores.office(pays(3), say("Well."))
    run = await later.runner.resume_with_decision(granting(waiting))
    assert (run.state, later.paid, len(later.provider.requests)) == (RunState.COMPLETED, [3], 1)


async def test_a_decision_for_an_approval_that_nobody_knows_changes_nothing() -> None:
    office, waiting = await suspended()
    stray = ApprovalDecision(approval_id=ApprovalId("apr_of_another_call"), approved=True, decided_by="grace")
    with pytest.raises(AdkError):
        await office.runner.resume_with_decision(stray)
    assert office.paid == []
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.state, office.paid) == (RunState.COMPLETED, [3])


async def test_a_second_decision_is_too_late_and_changes_nothing() -> None:
    office, waiting = await suspended()
    run = await office.runner.resume_with_decision(granting(waiting))
    with pytest.raises(AdkError):
        await office.runner.resume_with_decision(denying(waiting))
    assert (office.paid, await office.runner.resume(run.run_id)) == ([3], run)


async def test_the_same_decision_twice_pays_once() -> None:
    office, waiting = await suspended()
    run = await office.runner.resume_with_decision(granting(waiting))
    with pytest.raises(AdkError):
        await office.runner.resume_with_decision(granting(waiting))
    assert (office.paid, await office.runner.resume(run.run_id)) == ([3], run)


async def test_the_first_word_about_one_question_stands_while_the_run_still_waits() -> None:
    office, waiting = await suspended(1, 2)
    await office.runner.resume_with_decision(denying(waiting, place=0))
    with pytest.raises(AdkError):
        await office.runner.resume_with_decision(granting(waiting, place=0))
    await office.runner.resume_with_decision(granting(waiting, place=1))
    assert office.paid == [2]


@pytest.mark.parametrize("second", [granting, denying])
async def test_of_two_decisions_at_the_same_moment_the_first_counts(second: Any) -> None:
    office, waiting = await suspended()
    answers = [office.runner.resume_with_decision(decision) for decision in (granting(waiting), second(waiting))]
    await asyncio.gather(*answers, return_exceptions=True)
    run = await office.runner.resume(waiting.run_id)
    assert (run.state, office.paid) == (RunState.COMPLETED, [3])
    assert (kinds(run).count("approval_granted"), kinds(run).count("approval_denied")) == (1, 0)


async def test_two_questions_may_be_decided_at_the_same_moment() -> None:
    office, waiting = await suspended(1, 2)
    answers = [office.runner.resume_with_decision(granting(waiting, place=place)) for place in (0, 1)]
    answered = await asyncio.gather(*answers, return_exceptions=True)
    run = await office.runner.resume(waiting.run_id)
    assert (run.state, office.paid) == (RunState.COMPLETED, [1, 2])
    assert [type(answer) for answer in answered] == [Run, Run]
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))


async def test_a_run_that_is_cancelled_while_it_waits_ends_with_its_questions() -> None:
    stores, token = Stores(), CancellationToken()
    office = stores.office(pays(1, 2), say("Well."))
    waiting = await office.run()
    token.cancel("enough")
    run = await office.runner.resume(waiting.run_id, cancellation=token)
    assert (run.state, run.error_detail, office.paid) == (RunState.CANCELLED, "enough", [])
    assert [denied.cause for denied in every(run, ApprovalDenied)] == ["cancelled", "cancelled"]
    assert tuple(stores.suspensions.pending()) == ()


async def test_a_decision_after_the_cancel_changes_nothing() -> None:
    office, waiting = await suspended()
    token = CancellationToken()
    token.cancel()
    run = await office.runner.resume(waiting.run_id, cancellation=token)
    with pytest.raises(AdkError):
        await office.runner.resume_with_decision(granting(waiting))
    assert (office.paid, await office.runner.resume(waiting.run_id)) == ([], run)


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "paid"), [(899, [3]), (900, []), (901, [])])
async def test_a_decision_counts_only_within_its_time(seconds: float, paid: list[int]) -> None:
    office, waiting = await suspended(approval_ttl_seconds=900)
    office.clock.advance(seconds)
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.state, office.paid) == (RunState.COMPLETED, paid)


async def test_a_late_grant_is_told_as_expired() -> None:
    office, waiting = await suspended(approval_ttl_seconds=900)
    office.clock.advance(900)
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (one(run, ApprovalDenied).cause, one(run, ToolRefused).code) == ("expired", "approval_denied")


async def test_a_run_whose_question_expired_goes_on_without_any_decision() -> None:
    office, waiting = await suspended(approval_ttl_seconds=900)
    office.clock.advance(900)
    run = await office.runner.resume(waiting.run_id)
    assert (run.state, office.paid, one(run, ApprovalDenied).cause) == (RunState.COMPLETED, [], "expired")


async def test_the_deadline_runs_while_a_person_thinks() -> None:
    office = suspending()
    waiting = await office.run(deadline=Deadline(at=office.clock.now() + 60))
    office.clock.advance(60)
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.state, run.error_code, office.paid) == (RunState.CANCELLED, "deadline_exceeded", [])


async def test_the_time_that_a_person_takes_is_not_charged() -> None:
    office = suspending(budget=BudgetLimits(max_seconds=60))
    waiting = await office.run()
    office.clock.advance(86_400)
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.state, office.paid) == (RunState.COMPLETED, [3])


async def test_no_event_of_a_suspended_approval_holds_an_argument() -> None:
    office = Stores().office(call("pay", amount=1, iban=SECRET), say("Well."))
    run = await office.runner.resume_with_decision(granting(await office.run()))
    assert SECRET not in log_text(run, about="approval_") + log_text(run, about="run_suspended")
