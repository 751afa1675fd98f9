"""What holds on after a run was handed over: grants, guards, questions to people, the run's form and its bounds."""

from typing import Any

import pytest

from app import (
    BudgetLimits,
    GuardrailDecision,
    HookChain,
    HookDecision,
    HookPoint,
    HookRegistry,
    HookSubject,
    LoopConfig,
    RepairConfig,
    RunState,
    TaskRouter,
)
from app.agents import Agent, SubAgent
from app.events import (
    AgentTransfer,
    ApprovalRequired,
    GuardrailRefusal,
    HookRefusal,
    ModelCall,
    OutputValidated,
    RepairRequested,
    Terminated,
    ToolCalled,
)
from tests.execution.crew import Crew, authors, every, hand_over, member, one
from tests.execution.desk import Desk, deny
from tests.execution.fakes import GuardSays, HookSays, Recorder, call, say

BLOCK = GuardrailDecision(allowed=False, reason="no")
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def pair(right: Agent, **fields: Any) -> Agent:
    return member("root", sub_agents=(right,), **fields)


def guarded(*guards: GuardSays) -> dict[str, Any]:
    return {"guardrails": {guard.name: guard for guard in guards}}


def with_hooks(*hooks: HookSays) -> HookRegistry:
    """Hooks that only agents which name them pass."""
    registry = HookRegistry()
    for hook in hooks:
        registry.add_hook(hook.name, hook)
    return registry


def judge_look(subject: HookSubject) -> HookDecision:
    return HookDecision.refuse("no looking") if subject.tool == "look" else HookDecision.proceed()


# --- models ----------------------------------------------------------------------------------------------------------


async def test_an_agent_without_a_model_goes_on_with_its_callers() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]}, models=("model", "small"))
    await crew.run(pair(member("next"), model="scripted:small"))
    assert [request.model for request in crew.provider.requests] == ["small", "small"]


async def test_an_agent_with_a_model_of_its_own_uses_that_one() -> None:
    crew = Crew({"root": [hand_over("next"), say("Bye.")], "next": [hand_over("root")]}, models=("model", "small"))
    await crew.run(pair(member("next", model="scripted:small")))
    assert [request.model for request in crew.provider.requests] == ["model", "small", "model"]


async def test_a_peer_without_a_model_takes_its_parents_and_not_that_of_who_handed_over() -> None:
    left = member("left", model="scripted:small")
    root = member("root", sub_agents=(left, member("right")))
    crew = Crew(
        {"root": [hand_over("left")], "left": [hand_over("right")], "right": [say("Hi.")]}, models=("model", "small")
    )
    await crew.run(root)
    assert [request.model for request in crew.provider.requests] == ["model", "small", "model"]


async def test_an_agent_without_a_task_class_goes_on_with_its_callers() -> None:
    router = TaskRouter({"cheap": ["scripted:small"]})
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]}, models=("model", "small"), router=router)
    await crew.run(pair(member("next"), task_class="cheap"))
    assert [request.model for request in crew.provider.requests] == ["small", "small"]


# --- grants ----------------------------------------------------------------------------------------------------------


async def test_the_tools_of_the_former_agent_are_not_the_new_ones() -> None:
    look = Recorder()
    crew = Crew({"root": [hand_over("next")], "next": [call("look"), say("Never.")]}, {"look": look})
    run = await crew.run(pair(member("next"), tools=("look",)))
    assert (run.state, run.error_code, look.calls) == (RunState.FAILED, "tool_not_allowed", [])


async def test_an_agent_written_in_place_keeps_its_own_tools() -> None:
    look = Recorder()
    crew = Crew({"root": [hand_over("next")], "next": [call("look"), say("Seen.")]}, {"look": look})
    run = await crew.run(pair(member("next", tools=("look",))))
    assert (run.output, len(look.calls)) == ("Seen.", 1)


async def test_what_the_author_of_the_caller_did_not_grant_is_refused() -> None:
    tools = {"look": Recorder(), "pay": Recorder()}
    entry = SubAgent(agent=member("next", tools=("look", "pay")), tools=("look",))
    crew = Crew({"root": [hand_over("next")], "next": [call("pay"), say("Never.")]}, tools)
    run = await crew.run(member("root", sub_agents=(entry,)))
    assert (run.error_code, tools["pay"].calls) == ("tool_not_allowed", [])


async def test_what_was_not_granted_is_not_declared_either() -> None:
    entry = SubAgent(agent=member("next", tools=("look", "pay")), tools=("look",))
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]}, {"look": Recorder(), "pay": Recorder()})
    await crew.run(member("root", sub_agents=(entry,)))
    assert [tool.name for tool in crew.asked("next")[0].tools] == ["look", "transfer_to_agent"]


async def test_a_grant_of_what_the_agent_does_not_use_gives_it_nothing() -> None:
    pay = Recorder()
    entry = SubAgent(agent=member("next"), tools=("pay",))
    crew = Crew({"root": [hand_over("next")], "next": [call("pay"), say("Never.")]}, {"pay": pay})
    run = await crew.run(member("root", tools=("pay",), sub_agents=(entry,)))
    assert (run.error_code, pay.calls) == ("tool_not_allowed", [])


# --- guardrails ------------------------------------------------------------------------------------------------------


async def test_the_former_agents_guardrail_judges_the_new_ones_answer() -> None:
    guard = GuardSays(on_output=lambda text: BLOCK if "secret" in text else GuardrailDecision())
    crew = Crew({"root": [hand_over("next")], "next": [say("The secret.")]}, **guarded(guard))
    run = await crew.run(pair(member("next"), guardrails=("guard",)))
    assert (run.state, run.output, one(run, GuardrailRefusal).subject) == (RunState.FAILED, None, "output")


async def test_it_stays_on_however_often_the_run_moves() -> None:
    guard = GuardSays(on_output=lambda text: BLOCK if "secret" in text else GuardrailDecision())
    mid = member("mid", guardrails=("guard",), sub_agents=(member("low"),))
    script = {"root": [hand_over("mid"), say("The secret.")], "mid": [hand_over("low")], "low": [hand_over("mid")]}
    crew = Crew({**script, "mid": [hand_over("low"), hand_over("root")]}, **guarded(guard))
    run = await crew.run(pair(mid))
    assert (run.error_code, crew.speakers) == ("guardrail_refusal", ["root", "mid", "low", "mid", "root"])


async def test_the_new_agents_guardrail_judges_the_input_before_its_model_does() -> None:
    guard = GuardSays(on_input=lambda text: BLOCK)
    crew = Crew({"root": [hand_over("next")], "next": [say("Never.")]}, **guarded(guard))
    run = await crew.run(pair(member("next", guardrails=("guard",))))
    assert (run.error_code, crew.asked("next")) == ("guardrail_refusal", [])


async def test_a_guardrail_is_asked_about_the_input_once_whoever_brings_it() -> None:
    guard = GuardSays()
    crew = Crew({"root": [hand_over("next"), say("Bye.")], "next": [hand_over("root")]}, **guarded(guard))
    await crew.run(pair(member("next", guardrails=("guard",)), guardrails=("guard",)), "Hello")
    assert guard.checked.count("Hello") == 1


async def test_a_guardrail_of_both_is_asked_about_the_answer_once() -> None:
    guard = GuardSays()
    crew = Crew({"root": [hand_over("next")], "next": [say("Bye.")]}, **guarded(guard))
    await crew.run(pair(member("next", guardrails=("guard",)), guardrails=("guard",)))
    assert guard.checked.count("Bye.") == 1


async def test_a_redaction_by_the_new_agents_guardrail_is_what_its_model_reads() -> None:
    guard = GuardSays(on_input=lambda text: GuardrailDecision(redacted=text.replace("4111", "****")))
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]}, **guarded(guard))
    await crew.run(pair(member("next", guardrails=("guard",))), "Card 4111")
    assert crew.asked("next")[0].messages[1].content == "Card ****"


# --- hooks -----------------------------------------------------------------------------------------------------------


async def test_the_former_agents_hook_judges_the_new_ones_calls() -> None:
    look = Recorder()
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=judge_look)
    crew = Crew({"root": [hand_over("next")], "next": [call("look")]}, {"look": look}, hooks=with_hooks(hook))
    run = await crew.run(pair(member("next", tools=("look",)), hooks=("policy",)))
    assert (run.error_code, one(run, HookRefusal).hook, look.calls) == ("hook_refusal", "policy", [])


async def test_the_new_agents_hook_judges_from_the_transfer_on() -> None:
    hook = HookSays(HookPoint.BEFORE_MODEL_CALL, says=lambda _: HookDecision.proceed())
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]}, hooks=with_hooks(hook))
    await crew.run(pair(member("next", hooks=("policy",))))
    assert {(subject.agent, subject.iteration) for subject in hook.asked} == {("next", 2)}


async def test_a_hook_of_the_deployment_is_asked_once_about_each_call() -> None:
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: HookDecision.proceed())
    crew = Crew(
        {"root": [hand_over("next")], "next": [call("look"), say("Hi.")]}, {"look": Recorder()}, hooks=HookChain([hook])
    )
    await crew.run(pair(member("next", tools=("look",))))
    assert [(subject.agent, subject.tool) for subject in hook.asked] == [
        ("root", "transfer_to_agent"),
        ("next", "look"),
    ]


async def test_a_hook_of_both_agents_is_asked_once_about_each_call() -> None:
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: HookDecision.proceed())
    crew = Crew(
        {"root": [hand_over("next")], "next": [call("look"), say("Hi.")]}, {"look": Recorder()}, hooks=with_hooks(hook)
    )
    await crew.run(pair(member("next", tools=("look",), hooks=("policy",)), hooks=("policy",)))
    assert [(subject.agent, subject.tool) for subject in hook.asked] == [
        ("root", "transfer_to_agent"),
        ("next", "look"),
    ]


async def test_a_peers_hook_stays_on() -> None:
    look = Recorder()
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=judge_look)
    crew = Crew(
        {"root": [hand_over("left")], "left": [hand_over("right")], "right": [call("look")]},
        {"look": look},
        hooks=with_hooks(hook),
    )
    run = await crew.run(
        member("root", sub_agents=(member("left", hooks=("policy",)), member("right", tools=("look",))))
    )
    assert (run.error_code, look.calls) == ("hook_refusal", [])


async def test_a_hook_on_the_input_was_asked_at_the_start_and_is_not_asked_again() -> None:
    hook = HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=lambda _: HookDecision.proceed())
    crew = Crew({"root": [hand_over("next"), say("Bye.")], "next": [hand_over("root")]}, hooks=with_hooks(hook))
    await crew.run(pair(member("next", hooks=("policy",)), hooks=("policy",)))
    assert len(hook.asked) == 1


async def test_a_hook_judges_the_transfer_call_itself() -> None:
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: HookDecision.refuse("stay"))
    crew = Crew({"root": [hand_over("next")], "next": [say("Never.")]}, hooks=HookChain([hook]))
    run = await crew.run(pair(member("next")))
    assert (run.error_code, every(run, AgentTransfer)) == ("hook_refusal", [])


async def test_hooks_at_the_end_of_both_agents_are_asked() -> None:
    first = HookSays(HookPoint.ON_TERMINAL, name="first", says=lambda _: HookDecision.proceed())
    second = HookSays(HookPoint.ON_TERMINAL, name="second", says=lambda _: HookDecision.proceed())
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]}, hooks=with_hooks(first, second))
    await crew.run(pair(member("next", hooks=("second",)), hooks=("first",)))
    assert (len(first.asked), len(second.asked)) == (1, 1)


# --- approvals -------------------------------------------------------------------------------------------------------


async def test_what_the_former_agent_asks_people_about_the_new_one_asks_too() -> None:
    desk, pay = Desk(), Recorder()
    crew = Crew({"root": [hand_over("next")], "next": [call("pay"), say("Paid.")]}, {"pay": pay}, approvals=desk)
    run = await crew.run(pair(member("next", tools=("pay",)), tools=("pay",), approval_required_tools=("pay",)))
    assert (run.output, [record.tool for record in desk.asked], len(pay.calls)) == ("Paid.", ["pay"], 1)


async def test_what_a_peer_asked_people_about_is_asked_after_it_too() -> None:
    desk = Desk()
    crew = Crew(
        {"root": [hand_over("left")], "left": [hand_over("right")], "right": [call("pay"), say("Paid.")]},
        {"pay": Recorder()},
        approvals=desk,
    )
    left = member("left", tools=("pay",), approval_required_tools=("pay",))
    await crew.run(member("root", sub_agents=(left, member("right", tools=("pay",)))))
    assert [record.agent for record in desk.asked] == ["right"]


async def test_the_record_names_the_agent_that_wants_the_call() -> None:
    desk = Desk()
    crew = Crew({"root": [hand_over("next")], "next": [call("pay"), say("Paid.")]}, {"pay": Recorder()}, approvals=desk)
    await crew.run(pair(member("next", tools=("pay",), approval_required_tools=("pay",))))
    assert desk.asked[0].agent == "next"


async def test_the_new_agents_own_word_about_denials_holds_for_its_calls() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [call("pay")]}, {"pay": Recorder()}, approvals=Desk(deny))
    asks = {"tools": ("pay",), "approval_required_tools": ("pay",)}
    run = await crew.run(pair(member("next", approval_denial="fail_run", **asks)))
    assert run.error_code == "approval_denied"


async def test_a_tool_of_the_new_agent_that_nobody_asks_about_goes_out() -> None:
    desk = Desk()
    crew = Crew({"root": [hand_over("next")], "next": [call("look"), say("Hi.")]}, {"look": Recorder()}, approvals=desk)
    run = await crew.run(pair(member("next", tools=("look",))))
    assert (every(run, ApprovalRequired), desk.asked) == ([], [])


# --- the run's form --------------------------------------------------------------------------------------------------


async def test_the_roots_form_holds_for_the_answer_of_whoever_gives_it() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say('{"n": 3}')]})
    run = await crew.run(pair(member("next"), output_schema=COUNT))
    assert (run.output, one(run, OutputValidated).author) == ({"n": 3}, "next")


async def test_an_answer_out_of_form_fails_the_run_whoever_gives_it() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say("three")]})
    run = await crew.run(pair(member("next"), output_schema=COUNT))
    assert (run.state, run.error_code) == (RunState.FAILED, "schema_violation")


async def test_the_roots_repair_goes_to_the_agent_that_answered() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say("three"), say('{"n": 3}')]})
    run = await crew.run(pair(member("next"), output_schema=COUNT, repair=RepairConfig(max_attempts=1)))
    assert (run.output, one(run, RepairRequested).author, crew.speakers) == ({"n": 3}, "next", ["root", "next", "next"])


async def test_the_new_agents_model_is_told_the_form() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say('{"n": 3}')]})
    await crew.run(pair(member("next"), output_schema=COUNT))
    assert crew.asked("next")[0].messages[0].content.removeprefix("You are next.") != ""


# --- counters and bounds ---------------------------------------------------------------------------------------------


async def test_iterations_are_counted_on_over_a_transfer() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]})
    run = await crew.run(pair(member("next")))
    assert [body.iteration for body in every(run, ModelCall)] == [1, 2]


async def test_the_roots_iterations_end_the_run_under_whichever_agent() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say("Never.")]})
    run = await crew.run(pair(member("next"), max_iterations=1))
    assert (run.state, one(run, Terminated).author) == (RunState.MAX_ITERATIONS_EXCEEDED, "next")


async def test_two_agents_that_hand_a_run_to_and_fro_come_to_an_end() -> None:
    crew = Crew({"root": [hand_over("next")] * 20, "next": [hand_over("root")] * 20})
    run = await crew.run(pair(member("next"), max_iterations=6))
    assert (run.state, len(crew.provider.requests)) == (RunState.MAX_ITERATIONS_EXCEEDED, 6)


async def test_the_same_call_over_and_over_is_counted_over_the_whole_run() -> None:
    look = Recorder()
    both: dict[str, Any] = {"tools": ("look",), "loop": LoopConfig(max_repeated_calls=1)}
    crew = Crew({"root": [call("look"), hand_over("next")], "next": [call("look")]}, {"look": look})
    run = await crew.run(pair(member("next", **both), **both))
    assert (run.error_code, len(look.calls)) == ("repeated_call", 1)


@pytest.mark.parametrize(
    ("limits", "dimension"),
    [(BudgetLimits(max_model_calls=1), "max_model_calls"), (BudgetLimits(max_iterations=1), "max_iterations")],
)
async def test_the_roots_budget_is_spent_by_whoever_has_the_run(limits: BudgetLimits, dimension: str) -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say("Never.")]})
    run = await crew.run(pair(member("next"), budget=limits))
    assert (run.state, run.cap) == (RunState.BUDGET_EXHAUSTED, dimension)


async def test_a_transfer_is_a_tool_call_to_the_budget() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [call("look"), say("Hi.")]}, {"look": Recorder()})
    run = await crew.run(pair(member("next", tools=("look",)), budget=BudgetLimits(max_tool_calls=1)))
    assert (run.state, run.cap, len(every(run, ToolCalled))) == (RunState.BUDGET_EXHAUSTED, "max_tool_calls", 1)


async def test_the_usage_is_the_whole_runs() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say("Hi.")]})
    run = await crew.run(pair(member("next")))
    assert (run.model_calls, run.tool_calls, authors(run, ModelCall)) == (2, 1, ["root", "next"])
