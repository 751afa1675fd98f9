"""A run below that waits for people, or whose process is gone: the whole tree waits, and goes on where it stood."""

import asyncio
from typing import Any

import pytest

from app import (
    ApprovalDecision,
    BudgetLimits,
    ConcurrencyConfig,
    ConfigurationError,
    Deadline,
    DeferringGate,
    Run,
    RunState,
)
from app.events import RunSuspended, ToolResult
from app.ports.tools import ToolContext
from app.providers import ScriptedCall, ScriptedStep
from tests.execution.crew import (
    Crew,
    called,
    chief,
    child_ids,
    every,
    granted,
    kinds,
    kinds_below,
    member,
    one,
    payer,
    states_below,
    to_pay,
)
from tests.execution.fakes import Recorder, Stall, call, calls, let_others_run, make_tool, say


def office(
    *steps: ScriptedStep, inputs: tuple[str, ...] = ("Pay.",), pay: Recorder | None = None, **fields: Any
) -> Crew:
    """The chief calls the payer, which plays these steps; nobody answers at once."""
    return Crew(
        {"chief": [to_pay(*inputs), say("Done.")], "payer": steps},
        {"pay": pay or Recorder("receipt")},
        approvals=DeferringGate(),
        **fields,
    )


def denied(run: Run[Any]) -> ApprovalDecision:
    return ApprovalDecision(approval_id=run.waiting_for[0], approved=False, decided_by="grace", reason="too much")


# --- waiting for people ----------------------------------------------------------------------------------------------


async def test_a_run_below_that_waits_for_a_person_suspends_its_caller() -> None:
    pay = Recorder()
    crew = office(call("pay"), say("Paid."), pay=pay)
    run = await crew.run(chief(payer()))
    assert (run.state, states_below(crew, run), pay.calls) == (RunState.SUSPENDED, [RunState.SUSPENDED], [])
    assert len(run.waiting_for) == 1


async def test_the_caller_waits_for_the_question_that_was_asked_below() -> None:
    crew = office(call("pay"), say("Paid."))
    run = await crew.run(chief(payer()))
    log = crew.log(child_ids(run)[0], root=run.run_id)
    [asked] = [event.body for event in log if event.kind == "approval_required"]
    assert run.waiting_for == (asked.approval_id,)  # type: ignore[union-attr]
    assert one(run, RunSuspended).approval_ids == run.waiting_for


async def test_the_open_question_can_be_read() -> None:
    crew = office(call("pay"), say("Paid."))
    run = await crew.run(chief(payer()))
    [record] = crew.suspensions.pending()
    assert (record.approval_id, record.tool, record.agent) == (run.waiting_for[0], "pay", "payer")


async def test_a_grant_lets_the_whole_tree_go_on() -> None:
    pay = Recorder()
    crew = office(call("pay"), say("Paid."), pay=pay)
    waiting = await crew.run(chief(payer()))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (run.output, len(pay.calls), "Paid." in one(run, ToolResult).content) == ("Done.", 1, True)
    assert states_below(crew, run) == [RunState.COMPLETED]


async def test_it_goes_on_with_the_same_run_below() -> None:
    crew = office(call("pay"), say("Paid."))
    waiting = await crew.run(chief(payer()))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert child_ids(run) == child_ids(waiting)
    assert kinds_below(crew, run).count("run_started") == 1
    assert kinds_below(crew, run).count("run_resumed") == 1


async def test_no_model_is_asked_again_for_what_was_said_before() -> None:
    crew = office(call("pay"), say("Paid."))
    waiting = await crew.run(chief(payer()))
    await crew.runner.resume_with_decision(granted(waiting))
    assert crew.speakers == ["chief", "payer", "payer", "chief"]


async def test_a_denial_is_told_below_and_the_tree_goes_on() -> None:
    pay = Recorder()
    crew = office(call("pay"), say("They said no."), pay=pay)
    waiting = await crew.run(chief(payer()))
    run = await crew.runner.resume_with_decision(denied(waiting))
    assert (run.output, pay.calls, "They said no." in one(run, ToolResult).content) == ("Done.", [], True)


async def test_an_answer_is_applied_once() -> None:
    crew = office(call("pay"), say("Paid."))
    waiting = await crew.run(chief(payer()))
    await crew.runner.resume_with_decision(granted(waiting))
    with pytest.raises(ConfigurationError):
        await crew.runner.resume_with_decision(granted(waiting))


async def test_the_wait_is_told_once_in_each_log() -> None:
    crew = office(call("pay"), say("Paid."))
    waiting = await crew.run(chief(payer()))
    assert kinds(waiting).count("run_suspended") == 1
    assert kinds(waiting)[-1] == "run_suspended"
    assert kinds_below(crew, waiting)[-1] == "run_suspended"


async def test_going_on_is_no_new_tool_call_to_the_budget() -> None:
    crew = office(call("pay"), say("Paid."))
    waiting = await crew.run(chief(payer(), budget=BudgetLimits(max_tool_calls=2)))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (run.output, run.tool_calls) == ("Done.", 1)


async def test_what_was_spent_below_before_the_wait_still_counts() -> None:
    crew = office(call("pay"), say("Paid."))
    waiting = await crew.run(chief(payer(), max_llm_calls=3))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (run.cap, len(crew.provider.requests)) == ("max_llm_calls", 3)


async def test_what_one_that_ended_before_the_wait_has_spent_counts_after_it() -> None:
    crew = Crew(
        {
            "chief": [call("writer", input="Write."), to_pay("Pay."), say("Never.")],
            "writer": [say("Written.")],
            "payer": [call("pay"), say("Paid.")],
        },
        {"pay": Recorder()},
        approvals=DeferringGate(),
    )
    waiting = await crew.run(chief(member("writer"), payer(), max_llm_calls=5))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (run.cap, len(crew.provider.requests)) == ("max_llm_calls", 5)


async def test_two_levels_below_the_whole_path_waits_and_goes_on() -> None:
    pay = Recorder()
    scripts = {
        "chief": [call("mid", input="Go."), say("Done.")],
        "mid": [call("payer", input="Pay."), say("Mid.")],
        "payer": [call("pay"), say("Paid.")],
    }
    crew = Crew(scripts, {"pay": pay}, approvals=DeferringGate())
    waiting = await crew.run(chief(member("mid", sub_agents=(called(payer()),))))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (waiting.state, run.output, len(pay.calls)) == (RunState.SUSPENDED, "Done.", 1)
    assert crew.speakers == ["chief", "mid", "payer", "payer", "mid", "chief"]


async def test_after_a_transfer_below_the_question_is_the_new_agents() -> None:
    scripts = {
        "chief": [call("mid", input="Go."), say("Done.")],
        "mid": [call("transfer_to_agent", agent_name="payer")],
        "payer": [call("pay"), say("Paid.")],
    }
    crew = Crew(scripts, {"pay": Recorder()}, approvals=DeferringGate())
    waiting = await crew.run(chief(member("mid", sub_agents=(payer(),))))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (run.output, crew.speakers) == ("Done.", ["chief", "mid", "payer", "payer", "chief"])


# --- several calls in a turn -----------------------------------------------------------------------------------------


async def test_the_second_call_of_the_turn_begins_when_the_first_is_through() -> None:
    pay = Recorder()
    crew = office(call("pay"), say("One."), call("pay"), say("Two."), inputs=("One.", "Two."), pay=pay)
    first = await crew.run(chief(payer()))
    second = await crew.runner.resume_with_decision(granted(first))
    run = await crew.runner.resume_with_decision(granted(second))
    assert (len(child_ids(first)), second.state, run.output, len(pay.calls)) == (1, RunState.SUSPENDED, "Done.", 2)
    assert first.waiting_for != second.waiting_for


async def test_two_that_wait_at_once_are_both_waited_for() -> None:
    pay = Recorder()
    crew = office(call("pay"), call("pay"), say("One."), say("Two."), inputs=("One.", "Two."), pay=pay)
    first = await crew.run(chief(payer(), concurrency=ConcurrencyConfig(max_concurrent_tools=2)))
    assert (len(first.waiting_for), states_below(crew, first)) == (2, [RunState.SUSPENDED, RunState.SUSPENDED])
    second = await crew.runner.resume_with_decision(granted(first))
    run = await crew.runner.resume_with_decision(granted(second))
    assert (second.state, run.output, len(pay.calls)) == (RunState.SUSPENDED, "Done.", 2)


async def test_the_later_question_may_be_answered_first() -> None:
    pay = Recorder()
    crew = office(call("pay"), call("pay"), say("One."), say("Two."), inputs=("One.", "Two."), pay=pay)
    first = await crew.run(chief(payer(), concurrency=ConcurrencyConfig(max_concurrent_tools=2)))
    second = await crew.runner.resume_with_decision(granted(first, place=1))
    run = await crew.runner.resume_with_decision(granted(second))
    assert (second.waiting_for, run.output, len(pay.calls)) == (first.waiting_for[:1], "Done.", 2)


async def test_one_that_ended_beside_one_that_waits_is_not_begun_again() -> None:
    crew = Crew(
        {
            "chief": [
                calls(
                    ScriptedCall(name="payer", arguments={"input": "Pay."}),
                    ScriptedCall(name="writer", arguments={"input": "Write."}),
                ),
                say("Done."),
            ],
            "payer": [call("pay"), say("Paid.")],
            "writer": [say("Written.")],
        },
        {"pay": Recorder()},
        approvals=DeferringGate(),
    )
    root = chief(payer(), member("writer"), concurrency=ConcurrencyConfig(max_concurrent_tools=2))
    waiting = await crew.run(root)
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (run.output, len(crew.asked("writer")), len(every(run, ToolResult))) == ("Done.", 1, 2)
    results = [message.name for message in crew.asked("chief")[1].messages if message.role == "tool"]
    assert results == ["payer", "writer"]


# --- ends while it waits ---------------------------------------------------------------------------------------------


async def test_a_cancel_while_it_waits_ends_those_below_first() -> None:
    crew = office(call("pay"), say("Never."))
    waiting = await crew.run(chief(payer()))
    run = await crew.runner.cancel(waiting.run_id, "enough")
    assert (run.state, states_below(crew, run), run.error_detail) == (
        RunState.CANCELLED,
        [RunState.CANCELLED],
        "enough",
    )
    assert kinds_below(crew, run)[-1] == "terminated"


async def test_the_question_below_is_withdrawn_with_it() -> None:
    crew = office(call("pay"), say("Never."))
    waiting = await crew.run(chief(payer()))
    run = await crew.runner.cancel(waiting.run_id)
    assert "approval_denied" in kinds_below(crew, run)
    assert crew.suspensions.pending() == ()
    with pytest.raises(ConfigurationError):
        await crew.runner.resume_with_decision(granted(waiting))


async def test_a_deadline_that_passed_meanwhile_ends_the_tree() -> None:
    pay = Recorder()
    crew = office(call("pay"), say("Never."), pay=pay)
    waiting = await crew.run(chief(payer()), deadline=Deadline(at=crew.clock.now() + 10))
    crew.clock.advance(11)
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (run.error_code, states_below(crew, run), pay.calls) == (
        "deadline_exceeded",
        [RunState.CANCELLED],
        [],
    )


async def test_a_failure_beside_one_that_waits_ends_both() -> None:
    turn = calls(ScriptedCall(name="payer", arguments={"input": "Pay."}), ScriptedCall(name="broken", arguments={}))
    broken = make_tool("broken", Recorder(RuntimeError("no")), parallel_safe=True)
    crew = Crew(
        {"chief": [turn], "payer": [call("pay")]}, {"pay": Recorder(), "broken": broken}, approvals=DeferringGate()
    )
    at_once = ConcurrencyConfig(max_concurrent_tools=2)
    run = await crew.run(chief(payer(), tools=("broken",), on_tool_error="fail_run", concurrency=at_once))
    assert (run.error_code, states_below(crew, run)) == ("tool_failed", [RunState.CANCELLED])


async def test_seconds_that_were_used_before_the_wait_bound_the_run_below_after_it() -> None:
    stall = Stall()

    async def slow(arguments: dict[str, Any], context: ToolContext) -> str:
        crew.clock.advance(8)
        return "seen"

    crew = Crew(
        {"chief": [call("look"), to_pay("Pay."), say("Never.")], "payer": [call("pay"), say("Never.")]},
        {"pay": stall.as_tool, "look": slow},
        approvals=DeferringGate(),
    )
    waiting = await crew.run(chief(payer(), tools=("look",), budget=BudgetLimits(max_seconds=10)))
    going_on = asyncio.create_task(crew.runner.resume_with_decision(granted(waiting)))
    await stall.reached.wait()
    crew.clock.advance(3)
    await let_others_run()
    was_cut = stall.was_cut
    stall.go_on.set()
    await going_on
    assert was_cut
