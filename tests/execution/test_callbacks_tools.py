"""Callbacks around a tool call: what they see, what stands in for a result, and what never goes out."""

from typing import Any

import pytest

from app import BudgetLimits, ConcurrencyConfig, LoopConfig, RetryConfig, RunState
from app.agents import Agent, SubAgent, ToolFailurePolicy
from app.conversation.text import text_digest as digest
from app.events import (
    AgentTransfer,
    ArtifactDelta,
    CallbackOverride,
    HookRefusal,
    ToolCalled,
    ToolFailed,
    ToolResult,
    ToolResultTruncated,
)
from app.policy import Effect
from app.providers import ScriptedCall
from tests.execution.desk import Office, every, kinds, one, pays, read_by_model
from tests.execution.fakes import Recorder, call, calls, say
from tests.execution.stage import Asked, deltas, looker, looks, overrides, play, stage, writes
from tests.execution.support import clerk


def only(number: int, value: Any) -> Any:
    """Answers for that number alone."""
    return lambda given: value if given["args"]["n"] == number else None


def looking(answer: str | BaseException) -> Office:
    """The model looks once; the tool answers so."""
    return stage(look=Recorder(answer))


# --- what they see ---------------------------------------------------------------------------------------------------


async def test_a_callback_sees_the_tool_the_arguments_and_whose_call_it_is() -> None:
    asked = Asked(None)
    run = await play(before_tool_callback=asked)
    [given] = asked.asked
    context = given["tool_context"]
    assert (given["tool"].name, given["args"]) == ("look", {"n": 1})
    assert (context.function_call_id, context.agent_name, context.user_id, context.invocation_id) == (
        "call_1_1",
        "clerk",
        "ada",
        run.run_id,
    )
    assert context.user_content.text == "Pay."


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ('{"trains": [4]}', {"trains": [4]}),
        ("[1, 2]", [1, 2]),
        ("four trains", "four trains"),
        ("42", "42"),
        ("true", "true"),
        ('{"broken": ', '{"broken": '),
        ('{"n": NaN}', '{"n": NaN}'),
        ("", ""),
    ],
)
async def test_a_result_is_seen_as_a_value_where_it_is_an_object_or_an_array(answer: str, seen: Any) -> None:
    asked = Asked(None)
    await looking(answer).run(looker(after_tool_callback=asked))
    assert [given["tool_response"] for given in asked.asked] == [seen]


async def test_a_failed_call_has_no_response_to_ask_about() -> None:
    asked = Asked("never")
    run = await looking(ValueError("no")).run(looker(after_tool_callback=asked))
    assert (asked.times, len(every(run, ToolFailed))) == (0, 1)


async def test_arguments_that_break_the_schema_are_not_asked_about() -> None:
    asked = Asked(None)
    run = await play(calls(ScriptedCall(name="look", raw_arguments="{")), before_tool_callback=asked)
    assert (run.error_code, asked.times) == ("schema_violation", 0)


async def test_a_tool_that_is_not_allowed_is_not_asked_about() -> None:
    asked = Asked("fine")
    run = await play(call("pay", amount=3), before_tool_callback=asked, tools=("look",))
    assert (run.error_code, asked.times) == ("tool_not_allowed", 0)


# --- changes in place ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "done"])
async def test_arguments_changed_in_place_end_the_run_before_anything_goes_out(value: Any) -> None:
    def change(given: dict[str, Any]) -> Any:
        given["args"]["n"] = 2
        return value

    office = stage()
    run = await office.run(looker(before_tool_callback=Asked(change)))
    assert (run.error_code, office.look.calls, every(run, ToolCalled)) == ("callback_failed", [], [])


async def test_nested_arguments_changed_in_place_end_the_run_too() -> None:
    office = stage(call("look", where={"city": "Oslo"}))
    change = Asked(lambda given: given["args"]["where"].update(city="Rome"))
    run = await office.run(looker(before_tool_callback=change))
    assert (run.error_code, office.look.calls) == ("callback_failed", [])


async def test_a_response_changed_in_place_ends_the_run_and_the_result_stands_as_it_was() -> None:
    change = Asked(lambda given: given["tool_response"].update(trains=9))
    run = await looking('{"trains": 4}').run(looker(after_tool_callback=change))
    assert run.error_code == "callback_failed"
    assert '{"trains": 4}' in one(run, ToolResult).content


async def test_arguments_changed_after_the_call_end_the_run() -> None:
    run = await play(after_tool_callback=Asked(lambda given: given["args"].clear()))
    assert run.error_code == "callback_failed"


# --- before_tool -----------------------------------------------------------------------------------------------------


async def test_a_value_before_a_tool_is_its_result_and_nothing_goes_out() -> None:
    office = stage()
    run = await office.run(looker(before_tool_callback=Asked({"denied": "no token"})))
    assert (run.state, run.output, office.look.calls, run.tool_calls) == (RunState.COMPLETED, "Well.", [], 0)
    assert '{"denied":"no token"}' in read_by_model(office, turn=2)[0]


async def test_a_stand_in_is_told_as_override_and_result_without_a_tool_call() -> None:
    run = await play(before_tool_callback=Asked("No."))
    at = kinds(run).index("callback_override")
    assert kinds(run)[at : at + 2] == ["callback_override", "tool_result"]
    assert every(run, ToolCalled) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [({"b": 1, "a": 2}, '{"a":2,"b":1}'), ([1, None], "[1,null]"), (7, "7"), (True, "true"), ("ja", "ja")],
)
async def test_a_value_is_read_as_text_or_as_canonical_json(value: Any, text: str) -> None:
    office = stage()
    run = await office.run(looker(before_tool_callback=Asked(value)))
    assert text in one(run, ToolResult).content
    assert overrides(run)[0].after == digest(text)


async def test_a_stand_in_needs_no_budget_for_tools() -> None:
    office = stage(budget=BudgetLimits(max_tool_calls=1))
    run = await office.run(looker(before_tool_callback=Asked("No."), budget=BudgetLimits(max_tool_calls=1)))
    assert (run.state, run.tool_calls) == (RunState.COMPLETED, 0)


async def test_stand_ins_leave_the_budget_to_calls_that_go_out() -> None:
    office = stage(looks(1), looks(2), say("Well."), budget=BudgetLimits(max_tool_calls=1))
    run = await office.run(looker(before_tool_callback=Asked("No.", None)))
    assert (run.state, office.look.calls) == (RunState.COMPLETED, [{"n": 2}])


async def test_stand_ins_count_as_repetitions() -> None:
    script = [looks(1), looks(1), looks(1)]
    run = await play(*script, before_tool_callback=Asked("No."), loop=LoopConfig(max_repeated_calls=2))
    assert (run.state, run.error_code) == (RunState.LOOP_LIMIT_EXCEEDED, "repeated_call")


async def test_what_stood_in_is_not_named_as_something_to_undo() -> None:
    office = stage(call("pay", amount=3), say(""))
    run = await office.run(looker(before_tool_callback=Asked("No.")))
    assert (run.state, "compensation_required" in kinds(run)) == (RunState.FAILED, False)


async def test_a_stand_in_is_shown_to_the_callbacks_after_a_tool() -> None:
    after = Asked(None)
    await play(before_tool_callback=Asked({"denied": True}), after_tool_callback=after)
    assert [given["tool_response"] for given in after.asked] == [{"denied": True}]


async def test_callbacks_after_a_tool_may_replace_a_stand_in_and_both_are_told() -> None:
    office = stage()
    run = await office.run(looker(before_tool_callback=Asked("first"), after_tool_callback=Asked("second")))
    assert [told.point for told in overrides(run)] == ["before_tool", "after_tool"]
    assert overrides(run)[1].before == digest("first")
    assert "second" in read_by_model(office, turn=2)[0]


async def test_of_one_turn_only_the_calls_go_out_that_nobody_answered() -> None:
    office = stage(looks(1, 2, 3), say("Well."))
    run = await office.run(looker(before_tool_callback=Asked(only(2, "No."))))
    assert (office.look.calls, run.tool_calls) == ([{"n": 1}, {"n": 3}], 2)
    assert [result.call_id for result in every(run, ToolResult)] == ["call_1_1", "call_1_2", "call_1_3"]


async def test_a_callback_is_asked_right_before_its_own_call() -> None:
    order: list[str] = []

    async def look(arguments: dict[str, Any], context: Any) -> str:
        order.append(f"call {arguments['n']}")
        return "seen"

    office = stage(looks(1, 2), say("Well."), look=look)
    await office.run(looker(before_tool_callback=Asked(lambda given: order.append(f"ask {given['args']['n']}"))))
    assert order == ["ask 1", "call 1", "ask 2", "call 2"]


async def test_a_failure_before_the_second_call_keeps_what_the_first_said() -> None:
    office = stage(looks(1, 2), say("Well."))
    run = await office.run(looker(before_tool_callback=Asked(None, ValueError("no"))))
    assert (run.error_code, office.look.calls) == ("callback_failed", [{"n": 1}])
    assert [result.call_id for result in every(run, ToolResult)] == ["call_1_1"]


async def test_a_retried_call_is_asked_about_before_each_dispatch() -> None:
    asked = Asked(None)
    office = stage(look=Recorder(ValueError("no")), retry=RetryConfig(max_attempts=2))
    await office.run(looker(before_tool_callback=asked, idempotent_tools=("look",)))
    assert (asked.times, [given["tool_context"].dispatch for given in asked.asked]) == (2, [1, 2])


# --- calls that are out together -------------------------------------------------------------------------------------


def together(*amounts: int) -> Office:
    """The model asks for payments, and all of them may be out at once."""
    return stage(pays(*amounts), say("Well."), pay_fields={"parallel_safe": True, "effect": Effect.READ})


def joint(**fields: Any) -> Agent:
    return looker(concurrency=ConcurrencyConfig(max_concurrent_tools=3), **fields)


def of_amount(amount: int, value: Any) -> Any:
    return lambda given: value if given["args"]["amount"] == amount else None


async def test_of_calls_that_go_out_together_one_may_be_stood_in_for() -> None:
    office = together(1, 2, 3)
    run = await office.run(joint(before_tool_callback=Asked(of_amount(2, "No."))))
    assert (run.state, office.paid, run.tool_calls) == (RunState.COMPLETED, [1, 3], 2)
    assert [result.call_id for result in every(run, ToolResult)] == ["call_1_1", "call_1_2", "call_1_3"]


async def test_of_calls_that_go_out_together_all_may_be_stood_in_for() -> None:
    office = together(1, 2, 3)
    run = await office.run(joint(before_tool_callback=Asked("No.")))
    assert (run.state, office.paid, run.tool_calls, len(every(run, ToolResult))) == (
        RunState.COMPLETED,
        [],
        0,
        3,
    )


async def test_a_failure_about_one_lets_none_of_those_out_that_would_go_with_it() -> None:
    office = together(1, 2, 3)
    run = await office.run(joint(before_tool_callback=Asked(None, None, ValueError("no"))))
    assert (run.error_code, office.paid, every(run, ToolCalled)) == ("callback_failed", [], [])


async def test_each_of_those_that_go_out_together_is_asked_about_afterwards() -> None:
    office = together(1, 2, 3)
    after = Asked(of_amount(3, "THREE"))
    run = await office.run(joint(after_tool_callback=after))
    assert (run.state, after.times, len(every(run, CallbackOverride))) == (RunState.COMPLETED, 3, 1)
    assert "THREE" in every(run, ToolResult)[2].content


# --- after_tool ------------------------------------------------------------------------------------------------------


async def test_a_value_after_a_tool_is_what_the_model_reads() -> None:
    office = stage()
    run = await office.run(looker(after_tool_callback=Asked({"trains": 3})))
    assert '{"trains":3}' in read_by_model(office, turn=2)[0]
    assert "four trains" not in "".join(event.payload for event in run.events)


async def test_a_replaced_result_is_cut_and_fenced_as_any_other() -> None:
    office = stage()
    run = await office.run(looker(after_tool_callback=Asked("x" * 50), max_tool_result_chars=10))
    assert one(run, ToolResultTruncated).original_chars == 50
    assert one(run, ToolResult).content.count("x" * 10) == 1


async def test_a_failure_after_a_tool_keeps_its_result_on_record() -> None:
    office = stage(call("pay", amount=3), say("Well."))
    run = await office.run(looker(after_tool_callback=Asked(ValueError("no"))))
    assert (run.error_code, office.paid, len(every(run, ToolResult))) == ("callback_failed", [3], 1)
    assert kinds(run)[-4:] == ["tool_result", "hook_refusal", "compensation_required", "terminated"]


async def test_a_callback_that_fails_and_leaves_rubbish_in_the_state_still_ends_the_run() -> None:
    def break_down(given: dict[str, Any]) -> None:
        given["tool_context"].state["seat"] = object()
        raise ValueError("no")

    run = await play(after_tool_callback=Asked(break_down))
    assert (run.state, run.error_code, one(run, HookRefusal).point) == (
        RunState.FAILED,
        "callback_failed",
        "after_tool",
    )


@pytest.mark.parametrize("point", ["before_tool_callback", "after_tool_callback"])
@pytest.mark.parametrize("value", [None, "fine"])
async def test_rubbish_in_the_state_of_a_tools_callback_ends_the_run(point: str, value: Any) -> None:
    run = await play(**{point: Asked(writes("seat", object(), value))})
    assert (run.state, run.error_code, deltas(run)) == (RunState.FAILED, "callback_failed", [])


async def test_a_failed_tool_does_not_become_a_failed_callback() -> None:
    office = looking(ValueError("no"))
    run = await office.run(looker(after_tool_callback=Asked(None), on_tool_error=ToolFailurePolicy.FAIL_RUN))
    assert run.error_code == "tool_failed"


# --- actions ---------------------------------------------------------------------------------------------------------


def team(**fields: Any) -> Agent:
    other = clerk(name="other", description="Knows trains.")
    return looker(sub_agents=(SubAgent(agent=other),), **fields)


async def test_a_handover_that_is_stood_in_for_hands_nothing_over() -> None:
    office = stage(call("transfer_to_agent", agent_name="other"), say("I stay."))
    run = await office.run(team(before_tool_callback=Asked("Not now.")))
    assert (run.state, run.output, every(run, AgentTransfer)) == (RunState.COMPLETED, "I stay.", [])


@pytest.mark.parametrize("value", [None, "Off you go."])
async def test_a_callback_before_a_tool_may_hand_the_run_over(value: Any) -> None:
    def hand_over(given: dict[str, Any]) -> Any:
        given["tool_context"].actions.transfer_to_agent = "other"
        return value

    office = stage(looks(1), say("I am the other."))
    run = await office.run(team(before_tool_callback=Asked(hand_over)))
    assert (run.state, run.output, len(every(run, AgentTransfer))) == (RunState.COMPLETED, "I am the other.", 1)


@pytest.mark.parametrize("point", ["before_tool_callback", "after_tool_callback"])
async def test_a_value_of_a_callback_may_be_the_answer(point: str) -> None:
    def conclude(given: dict[str, Any]) -> str:
        given["tool_context"].actions.skip_summarization = True
        return "Sold out."

    run = await play(looks(1), **{point: Asked(conclude)})
    assert (run.state, run.output, run.model_calls) == (RunState.COMPLETED, "Sold out.", 1)


@pytest.mark.parametrize("point", ["before_tool_callback", "after_tool_callback"])
async def test_an_artifact_can_not_be_kept_without_a_session(point: str) -> None:
    async def keep(*, tool_context: Any, **given: Any) -> None:
        await tool_context.save_artifact("note", b"x")

    run = await play(**{point: keep})
    assert (run.error_code, every(run, ArtifactDelta)) == ("callback_failed", [])
