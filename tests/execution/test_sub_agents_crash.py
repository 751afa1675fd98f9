"""A process that goes away while a run below is at work: whoever resumes the root goes on in that same run."""

import asyncio
from typing import Any

import pytest

from app import CancellationToken, ConcurrencyConfig, ConfigurationError, Effect, Run, RunState
from app.agents import Agent
from app.events import Terminated, ToolCalled, ToolFailed, ToolResult
from app.ports.tools import ToolContext
from tests.execution.crew import Crew, chief, child_ids, every, kinds_below, member, one, states_below, to_pay
from tests.execution.fakes import GuardSays, Recorder, Stall, call, make_tool, say


async def crash(crew: Crew, root: Agent, stall: Stall, **fields: Any) -> str:
    """The process goes away where the stall is reached; returns the run's id."""
    running = asyncio.create_task(crew.run(root, **fields))
    await stall.reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    stall.go_on.set()
    [run_id] = crew.checkpoints.run_ids()
    return run_id


def worker() -> Agent:
    return chief(member("payer", tools=("pay",)))


async def test_a_crash_in_a_tool_below_goes_on_in_the_same_run() -> None:
    stall = Stall()
    slow = make_tool("pay", stall.as_tool, effect=Effect.IDEMPOTENT)
    crew = Crew({"chief": [to_pay("Pay."), say("Done.")], "payer": [call("pay"), say("Paid.")]}, {"pay": slow})
    run_id = await crash(crew, worker(), stall)
    run = await crew.runner.resume(run_id)
    assert (run.output, len(child_ids(run)), states_below(crew, run)) == ("Done.", 1, [RunState.COMPLETED])
    assert kinds_below(crew, run).count("run_queued") == 1
    assert kinds_below(crew, run).count("tool_call") == 2
    assert crew.speakers == ["chief", "payer", "payer", "chief"]


async def test_a_call_below_that_may_not_go_out_twice_does_not() -> None:
    stall = Stall()
    slow = make_tool("pay", stall.as_tool, effect=Effect.ONCE)
    crew = Crew({"chief": [to_pay("Pay."), say("Sorry.")], "payer": [call("pay")]}, {"pay": slow})
    run_id = await crash(crew, worker(), stall)
    run = await crew.runner.resume(run_id)
    assert (run.output, "tool_indeterminate" in one(run, ToolFailed).content) == ("Sorry.", True)
    assert kinds_below(crew, run).count("tool_call") == 1


async def test_the_call_of_the_sub_agent_is_dispatched_again_under_the_same_name() -> None:
    stall = Stall()
    slow = make_tool("pay", stall.as_tool, effect=Effect.IDEMPOTENT)
    crew = Crew({"chief": [to_pay("Pay."), say("Done.")], "payer": [call("pay"), say("Paid.")]}, {"pay": slow})
    run_id = await crash(crew, worker(), stall)
    run = await crew.runner.resume(run_id)
    first, second = every(run, ToolCalled)
    assert (first.dispatch, second.dispatch, first.child_run_id) == (1, 2, second.child_run_id)


async def test_a_crash_after_the_run_below_ended_does_not_begin_it_again() -> None:
    stall = Stall()

    async def after(tool: Any, args: Any, tool_context: ToolContext, tool_response: Any) -> None:
        await stall.wait()

    crew = Crew({"chief": [to_pay("Pay."), say("Done.")], "payer": [say("Paid.")]}, {"pay": Recorder()})
    run_id = await crash(crew, worker().model_copy(update={"after_tool_callback": (after,)}), stall)
    run = await crew.runner.resume(run_id)
    assert (run.output, crew.speakers, "Paid." in one(run, ToolResult).content) == (
        "Done.",
        ["chief", "payer", "chief"],
        True,
    )


async def test_after_a_crash_a_cancel_ends_what_was_left_below() -> None:
    stall, token = Stall(), CancellationToken()
    slow = make_tool("pay", stall.as_tool, effect=Effect.IDEMPOTENT)
    crew = Crew({"chief": [to_pay("Pay.")], "payer": [call("pay")]}, {"pay": slow})
    run_id = await crash(crew, worker(), stall)
    token.cancel("enough")
    run = await crew.runner.resume(run_id, cancellation=token)
    last = crew.log(child_ids(run)[0], root=run.run_id)[-1].body
    assert (run.state, isinstance(last, Terminated)) == (RunState.CANCELLED, True)


async def test_a_process_that_lacks_what_is_declared_below_ends_the_whole_tree() -> None:
    stall, guard = Stall(), GuardSays()
    slow = make_tool("pay", stall.as_tool, effect=Effect.IDEMPOTENT)
    scripts = {"chief": [to_pay("Pay.")], "payer": [call("pay")]}
    crew = Crew(scripts, {"pay": slow}, guardrails={"guard": guard})
    run_id = await crash(crew, chief(member("payer", tools=("pay",), guardrails=("guard",))), stall)
    later = Crew(scripts, {"pay": slow}, checkpoints=crew.checkpoints)
    with pytest.raises(ConfigurationError) as refused:
        await later.runner.resume(run_id)
    run = refused.value.run
    assert isinstance(run, Run)
    assert (run.error_code, states_below(crew, run)) == ("configuration_error", [RunState.CANCELLED])


async def test_after_a_crash_what_was_spent_below_still_counts() -> None:
    stall = Stall()
    slow = make_tool("pay", stall.as_tool, effect=Effect.IDEMPOTENT)
    crew = Crew({"chief": [to_pay("Pay."), say("Never.")], "payer": [call("pay"), say("Paid.")]}, {"pay": slow})
    run_id = await crash(crew, worker().model_copy(update={"max_llm_calls": 3}), stall)
    run = await crew.runner.resume(run_id)
    assert (run.cap, len(crew.provider.requests)) == ("max_llm_calls", 3)


async def test_a_crash_while_two_are_out_goes_on_with_both() -> None:
    stall = Stall()
    slow = make_tool("pay", stall.as_tool, effect=Effect.IDEMPOTENT)
    crew = Crew(
        {
            "chief": [to_pay("One.", "Two."), say("Done.")],
            "payer": [call("pay"), call("pay"), say("One."), say("Two.")],
        },
        {"pay": slow},
    )
    at_once = ConcurrencyConfig(max_concurrent_tools=2)
    run_id = await crash(crew, worker().model_copy(update={"concurrency": at_once}), stall)
    run = await crew.runner.resume(run_id)
    assert (run.output, len(child_ids(run)), len(crew.provider.requests)) == ("Done.", 2, 6)
    assert states_below(crew, run) == [RunState.COMPLETED, RunState.COMPLETED]
