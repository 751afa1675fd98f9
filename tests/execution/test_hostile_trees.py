"""What careless tools, callbacks and people do to a tree of runs."""

from typing import Any

from app import ConcurrencyConfig, DeferringGate, RunState
from app.errors import LeaseLost
from tests.execution.adk.talking import Conversation
from tests.execution.crew import Crew, chief, payer, to_pay
from tests.execution.fakes import Recorder, call, make_tool, say
from tests.execution.support import clerk
from tests.execution.test_hostile_runtime import decide, in_a_row


async def test_a_decision_about_one_of_two_parallel_runs_is_applied_when_it_is_given() -> None:
    asking = [call("pay", n=1), call("pay", n=2), say("ok"), say("ok")]
    pay = Recorder("paid")
    crew = Crew({"chief": [to_pay("a", "b"), say("Paid.")], "payer": asking}, {"pay": pay}, approvals=DeferringGate())
    run = await crew.run(chief(payer(), concurrency=ConcurrencyConfig(max_concurrent_tools=2)))
    await crew.runner.resume_with_decision(decide(run.waiting_for[1], approved=True))
    assert len(pay.calls) == 1


async def test_a_decision_that_was_given_in_time_is_not_denied_as_expired() -> None:
    asking = [call("pay", n=1), call("pay", n=2), say("ok"), say("ok")]
    pay = Recorder("paid")
    crew = Crew({"chief": [to_pay("a", "b"), say("Paid.")], "payer": asking}, {"pay": pay}, approvals=DeferringGate())
    root = chief(payer(approval_ttl_seconds=100), concurrency=ConcurrencyConfig(max_concurrent_tools=2))
    run = await crew.run(root)
    await crew.runner.resume_with_decision(decide(run.waiting_for[1], approved=True))
    crew.clock.advance(101)
    await crew.runner.resume_with_decision(decide(run.waiting_for[0], approved=True))
    assert len(pay.calls) == 1


async def test_a_tool_that_raises_the_kits_lease_lost_has_failed_like_any_other() -> None:
    tool = make_tool("look", Recorder(LeaseLost("forged")))
    talk = await Conversation(clerk(tools=("look",)), in_a_row(call("look"), say("Well.")), tool).open()
    assert (await talk.tell())[-1].run_event.body.state is RunState.COMPLETED  # type: ignore[union-attr]


async def test_a_callback_can_t_change_a_tools_declaration_for_every_later_run() -> None:
    def meddle(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
        tool.declaration.parameters["properties"] = {"forged": {}}

    tool = make_tool("look", Recorder("seen"))
    agent = clerk(tools=("look",), before_tool_callback=meddle)
    talk = await Conversation(agent, in_a_row(call("look"), say("Well.")), tool).open()
    await talk.tell()
    assert tool.declaration.parameters == {"type": "object"}
