"""What a tool can ask of the run besides giving its result: to go back up, and to let the result be the answer."""

from typing import Any

import pytest

from app import GuardrailDecision, HookChain, HookDecision, HookPoint, HookSubject, RepairConfig, RunState
from app.agents import Agent
from app.events import AgentTransfer, GuardrailRefusal, SummarySkipped, ToolFailed, ToolResult, Warned
from app.providers import ScriptedCall, ScriptedStep
from tests.execution.crew import Crew, Pointer, authors, every, hand_over, kinds, member, one
from tests.execution.fakes import GuardSays, HookSays, Recorder, call, calls, say

BLOCK = GuardrailDecision(allowed=False, reason="no")
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
DONE = Pointer("the list", skip_summarization=True)


def lister(**fields: Any) -> Agent:
    """An agent whose tool gives the answer itself."""
    return member("root", tools=("list",), **fields)


def listing(answer: str = "the list", *more: ScriptedStep, **runner_fields: Any) -> Crew:
    return Crew({"root": [call("list"), *more]}, {"list": Pointer(answer, skip_summarization=True)}, **runner_fields)


# --- escalate --------------------------------------------------------------------------------------------------------


def climber(**fields: Any) -> Agent:
    return member("root", sub_agents=(member("next", tools=("help",), **fields),))


async def test_a_tool_that_escalates_hands_the_run_back_to_the_agent_above() -> None:
    crew = Crew(
        {"root": [hand_over("next"), say("Mine again.")], "next": [call("help")]}, {"help": Pointer(escalate=True)}
    )
    run = await crew.run(climber())
    assert (run.output, crew.speakers) == ("Mine again.", ["root", "next", "root"])


async def test_the_way_back_is_told_as_an_escalation() -> None:
    crew = Crew(
        {"root": [hand_over("next"), say("Mine again.")], "next": [call("help")]}, {"help": Pointer(escalate=True)}
    )
    [_, moved] = every(await crew.run(climber()), AgentTransfer)
    assert (moved.from_agent, moved.to_agent, moved.actions.escalate) == ("next", "root", True)


async def test_the_agent_above_is_the_one_of_the_team_and_not_who_handed_over() -> None:
    left, right = member("left"), member("right", tools=("help",))
    crew = Crew(
        {"root": [hand_over("left"), say("Mine.")], "left": [hand_over("right")], "right": [call("help")]},
        {"help": Pointer(escalate=True)},
    )
    run = await crew.run(member("root", sub_agents=(left, right)))
    assert (run.output, crew.speakers) == ("Mine.", ["root", "left", "right", "root"])


async def test_at_the_root_nobody_is_above_and_the_run_goes_on_with_a_warning() -> None:
    crew = Crew({"root": [call("help"), say("Alone.")]}, {"help": Pointer(escalate=True)})
    run = await crew.run(member("root", tools=("help",)))
    assert (run.output, one(run, Warned).code, every(run, AgentTransfer)) == ("Alone.", "nobody_above", [])


async def test_a_tool_that_fails_escalates_nothing() -> None:
    async def broken(arguments: dict[str, Any], context: Any) -> str:
        context.actions.escalate = True
        raise RuntimeError("out of order")

    crew = Crew({"root": [hand_over("next")], "next": [call("help"), say("I go on.")]}, {"help": broken})
    run = await crew.run(climber())
    assert (run.output, len(every(run, AgentTransfer))) == ("I go on.", 1)


# --- skip_summarization ----------------------------------------------------------------------------------------------


async def test_the_result_is_the_answer_and_the_model_is_not_asked_again() -> None:
    crew = listing()
    run = await crew.run(lister())
    assert (run.state, run.output, len(crew.provider.requests)) == (RunState.COMPLETED, "the list", 1)


async def test_the_log_tells_that_the_summary_was_skipped() -> None:
    run = await listing().run(lister())
    assert kinds(run)[-4:] == ["tool_call", "tool_result", "summary_skipped", "terminated"]
    assert one(run, ToolResult).actions.skip_summarization is True


async def test_the_log_holds_the_answer_whole_and_without_an_envelope() -> None:
    result = one(await listing().run(lister()), ToolResult)
    assert (result.answer, result.content.startswith("<untrusted-data")) == ("the list", True)


async def test_the_end_of_the_turn_is_what_a_reader_shows_as_the_answer() -> None:
    run = await listing().run(lister())
    assert [event.kind for event in run.events if event.body.final] == ["summary_skipped"]


async def test_a_result_that_is_no_answer_because_the_run_moves_on_is_not_final() -> None:
    turn = calls(
        ScriptedCall(name="list", arguments={}),
        ScriptedCall(name="transfer_to_agent", arguments={"agent_name": "next"}),
    )
    crew = Crew({"root": [turn], "next": [say("Next.")]}, {"list": DONE})
    run = await crew.run(lister(sub_agents=(member("next"),)))
    assert [(event.kind, event.body.author) for event in run.events if event.body.final] == [("model_response", "next")]


async def test_the_calls_beside_it_are_made_first() -> None:
    look = Recorder()
    turn = calls(ScriptedCall(name="list", arguments={}), ScriptedCall(name="look", arguments={}))
    crew = Crew({"root": [turn]}, {"list": DONE, "look": look})
    run = await crew.run(member("root", tools=("list", "look")))
    assert (run.output, len(look.calls), len(every(run, ToolResult))) == ("the list", 1, 2)


async def test_two_results_that_are_answers_are_both_told() -> None:
    turn = calls(ScriptedCall(name="list", arguments={}), ScriptedCall(name="more", arguments={}))
    crew = Crew({"root": [turn]}, {"list": DONE, "more": Pointer("the rest", skip_summarization=True)})
    run = await crew.run(member("root", tools=("list", "more")))
    assert (run.output, len(every(run, SummarySkipped))) == ("the list\nthe rest", 1)


async def test_a_tool_that_fails_is_no_answer() -> None:
    async def broken(arguments: dict[str, Any], context: Any) -> str:
        context.actions.skip_summarization = True
        raise RuntimeError("out of order")

    crew = Crew({"root": [call("list"), say("Sorry.")]}, {"list": broken})
    run = await crew.run(lister())
    assert (run.output, every(run, SummarySkipped)) == ("Sorry.", [])


async def test_a_failure_beside_it_does_not_take_the_answer_away() -> None:
    turn = calls(ScriptedCall(name="list", arguments={}), ScriptedCall(name="look", arguments={}))
    crew = Crew({"root": [turn]}, {"list": DONE, "look": Recorder(RuntimeError("no"))})
    run = await crew.run(member("root", tools=("list", "look")))
    assert (run.output, len(every(run, ToolFailed))) == ("the list", 1)


async def test_output_guardrails_judge_it() -> None:
    guard = GuardSays(on_output=lambda _: BLOCK)
    run = await listing(guardrails={"guard": guard}).run(lister(guardrails=("guard",)))
    assert (run.state, run.output, run.error_code) == (RunState.FAILED, None, "guardrail_refusal")
    assert one(run, GuardrailRefusal).subject == "output"


async def test_a_redaction_of_it_is_the_answer() -> None:
    guard = GuardSays(on_output=lambda text: GuardrailDecision(redacted=text.replace("4111", "****")))
    run = await listing("card 4111", guardrails={"guard": guard}).run(lister(guardrails=("guard",)))
    assert (run.output, one(run, ToolResult).answer) == ("card ****", "card ****")


async def test_a_guardrail_judges_it_once() -> None:
    guard = GuardSays()
    await listing(guardrails={"guard": guard}).run(lister(guardrails=("guard",)), "Hello")
    assert guard.checked == ["Hello", "the list"]


async def test_hooks_before_validation_judge_it() -> None:
    def decide(subject: HookSubject) -> HookDecision:
        return HookDecision.rewrite(subject.content.upper())

    hook = HookSays(HookPoint.BEFORE_OUTPUT_VALIDATION, says=decide)
    run = await listing(hooks=HookChain([hook])).run(lister())
    assert run.output == "THE LIST"


async def test_a_result_in_the_declared_form_is_validated() -> None:
    run = await listing('{"n": 3}').run(lister(output_schema=COUNT))
    assert (run.output, kinds(run)[-3:]) == ({"n": 3}, ["summary_skipped", "output_validated", "terminated"])


async def test_a_result_out_of_form_fails_the_run() -> None:
    run = await listing("three").run(lister(output_schema=COUNT))
    assert (run.state, run.error_code, run.output) == (RunState.FAILED, "schema_violation", None)


async def test_a_result_out_of_form_can_be_mended_by_the_model() -> None:
    run = await listing("three", say('{"n": 3}')).run(lister(output_schema=COUNT, repair=RepairConfig(max_attempts=1)))
    assert (run.state, run.output) == (RunState.COMPLETED, {"n": 3})


async def test_a_transfer_in_the_same_turn_goes_before_the_answer() -> None:
    turn = calls(
        ScriptedCall(name="list", arguments={}),
        ScriptedCall(name="transfer_to_agent", arguments={"agent_name": "next"}),
    )
    crew = Crew({"root": [turn], "next": [say("Next.")]}, {"list": DONE})
    run = await crew.run(lister(sub_agents=(member("next"),)))
    assert (run.output, every(run, SummarySkipped)) == ("Next.", [])


async def test_after_a_transfer_the_new_agents_result_is_the_answer() -> None:
    crew = Crew({"root": [hand_over("next")], "next": [call("list")]}, {"list": DONE})
    run = await crew.run(member("root", sub_agents=(member("next", tools=("list",)),)))
    assert (run.output, authors(run, SummarySkipped)) == ("the list", ["next"])


@pytest.mark.parametrize("answer", ["", "   "])
async def test_a_result_that_says_nothing_is_an_answer_that_says_nothing(answer: str) -> None:
    crew = listing(answer)
    run = await crew.run(lister())
    assert (run.state, run.output, len(crew.provider.requests)) == (RunState.COMPLETED, answer, 1)
