"""Callbacks at the borders of an agent: one that answers for it, and one that adds a word after its answer."""

from typing import Any

import pytest

from app import BudgetLimits, RepairConfig, RunState, Usage
from app.conversation import Content, FunctionCall, FunctionResponse, Part
from app.events import ModelResponded
from app.policy import Effect
from app.ports.hooks import GuardrailDecision, HookDecision, HookPoint
from tests.execution.desk import every, kinds, one
from tests.execution.fakes import GuardSays, HookSays, call, make_tool, say
from tests.execution.stage import Asked, deltas, looker, overrides, play, stage, writes

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = Content(role="model", parts=(Part(function_call=FunctionCall(name="look")),))
RESULT = Content(parts=(Part(function_response=FunctionResponse(name="look")),))


# --- before_agent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["Closed.", Content.of_text("Closed."), Content.of_text("Closed.", role="model")])
async def test_a_value_before_an_agent_is_the_answer(value: Any) -> None:
    office = stage()
    run = await office.run(looker(before_agent_callback=Asked(value)))
    assert (run.state, run.output, run.output_text) == (RunState.COMPLETED, "Closed.", "Closed.")
    assert (len(office.provider.requests), run.usage, run.model_calls) == (0, Usage(), 0)


async def test_several_parts_are_one_answer() -> None:
    run = await play(before_agent_callback=Asked(Content(parts=(Part(text="Clo"), Part(text="sed.")))))
    assert run.output == "Closed."


async def test_an_agent_that_is_passed_over_never_begins() -> None:
    run = await play(before_agent_callback=Asked("Closed."))
    assert kinds(run) == ["run_queued", "run_started", "callback_override", "model_response", "terminated"]
    response = one(run, ModelResponded)
    assert (response.callback, response.final, response.usage, response.tool_calls) == ("Asked", True, Usage(), ())


async def test_no_other_callback_is_asked_about_an_agent_that_is_passed_over() -> None:
    others = Asked("never")
    await play(
        before_agent_callback=Asked("Closed."),
        after_agent_callback=others,
        before_model_callback=others,
        after_model_callback=others,
    )
    assert others.times == 0


@pytest.mark.parametrize("value", [CALL, RESULT])
@pytest.mark.parametrize("point", ["before_agent_callback", "after_agent_callback"])
async def test_an_agents_callback_can_only_speak(point: str, value: Content) -> None:
    run = await play(**{point: Asked(value)})
    assert (run.state, run.error_code) == (RunState.FAILED, "callback_failed")


async def test_passing_over_needs_no_budget_for_models() -> None:
    office = stage(budget=BudgetLimits(max_model_calls=1, max_output_tokens=1))
    run = await office.run(looker(before_agent_callback=Asked("A longer answer than one token.")))
    assert run.state is RunState.COMPLETED


async def test_a_callback_before_an_agent_is_asked_once_a_run() -> None:
    asked = Asked(None)
    await play(call("look", n=1), call("look", n=2), say("Well."), before_agent_callback=asked)
    assert asked.times == 1


async def test_a_callback_before_an_agent_sees_what_the_hooks_made_of_the_input() -> None:
    asked = Asked(None)
    hook = HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=lambda _: HookDecision.rewrite("Pay ****."))
    await stage(hooks=[hook]).run(looker(before_agent_callback=asked))
    assert [given["callback_context"].user_content.text for given in asked.asked] == ["Pay ****."]


async def test_an_input_that_is_refused_reaches_no_callback() -> None:
    asked = Asked("Closed.")
    hook = HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=lambda _: HookDecision.refuse("no"))
    run = await stage(hooks=[hook]).run(looker(before_agent_callback=asked))
    assert (run.error_code, asked.times) == ("hook_refusal", 0)


async def test_an_input_that_a_guardrail_blocks_reaches_no_callback() -> None:
    asked = Asked("Closed.")
    guard = GuardSays(on_input=lambda _: GuardrailDecision(allowed=False, reason="no"))
    run = await stage(guardrails={"guard": guard}).run(looker(before_agent_callback=asked, guardrails=("guard",)))
    assert (run.error_code, asked.times) == ("guardrail_refusal", 0)


async def test_the_answer_for_a_passed_over_agent_is_held_to_its_form() -> None:
    good = await play(before_agent_callback=Asked('{"city": "Oslo"}'), output_schema=CITY)
    bad = await play(before_agent_callback=Asked("Oslo"), output_schema=CITY)
    assert (good.state, good.output) == (RunState.COMPLETED, {"city": "Oslo"})
    assert (bad.state, bad.error_code, bad.output) == (RunState.FAILED, "schema_violation", None)


async def test_an_answer_for_a_passed_over_agent_is_not_repaired_by_a_model() -> None:
    office = stage(say('{"city": "Oslo"}'))
    agent = looker(before_agent_callback=Asked("Oslo"), output_schema=CITY, repair=RepairConfig(max_attempts=1))
    run = await office.run(agent)
    assert (run.error_code, len(office.provider.requests)) == ("schema_violation", 0)


async def test_an_empty_answer_for_an_agent_is_an_empty_output() -> None:
    run = await play(before_agent_callback=Asked(""))
    assert (run.state, run.error_code) == (RunState.FAILED, "empty_model_output")


async def test_what_a_callback_before_an_agent_kept_is_stored_before_the_answer() -> None:
    run = await play(before_agent_callback=Asked(writes("seen", True, "Closed.")))
    assert (run.output, deltas(run)) == ("Closed.", [{"seen": True}])
    assert kinds(run).index("state_delta") < kinds(run).index("model_response")


# --- after_agent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["Bye.", Content.of_text("Bye."), Content.of_text("Bye.", role="model")])
async def test_a_value_after_an_agent_is_one_event_more_and_the_answer_stays(value: Any) -> None:
    run = await play(after_agent_callback=Asked(value))
    assert (run.state, run.output, run.output_text) == (RunState.COMPLETED, "Well.", "Well.")
    last = every(run, ModelResponded)[-1]
    assert (last.text, last.callback, last.final, last.usage) == ("Bye.", "Asked", True, Usage())


async def test_the_word_after_an_answer_is_told_last_but_for_the_end() -> None:
    run = await play(after_agent_callback=Asked("Bye."))
    assert kinds(run)[-4:] == ["model_response", "callback_override", "model_response", "terminated"]
    assert overrides(run)[0].before is None


async def test_the_word_after_an_answer_is_no_iteration_and_no_model_call() -> None:
    plain, run = await play(), await play(after_agent_callback=Asked("Bye."))
    assert (run.model_calls, run.usage) == (plain.model_calls, plain.usage)
    assert every(run, ModelResponded)[-1].iteration == every(plain, ModelResponded)[-1].iteration


async def test_the_word_after_an_answer_has_no_form_to_hold_to() -> None:
    run = await play(say('{"city": "Oslo"}'), after_agent_callback=Asked("Bye."), output_schema=CITY)
    assert (run.state, run.output) == (RunState.COMPLETED, {"city": "Oslo"})


async def test_an_empty_word_after_an_answer_is_no_event_to_show() -> None:
    run = await play(after_agent_callback=Asked(""))
    assert (run.state, run.output, len(every(run, ModelResponded))) == (RunState.COMPLETED, "Well.", 2)


async def test_a_failed_run_has_nothing_to_add() -> None:
    asked = Asked("Bye.")
    run = await play(say(""), after_agent_callback=asked)
    assert (run.error_code, asked.times) == ("empty_model_output", 0)


async def test_an_answer_that_misses_its_form_is_no_answer_to_add_to() -> None:
    asked = Asked("Bye.")
    run = await play(say("Oslo"), after_agent_callback=asked, output_schema=CITY)
    assert (run.error_code, asked.times) == ("schema_violation", 0)


async def test_a_failure_after_an_answer_fails_the_run_and_names_what_may_need_undoing() -> None:
    office = stage(call("pay", amount=3), say("Paid."))
    run = await office.run(looker(after_agent_callback=Asked(ValueError("no"))))
    assert (run.state, run.error_code, run.output) == (RunState.FAILED, "callback_failed", None)
    assert kinds(run)[-3:] == ["hook_refusal", "compensation_required", "terminated"]


async def test_a_tools_result_that_is_the_answer_is_followed_by_the_word_too() -> None:
    async def sell(arguments: dict[str, Any], context: Any) -> str:
        context.actions.skip_summarization = True
        return "Sold."

    office = stage(call("look", n=1), look=make_tool("look", sell, effect=Effect.READ).call)
    run = await office.run(looker(after_agent_callback=Asked("Bye.")))
    assert (run.output, every(run, ModelResponded)[-1].text) == ("Sold.", "Bye.")


async def test_a_replaced_answer_is_the_answer_that_the_word_comes_after() -> None:
    run = await play(say("Old."), after_model_callback=Asked("New."), after_agent_callback=Asked("Bye."))
    assert (run.output, [told.point for told in overrides(run)]) == ("New.", ["after_model", "after_agent"])


async def test_what_a_callback_after_an_agent_kept_is_stored() -> None:
    run = await play(after_agent_callback=Asked(writes("done", 1)))
    assert (run.state, deltas(run)) == (RunState.COMPLETED, [{"done": 1}])
    assert kinds(run)[-2:] == ["state_delta", "terminated"]
