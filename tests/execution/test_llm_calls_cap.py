"""``max_llm_calls`` counts every real model call of an invocation: continuations, transfers, and runs below it."""

from typing import Any

import pytest

from app import ConcurrencyConfig, RetryConfig, RunState, UnlimitedBudget
from app.agents import Agent
from app.conversation.content import Content, FunctionCall, Part
from app.errors import MaxLlmCallsError
from app.events import ModelCall, Terminated, Warned
from app.providers import ScriptedCall, ScriptedError, ScriptedStep
from app.testing import FakeClock
from tests.execution.crew import Crew, called, child_ids, every, hand_over, member, one
from tests.execution.fakes import Recorder, call, calls, say


def looker(**fields: Any) -> Agent:
    return member("root", tools=("look",), **fields)


def looks(*steps: ScriptedStep, **fields: Any) -> Crew:
    return Crew({"root": steps}, {"look": Recorder()}, **fields)


def tree(**fields: Any) -> Agent:
    """A caller and one that it calls, which has a tool."""
    return member("root", sub_agents=(called(member("low", tools=("look",))),), **fields)


def two_below() -> ScriptedStep:
    return calls(*[ScriptedCall(name="low", arguments={"input": text}) for text in ("One.", "Two.")])


async def test_as_many_calls_as_the_cap_allows_are_made() -> None:
    run = await looks(call("look"), say("Seen.")).run(looker(max_llm_calls=2))
    assert (run.state, len(every(run, ModelCall))) == (RunState.COMPLETED, 2)


async def test_a_continuation_after_a_tools_result_counts() -> None:
    run = await looks(call("look"), say("Never.")).run(looker(max_llm_calls=1))
    assert (run.state, run.error_code, run.cap) == (
        RunState.LOOP_LIMIT_EXCEEDED,
        "max_llm_calls_exceeded",
        "max_llm_calls",
    )
    assert isinstance(run.error, MaxLlmCallsError)


async def test_the_end_names_the_cap_and_the_count() -> None:
    run = await looks(call("look"), say("Never.")).run(looker(max_llm_calls=1))
    assert run.error_detail == "1 model calls were made, max_llm_calls allows 1"


async def test_an_attempt_that_failed_was_a_call() -> None:
    failing = ScriptedStep(error=ScriptedError(status=503))
    crew = looks(failing, say("Never."), retry=RetryConfig(max_attempts=3), clock=FakeClock())
    run = await crew.run(looker(max_llm_calls=1))
    assert (run.cap, len(crew.provider.requests)) == ("max_llm_calls", 1)


async def test_an_answer_of_a_callback_is_no_call() -> None:
    asks = Content(role="model", parts=(Part(function_call=FunctionCall(id="c1", name="look", args={})),))
    answers = iter([asks, None])
    root = looker(max_llm_calls=1, before_model_callback=lambda callback_context, llm_request: next(answers))
    crew = Crew({"root": [say("Seen.")]}, {"look": Recorder()})
    run = await crew.run(root)
    assert (run.output, run.model_calls, len(crew.provider.requests)) == ("Seen.", 1, 1)


async def test_the_agent_that_takes_over_goes_on_counting() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [say("Never.")]})
    run = await crew.run(member("root", sub_agents=(member("next"),), max_llm_calls=1))
    assert (run.cap, one(run, Terminated).author, crew.speakers) == ("max_llm_calls", "next", ["root"])


async def test_calls_below_count_for_the_caller() -> None:
    crew = Crew({"root": [call("low", input="Go."), say("Never.")], "low": [say("Low.")]}, {"look": Recorder()})
    run = await crew.run(tree(max_llm_calls=2))
    assert (run.cap, run.error_detail, len(crew.provider.requests)) == (
        "max_llm_calls",
        "2 model calls were made, max_llm_calls allows 2",
        2,
    )


async def test_the_callers_cap_stops_the_run_below() -> None:
    crew = Crew({"root": [call("low", input="Go.")], "low": [call("look"), say("Never.")]}, {"look": Recorder()})
    run = await crew.run(tree(max_llm_calls=2))
    end = crew.log(child_ids(run)[0], root=run.run_id)[-1].body
    assert isinstance(end, Terminated)
    assert (end.code, end.cap, run.error_code) == ("max_llm_calls_exceeded", "max_llm_calls", "max_llm_calls_exceeded")


async def test_a_wide_cap_of_its_own_does_not_help_the_run_below() -> None:
    low = member("low", tools=("look",), max_llm_calls=100)
    crew = Crew({"root": [call("low", input="Go.")], "low": [call("look"), say("Never.")]}, {"look": Recorder()})
    run = await crew.run(member("root", sub_agents=(called(low),), max_llm_calls=2))
    assert (run.cap, len(crew.provider.requests)) == ("max_llm_calls", 2)


async def test_a_cap_of_its_own_ends_the_run_below_alone() -> None:
    low = member("low", tools=("look",), max_llm_calls=1)
    crew = Crew(
        {"root": [call("low", input="Go."), say("Done.")], "low": [call("look"), say("Never.")]}, {"look": Recorder()}
    )
    run = await crew.run(member("root", sub_agents=(called(low),)))
    assert (run.output, len(crew.asked("low"))) == ("Done.", 1)


@pytest.mark.parametrize("cap", [1, 2, 3, 4, 5])
async def test_two_runs_below_at_once_share_the_cap(cap: int) -> None:
    crew = Crew(
        {"root": [two_below(), say("Done.")], "low": [call("look"), call("look"), say("One."), say("Two.")]},
        {"look": Recorder()},
    )
    run = await crew.run(tree(max_llm_calls=cap, concurrency=ConcurrencyConfig(max_concurrent_tools=2)))
    assert (run.cap, len(crew.provider.requests)) == ("max_llm_calls", cap)


async def test_the_whole_tree_just_fits() -> None:
    crew = Crew(
        {"root": [two_below(), say("Done.")], "low": [call("look"), call("look"), say("One."), say("Two.")]},
        {"look": Recorder()},
    )
    run = await crew.run(tree(max_llm_calls=6, concurrency=ConcurrencyConfig(max_concurrent_tools=2)))
    assert (run.output, len(crew.provider.requests)) == ("Done.", 6)


async def test_calls_two_levels_below_count_too() -> None:
    crew = Crew(
        {"root": [call("mid", input="Go.")], "mid": [call("low", input="Go.")], "low": [call("look"), say("Never.")]},
        {"look": Recorder()},
    )
    mid = member("mid", sub_agents=(called(member("low", tools=("look",))),))
    run = await crew.run(member("root", sub_agents=(called(mid),), max_llm_calls=3))
    assert (run.cap, len(crew.provider.requests)) == ("max_llm_calls", 3)


@pytest.mark.parametrize("cap", [0, -1])
async def test_zero_or_less_takes_the_cap_away_and_says_so(cap: int) -> None:
    run = await looks(call("look"), say("Seen.")).run(looker(max_llm_calls=cap))
    assert (run.output, one(run, Warned).code) == ("Seen.", "max_llm_calls_disabled")


@pytest.mark.parametrize("cap", [0, -1])
async def test_without_a_cap_the_runs_below_have_none_either(cap: int) -> None:
    crew = Crew(
        {"root": [call("low", input="Go."), say("Done.")], "low": [call("look"), say("Low.")]}, {"look": Recorder()}
    )
    run = await crew.run(tree(max_llm_calls=cap), budget=UnlimitedBudget(reason="a test"))
    assert (run.output, len(crew.provider.requests)) == ("Done.", 4)


async def test_a_called_agent_may_take_its_own_cap_away_and_the_callers_still_holds() -> None:
    low = member("low", tools=("look",), max_llm_calls=0)
    crew = Crew({"root": [call("low", input="Go.")], "low": [call("look"), say("Never.")]}, {"look": Recorder()})
    run = await crew.run(member("root", sub_agents=(called(low),), max_llm_calls=2))
    assert (run.cap, len(crew.provider.requests)) == ("max_llm_calls", 2)
