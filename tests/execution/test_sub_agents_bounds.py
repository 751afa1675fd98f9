"""What bounds a run that another one called: the caller's means, its depth, its time and its end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app import BudgetLimits, CancellationToken, ConcurrencyConfig, Deadline, DeadlineConfig, Run, RunEvent, RunState
from app.agents import Agent
from app.conversation import Usage
from app.events import DeadlineExceeded, DepthExceeded, ModelCall, Terminated, ToolFailed
from app.providers import ScriptedCall, ScriptedStep
from tests.execution.crew import Crew, called, chief, child_ids, every, member, one
from tests.execution.fakes import Recorder, Stall, call, calls, say

EACH = Usage(input_tokens=10, output_tokens=10)


def writer(**fields: Any) -> Agent:
    return member("writer", **fields)


def writes(*steps: ScriptedStep, tools: dict[str, Any] | None = None, **fields: Any) -> Crew:
    return Crew({"chief": [call("writer", input="Write."), say("Done.")], "writer": steps}, tools, **fields)


def end_of(crew: Crew, run: Run[Any], place: int = 0) -> Terminated:
    """How a run below ended."""
    body = crew.log(child_ids(run)[place], root=run.run_id)[-1].body
    assert isinstance(body, Terminated)
    return body


def both() -> ScriptedStep:
    """Two calls of the writer in one turn."""
    return calls(*[ScriptedCall(name="writer", arguments={"input": text}) for text in ("One.", "Two.")])


# --- the callers means -----------------------------------------------------------------------------------------------


async def test_what_is_spent_below_the_caller_no_longer_has() -> None:
    run = await writes(say("Written.")).run(chief(writer(), budget=BudgetLimits(max_model_calls=2)))
    assert (run.state, run.cap) == (RunState.BUDGET_EXHAUSTED, "max_model_calls")


async def test_a_run_below_can_not_spend_what_the_caller_has_not() -> None:
    crew = writes(call("look"), call("look"), say("Written."), tools={"look": Recorder()})
    run = await crew.run(chief(writer(tools=("look",)), budget=BudgetLimits(max_model_calls=3)))
    assert (end_of(crew, run).cap, len(crew.asked("writer")), run.cap) == ("max_model_calls", 2, "max_model_calls")


async def test_tool_calls_below_are_the_callers_too() -> None:
    look = Recorder()
    crew = writes(call("look"), call("look"), say("Written."), tools={"look": look})
    run = await crew.run(chief(writer(tools=("look",)), budget=BudgetLimits(max_tool_calls=2)))
    assert (len(look.calls), end_of(crew, run).cap) == (1, "max_tool_calls")


async def test_output_below_stops_where_the_callers_ends() -> None:
    crew = Crew(
        {
            "chief": [call("writer", input="Write.").model_copy(update={"usage": EACH}), say("Done.")],
            "writer": [say("Written.")],
        }
    )
    await crew.run(chief(writer(), budget=BudgetLimits(max_output_tokens=15)))
    assert crew.asked("writer")[0].max_output_tokens == 5


async def test_its_own_budget_binds_it_alone() -> None:
    crew = writes(call("look"), say("Never."), tools={"look": Recorder()})
    run = await crew.run(chief(writer(tools=("look",), budget=BudgetLimits(max_model_calls=1))))
    assert (end_of(crew, run).state, run.state, run.output) == (
        RunState.BUDGET_EXHAUSTED,
        RunState.COMPLETED,
        "Done.",
    )


async def test_a_budget_of_its_own_does_not_widen_the_callers() -> None:
    crew = writes(call("look"), say("Written."), tools={"look": Recorder()})
    wide = writer(tools=("look",), budget=BudgetLimits(max_model_calls=50))
    run = await crew.run(chief(wide, budget=BudgetLimits(max_model_calls=2)))
    assert (end_of(crew, run).cap, len(crew.asked("writer"))) == ("max_model_calls", 1)


async def test_the_deployments_budget_binds_the_runs_below() -> None:
    crew = writes(call("look"), say("Written."), tools={"look": Recorder()}, budget=BudgetLimits(max_model_calls=2))
    run = await crew.run(chief(writer(tools=("look",))))
    assert (run.state, len(crew.provider.requests)) == (RunState.BUDGET_EXHAUSTED, 2)


async def test_its_iterations_are_its_own() -> None:
    crew = writes(call("look"), say("Written."), tools={"look": Recorder()})
    run = await crew.run(chief(writer(tools=("look",), max_iterations=1)))
    assert (end_of(crew, run).state, run.state) == (RunState.MAX_ITERATIONS_EXCEEDED, RunState.COMPLETED)


async def test_two_runs_below_at_once_spend_one_budget() -> None:
    crew = Crew(
        {"chief": [both(), say("Done.")], "writer": [call("look"), call("look"), say("One."), say("Two.")]},
        {"look": Recorder()},
    )
    at_once = ConcurrencyConfig(max_concurrent_tools=2)
    run = await crew.run(chief(writer(tools=("look",)), concurrency=at_once, budget=BudgetLimits(max_model_calls=4)))
    assert (len(crew.provider.requests), run.cap) == (4, "max_model_calls")


# --- depth and peers -------------------------------------------------------------------------------------------------


def three_deep(**fields: Any) -> tuple[Crew, Agent]:
    crew = Crew(
        {
            "chief": [call("writer", input="Write."), say("Done.")],
            "writer": [call("reader", input="Read."), say("Written.")],
            "reader": [say("Read.")],
        }
    )
    return crew, chief(writer(sub_agents=(called(member("reader")),)), **fields)


async def test_nobody_is_called_deeper_than_the_callers_depth_allows() -> None:
    crew, root = three_deep(budget=BudgetLimits(max_delegation_depth=1))
    run = await crew.run(root)
    assert (run.output, crew.asked("reader")) == ("Done.", [])


async def test_the_refusal_names_the_path() -> None:
    crew, root = three_deep(budget=BudgetLimits(max_delegation_depth=1))
    run = await crew.run(root)
    [child_id] = child_ids(run)
    made = [body for event in crew.log(child_id, root=run.run_id) if (body := event.body).kind == "tool_call"]
    deepest = crew.log(made[0].child_run_id, root=run.run_id)  # type: ignore[arg-type]
    [exceeded] = [event.body for event in deepest if isinstance(event.body, DepthExceeded)]
    assert (exceeded.depth, exceeded.path) == (2, ("chief", "writer", "reader"))
    assert deepest[-1].body.code == "delegation_depth_exceeded"  # type: ignore[union-attr]


async def test_a_depth_that_is_just_reached_is_allowed() -> None:
    crew, root = three_deep(budget=BudgetLimits(max_delegation_depth=2))
    await crew.run(root)
    assert len(crew.asked("reader")) == 1


async def test_a_call_past_the_cap_on_peers_asks_no_model() -> None:
    crew = Crew({"chief": [both(), say("Done.")], "writer": [say("One."), say("Two.")]})
    run = await crew.run(chief(writer(), budget=BudgetLimits(max_peer_invocations=1)))
    assert (len(crew.asked("writer")), end_of(crew, run, 1).cap) == (1, "max_peer_invocations")


async def test_peers_are_counted_over_the_whole_tree() -> None:
    crew, root = three_deep(budget=BudgetLimits(max_peer_invocations=1))
    await crew.run(root)
    assert crew.asked("reader") == []


# --- cancel and deadline ---------------------------------------------------------------------------------------------


async def cancelled_below(*, place: str = "tool", **fields: Any) -> tuple[Crew, Run[Any], Stall]:
    stall, token = Stall(), CancellationToken()
    crew = writes(call("wait"), say("Never."), tools={"wait": stall.as_tool})
    running = asyncio.create_task(crew.run(chief(writer(tools=("wait",)), **fields), cancellation=token))
    await stall.reached.wait()
    token.cancel("enough")
    return crew, await running, stall


async def test_a_cancel_reaches_the_work_below() -> None:
    _, run, stall = await cancelled_below()
    assert (run.state, run.error_code, run.error_detail, stall.was_cut) == (
        RunState.CANCELLED,
        "cancelled",
        "enough",
        True,
    )


async def test_a_cancel_is_what_ends_the_caller_also_where_failures_of_tools_do() -> None:
    _, run, _ = await cancelled_below(on_tool_error="fail_run")
    assert run.error_code == "cancelled"


async def test_the_run_below_ends_before_its_caller() -> None:
    stall, token, ended = Stall(), CancellationToken(), []
    crew = writes(call("wait"), tools={"wait": stall.as_tool})

    async def note(events: Sequence[RunEvent]) -> None:
        ended.extend([event.run_id for event in events if event.kind == "terminated"])

    running = asyncio.create_task(crew.run(chief(writer(tools=("wait",))), cancellation=token, run_id="run_1"))
    await stall.reached.wait()
    crew.kept("run_1").store.listener = note
    token.cancel("enough")
    run = await running
    assert ended == [*child_ids(run), "run_1"]


async def test_nobody_below_is_left_open_whatever_the_depth() -> None:
    stall, token = Stall(), CancellationToken()
    scripts = {
        "chief": [call("writer", input="Write.")],
        "writer": [call("reader", input="Read.")],
        "reader": [call("wait")],
    }
    crew = Crew(scripts, {"wait": stall.as_tool})
    root = chief(writer(sub_agents=(called(member("reader", tools=("wait",))),)))
    running = asyncio.create_task(crew.run(root, cancellation=token))
    await stall.reached.wait()
    token.cancel()
    run = await running
    states = [crew.record(crew.asked(name)[0].run_id, root=run.run_id).state for name in ("reader", "writer", "chief")]
    assert states == [RunState.CANCELLED, RunState.CANCELLED, RunState.CANCELLED]


async def late_below(**fields: Any) -> tuple[Crew, Run[Any]]:
    """The run's deadline passes while a tool of the run below is out."""
    stall = Stall()
    crew = writes(call("wait"), say("Never."), tools={"wait": stall.as_tool})
    root = chief(writer(tools=("wait",)), **fields)
    running = asyncio.create_task(crew.run(root, deadline=Deadline(at=crew.clock.now() + 10)))
    await stall.reached.wait()
    crew.clock.advance(10)
    return crew, await running


async def test_the_callers_deadline_ends_the_run_below() -> None:
    crew, run = await late_below()
    assert (run.state, run.error_code) == (RunState.CANCELLED, "deadline_exceeded")
    assert (end_of(crew, run).state, end_of(crew, run).code) == (RunState.CANCELLED, "deadline_exceeded")


async def test_the_callers_deadline_names_its_end_also_where_failures_of_tools_do() -> None:
    _, run = await late_below(on_tool_error="fail_run")
    assert (run.state, run.error_code, len(every(run, DeadlineExceeded))) == (
        RunState.CANCELLED,
        "deadline_exceeded",
        1,
    )


async def test_a_deadline_of_its_own_ends_the_run_below_alone() -> None:
    stall = Stall()
    crew = writes(call("wait"), say("Never."), tools={"wait": stall.as_tool})
    child = writer(tools=("wait",), deadlines=DeadlineConfig(run_seconds=5))
    running = asyncio.create_task(crew.run(chief(child)))
    await stall.reached.wait()
    crew.clock.advance(5)
    run = await running
    assert (run.output, end_of(crew, run).code, one(run, ToolFailed).name) == ("Done.", "deadline_exceeded", "writer")


async def test_a_ceiling_on_tool_calls_bounds_the_run_below() -> None:
    stall = Stall()
    crew = writes(call("wait"), say("Never."), tools={"wait": stall.as_tool})
    root = chief(writer(tools=("wait",)), deadlines=DeadlineConfig(tool_call_seconds=5))
    running = asyncio.create_task(crew.run(root))
    await stall.reached.wait()
    crew.clock.advance(5)
    run = await running
    assert (end_of(crew, run).code, run.state.is_terminal) == ("deadline_exceeded", True)


async def test_a_caller_that_fails_beside_a_run_below_leaves_it_ended() -> None:
    stall = Stall()

    async def broken(arguments: dict[str, Any], context: Any) -> str:
        await stall.reached.wait()
        stall.go_on.set()
        raise RuntimeError("out of order")

    turn = calls(ScriptedCall(name="writer", arguments={"input": "Write."}), ScriptedCall(name="broken", arguments={}))
    crew = Crew({"chief": [turn], "writer": [call("wait"), say("Written.")]}, {"wait": stall.as_tool, "broken": broken})
    root = chief(writer(tools=("wait",)), tools=("broken",), on_tool_error="fail_run")
    running = asyncio.create_task(crew.run(root))
    await stall.reached.wait()
    stall.go_on.set()
    run = await running
    assert (run.error_code, end_of(crew, run).state) == ("tool_failed", RunState.COMPLETED)


@pytest.mark.parametrize("cap", [1, 2])
async def test_a_caller_that_ends_at_a_cap_leaves_nothing_open(cap: int) -> None:
    crew = writes(call("look"), say("Written."), tools={"look": Recorder()})
    run = await crew.run(chief(writer(tools=("look",)), budget=BudgetLimits(max_model_calls=cap)))
    open_runs = [run_id for run_id in child_ids(run) if not crew.record(run_id, root=run.run_id).state.is_terminal]
    assert (open_runs, run.state, len(every(run, ModelCall))) == ([], RunState.BUDGET_EXHAUSTED, 1)
