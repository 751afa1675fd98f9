"""People who are asked about calls of runs below: other arguments, lost calls, and a tree that waits for them."""

import asyncio
from typing import Any

import pytest

from app import (
    ApprovalDecision,
    ConcurrencyConfig,
    DeferringGate,
    HookChain,
    HookDecision,
    HookPoint,
    Run,
    RunState,
)
from app.agents import Agent
from app.events import ApprovalGranted, ApprovalRequired, ToolCalled, ToolResult
from app.ids import CallId, RunId, TenantId
from app.policy import ApprovalKind, Indeterminate, Outcome, idempotency_key
from app.ports.hooks import HookSubject
from tests.execution.answering import Lossy, by_kind, edits, tells
from tests.execution.crew import Crew, chief, child_ids, every, member, one, payer, states_below, to_pay
from tests.execution.desk import Desk
from tests.execution.fakes import HookSays, Recorder, call, say
from tests.execution.stage import cut_off

ROOT = "run_root"


def asker(**fields: Any) -> Agent:
    """Pays unasked, and wants a person to be asked about what was lost."""
    return member("payer", **{"tools": ("pay",), "on_indeterminate": Indeterminate.ASK, **fields})


def crew_of(pay: Any, *, gate: Any, inputs: tuple[str, ...] = ("Pay.",), **fields: Any) -> Crew:
    """The chief calls the payer, which pays 3 each time."""
    steps = [call("pay", amount=3), say("Paid.")] * len(inputs)
    return Crew({"chief": [to_pay(*inputs), say("Done.")], "payer": steps}, {"pay": pay}, approvals=gate, **fields)


async def lose(crew: Crew, pay: Lossy, root: Agent) -> None:
    """The process of the whole tree goes down while the payment below is out."""
    await cut_off(asyncio.create_task(crew.run(root, run_id=ROOT)), pay)


def bodies_below(crew: Crew, run: Run[Any], kind: type[Any]) -> list[Any]:
    logs = [crew.log(child, root=run.run_id) for child in child_ids(run)]
    return [event.body for log in logs for event in log if isinstance(event.body, kind)]


def decision(run: Run[Any], **fields: Any) -> ApprovalDecision:
    return ApprovalDecision(**{"approval_id": run.waiting_for[0], "approved": True, "decided_by": "grace", **fields})


# --- other arguments -------------------------------------------------------------------------------------------------


async def test_a_call_below_goes_out_with_the_arguments_of_the_person() -> None:
    pay, desk = Recorder("receipt"), Desk(edits(amount=1))
    crew = crew_of(pay, gate=desk)
    run = await crew.run(chief(payer()))
    assert (run.output, pay.calls, len(desk.asked)) == ("Done.", [{"amount": 1}], 1)
    assert [body.arguments for body in bodies_below(crew, run, ToolCalled)] == [{"amount": 1}]


async def test_a_decision_that_came_later_may_change_a_call_below() -> None:
    pay = Recorder("receipt")
    crew = crew_of(pay, gate=DeferringGate())
    waiting = await crew.run(chief(payer()))
    run = await crew.runner.resume_with_decision(decision(waiting, arguments={"amount": 1}))
    assert (waiting.state, run.output, pay.calls) == (RunState.SUSPENDED, "Done.", [{"amount": 1}])
    assert [body.arguments for body in bodies_below(crew, run, ApprovalGranted)] == [{"amount": 1}]


def asks_about(tool: str) -> HookChain:
    """A policy that wants a person to be asked about calls of one tool."""

    def says(subject: HookSubject) -> HookDecision:
        return HookDecision.require_approval("it is watched") if subject.tool == tool else HookDecision.proceed()

    return HookChain([HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=says)])


async def test_the_input_of_a_sub_agent_may_be_changed() -> None:
    pay, desk = Recorder("receipt"), Desk(edits(input="Pay less."))
    crew = crew_of(pay, gate=desk, hooks=asks_about("payer"))
    run = await crew.run(chief(member("payer", tools=("pay",))))
    assert (run.output, one(run, ToolCalled).arguments) == ("Done.", {"input": "Pay less."})
    [first, *_] = crew.asked("payer")
    assert "Pay less." in [message.content for message in first.messages]


async def test_two_that_wait_below_are_each_answered_with_their_own_arguments() -> None:
    pay, paying = Recorder("receipt"), call("pay", amount=3)
    scripts = {
        "chief": [to_pay("One.", "Two."), say("Done.")],
        "payer": [paying, paying, say("Paid."), say("Paid.")],
    }
    crew = Crew(scripts, {"pay": pay}, approvals=DeferringGate())
    waiting = await crew.run(chief(payer(), concurrency=ConcurrencyConfig(max_concurrent_tools=2)))
    first, second = waiting.waiting_for
    still = await crew.runner.resume_with_decision(decision(waiting, approval_id=second, arguments={"amount": 2}))
    run = await crew.runner.resume_with_decision(decision(waiting, approval_id=first, arguments={"amount": 1}))
    assert (still.state, run.output) == (RunState.SUSPENDED, "Done.")
    assert sorted(made["amount"] for made in pay.calls) == [1, 2]


# --- lost calls ------------------------------------------------------------------------------------------------------


async def test_a_person_is_asked_about_a_lost_call_of_a_run_below() -> None:
    pay, desk = Lossy(), Desk(tells(Outcome.SUCCEEDED))
    crew = crew_of(pay, gate=desk)
    await lose(crew, pay, chief(asker()))
    run = await crew.runner.resume(ROOT)
    assert (run.output, pay.dispatches, states_below(crew, run)) == ("Done.", [1], [RunState.COMPLETED])
    assert [(record.kind, record.run_id) for record in desk.asked] == [(ApprovalKind.OUTCOME, child_ids(run)[0])]


@pytest.mark.parametrize(
    ("outcome", "dispatches"), [(Outcome.SUCCEEDED, [1]), (Outcome.FAILED, [1]), (Outcome.RETRY, [1, 2])]
)
async def test_the_tree_waits_for_the_word_about_a_lost_call_below(outcome: Outcome, dispatches: list[int]) -> None:
    pay = Lossy()
    crew = crew_of(pay, gate=DeferringGate())
    await lose(crew, pay, chief(asker()))
    waiting = await crew.runner.resume(ROOT)
    run = await crew.runner.resume_with_decision(decision(waiting, outcome=outcome))
    assert (waiting.state, run.output, pay.dispatches) == (RunState.SUSPENDED, "Done.", dispatches)


async def test_a_call_below_that_is_made_again_keeps_its_key() -> None:
    pay = Lossy()
    crew = crew_of(pay, gate=Desk(tells(Outcome.RETRY)))
    await lose(crew, pay, chief(asker()))
    run = await crew.runner.resume(ROOT)
    below = RunId(child_ids(run)[0])
    key = idempotency_key(tenant_id=TenantId("acme"), first_run_id=below, call_id=CallId("call_1_1"))
    assert pay.keys == [key, key]


async def test_nobody_is_asked_about_the_call_of_the_sub_agent_itself() -> None:
    pay, desk = Lossy(), Desk(tells(Outcome.SUCCEEDED))
    crew = crew_of(pay, gate=desk)
    await lose(crew, pay, chief(asker(), on_indeterminate=Indeterminate.ASK))
    run = await crew.runner.resume(ROOT)
    assert every(run, ApprovalRequired) == []
    assert len(desk.asked) == 1


async def test_where_nobody_says_the_run_below_fails_and_its_caller_is_told() -> None:
    pay = Lossy()
    crew = crew_of(pay, gate=Desk(lambda record: ApprovalDecision.deny(record, decided_by="grace")))
    await lose(crew, pay, chief(asker()))
    run = await crew.runner.resume(ROOT)
    assert (run.output, states_below(crew, run), every(run, ToolResult)) == ("Done.", [RunState.FAILED], [])


async def test_a_gated_call_below_that_was_edited_and_lost_is_made_again_as_it_was() -> None:
    pay, desk = Lossy(), Desk(by_kind(call=edits(amount=1), outcome=tells(Outcome.RETRY)))
    crew = crew_of(pay, gate=desk)
    await lose(crew, pay, chief(asker(approval_required_tools=("pay",))))
    run = await crew.runner.resume(ROOT)
    assert (run.output, pay.calls) == ("Done.", [{"amount": 1}, {"amount": 1}])
    assert [record.kind for record in desk.asked] == [ApprovalKind.CALL, ApprovalKind.OUTCOME]


async def test_an_idempotent_call_below_is_made_again_unasked() -> None:
    pay, desk = Lossy(), Desk(tells(Outcome.SUCCEEDED))
    crew = crew_of(pay, gate=desk)
    await lose(crew, pay, chief(asker(idempotent_tools=("pay",))))
    run = await crew.runner.resume(ROOT)
    assert (run.output, pay.dispatches, desk.asked) == ("Done.", [1, 2], [])
