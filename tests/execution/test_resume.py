"""A run goes on where it stood: after a suspension, and after the process was cancelled in it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from app import (
    ApprovalDecision,
    ApprovalRecord,
    BudgetLimits,
    CancellationToken,
    ConfigurationError,
    HookDecision,
    HookPoint,
    LoopConfig,
    Run,
    RunState,
    Usage,
)
from app.agents import Agent
from app.events import ApprovalGranted, ModelResponded, ToolCalled, ToolIndeterminate
from app.ids import RunId
from app.policy import Effect, Indeterminate
from app.providers import ScriptedStep
from app.testing import SequentialIds
from tests.execution.desk import (
    Delegation,
    Desk,
    Office,
    SlowDesk,
    Stores,
    every,
    grant,
    granting,
    kinds,
    one,
    payer,
    paying,
    pays,
)
from tests.execution.fakes import HookSays, Stall, call, say
from tests.execution.support import clerk

RUN_ID = RunId(SequentialIds().new("run"))
EXACT = Usage(input_tokens=40, output_tokens=6)


async def through_suspension(
    *script: ScriptedStep, agent: Agent | None = None, **fields: Any
) -> tuple[Run[Any], Run[Any]]:
    """How a run was suspended, and how it ended after the grant."""
    office = Stores().office(*script, **fields)
    waiting = await office.run(agent)
    return waiting, await office.runner.resume_with_decision(granting(waiting))


# --- what is carried over --------------------------------------------------------------------------------------------


async def test_the_events_of_a_suspended_run_stand_before_those_that_follow() -> None:
    waiting, run = await through_suspension(pays(3), say("Well."))
    assert run.events[: len(waiting.events)] == waiting.events
    assert kinds(run)[len(waiting.events)] == "run_resumed"


async def test_the_numbers_of_a_resumed_run_are_one_sequence() -> None:
    _, run = await through_suspension(pays(3), say("Well."))
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))


async def test_a_resumed_run_starts_once_and_assembles_its_first_prompt_once() -> None:
    _, run = await through_suspension(pays(3), say("Well."))
    assert (kinds(run).count("run_queued"), kinds(run).count("run_started")) == (1, 1)
    assert (kinds(run).count("prompt_assembled"), kinds(run).count("terminated")) == (1, 1)


async def test_the_usage_of_a_resumed_run_is_that_of_all_its_model_calls() -> None:
    script = [pays(3).model_copy(update={"usage": EXACT}), say("Well.", usage=EXACT)]
    waiting, run = await through_suspension(*script)
    assert (waiting.usage, run.usage) == (EXACT, EXACT + EXACT)
    assert [response.usage for response in every(run, ModelResponded)] == [EXACT, EXACT]


async def test_a_resumed_run_counts_the_calls_from_before() -> None:
    waiting, run = await through_suspension(call("look"), pays(3), say("Well."))
    assert (waiting.model_calls, waiting.tool_calls) == (2, 1)
    assert (run.model_calls, run.tool_calls) == (3, 2)


async def test_a_resumed_run_counts_the_repetitions_from_before() -> None:
    agent = payer(loop=LoopConfig(max_repeated_calls=1))
    _, run = await through_suspension(call("look", n=1), pays(3), call("look", n=1), agent=agent)
    assert (run.state, run.error_code) == (RunState.LOOP_LIMIT_EXCEEDED, "repeated_call")


async def test_a_resumed_run_counts_its_own_granted_call_as_a_repetition() -> None:
    agent = payer(loop=LoopConfig(max_repeated_calls=1))
    _, run = await through_suspension(pays(3), pays(3), agent=agent)
    assert (run.state, run.error_code) == (RunState.LOOP_LIMIT_EXCEEDED, "repeated_call")


async def test_a_resumed_run_counts_the_iterations_from_before() -> None:
    _, run = await through_suspension(call("look"), pays(3), say("Well."), agent=payer(max_iterations=2))
    assert run.state is RunState.MAX_ITERATIONS_EXCEEDED


async def test_a_resumed_run_has_only_the_budget_that_is_left() -> None:
    _, run = await through_suspension(call("look"), pays(3), say("Well."), budget=BudgetLimits(max_model_calls=2))
    assert (run.state, run.cap) == (RunState.BUDGET_EXHAUSTED, "max_model_calls")


async def test_a_resumed_run_has_only_the_tool_calls_that_are_left() -> None:
    _, run = await through_suspension(pays(3), call("look"), say("Well."), budget=BudgetLimits(max_tool_calls=1))
    assert (run.state, run.cap) == (RunState.BUDGET_EXHAUSTED, "max_tool_calls")


async def test_a_resumed_run_keeps_its_depth_and_its_path() -> None:
    inner = Stores().office(pays(3), say("Well."))
    delegation = Delegation(inner, payer(name="inner"))
    outer = Office(call("look"), say("Done."), look=delegation)
    await outer.run(clerk(name="outer", tools=("look",)))
    [waiting] = delegation.runs
    run = await inner.runner.resume_with_decision(granting(waiting))
    assert (waiting.state, waiting.depth, waiting.path) == (RunState.SUSPENDED, 1, ("outer", "inner"))
    assert (run.state, run.depth, run.path) == (RunState.COMPLETED, 1, ("outer", "inner"))


async def test_a_hook_is_not_asked_again_about_a_call_that_it_has_passed() -> None:
    cap = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: HookDecision.rewrite('{"amount": 1}'))
    office = Stores().office(pays(3), say("Well."), hooks=[cap])
    await office.runner.resume_with_decision(granting(await office.run()))
    assert (len(cap.asked), office.paid) == (1, [1])


async def test_the_model_goes_on_with_the_conversation_as_it_was() -> None:
    office = Stores().office(call("look"), pays(3), say("Well."))
    waiting = await office.run()
    await office.runner.resume_with_decision(granting(waiting))
    before, after = office.provider.requests[1], office.provider.requests[2]
    assert after.messages[: len(before.messages)] == before.messages
    assert [message.role for message in after.messages[len(before.messages) :]] == ["assistant", "tool"]


async def test_the_prompt_of_a_resumed_run_keeps_its_fingerprint_and_its_version() -> None:
    waiting, run = await through_suspension(pays(3), say("Well."))
    assert (run.prompt_fingerprint, run.prompt_version) == (waiting.prompt_fingerprint, waiting.prompt_version)


# --- the process was cancelled ---------------------------------------------------------------------------------------


async def cut_off(work: Coroutine[Any, Any, Run[Any]], stall: Stall) -> None:
    """The task of a run is cancelled where it stalls."""
    running = asyncio.create_task(work)
    await stall.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    stall.go_on.set()


class Counted(Stall):
    """A tool that stalls, and counts how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def __call__(self, arguments: dict[str, Any], context: Any) -> str:
        self.calls += 1
        return await self.as_tool(arguments, context)


def paying_with(tool: Counted, **fields: Any) -> Office:
    """A process over stores of its own, whose payment stalls and whose gate grants."""
    return Stores().office(pays(3), say("Well."), gate=Desk(), pay=tool, **fields)


async def test_a_cancelled_task_is_cancelled_and_its_run_can_be_driven_to_its_end() -> None:
    gate = SlowDesk()
    office = Stores().office(pays(3), say("Well."), gate=gate)
    await cut_off(office.run(run_id=RUN_ID), gate.stall)
    run = await office.runner.resume(RUN_ID)
    assert (run.run_id, run.state, run.output, office.paid) == (RUN_ID, RunState.COMPLETED, "Well.", [3])
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))


async def test_a_once_tool_that_was_out_is_never_called_again() -> None:
    tool = Counted()
    office = paying_with(tool)
    await cut_off(office.run(run_id=RUN_ID), tool)
    run = await office.runner.resume(RUN_ID)
    assert (tool.calls, kinds(run).count("tool_call")) == (1, 1)
    assert (run.state, run.error_code) == (RunState.FAILED, "tool_indeterminate")


async def test_the_model_is_told_that_the_outcome_is_unknown_where_the_agent_says_so() -> None:
    tool = Counted()
    office = paying_with(tool)
    await cut_off(office.run(run_id=RUN_ID, agent=payer(on_indeterminate=Indeterminate.SURFACE)), tool)
    run = await office.runner.resume(RUN_ID)
    assert (tool.calls, run.state, one(run, ToolIndeterminate).call_id) == (1, RunState.COMPLETED, "call_1_1")


async def test_an_idempotent_tool_that_was_out_is_called_again_with_a_grant_of_its_own() -> None:
    tool, desk = Counted(), Desk()
    office = Stores().office(pays(3), say("Well."), gate=desk, pay=tool, pay_fields={"effect": Effect.IDEMPOTENT})
    await cut_off(office.run(run_id=RUN_ID), tool)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, tool.calls, len(desk.asked)) == (RunState.COMPLETED, 2, 2)
    assert [called.dispatch for called in every(run, ToolCalled)] == [1, 2]


class SlowSecond(SlowDesk):
    """A gate that grants the first question at once, and thinks about every other."""

    async def decide(self, record: ApprovalRecord) -> ApprovalDecision:
        answer = super().decide if self.asked else self._at_once
        return await answer(record)

    async def _at_once(self, record: ApprovalRecord) -> ApprovalDecision:
        self.asked.append(record)
        return grant(record)


async def test_what_was_granted_before_the_cancel_is_not_asked_again() -> None:
    gate = SlowSecond()
    office = Stores().office(pays(1, 2), say("Well."), gate=gate)
    await cut_off(office.run(run_id=RUN_ID), gate.stall)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, office.paid, len(every(run, ApprovalGranted))) == (RunState.COMPLETED, [1, 2], 2)
    assert [record.call_id for record in gate.asked] == ["call_1_1", "call_1_2", "call_1_2"]


async def test_a_granted_call_that_was_cut_off_after_a_suspension_is_not_called_again() -> None:
    tool = Counted()
    office = Stores().office(pays(3), say("Well."), pay=tool)
    waiting = await office.run(run_id=RUN_ID)
    await cut_off(office.runner.resume_with_decision(granting(waiting)), tool)
    run = await office.runner.resume(RUN_ID)
    assert (tool.calls, run.error_code, kinds(run).count("tool_call")) == (1, "tool_indeterminate", 1)


async def test_another_process_over_the_same_stores_drives_the_run_on() -> None:
    stores, gate = Stores(), SlowDesk()
    await cut_off(stores.office(pays(3), say("Well."), gate=gate).run(run_id=RUN_ID), gate.stall)
    later = stores.office(pays(3), say("Well."), gate=Desk())
    run = await later.runner.resume(RUN_ID)
    assert (run.state, later.paid, len(later.provider.requests)) == (RunState.COMPLETED, [3], 1)


async def test_a_resumed_run_can_be_cancelled() -> None:
    gate, token = SlowDesk(), CancellationToken()
    office = Stores().office(pays(3), say("Well."), gate=gate)
    await cut_off(office.run(run_id=RUN_ID), gate.stall)
    token.cancel("enough")
    run = await office.runner.resume(RUN_ID, cancellation=token)
    assert (run.state, run.error_detail, office.paid) == (RunState.CANCELLED, "enough", [])


async def test_two_resumes_at_the_same_moment_pay_once() -> None:
    gate = SlowDesk()
    office = Stores().office(pays(3), say("Well."), gate=gate)
    await cut_off(office.run(run_id=RUN_ID), gate.stall)
    await asyncio.gather(*[office.runner.resume(RUN_ID) for _ in range(2)], return_exceptions=True)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, office.paid, kinds(run).count("terminated")) == (RunState.COMPLETED, [3], 1)


# --- what is not driven on -------------------------------------------------------------------------------------------


async def test_a_run_that_has_ended_comes_back_as_it_is() -> None:
    office = Stores().office(pays(3), say("Well."), gate=Desk(grant))
    run = await office.run()
    assert await office.runner.resume(run.run_id) == run
    assert (office.paid, len(office.provider.requests)) == ([3], 2)


async def test_a_run_that_waits_for_a_person_goes_on_waiting() -> None:
    office = Stores().office(pays(3), say("Well."))
    waiting = await office.run()
    again = await office.runner.resume(waiting.run_id)
    assert (again.state, again.waiting_for, office.paid) == (RunState.SUSPENDED, waiting.waiting_for, [])


async def test_a_run_that_nobody_knows_can_not_be_resumed() -> None:
    with pytest.raises(ConfigurationError):
        await Stores().office(say("Well.")).runner.resume(RUN_ID)


async def test_a_runner_without_stores_resumes_nothing() -> None:
    office = paying(gate=Desk())
    run = await office.run()
    with pytest.raises(ConfigurationError):
        await office.runner.resume(run.run_id)
