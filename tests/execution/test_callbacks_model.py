"""Callbacks around a model call: what they see, what stands in for the model, and what is paid for."""

from typing import Any

import pytest

from app import BudgetLimits, LoopConfig, RepairConfig, RetryConfig, RunState, Usage
from app.conversation import Content, FunctionCall, FunctionResponse, Part
from app.events import ModelCall, ModelResponded, SchemaViolation, ToolCalled
from app.ports.callbacks import LlmResponse
from app.providers import ScriptedCall, ScriptedError, ScriptedStep
from tests.execution.desk import every, kinds, one, read_by_model
from tests.execution.fakes import call, calls, say
from tests.execution.stage import Asked, looker, overrides, play, stage
from tests.execution.support import Bench, clerk

EXACT = Usage(input_tokens=40, output_tokens=6)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def asks_for(*wanted: FunctionCall, text: str = "") -> LlmResponse:
    parts = [Part(text=text)] if text else []
    return LlmResponse(content=Content(role="model", parts=(*parts, *[Part(function_call=one) for one in wanted])))


def looks_at(**args: Any) -> LlmResponse:
    return asks_for(FunctionCall(name="look", args=args))


# --- what they see ---------------------------------------------------------------------------------------------------


async def test_the_request_tells_model_instructions_tools_and_what_was_said_so_far() -> None:
    asked = Asked(None)
    await play(before_model_callback=asked, instructions="Be kind.")
    request = asked.asked[1]["llm_request"]
    assert (request.model, request.tools) == ("scripted:model", ("look", "pay"))
    assert "Be kind." in request.system_instruction
    assert [content.role for content in request.contents] == ["user", "model", "user"]
    assert (request.contents[0].text, request.contents[1].function_calls[0].args) == ("Pay.", {"n": 1})


async def test_the_response_tells_text_and_calls() -> None:
    asked = Asked(None)
    await play(
        calls(ScriptedCall(name="look", arguments={"n": 1}), text="I look."), say("Well."), after_model_callback=asked
    )
    first, second = (given["llm_response"] for given in asked.asked)
    assert (first.text, first.content.function_calls[0].name, first.content.function_calls[0].args) == (
        "I look.",
        "look",
        {"n": 1},
    )
    assert (second.text, second.content.function_calls, second.content.role) == ("Well.", (), "model")


async def test_a_request_can_not_be_changed() -> None:
    def rewrite(given: dict[str, Any]) -> None:
        given["llm_request"].system_instruction = "Obey."

    run = await play(before_model_callback=Asked(rewrite))
    assert (run.error_code, every(run, ModelCall)) == ("callback_failed", [])


async def test_what_a_callback_writes_into_the_arguments_of_a_request_reaches_no_model() -> None:
    def move(given: dict[str, Any]) -> None:
        given["llm_request"].contents[1].function_calls[0].args["where"]["city"] = "Rome"

    office = stage(call("look", where={"city": "Oslo"}), say("Well."))
    run = await office.run(looker(before_model_callback=Asked(None, move)))
    assert run.error_code == "callback_failed"
    assert len(office.provider.requests) == 1


async def test_what_a_callback_writes_into_the_arguments_of_a_response_reaches_no_tool() -> None:
    def move(given: dict[str, Any]) -> None:
        given["llm_response"].content.function_calls[0].args["where"]["city"] = "Rome"

    office = stage(call("look", where={"city": "Oslo"}), say("Well."))
    run = await office.run(looker(after_model_callback=Asked(move, None)))
    assert (run.error_code, office.look.calls) == ("callback_failed", [])


# --- before_model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["Closed.", Content.of_text("Closed."), LlmResponse(content=Content.of_text("Closed.", role="model"))]
)
async def test_a_value_before_a_model_call_is_the_answer_in_each_of_its_forms(value: Any) -> None:
    office = stage()
    run = await office.run(looker(before_model_callback=Asked(value)))
    assert (run.state, run.output, len(office.provider.requests)) == (RunState.COMPLETED, "Closed.", 0)


async def test_a_stand_in_is_told_without_a_model_call_and_costs_nothing() -> None:
    run = await play(before_model_callback=Asked("Closed."))
    assert kinds(run) == [
        "run_queued",
        "run_started",
        "prompt_assembled",
        "callback_override",
        "model_response",
        "terminated",
    ]
    response = one(run, ModelResponded)
    assert (response.callback, response.usage, response.final) == ("Asked", Usage(), True)
    assert (run.usage, run.model_calls, run.cost) == (Usage(), 0, None)


async def test_a_stand_in_is_one_iteration() -> None:
    looking = [looks_at(n=number) for number in range(4)]
    run = await play(say("never"), before_model_callback=Asked(*looking), max_iterations=3)
    assert (run.state, run.error_code, run.model_calls) == (
        RunState.MAX_ITERATIONS_EXCEEDED,
        "max_iterations_exceeded",
        0,
    )
    assert [response.iteration for response in every(run, ModelResponded)] == [1, 2, 3]


async def test_a_stand_in_is_not_shown_to_the_callbacks_after_a_model() -> None:
    after = Asked("louder")
    run = await play(before_model_callback=Asked("Closed."), after_model_callback=after)
    assert (run.output, after.times) == ("Closed.", 0)


async def test_a_stand_in_may_ask_for_tools() -> None:
    office = stage(say("unused"), say("Well."))
    run = await office.run(looker(before_model_callback=Asked(looks_at(n=7), None)))
    assert (run.output, office.look.calls, run.model_calls) == ("Well.", [{"n": 7}], 1)
    assert one(run, ToolCalled).call_id == "call_1_1"


async def test_the_model_reads_what_a_stand_in_asked_for_and_what_came_of_it() -> None:
    office = stage(say("unused"), say("Well."))
    await office.run(looker(before_model_callback=Asked(looks_at(n=7), None)))
    [result] = read_by_model(office, turn=1)
    assert "four trains" in result
    assert [message.role for message in office.provider.requests[0].messages][-2:] == ["assistant", "tool"]


async def test_two_calls_of_a_stand_in_without_ids_are_two_calls() -> None:
    office = stage(say("unused"), say("Well."))
    both = asks_for(FunctionCall(name="look", args={"n": 1}), FunctionCall(name="look", args={"n": 2}))
    run = await office.run(looker(before_model_callback=Asked(both, None)))
    assert (office.look.calls, [one.call_id for one in every(run, ToolCalled)]) == (
        [{"n": 1}, {"n": 2}],
        ["call_1_1", "call_1_2"],
    )


async def test_a_stand_in_can_not_call_what_the_agent_may_not() -> None:
    office = stage()
    value = asks_for(FunctionCall(name="pay", args={}))
    run = await office.run(looker(tools=("look",), before_model_callback=Asked(value)))
    assert (run.state, run.error_code, office.paid) == (RunState.FAILED, "tool_not_allowed", [])


@pytest.mark.parametrize("value", [LlmResponse(), LlmResponse(content=Content(role="model")), "", Content()])
async def test_a_stand_in_that_says_nothing_is_an_empty_output(value: Any) -> None:
    run = await play(before_model_callback=Asked(value))
    assert (run.state, run.error_code) == (RunState.FAILED, "empty_model_output")


@pytest.mark.parametrize("point", ["before_model_callback", "after_model_callback"])
@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"x"], ids=lambda value: type(value).__name__)
async def test_arguments_that_are_no_json_end_the_run_as_the_callbacks_fault(point: str, value: Any) -> None:
    office = stage()
    run = await office.run(looker(**{point: Asked(looks_at(n=value))}))
    assert (run.state, run.error_code, office.look.calls) == (RunState.FAILED, "callback_failed", [])
    assert "attempt_failed" not in kinds(run)


@pytest.mark.parametrize("point", ["before_model_callback", "after_model_callback"])
async def test_a_response_that_holds_results_is_no_response(point: str) -> None:
    part = Part(function_response=FunctionResponse(name="look", response="x"))
    run = await play(**{point: Asked(Content(role="model", parts=(part,)))})
    assert run.error_code == "callback_failed"


async def test_a_stand_in_is_held_to_the_form_of_the_answer() -> None:
    good = await play(before_model_callback=Asked('{"city": "Oslo"}'), output_schema=CITY)
    bad = await play(before_model_callback=Asked("Oslo"), output_schema=CITY)
    assert (good.state, good.output) == (RunState.COMPLETED, {"city": "Oslo"})
    assert (bad.state, bad.error_code) == (RunState.FAILED, "schema_violation")


async def test_a_stand_in_that_misses_the_form_is_repaired_as_a_model_would_be() -> None:
    office = stage(say("unused"), say('{"city": "Oslo"}'))
    run = await office.run(
        looker(before_model_callback=Asked("Oslo", None), output_schema=CITY, repair=RepairConfig(max_attempts=1))
    )
    assert (run.state, run.output, run.model_calls) == (RunState.COMPLETED, {"city": "Oslo"}, 1)
    assert one(run, SchemaViolation).fatal is False


async def test_a_callback_is_asked_before_each_try_of_a_model_call() -> None:
    failing = ScriptedStep(text="Well.", error=ScriptedError(status=503, attempts=1))
    asked = Asked(None)
    office = stage(failing, retry=RetryConfig(max_attempts=2))
    run = await office.run(looker(before_model_callback=asked))
    assert (run.output, asked.times) == ("Well.", 2)


async def test_a_stand_in_for_a_second_try_answers_and_leaves_the_first_charged() -> None:
    failing = ScriptedStep(text="Well.", error=ScriptedError(status=503))
    office = stage(failing, retry=RetryConfig(max_attempts=2))
    run = await office.run(looker(before_model_callback=Asked(None, "Sorry.")))
    assert (run.state, run.output, run.model_calls) == (RunState.COMPLETED, "Sorry.", 1)


# --- caps ------------------------------------------------------------------------------------------------------------


async def test_stand_ins_are_no_model_calls_for_the_cap() -> None:
    office = stage(say("unused"), say("unused"), say("Well."), budget=BudgetLimits(max_model_calls=1))
    run = await office.run(looker(before_model_callback=Asked(looks_at(n=1), looks_at(n=2), None), max_llm_calls=1))
    assert (run.state, run.output, run.model_calls) == (RunState.COMPLETED, "Well.", 1)


async def test_at_the_cap_no_model_call_goes_out_whatever_callbacks_said_before() -> None:
    office = stage(call("look", n=1), call("look", n=2), say("Well."))
    run = await office.run(looker(before_model_callback=Asked(None), max_llm_calls=2))
    assert (run.state, run.error_code) == (RunState.LOOP_LIMIT_EXCEEDED, "max_llm_calls_exceeded")
    assert len(office.provider.requests) == 2


async def test_calls_of_stand_ins_are_counted_as_repetitions() -> None:
    loop = LoopConfig(max_repeated_calls=2)
    run = await play(say("unused"), before_model_callback=Asked(looks_at(n=1)), loop=loop)
    assert (run.state, run.error_code) == (RunState.LOOP_LIMIT_EXCEEDED, "repeated_call")


# --- after_model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["New.", Content.of_text("New."), LlmResponse(content=Content.of_text("New.", role="model"))]
)
async def test_a_value_after_a_model_call_is_the_response_in_each_of_its_forms(value: Any) -> None:
    run = await play(say("Old."), after_model_callback=Asked(value))
    assert (run.output, [response.text for response in every(run, ModelResponded)]) == ("New.", ["New."])


async def test_what_the_model_had_said_is_nowhere() -> None:
    run = await play(say("Old words."), after_model_callback=Asked("New."))
    assert "Old words." not in "".join(event.payload for event in run.events)


async def test_a_replaced_response_is_paid_for_as_it_was_made() -> None:
    run = await play(say("Old.", usage=EXACT), after_model_callback=Asked("A much longer text than the old one."))
    response = one(run, ModelResponded)
    assert (response.usage, run.usage, run.model_calls, response.callback) == (EXACT, EXACT, 1, None)


async def test_an_override_is_told_right_before_the_response_that_it_made() -> None:
    run = await play(say("Old."), after_model_callback=Asked("New."))
    assert kinds(run)[-4:] == ["model_call", "callback_override", "model_response", "terminated"]


async def test_a_text_in_place_of_calls_is_the_answer_and_nothing_goes_out() -> None:
    office = stage(call("look", n=1))
    run = await office.run(looker(after_model_callback=Asked("No.")))
    assert (run.state, run.output, office.look.calls) == (RunState.COMPLETED, "No.", [])


async def test_calls_in_place_of_a_text_go_out() -> None:
    office = stage(say("Old."), say("Well."))
    run = await office.run(looker(after_model_callback=Asked(looks_at(n=5), None)))
    assert (run.output, office.look.calls) == ("Well.", [{"n": 5}])


async def test_a_response_given_back_unchanged_is_the_same_response() -> None:
    plain = await play()
    run = await play(after_model_callback=Asked(lambda given: given["llm_response"]))
    assert (run.output, [r.tool_calls for r in every(run, ModelResponded)]) == (
        "Well.",
        [r.tool_calls for r in every(plain, ModelResponded)],
    )


async def test_a_malformed_call_stays_malformed_when_a_callback_changes_the_text_beside_it() -> None:
    def speak_up(given: dict[str, Any]) -> Content:
        kept = [part for part in given["llm_response"].content.parts if part.function_call is not None]
        return Content(role="model", parts=(Part(text="I LOOK."), *kept))

    office = stage(calls(ScriptedCall(name="look", raw_arguments='{"n": '), text="I look."), say("Well."))
    run = await office.run(looker(after_model_callback=Asked(speak_up, None)))
    assert (run.state, run.error_code, office.look.calls) == (RunState.FAILED, "schema_violation", [])


async def test_an_empty_response_can_be_filled() -> None:
    run = await play(say(""), after_model_callback=Asked("Sorry."))
    assert (run.state, run.output) == (RunState.COMPLETED, "Sorry.")


async def test_a_failure_after_a_model_call_withholds_the_response_and_charges_it() -> None:
    run = await play(say("Old words.", usage=EXACT), after_model_callback=Asked(ValueError("no")))
    response = one(run, ModelResponded)
    assert (response.text, response.usage, run.usage) == (None, EXACT, EXACT)
    assert "Old words." not in "".join(event.payload for event in run.events)


async def test_a_replaced_response_is_held_to_the_form_of_the_answer() -> None:
    good = await play(say("Oslo"), after_model_callback=Asked('{"city": "Oslo"}'), output_schema=CITY)
    bad = await play(say('{"city": "Oslo"}'), after_model_callback=Asked("Oslo"), output_schema=CITY)
    assert (good.state, good.output, bad.error_code) == (RunState.COMPLETED, {"city": "Oslo"}, "schema_violation")


# --- text as it is generated -----------------------------------------------------------------------------------------


async def test_text_is_held_back_where_a_callback_may_still_change_it() -> None:
    bench = Bench([say("Hello.")])
    await bench.run(clerk(after_model_callback=Asked(None)))
    assert bench.feed.texts == []


async def test_text_is_shown_where_callbacks_only_act_elsewhere() -> None:
    bench = Bench([say("Hello.")])
    await bench.run(clerk(before_model_callback=Asked(None), after_agent_callback=Asked(None)))
    assert bench.feed.texts == ["Hello."]


async def test_an_override_of_calls_tells_that_the_calls_changed() -> None:
    run = await play(call("look", n=1), say("Well."), after_model_callback=Asked(looks_at(n=2), None))
    [told] = overrides(run)
    assert told.before != told.after
