"""Callbacks, people and interruptions: when a callback is asked in a run that waits, or that is gone on with."""

import asyncio
from typing import Any

import pytest

from app import ApprovalDecision, ApprovalRecord, CancellationToken, RunState
from app.agents import Agent
from app.conversation import Content, FunctionCall, Part
from app.events import ApprovalGranted, ApprovalRequired, ModelResponded, ToolCalled, ToolResult
from app.ids import RunId
from app.policy import Effect
from app.ports.callbacks import CallbackPoint
from app.ports.hooks import HookPoint
from app.testing import FakeClock, SequentialIds
from tests.execution.desk import Desk, Office, Stores, deny, denying, every, grant, granting, kinds, one, payer, pays
from tests.execution.fakes import HookStalls, Stall, call, say
from tests.execution.stage import (
    POINTS,
    Asked,
    StallsOnce,
    cut_off,
    deltas,
    looker,
    looks,
    overrides,
    stage,
    until,
    writes,
)

RUN_ID = RunId(SequentialIds().new("run"))


async def interrupted(office: Office, agent: Agent, stall: Stall) -> None:
    """A run that is cut off where it stalls."""
    await cut_off(asyncio.create_task(office.run(agent, run_id=RUN_ID)), stall)


class StallingTool(Stall):
    """A tool that stalls the first time, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, arguments: dict[str, Any], context: Any) -> str:
        self.calls.append(arguments)
        await self.wait()
        return "seen"


# --- people ----------------------------------------------------------------------------------------------------------


async def test_a_callback_before_a_tool_is_asked_after_the_person() -> None:
    order: list[str] = []

    def decide(record: ApprovalRecord) -> ApprovalDecision:
        order.append("person")
        return grant(record)

    office = Office(pays(3), say("Well."), gate=Desk(decide))
    await office.run(payer(before_tool_callback=Asked(lambda _: order.append("callback"))))
    assert (order, office.paid) == (["person", "callback"], [3])


async def test_a_call_that_a_person_denies_is_asked_of_no_callback() -> None:
    asked = Asked("fine")
    office = Office(pays(3), say("Well."), gate=Desk(deny))
    run = await office.run(payer(before_tool_callback=asked))
    assert (run.state, asked.times, office.paid) == (RunState.COMPLETED, 0, [])


async def test_a_granted_call_may_still_be_stood_in_for() -> None:
    office = Office(pays(3), say("Well."), gate=Desk())
    run = await office.run(payer(before_tool_callback=Asked("No.")))
    assert (run.state, office.paid, len(every(run, ApprovalGranted)), every(run, ToolCalled)) == (
        RunState.COMPLETED,
        [],
        1,
        [],
    )


async def test_no_callback_is_asked_about_a_call_that_waits_for_a_person() -> None:
    asked = Asked(None)
    waiting = await Stores().office(pays(3), say("Well.")).run(payer(before_tool_callback=asked))
    assert (waiting.state, asked.times) == (RunState.SUSPENDED, 0)


async def test_a_callback_is_asked_once_about_a_call_that_was_granted_later() -> None:
    asked, stores = Asked(None), Stores()
    office = stores.office(pays(3), say("Well."))
    waiting = await office.run(payer(before_tool_callback=asked))
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.state, asked.times, office.paid) == (RunState.COMPLETED, 1, [3])


async def test_a_callback_is_not_asked_about_a_call_that_was_denied_later() -> None:
    asked, stores = Asked(None), Stores()
    office = stores.office(pays(3), say("Well."))
    waiting = await office.run(payer(before_tool_callback=asked))
    run = await office.runner.resume_with_decision(denying(waiting))
    assert (run.state, asked.times, office.paid) == (RunState.COMPLETED, 0, [])


async def test_the_callbacks_of_the_first_steps_are_not_asked_again_after_a_suspension() -> None:
    before_agent, before_model, after_model = Asked(None), Asked(None), Asked(None)
    office = Stores().office(pays(3), say("Well."))
    agent = payer(
        before_agent_callback=before_agent, before_model_callback=before_model, after_model_callback=after_model
    )
    waiting = await office.run(agent)
    await office.runner.resume_with_decision(granting(waiting))
    assert (before_agent.times, before_model.times, after_model.times) == (1, 2, 2)


async def test_calls_of_a_stand_in_wait_for_people_as_those_of_a_model_do() -> None:
    paying = Content(role="model", parts=(Part(function_call=FunctionCall(name="pay", args={"amount": 5})),))
    office = Stores().office(say("unused"), say("Well."))
    waiting = await office.run(payer(before_model_callback=Asked(paying, None)))
    assert (waiting.state, one(waiting, ApprovalRequired).name) == (RunState.SUSPENDED, "pay")
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.output, office.paid, run.model_calls) == ("Well.", [5], 1)


async def test_state_that_a_callback_set_before_a_suspension_is_there_after_it() -> None:
    seen: list[Any] = []
    office = Stores().office(pays(3), say("Well."))
    look = Asked(lambda given: seen.append(given["tool_context"].state.get("seat")))
    waiting = await office.run(payer(before_agent_callback=Asked(writes("seat", "12A")), before_tool_callback=look))
    await office.runner.resume_with_decision(granting(waiting))
    assert seen == ["12A"]


# --- interruptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
async def test_a_run_that_was_cut_off_in_a_callback_asks_it_again_and_completes(point: CallbackPoint) -> None:
    stalls = StallsOnce()
    office = Stores().office(looks(1), say("Well."))
    agent = looker(idempotent_tools=("look",), **{point.field: stalls})
    await interrupted(office, agent, stalls)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, run.output) == (RunState.COMPLETED, "Well.")
    assert stalls.times > 1


@pytest.mark.parametrize("point", [CallbackPoint.BEFORE_AGENT, CallbackPoint.BEFORE_MODEL, CallbackPoint.BEFORE_TOOL])
async def test_nothing_had_gone_out_where_a_run_was_cut_off_before(point: CallbackPoint) -> None:
    stalls = StallsOnce()
    office = Stores().office(looks(1), say("Well."))
    await interrupted(office, looker(**{point.field: stalls}), stalls)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, run.model_calls, office.look.calls) == (RunState.COMPLETED, 2, [{"n": 1}])


async def test_a_callback_that_was_cut_off_after_a_once_tool_leaves_its_outcome_unknown() -> None:
    stalls = StallsOnce()
    office = Stores().office(pays(3), say("Well."))
    await interrupted(office, looker(after_tool_callback=stalls), stalls)
    run = await office.runner.resume(RUN_ID)
    assert (run.error_code, office.paid) == ("tool_indeterminate", [3])


async def test_a_call_that_has_its_outcome_is_never_asked_about_again() -> None:
    stalls, asked = StallsOnce(), Asked("No.", None)
    office = Stores().office(looks(1, 2), say("Well."))
    await interrupted(office, looker(before_tool_callback=[asked, stalls]), stalls)
    run = await office.runner.resume(RUN_ID)
    assert [given["args"]["n"] for given in asked.asked] == [1, 2, 2]
    assert (run.state, [told.point for told in overrides(run)]) == (RunState.COMPLETED, ["before_tool"])
    assert [result.call_id for result in every(run, ToolResult)] == ["call_1_1", "call_1_2"]


async def test_a_once_tool_that_was_out_when_the_run_was_cut_off_is_not_asked_about_again() -> None:
    tool, asked = StallingTool(), Asked(None)
    office = Stores().office(pays(3), say("Well."), pay=tool)
    await interrupted(office, looker(before_tool_callback=asked), tool)
    run = await office.runner.resume(RUN_ID)
    assert (run.error_code, asked.times, len(tool.calls)) == ("tool_indeterminate", 1, 1)


async def test_an_idempotent_tool_that_was_out_is_asked_about_before_it_goes_out_again() -> None:
    tool, asked = StallingTool(), Asked(None)
    office = Stores().office(pays(3), say("Well."), pay=tool, pay_fields={"effect": Effect.IDEMPOTENT})
    await interrupted(office, looker(before_tool_callback=asked), tool)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, asked.times, len(tool.calls)) == (RunState.COMPLETED, 2, 2)
    assert [given["tool_context"].dispatch for given in asked.asked] == [1, 2]


async def test_state_is_set_once_when_a_run_is_gone_on_with() -> None:
    stalls, counting = StallsOnce(), Asked(lambda given: count(given["callback_context"].state))
    office = Stores().office(looks(1), say("Well."))
    await interrupted(office, looker(before_agent_callback=counting, before_tool_callback=stalls), stalls)
    run = await office.runner.resume(RUN_ID)
    assert (counting.times, deltas(run)) == (1, [{"n": 1}])


def count(state: Any) -> None:
    state["n"] = state.get("n", 0) + 1


async def test_a_word_after_the_answer_is_said_once_although_the_end_was_cut_off() -> None:
    hook = HookStalls(HookPoint.ON_TERMINAL)
    office = Stores().office(say("Well."), hooks=[hook])
    await interrupted(office, looker(after_agent_callback=Asked("Bye.")), hook)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, run.output) == (RunState.COMPLETED, "Well.")
    assert [response.text for response in every(run, ModelResponded)] == ["Well.", "Bye."]


async def test_an_answer_for_a_passed_over_agent_stands_although_the_end_was_cut_off() -> None:
    hook, asked = HookStalls(HookPoint.ON_TERMINAL), Asked("Closed.")
    office = Stores().office(hooks=[hook])
    await interrupted(office, looker(before_agent_callback=asked), hook)
    run = await office.runner.resume(RUN_ID)
    assert (run.state, run.output, asked.times) == (RunState.COMPLETED, "Closed.", 1)


@pytest.mark.parametrize("point", POINTS)
async def test_a_token_cuts_a_callback_off_and_the_run_is_cancelled(point: CallbackPoint) -> None:
    stalls, token = StallsOnce(), CancellationToken()
    office = stage(clock=FakeClock(auto_advance=False))
    running = asyncio.create_task(office.run(looker(**{point.field: stalls}), cancellation=token))
    await until(running, stalls.reached)
    token.cancel("enough")
    run = await running
    assert (run.state, run.error_code, run.error_detail, stalls.was_cut) == (
        RunState.CANCELLED,
        "cancelled",
        "enough",
        True,
    )


async def test_a_result_that_came_before_the_cancel_is_on_record() -> None:
    stalls, token = StallsOnce(), CancellationToken()
    office = stage(call("pay", amount=3), clock=FakeClock(auto_advance=False))
    running = asyncio.create_task(office.run(looker(after_tool_callback=stalls), cancellation=token))
    await until(running, stalls.reached)
    token.cancel("enough")
    run = await running
    assert kinds(run)[-4:] == ["tool_result", "cancellation_requested", "compensation_required", "terminated"]
