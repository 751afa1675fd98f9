"""Runs that wait for people, against everything that can happen to them meanwhile."""

import asyncio
from typing import Any

import pytest

from app import (
    AgentRunner,
    ApprovalDecision,
    CancellationToken,
    CheckpointStore,
    ConfigurationError,
    DeferringGate,
    ModelRequest,
    Run,
    RunContext,
    RunState,
    SuspensionStore,
    Tool,
    ToolRegistry,
    agent_tool,
)
from app.events import ApprovalDenied, ApprovalGranted, CancellationRequested, ToolFailed, ToolRefused
from app.ids import ApprovalId
from app.ports.tools import ToolContext
from app.providers import ScriptedProvider, ScriptedStep
from tests.execution.desk import (
    Desk,
    Office,
    Stores,
    every,
    granting,
    kinds,
    one,
    payer,
    paying,
    pays,
)
from tests.execution.fakes import Recorder, Stall, call, make_tool, say
from tests.execution.support import clerk


def suspending(store: SuspensionStore | None = None, **fields: Any) -> Office:
    """A process that keeps suspended runs, and no others."""
    return paying(gate=DeferringGate(), suspensions=store or SuspensionStore(), **fields)


# --- whoever may stop it ---------------------------------------------------------------------------------------------


async def test_a_cancel_while_a_person_thinks_holds_when_he_has_answered() -> None:
    office, token = suspending(), CancellationToken()
    waiting = await office.run(cancellation=token)
    token.cancel("enough")
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.state, run.error_detail, office.paid) == (RunState.CANCELLED, "enough", [])
    assert every(run, ApprovalGranted) == []


async def test_the_token_of_the_first_call_still_stops_a_run_that_goes_on() -> None:
    token, stall = CancellationToken(), Stall()
    office = suspending(pay=stall.as_tool)
    waiting = await office.run(cancellation=token)
    resuming = asyncio.create_task(office.runner.resume_with_decision(granting(waiting)))
    await stall.reached.wait()
    token.cancel("enough")
    run = await resuming
    assert (run.state, one(run, CancellationRequested).reason, stall.was_cut) == (RunState.CANCELLED, "enough", True)


async def test_a_token_given_later_stops_it_too() -> None:
    first, later = CancellationToken(), CancellationToken()
    office = suspending()
    waiting = await office.run(cancellation=first)
    later.cancel("changed my mind")
    run = await office.runner.resume_with_decision(granting(waiting), cancellation=later)
    assert (run.state, run.error_detail, first.is_cancelled) == (RunState.CANCELLED, "changed my mind", False)


class Holds:
    """A tool that keeps its run's context, and waits."""

    def __init__(self) -> None:
        self.contexts: list[RunContext] = []
        self.stall = Stall()

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> str:
        self.contexts.append(context.run)
        await self.stall.wait()
        return "held"


async def test_the_cancel_of_a_parent_holds_for_a_child_that_was_suspended_meanwhile() -> None:
    token, holds, child = CancellationToken(), Holds(), suspending()
    parent = Office(call("look"), say("Done."), look=holds)
    running = asyncio.create_task(parent.run(clerk(tools=("look",)), cancellation=token))
    await holds.stall.reached.wait()
    waiting = await child.run(parent=holds.contexts[0])
    token.cancel("stop them all")
    await running
    run = await child.runner.resume_with_decision(granting(waiting))
    assert (run.state, run.error_detail, child.paid) == (RunState.CANCELLED, "stop them all", [])


async def test_a_cancel_while_nobody_drives_an_interrupted_run_holds_when_it_goes_on() -> None:
    token, stall = CancellationToken(), Stall()
    office = Office(call("look"), say("Well."), look=stall.as_tool, checkpoints=CheckpointStore())
    running = asyncio.create_task(office.run(clerk(tools=("look",)), cancellation=token, run_id="nightly"))
    await stall.reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    token.cancel("enough")
    run = await office.runner.resume("nightly")
    assert (run.state, run.error_detail, len(office.provider.requests)) == (RunState.CANCELLED, "enough", 1)


# --- ending it -------------------------------------------------------------------------------------------------------


async def test_a_suspended_run_can_be_ended_by_its_id() -> None:
    office = suspending()
    waiting = await office.run()
    run = await office.runner.cancel(waiting.run_id, "not needed")
    assert (run.run_id, run.state, run.error_detail) == (waiting.run_id, RunState.CANCELLED, "not needed")
    assert (kinds(run)[-1], office.paid) == ("terminated", [])


async def test_ending_it_closes_every_question_that_it_had() -> None:
    stores = Stores()
    office = stores.office(pays(1, 2), say("Well."))
    run = await office.runner.cancel((await office.run()).run_id)
    assert [denied.cause for denied in every(run, ApprovalDenied)] == ["cancelled", "cancelled"]
    assert stores.suspensions.pending() == ()


async def test_a_decision_about_a_run_that_was_ended_is_refused() -> None:
    office = suspending()
    waiting = await office.run()
    await office.runner.cancel(waiting.run_id)
    with pytest.raises(ConfigurationError):
        await office.runner.resume_with_decision(granting(waiting))
    assert office.paid == []


async def test_a_run_that_was_ended_can_be_ended_again_and_stays_as_it_is() -> None:
    office = Stores().office(pays(3), say("Well."))
    waiting = await office.run()
    run = await office.runner.cancel(waiting.run_id, "first")
    assert await office.runner.cancel(waiting.run_id, "second") == run


async def test_a_run_that_nobody_knows_can_not_be_ended() -> None:
    with pytest.raises(ConfigurationError):
        await suspending().runner.cancel("run_of_somebody_else")


async def test_a_run_without_any_store_can_not_be_ended_by_its_id() -> None:
    office = Office(say("Well."))
    run = await office.run(clerk())
    with pytest.raises(ConfigurationError):
        await office.runner.cancel(run.run_id)


# --- an agent as a tool ----------------------------------------------------------------------------------------------


def delegating(child: Office, *steps: ScriptedStep, agent: Any = None) -> AgentRunner:
    tools = ToolRegistry()
    made: Tool = agent_tool(child.runner, agent or payer(name="kid"))
    tools.register(made)
    return AgentRunner(provider=ScriptedProvider({"model": steps}), tools=tools)


async def delegate(child: Office) -> Run[Any]:
    runner = delegating(child, call("kid", input="Pay."), say("It did not work."))
    run: Run[Any] = await runner.run(clerk(tools=("kid",)), "Go.", tenant="acme")
    return run


async def test_a_child_that_would_wait_for_a_person_is_a_tool_that_failed() -> None:
    child = suspending()
    run = await delegate(child)
    assert (run.state, run.output, kinds(run).count("tool_error")) == (RunState.COMPLETED, "It did not work.", 1)
    assert "kid waits for a person" in one(run, ToolFailed).content


async def test_nothing_of_a_child_that_would_wait_is_left_to_be_decided() -> None:
    store = SuspensionStore()
    child = suspending(store)
    await delegate(child)
    assert (store.pending(), child.paid) == ((), [])


async def test_no_decision_makes_a_child_act_after_its_caller_was_told_that_it_failed() -> None:
    asked: list[ApprovalId] = []

    class Watching(DeferringGate):
        async def decide(self, record: Any) -> Any:
            asked.append(record.approval_id)
            return await super().decide(record)

    child = paying(gate=Watching(), suspensions=SuspensionStore())
    await delegate(child)
    [question] = asked
    with pytest.raises(ConfigurationError):
        await child.runner.resume_with_decision(
            ApprovalDecision(approval_id=question, approved=True, decided_by="grace")
        )
    assert child.paid == []


async def test_a_child_that_waited_has_ended_in_its_log() -> None:
    stores = Stores()
    child = stores.office(pays(3), say("Well."))
    await delegate(child)
    [run_id] = stores.checkpoints.run_ids()
    told = [event.kind for event in stores.checkpoints.events(run_id)]
    assert (told.count("approval_denied"), told[-1]) == (1, "terminated")


# --- interrupted in the middle of its answer -------------------------------------------------------------------------


async def begin_and_cut(office: Office, waiting: Run[Any]) -> None:
    """Whoever brings the decision goes away before it was heard."""
    resuming = asyncio.create_task(office.runner.resume_with_decision(granting(waiting)))
    await asyncio.sleep(0)
    resuming.cancel()
    await asyncio.gather(resuming, return_exceptions=True)


async def test_a_decision_whose_bringer_went_away_at_once_can_be_gone_on_with() -> None:
    office = suspending()
    waiting = await office.run()
    await begin_and_cut(office, waiting)
    run = await office.runner.resume(waiting.run_id)
    assert (run.state, office.paid) == (RunState.COMPLETED, [3])


async def test_a_run_that_was_interrupted_after_it_was_decided_goes_on_by_its_id() -> None:
    stall = Stall()

    async def speak(request: ModelRequest) -> ScriptedStep:
        if request.iteration == 1:
            return pays(3)
        await stall.wait()
        return say("Well.")

    tools, pay = ToolRegistry(), Recorder("receipt")
    tools.register(make_tool("pay", pay))
    runner = AgentRunner(
        provider=ScriptedProvider({"model": speak}),
        tools=tools,
        approvals=DeferringGate(),
        suspensions=SuspensionStore(),
    )
    waiting = await runner.run(clerk(tools=("pay",), approval_required_tools=("pay",)), "Pay.", tenant="acme")
    resuming = asyncio.create_task(runner.resume_with_decision(granting(waiting)))
    await stall.reached.wait()
    resuming.cancel()
    await asyncio.gather(resuming, return_exceptions=True)
    stall.go_on.set()
    run = await runner.resume(waiting.run_id)
    assert (run.state, run.output, len(pay.calls)) == (RunState.COMPLETED, "Well.", 1)
    assert [event.seq for event in run.events] == list(range(1, len(run.events) + 1))


async def test_a_run_that_ended_after_it_was_suspended_is_kept_by_nobody() -> None:
    store = SuspensionStore()
    office = suspending(store)
    waiting = await office.run()
    await office.runner.resume_with_decision(granting(waiting))
    with pytest.raises(ConfigurationError):
        await office.runner.resume(waiting.run_id)
    assert store.pending() == ()


async def test_a_suspended_run_that_is_asked_to_go_on_undecided_waits_on() -> None:
    office = suspending()
    waiting = await office.run()
    again = await office.runner.resume(waiting.run_id)
    assert (again.state, again.waiting_for, office.paid) == (RunState.SUSPENDED, waiting.waiting_for, [])


# --- its id ----------------------------------------------------------------------------------------------------------


async def test_the_id_of_a_suspended_run_is_taken() -> None:
    store = SuspensionStore()
    office = suspending(store)
    await office.run(run_id="nightly")
    with pytest.raises(ConfigurationError):
        await office.run(run_id="nightly")
    assert (len(store.pending()), len(office.provider.requests)) == (1, 1)


async def test_a_run_that_was_refused_for_its_id_does_not_harm_the_one_that_has_it() -> None:
    office = suspending()
    waiting = await office.run(run_id="nightly")
    with pytest.raises(ConfigurationError):
        await office.run(run_id="nightly")
    run = await office.runner.resume_with_decision(granting(waiting))
    assert (run.state, office.paid) == (RunState.COMPLETED, [3])


async def test_the_id_is_free_again_once_the_run_has_ended() -> None:
    office = suspending()
    waiting = await office.run(run_id="nightly")
    await office.runner.cancel(waiting.run_id)
    assert (await office.run(run_id="nightly")).state is RunState.SUSPENDED


# --- gates -----------------------------------------------------------------------------------------------------------


class Weird(BaseException):
    """What no plugin should raise."""


@pytest.mark.parametrize("error", [Weird, KeyboardInterrupt, SystemExit, asyncio.CancelledError, StopIteration])
async def test_whatever_a_gate_raises_nothing_is_granted(error: type[BaseException]) -> None:
    def fail(_: Any) -> Any:
        raise error

    office = paying(gate=Desk(fail))
    run = await office.run()
    assert (run.state, office.paid, one(run, ApprovalDenied).cause) == (RunState.COMPLETED, [], "gate_failed")
    assert one(run, ToolRefused).code == "approval_denied"
