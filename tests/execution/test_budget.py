"""Ceilings: a prompt that would pass one is refused before the call, a generation stops at one, the end says which."""

from typing import Any

import pytest

from app.conversation import StopReason, ToolCall, Usage
from app.events import BudgetRefused, FanOutRefused, ModelCall, RepeatDetected, RunState, Terminated, ToolCalled
from app.ids import CallId
from app.policy import BudgetLimits, LoopConfig
from app.ports.model import ModelResponse
from app.providers import ScriptedCall
from tests.execution.fakes import Recorder, WholeProvider, call, calls, make_tool, say
from tests.execution.support import Bench, Story


def looking(turns: int, **fields: Any) -> Bench:
    """A model that looks so often before it answers, at another place each time."""
    script = [call("look", at=turn) for turn in range(turns)]
    return Bench([*script, say("Done.")], tools=[make_tool("look", Recorder())], **fields)


def end_of(story: Story) -> tuple[RunState, str | None, str | None]:
    return story.record.state, story.record.error_code, story.one(Terminated).cap


async def test_a_prompt_over_the_budget_is_refused_before_the_model_is_called() -> None:
    provider = WholeProvider(ModelResponse(content="Hello."), tokens_each=60)
    story = await Bench(provider).run(budget=BudgetLimits(max_input_tokens=100))
    refused = story.one(BudgetRefused)
    assert end_of(story) == (RunState.BUDGET_EXHAUSTED, "budget_exhausted", "max_input_tokens")
    assert (refused.limit, refused.used, refused.requested, refused.source) == (100, 0, 120, "deployment")
    assert (provider.requests, story.all(ModelCall)) == ([], [])


async def test_a_prompt_that_just_fits_the_budget_goes_out() -> None:
    provider = WholeProvider(ModelResponse(content="Hello."), tokens_each=50)
    story = await Bench(provider).run(budget=BudgetLimits(max_input_tokens=100))
    assert story.record.state is RunState.COMPLETED


async def test_the_second_prompt_has_only_what_the_first_one_left() -> None:
    provider = WholeProvider(*[ModelResponse(content="", tool_calls=call_look(), usage=Usage(input_tokens=70))] * 2)
    bench = Bench(provider, tools=[make_tool("look", Recorder())])
    story = await bench.run(budget=BudgetLimits(max_input_tokens=100))
    assert (len(provider.requests), story.one(BudgetRefused).used) == (1, 70)


def call_look() -> tuple[ToolCall, ...]:
    return (ToolCall(call_id=CallId("c"), name="look", arguments={}),)


async def test_a_model_is_told_the_output_tokens_that_are_left() -> None:
    bench = Bench(
        [call("look").model_copy(update={"usage": Usage(output_tokens=8)}), say("Done.")],
        tools=[make_tool("look", Recorder())],
    )
    story = await bench.run(budget=BudgetLimits(max_output_tokens=20))
    asked = [request.max_output_tokens for request in bench.provider.requests]  # type: ignore[attr-defined]
    assert asked == [called.max_output_tokens for called in story.all(ModelCall)] == [20, 12]


async def test_an_answer_that_reached_the_budgets_ceiling_is_no_answer() -> None:
    cut = say("Half an", usage=Usage(output_tokens=20), stop_reason=StopReason.LENGTH)
    story = await Bench([cut]).run(budget=BudgetLimits(max_output_tokens=20))
    assert end_of(story) == (RunState.BUDGET_EXHAUSTED, "budget_exhausted", "max_output_tokens")
    assert (story.record.output_text, story.record.usage.output_tokens) == (None, 20)
    assert story.kinds[-3:] == ["model_response", "budget_refused", "terminated"]


async def test_an_answer_that_the_model_itself_cut_has_failed() -> None:
    cut = say("Half an", usage=Usage(output_tokens=12), stop_reason=StopReason.LENGTH)
    story = await Bench([cut]).run(budget=BudgetLimits(max_output_tokens=20))
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "output_truncated")


async def test_calls_of_a_cut_response_do_not_go_out() -> None:
    tool = Recorder()
    turn = calls(ScriptedCall(name="look"), stop_reason=StopReason.LENGTH)
    story = await Bench([turn], tools=[make_tool("look", tool)]).run()
    assert (story.record.error_code, tool.calls) == ("output_truncated", [])


async def test_model_calls_end_at_their_budget() -> None:
    story = await looking(5).run(budget=BudgetLimits(max_model_calls=2))
    assert end_of(story) == (RunState.BUDGET_EXHAUSTED, "budget_exhausted", "max_model_calls")
    assert story.record.model_calls == 2


async def test_max_llm_calls_is_a_cap_on_the_shape() -> None:
    bench = looking(5)
    story = await bench.run(bench.agent(max_llm_calls=2))
    assert end_of(story) == (RunState.LOOP_LIMIT_EXCEEDED, "max_llm_calls_exceeded", "max_llm_calls")
    assert story.record.model_calls == 2


async def test_max_iterations_binds_before_max_llm_calls_and_the_budget() -> None:
    bench = looking(5)
    story = await bench.run(bench.agent(max_iterations=2, max_llm_calls=2), budget=BudgetLimits(max_model_calls=2))
    assert end_of(story) == (RunState.MAX_ITERATIONS_EXCEEDED, "max_iterations_exceeded", "max_iterations")


async def test_an_agent_tightens_a_ceiling_and_is_named_for_it() -> None:
    bench = looking(5)
    story = await bench.run(bench.agent(budget=BudgetLimits(max_model_calls=1)), budget=BudgetLimits(max_model_calls=9))
    assert (story.one(BudgetRefused).source, story.record.model_calls) == ("agent", 1)


async def test_a_single_call_past_the_total_is_spend() -> None:
    story = await looking(5).run(budget=BudgetLimits(max_tool_calls=2))
    assert end_of(story) == (RunState.BUDGET_EXHAUSTED, "budget_exhausted", "max_tool_calls")
    assert len(story.all(ToolCalled)) == 2


@pytest.mark.parametrize(
    ("limits", "cap"),
    [
        (BudgetLimits(max_parallel_tool_calls=2), "max_parallel_tool_calls"),
        (BudgetLimits(max_tool_calls=2), "max_tool_calls"),
    ],
)
async def test_a_turn_that_does_not_fit_is_refused_entire(limits: BudgetLimits, cap: str) -> None:
    tool = Recorder()
    turn = calls(*[ScriptedCall(name="look", arguments={"at": at}) for at in range(3)])
    story = await Bench([turn], tools=[make_tool("look", tool)]).run(budget=limits)
    assert end_of(story) == (RunState.LOOP_LIMIT_EXCEEDED, "fan_out_exceeded", cap)
    assert (story.one(FanOutRefused).requested, tool.calls, story.all(ToolCalled)) == (3, [], [])


async def test_the_same_call_passes_as_often_as_allowed_and_the_next_one_ends_the_run() -> None:
    tool = Recorder()
    bench = Bench([call("look", at=1)] * 5, tools=[make_tool("look", tool)])
    story = await bench.run(bench.agent(loop=LoopConfig(max_repeated_calls=2)))
    assert end_of(story) == (RunState.LOOP_LIMIT_EXCEEDED, "repeated_call", "max_repeated_calls")
    assert (len(tool.calls), story.one(RepeatDetected).count) == (2, 3)
