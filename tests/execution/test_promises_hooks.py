"""What a hook is asked, what it may answer, and what of its answer is logged."""

import hashlib
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, asdict
from types import NoneType
from typing import Any

import pytest

from app.events import HookRefusal, HookRewrite, RunState, Warned
from app.policy import BudgetLimits
from app.ports.hooks import HookDecision, HookPoint, Verdict
from app.providers import ScriptedStep
from tests.execution.fakes import HookSays, Recorder, call, make_tool, say
from tests.execution.support import Bench

PROCEED = HookDecision.proceed()


def looking(*hooks: HookSays, script: Sequence[ScriptedStep] = (call("look"), say("Done."))) -> Bench:
    return Bench(script, tools=[make_tool("look", Recorder())], hooks=hooks)


def listener(*points: HookPoint) -> HookSays:
    return HookSays(*points, says=lambda _: PROCEED)


def test_the_points_have_the_specifications_names_in_the_order_of_the_loop() -> None:
    assert [point.value for point in HookPoint] == [
        "before_prompt_assembly",
        "before_model_call",
        "after_model_response",
        "before_tool_dispatch",
        "after_tool_result",
        "before_output_validation",
        "on_terminal",
    ]


def test_a_hook_has_four_words() -> None:
    assert [verdict.value for verdict in Verdict] == ["continue", "rewrite", "require_approval", "refuse"]


async def test_what_a_hook_is_handed_holds_facts_and_no_handle() -> None:
    hook = listener(*HookPoint)
    await looking(hook).run(user="ada")
    values = [value for subject in hook.asked for value in asdict(subject).values()]
    assert {type(value) for value in values} <= {HookPoint, str, int, float, bool, NoneType}


async def test_a_hook_can_not_change_what_it_is_handed() -> None:
    hook = listener(HookPoint.BEFORE_MODEL_CALL)
    await looking(hook).run()
    with pytest.raises(FrozenInstanceError):
        hook.asked[0].tenant_id = "other"  # type: ignore[misc, assignment]


MILD = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, name="mild", says=lambda _: HookDecision.rewrite('{"at": 1}'))
STRICT = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, name="strict", says=lambda _: HookDecision.refuse("no"))


@pytest.mark.parametrize("hooks", [(MILD, STRICT), (STRICT, MILD)], ids=["mild first", "strict first"])
async def test_the_most_restrictive_answer_wins_whichever_is_declared_first(hooks: tuple[HookSays, HookSays]) -> None:
    story = await looking(*hooks).run()
    assert (story.one(HookRefusal).hook, story.record.error_code) == ("strict", "hook_refusal")


async def test_a_rewrite_is_logged_as_prefixes_of_sha_256() -> None:
    hook = HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=lambda _: HookDecision.rewrite("Card ****"))
    rewrite = (await looking(hook).run(input="Card 4111")).one(HookRewrite)
    assert hashlib.sha256(b"Card 4111").hexdigest().startswith(rewrite.before)
    assert hashlib.sha256(b"Card ****").hexdigest().startswith(rewrite.after)
    assert (len(rewrite.before), len(rewrite.after)) == (16, 16)


async def test_a_rewrite_at_the_end_is_recorded_and_replaces_nothing() -> None:
    hook = HookSays(HookPoint.ON_TERMINAL, says=lambda _: HookDecision.rewrite("Something else.", "nicer"))
    story = await looking(hook).run()
    assert (story.record.state, story.record.output_text) == (RunState.COMPLETED, "Done.")
    assert (story.one(Warned).code, story.one(Warned).detail) == ("on_terminal_decision", "policy: rewrite: nicer")


ENDS: list[Any] = [
    pytest.param(RunState.COMPLETED, [say("Hello.")], {}, {}, id="completed"),
    pytest.param(RunState.FAILED, [say("")], {}, {}, id="failed"),
    pytest.param(
        RunState.BUDGET_EXHAUSTED, [say("Hello.")], {}, {"budget": BudgetLimits(max_input_tokens=1)}, id="budget"
    ),
    pytest.param(RunState.MAX_ITERATIONS_EXCEEDED, [call("look")], {"max_iterations": 1}, {}, id="iterations"),
    pytest.param(RunState.LOOP_LIMIT_EXCEEDED, [call("look")], {"max_llm_calls": 1}, {}, id="loop limit"),
    pytest.param(RunState.CANCELLED, [say("Hello.")], {}, {"deadline_at": 0.0}, id="cancelled"),
]


@pytest.mark.parametrize(("state", "script", "agent_fields", "fields"), ENDS)
async def test_hooks_are_told_of_the_end_whichever_it_is(
    state: RunState, script: list[ScriptedStep], agent_fields: dict[str, Any], fields: dict[str, Any]
) -> None:
    hook = listener(HookPoint.ON_TERMINAL)
    bench = looking(hook, script=script)
    story = await bench.run(bench.agent(**agent_fields), **fields)
    assert (story.record.state, [subject.state for subject in hook.asked]) == (state, [state.value])
