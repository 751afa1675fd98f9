"""A run that was handed over goes on under the agent that has it: after people answered, and after a crash."""

import asyncio
import json
from typing import Any

from app import DeferringGate, Effect, GuardrailDecision, HookChain, HookPoint, RunState
from app.agents import Agent
from app.events import AgentTransfer, ModelCall, PromptAssembled, RunResumed
from app.ports.hooks import HookDecision
from tests.execution.crew import Crew, authors, called, every, granted, hand_over, kinds, member, one
from tests.execution.fakes import GuardSays, HookSays, Recorder, Stall, call, make_tool, say


class SlowGuard(GuardSays):
    """A guardrail that is at its input check when the process goes away, the first time."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.stall = Stall()

    async def check_input(self, text: str) -> GuardrailDecision:
        decision = await super().check_input(text)
        await self.stall.wait()
        return decision


def pair(right: Agent, **fields: Any) -> Agent:
    return member("root", sub_agents=(right,), **fields)


def rewriting(target: str) -> HookSays:
    """A hook that sends every transfer to this agent."""
    rewrite = HookDecision.rewrite(json.dumps({"agent_name": target}))
    return HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: rewrite)


async def crash(crew: Crew, root: Agent, stall: Stall) -> str:
    running = asyncio.create_task(crew.run(root, "Hello"))
    await stall.reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    stall.go_on.set()
    [run_id] = crew.checkpoints.run_ids()
    return run_id


async def test_a_run_that_waits_under_the_new_agent_goes_on_under_it() -> None:
    pay = Recorder()
    crew = Crew(
        {"root": [hand_over("next")], "next": [call("pay"), say("Paid.")]}, {"pay": pay}, approvals=DeferringGate()
    )
    waiting = await crew.run(pair(member("next", tools=("pay",), approval_required_tools=("pay",))))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert (waiting.state, run.output, len(pay.calls)) == (RunState.SUSPENDED, "Paid.", 1)
    assert crew.speakers == ["root", "next", "next"]


async def test_its_resumption_is_by_the_new_agent() -> None:
    crew = Crew(
        {"root": [hand_over("next")], "next": [call("pay"), say("Paid.")]},
        {"pay": Recorder()},
        approvals=DeferringGate(),
    )
    waiting = await crew.run(pair(member("next", tools=("pay",), approval_required_tools=("pay",))))
    run = await crew.runner.resume_with_decision(granted(waiting))
    assert one(run, RunResumed).author == "next"


async def test_a_crash_under_the_new_agent_goes_on_under_it() -> None:
    stall = Stall()
    slow = make_tool("look", stall.as_tool, effect=Effect.READ)
    crew = Crew({"root": [hand_over("next")], "next": [call("look"), say("Seen.")]}, {"look": slow})
    run_id = await crash(crew, pair(member("next", tools=("look",))), stall)
    run = await crew.runner.resume(run_id)
    assert (run.output, authors(run, ModelCall), len(every(run, AgentTransfer))) == (
        "Seen.",
        ["root", "next", "next"],
        1,
    )


async def test_the_former_agents_questions_still_stand_after_a_crash() -> None:
    stall, pay = Stall(), Recorder()
    slow = make_tool("look", stall.as_tool, effect=Effect.READ)
    crew = Crew(
        {"root": [hand_over("next")], "next": [call("look"), call("pay"), say("Paid.")]},
        {"look": slow, "pay": pay},
        approvals=DeferringGate(),
    )
    root = pair(member("next", tools=("look", "pay")), tools=("pay",), approval_required_tools=("pay",))
    run_id = await crash(crew, root, stall)
    run = await crew.runner.resume(run_id)
    assert (run.state, pay.calls) == (RunState.SUSPENDED, [])


async def test_who_was_asked_about_the_input_is_not_asked_again_after_a_crash() -> None:
    stall, guard = Stall(), GuardSays()
    slow = make_tool("look", stall.as_tool, effect=Effect.READ)
    crew = Crew(
        {"root": [hand_over("next")], "next": [call("look"), say("Seen.")]},
        {"look": slow},
        guardrails={"guard": guard},
    )
    run_id = await crash(crew, pair(member("next", tools=("look",), guardrails=("guard",))), stall)
    await crew.runner.resume(run_id)
    assert guard.checked.count("Hello") == 1


async def test_who_was_being_asked_when_the_process_went_away_is_asked_again() -> None:
    slow, first = SlowGuard(), GuardSays()
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]}, guardrails={"slow": slow, "guard": first})
    run_id = await crash(crew, pair(member("next", guardrails=("slow",)), guardrails=("guard",)), slow.stall)
    run = await crew.runner.resume(run_id)
    assert (run.output, slow.checked.count("Hello"), first.checked.count("Hello")) == ("Hi.", 2, 1)
    assert len(every(run, PromptAssembled)) == 2


async def test_a_crash_in_the_call_that_hands_over_hands_over_once() -> None:
    stall = Stall()

    async def before(tool: Any, args: Any, tool_context: Any) -> None:
        await stall.wait()

    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]})
    run_id = await crash(crew, pair(member("next"), before_tool_callback=before), stall)
    run = await crew.runner.resume(run_id)
    assert (run.output, kinds(run).count("agent_transfer"), crew.speakers) == ("Hi.", 1, ["root", "next"])


async def test_a_callback_that_answers_for_the_transfer_keeps_the_run_where_it_is() -> None:
    root = pair(member("next"), before_tool_callback=lambda tool, args, tool_context: {"result": "not now"})
    crew = Crew({"root": [hand_over("next"), say("I stay.")]})
    run = await crew.run(root)
    assert (run.output, every(run, AgentTransfer)) == ("I stay.", [])


async def test_a_hook_that_rewrites_the_target_sends_the_run_there() -> None:
    crew = Crew({"root": [hand_over("next")], "other": [say("Other.")]}, hooks=HookChain([rewriting("other")]))
    run = await crew.run(member("root", sub_agents=(member("next"), member("other"))))
    assert (run.output, one(run, AgentTransfer).to_agent) == ("Other.", "other")


async def test_a_hook_that_rewrites_the_target_to_nobody_ends_the_run() -> None:
    crew = Crew({"root": [hand_over("next")]}, hooks=HookChain([rewriting("zz")]))
    run = await crew.run(pair(member("next")))
    assert (run.error_code, every(run, AgentTransfer)) == ("schema_violation", [])


async def test_pinned_texts_go_to_the_new_agent_and_not_to_one_that_is_called() -> None:
    scripts = {"root": [hand_over("next")], "next": [call("low", input="Go."), say("Hi.")], "low": [say("Low.")]}
    crew = Crew(scripts)
    await crew.run(pair(member("next", sub_agents=(called(member("low")),))), pinned=("The house rules.",))
    texts = {name: [message.content for message in crew.asked(name)[0].messages] for name in ("next", "low")}
    assert ("The house rules." in " ".join(texts["next"]), "The house rules." in " ".join(texts["low"])) == (
        True,
        False,
    )
