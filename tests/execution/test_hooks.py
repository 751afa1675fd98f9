"""Hooks at the seven points: what each answer does there."""

import json

import pytest

from app.conversation.text import text_digest as digest
from app.events import (
    HookRefusal,
    HookRewrite,
    ModelCall,
    ModelResponded,
    RunState,
    SchemaViolation,
    ToolCalled,
    ToolResult,
    TurnCleared,
    Warned,
)
from app.ports.hooks import HookDecision, HookPoint, HookSubject
from app.providers import ScriptedCall
from tests.execution.fakes import HookSays, Recorder, calls, make_tool, say
from tests.execution.support import Bench

ACTING = [point for point in HookPoint if point is not HookPoint.ON_TERMINAL]
PROCEED, REFUSE = HookDecision.proceed(), HookDecision.refuse("not today")


def always(decision: HookDecision, *points: HookPoint, name: str = "policy") -> HookSays:
    return HookSays(*points, name=name, says=lambda _: decision)


def paying(*hooks: HookSays, tool: Recorder | None = None, deployment_hooks: tuple[HookSays, ...] = ()) -> Bench:
    """A model that says something, pays, and says that it did."""
    script = [calls(ScriptedCall(name="pay", arguments={"amount": 3}), text="I pay."), say("Paid.")]
    tools = [make_tool("pay", tool or Recorder("receipt"))]
    return Bench(script, tools=tools, hooks=hooks, deployment_hooks=deployment_hooks)


@pytest.mark.parametrize("point", HookPoint)
async def test_a_hook_that_says_continue_changes_nothing(point: HookPoint) -> None:
    story = await paying(always(PROCEED, point)).run()
    assert (story.record.state, story.record.output_text) == (RunState.COMPLETED, "Paid.")
    assert story.all(HookRewrite) == []


@pytest.mark.parametrize("point", ACTING)
async def test_a_refusal_ends_the_run_and_says_who_refused_where(point: HookPoint) -> None:
    story = await paying(always(REFUSE, point)).run()
    refusal = story.one(HookRefusal)
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "hook_refusal")
    assert (refusal.hook, refusal.point, story.record.error_detail) == ("policy", point, "policy: not today")


@pytest.mark.parametrize("point", [point for point in ACTING if point is not HookPoint.BEFORE_TOOL_DISPATCH])
async def test_an_approval_where_there_is_nothing_to_approve_is_a_refusal(point: HookPoint) -> None:
    story = await paying(always(HookDecision.require_approval("ask"), point)).run()
    assert story.record.error_code == "hook_refusal"


async def test_an_approval_for_a_dispatch_with_no_gate_wired_lets_nothing_out() -> None:
    tool = Recorder()
    hook = always(HookDecision.require_approval("ask"), HookPoint.BEFORE_TOOL_DISPATCH)
    story = await paying(hook, tool=tool).run()
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "configuration_error")
    assert (tool.calls, story.all(ToolCalled)) == ([], [])


async def test_a_refused_input_never_reaches_the_model() -> None:
    bench = paying(always(REFUSE, HookPoint.BEFORE_PROMPT_ASSEMBLY))
    story = await bench.run()
    assert story.all(ModelCall) == []
    assert len(bench.provider.requests) == 0  # type: ignore[attr-defined]


async def test_a_refused_response_is_paid_for_and_its_text_is_nowhere() -> None:
    story = await paying(always(REFUSE, HookPoint.AFTER_MODEL_RESPONSE)).run()
    response = story.one(ModelResponded)
    assert (response.text, response.tool_calls) == (None, ())
    assert story.record.usage == response.usage
    assert response.usage.output_tokens > 0
    assert "I pay." not in "".join(event.payload for event in story.events)


async def test_a_refusal_of_one_call_lets_none_of_the_turn_out() -> None:
    tool = Recorder()
    turn = calls(ScriptedCall(name="pay", arguments={"n": 1}), ScriptedCall(name="pay", arguments={"n": 2}))
    hook = HookSays(
        HookPoint.BEFORE_TOOL_DISPATCH, says=lambda subject: {'{"n": 2}': REFUSE}.get(subject.content, PROCEED)
    )
    story = await Bench([turn], tools=[make_tool("pay", tool)], hooks=[hook]).run()
    assert (story.record.error_code, tool.calls, story.all(ToolCalled)) == ("hook_refusal", [], [])


async def test_a_refused_result_is_withheld_and_the_call_has_its_outcome() -> None:
    story = await paying(always(REFUSE, HookPoint.AFTER_TOOL_RESULT)).run()
    assert "The result was withheld." in story.one(ToolResult).content
    assert "receipt" not in "".join(event.payload for event in story.events)
    assert story.kinds[-4:] == ["tool_result", "hook_refusal", "compensation_required", "terminated"]


async def test_a_rewritten_input_is_what_the_model_reads_and_what_the_row_keeps() -> None:
    bench = paying(always(HookDecision.rewrite("Card ****"), HookPoint.BEFORE_PROMPT_ASSEMBLY))
    story = await bench.run(input="Card 4111")
    assert story.record.input == "Card ****"
    assert bench.provider.requests[0].messages[-1].content == "Card ****"  # type: ignore[attr-defined]


async def test_a_rewritten_input_replaces_the_original_also_when_the_next_hook_refuses() -> None:
    first = always(HookDecision.rewrite("Card ****"), HookPoint.BEFORE_PROMPT_ASSEMBLY, name="redactor")
    story = await paying(first, always(REFUSE, HookPoint.BEFORE_PROMPT_ASSEMBLY)).run(input="Card 4111")
    assert (story.record.error_code, story.record.input) == ("hook_refusal", "Card ****")
    assert story.kinds[-3:] == ["hook_rewrite", "hook_refusal", "terminated"]


async def test_a_rewrite_before_a_model_call_changes_what_is_sent_and_not_what_is_stored() -> None:
    hook = HookSays(
        HookPoint.BEFORE_MODEL_CALL, says=lambda subject: HookDecision.rewrite(subject.content.replace("4111", "****"))
    )
    bench = paying(hook)
    story = await bench.run(input="Card 4111")
    sent = [request.messages[1].content for request in bench.provider.requests]  # type: ignore[attr-defined]
    assert (sent, story.record.input) == (["Card ****", "Card ****"], "Card 4111")


async def test_a_rewritten_response_is_the_message_that_stands() -> None:
    hook = HookSays(HookPoint.AFTER_MODEL_RESPONSE, says=lambda subject: HookDecision.rewrite(subject.content.upper()))
    bench = paying(hook)
    story = await bench.run()
    assert story.record.output_text == "PAID."
    assert bench.provider.requests[1].messages[2].content == "I PAY."  # type: ignore[attr-defined]
    assert "I pay." not in "".join(event.payload for event in story.events)


async def test_a_rewrite_before_output_validation_replaces_the_answer_only() -> None:
    story = await paying(always(HookDecision.rewrite("Done."), HookPoint.BEFORE_OUTPUT_VALIDATION)).run()
    assert [response.text for response in story.all(ModelResponded)] == ["I pay.", "Done."]
    assert story.record.output_text == "Done."


async def test_rewritten_arguments_are_what_goes_out_and_what_the_model_sees_it_asked_for() -> None:
    tool = Recorder()
    bench = paying(always(HookDecision.rewrite('{"amount": 1}'), HookPoint.BEFORE_TOOL_DISPATCH), tool=tool)
    story = await bench.run()
    assert (tool.calls, story.one(ToolCalled).arguments) == ([{"amount": 1}], {"amount": 1})
    assert story.one(TurnCleared).calls[0].arguments == {"amount": 1}
    asked = bench.provider.requests[1].messages[2].tool_calls[0]  # type: ignore[attr-defined]
    assert asked.arguments == {"amount": 1}


@pytest.mark.parametrize("rewrite", ["{", "[1]", "null", '"x"', ""])
async def test_a_rewrite_that_is_no_json_object_fails_the_run(rewrite: str) -> None:
    tool = Recorder()
    story = await paying(always(HookDecision.rewrite(rewrite), HookPoint.BEFORE_TOOL_DISPATCH), tool=tool).run()
    assert (story.record.error_code, tool.calls) == ("schema_violation", [])
    assert story.one(SchemaViolation).call_id == "call_1_1"


async def test_a_rewritten_result_is_what_the_model_reads() -> None:
    story = await paying(always(HookDecision.rewrite("receipt ****"), HookPoint.AFTER_TOOL_RESULT)).run()
    assert "receipt ****" in story.one(ToolResult).content


async def test_a_rewrite_is_logged_as_digests_of_the_whole_text() -> None:
    story = await paying(always(HookDecision.rewrite("Card ****"), HookPoint.BEFORE_PROMPT_ASSEMBLY)).run(
        input="Card 4111"
    )
    rewrite = story.one(HookRewrite)
    assert (rewrite.hook, rewrite.point) == ("policy", HookPoint.BEFORE_PROMPT_ASSEMBLY)
    assert (rewrite.before, rewrite.after) == (digest("Card 4111"), digest("Card ****"))
    assert "4111" not in "".join(event.payload for event in story.events)


async def test_a_rewrite_to_the_same_text_is_none() -> None:
    hook = HookSays(*ACTING, says=lambda subject: HookDecision.rewrite(subject.content))
    story = await paying(hook).run()
    assert (story.record.state, story.all(HookRewrite)) == (RunState.COMPLETED, [])


async def test_the_most_restrictive_answer_wins() -> None:
    point = HookPoint.BEFORE_TOOL_DISPATCH
    mild = always(HookDecision.require_approval("ask"), point, name="mild")
    strict = always(REFUSE, point, name="strict")
    assert (await paying(mild, strict).run()).one(HookRefusal).hook == "strict"


async def test_a_tie_goes_to_the_first_declared() -> None:
    hooks = [always(REFUSE, HookPoint.BEFORE_MODEL_CALL, name=name) for name in ("first", "second")]
    assert (await paying(*hooks).run()).one(HookRefusal).hook == "first"


async def test_each_hook_sees_what_the_one_before_it_wrote() -> None:
    first = always(HookDecision.rewrite("once"), HookPoint.BEFORE_PROMPT_ASSEMBLY, name="first")
    second = always(PROCEED, HookPoint.BEFORE_PROMPT_ASSEMBLY, name="second")
    await paying(first, second).run()
    assert [subject.content for subject in second.asked] == ["once"]


async def test_the_deployments_hooks_are_asked_first_and_no_agent_drops_them() -> None:
    point = HookPoint.BEFORE_PROMPT_ASSEMBLY
    deployment = always(HookDecision.rewrite("by the deployment"), point, name="deployment")
    own = always(PROCEED, point, name="own")
    bench = paying(own, deployment_hooks=(deployment,))
    await bench.run()
    await bench.run(bench.agent(hooks=()))
    assert [subject.content for subject in own.asked] == ["by the deployment"]
    assert len(deployment.asked) == 2


async def test_a_hook_is_told_the_facts_of_its_point() -> None:
    hook = always(PROCEED, *HookPoint)
    bench = paying(hook)
    await bench.run(user="ada")
    by_point = {subject.point: subject for subject in hook.asked}
    dispatch, end = by_point[HookPoint.BEFORE_TOOL_DISPATCH], by_point[HookPoint.ON_TERMINAL]
    assert {(subject.tenant_id, subject.agent, subject.user) for subject in hook.asked} == {("acme", "clerk", "ada")}
    assert (dispatch.tool, json.loads(dispatch.content), dispatch.iteration) == ("pay", {"amount": 3}, 1)
    assert (end.content, end.state, end.model) == ("Paid.", "completed", "scripted:model")


async def test_a_decision_at_the_end_is_recorded_and_changes_nothing() -> None:
    story = await paying(always(REFUSE, HookPoint.ON_TERMINAL)).run()
    assert story.record.state is RunState.COMPLETED
    assert (story.one(Warned).code, story.one(Warned).detail) == ("on_terminal_decision", "policy: refuse: not today")


def test_the_points_are_the_loops_seven() -> None:
    assert len(HookPoint) == 7


def fail(subject: HookSubject) -> HookDecision:
    raise RuntimeError("password=hunter2")


@pytest.mark.parametrize("point", ACTING)
async def test_a_hook_that_raises_fails_the_run_and_its_words_are_not_told(point: HookPoint) -> None:
    story = await paying(HookSays(point, says=fail)).run()
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "hook_failed")
    assert story.record.error_detail == "policy: RuntimeError"


@pytest.mark.parametrize("point", ACTING)
async def test_a_hook_that_forgets_to_answer_fails_the_run(point: HookPoint) -> None:
    story = await paying(always(None, point)).run()  # type: ignore[arg-type]
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "hook_failed")


class NotAsync:
    """What a plugin's author writes in a hurry: the protocol says ``async def``."""

    name = "policy"

    def __init__(self, point: HookPoint) -> None:
        self.points = frozenset({point})

    def decide(self, subject: HookSubject) -> HookDecision:
        raise RuntimeError("before anything could be awaited")


@pytest.mark.parametrize("point", ACTING)
async def test_a_hook_that_raises_before_it_is_awaited_fails_the_run_like_any_other(point: HookPoint) -> None:
    story = await paying(NotAsync(point)).run()  # type: ignore[arg-type]
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "hook_failed")
