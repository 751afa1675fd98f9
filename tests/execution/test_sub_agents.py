"""An agent that is called as a tool: its run below the caller's, and what comes back."""

from decimal import Decimal
from typing import Any

import pytest

from app import GuardrailDecision, HookChain, HookDecision, HookPoint, Price, RunState
from app.agents import Agent
from app.conversation import Usage
from app.events import ApprovalRequired, RunQueued, ToolCalled, ToolFailed, ToolResult
from app.providers import ScriptedCall, ScriptedStep
from tests.execution.crew import Crew, called, chief, child_ids, every, hand_over, kinds, member, one
from tests.execution.desk import Desk
from tests.execution.fakes import GuardSays, HookSays, Recorder, call, calls, say

BLOCK = GuardrailDecision(allowed=False, reason="no")
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def writer(**fields: Any) -> Agent:
    return member("writer", description="Writes a text.", **fields)


def writes(*steps: ScriptedStep, tools: dict[str, Any] | None = None, **fields: Any) -> Crew:
    """The chief calls the writer, which plays these steps, and says something about it."""
    return Crew({"chief": [call("writer", input="Write."), say("Done.")], "writer": steps}, tools, **fields)


# --- the run below ---------------------------------------------------------------------------------------------------


async def test_the_answer_of_the_called_agent_goes_back_as_data() -> None:
    run = await writes(say("Four nights.")).run(chief(writer()))
    result = one(run, ToolResult)
    assert (run.output, result.name, "Four nights." in result.content) == ("Done.", "writer", True)
    assert result.content.startswith("<untrusted-data")


async def test_the_called_agent_reads_its_own_instructions_and_the_input_alone() -> None:
    crew = writes(say("Four nights."))
    await crew.run(chief(writer()), "A secret.")
    messages = crew.asked("writer")[0].messages
    assert [(message.role, message.content) for message in messages] == [
        ("system", "You are writer."),
        ("user", "Write."),
    ]


async def test_the_call_takes_one_text() -> None:
    crew = writes(say("Four nights."))
    await crew.run(chief(writer()))
    [tool] = crew.asked("chief")[0].tools
    assert (tool.name, tool.description, list(tool.parameters["properties"])) == ("writer", "Writes a text.", ["input"])


@pytest.mark.parametrize("arguments", [{}, {"input": ""}, {"input": 3}, {"input": "Write.", "more": 1}])
async def test_anything_else_is_no_call_and_nothing_is_begun(arguments: dict[str, Any]) -> None:
    crew = Crew({"chief": [calls(ScriptedCall(name="writer", arguments=arguments))]})
    run = await crew.run(chief(writer()))
    assert (run.error_code, every(run, ToolCalled), crew.speakers) == ("schema_violation", [], ["chief"])


async def test_the_call_names_the_run_below() -> None:
    crew = writes(say("Four nights."))
    run = await crew.run(chief(writer()))
    made = one(run, ToolCalled)
    assert made.child_run_id == crew.asked("writer")[0].run_id
    assert made.child_run_id != run.run_id


async def test_the_run_below_knows_its_place() -> None:
    crew = writes(say("Four nights."))
    run = await crew.run(chief(writer()))
    [child_id] = child_ids(run)
    record = crew.record(child_id, root=run.run_id)
    assert (record.parent_run_id, record.root_run_id) == (run.run_id, run.run_id)
    assert (record.depth, record.path) == (1, ("chief", "writer"))


async def test_its_first_event_tells_the_same() -> None:
    crew = writes(say("Four nights."))
    run = await crew.run(chief(writer()))
    [child_id] = child_ids(run)
    first = crew.log(child_id, root=run.run_id)[0].body
    assert isinstance(first, RunQueued)
    assert (first.agent, first.depth, first.path, first.parent_run_id) == (
        "writer",
        1,
        ("chief", "writer"),
        run.run_id,
    )


async def test_its_log_is_a_runs_log_from_its_first_event_to_its_end() -> None:
    crew = writes(say("Four nights."))
    run = await crew.run(chief(writer()))
    [child_id] = child_ids(run)
    log = crew.log(child_id, root=run.run_id)
    assert [event.kind for event in log] == [
        "run_queued",
        "run_started",
        "prompt_assembled",
        "model_call",
        "model_response",
        "terminated",
    ]
    assert [event.seq for event in log] == [1, 2, 3, 4, 5, 6]


async def test_none_of_its_events_is_in_its_callers_log() -> None:
    run = await writes(say("Four nights.")).run(chief(writer()))
    assert {event.body.author for event in run.events[1:]} == {"chief"}
    assert kinds(run).count("terminated") == 1


async def test_a_stream_tells_the_run_that_was_asked_for_alone() -> None:
    crew = writes(say("Four nights."))
    told = [event async for event in crew.runner.stream(chief(writer()), "Go.", tenant="acme")]
    assert {event.run_id for event in told} == {told[0].run_id}
    assert [event.body.final for event in told].count(True) == 1


async def test_two_calls_are_two_runs() -> None:
    turn = calls(*[ScriptedCall(name="writer", arguments={"input": text}) for text in ("One.", "Two.")])
    crew = Crew({"chief": [turn, say("Done.")], "writer": [say("First."), say("Second.")]})
    run = await crew.run(chief(writer()))
    assert len(child_ids(run)) == 2
    assert ["First." in body.content for body in every(run, ToolResult)] == [True, False]


async def test_a_called_agent_calls_one_of_its_own() -> None:
    crew = Crew(
        {
            "chief": [call("writer", input="Write."), say("Done.")],
            "writer": [call("reader", input="Read."), say("Written.")],
            "reader": [say("Read it.")],
        }
    )
    run = await crew.run(chief(writer(sub_agents=(called(member("reader")),))))
    deepest = crew.record(crew.asked("reader")[0].run_id, root=run.run_id)
    assert (run.output, crew.speakers) == ("Done.", ["chief", "writer", "reader", "writer", "chief"])
    assert (deepest.depth, deepest.path, deepest.root_run_id) == (2, ("chief", "writer", "reader"), run.run_id)
    assert deepest.parent_run_id == crew.asked("writer")[0].run_id


async def test_a_called_agent_hands_its_own_run_over() -> None:
    crew = Crew(
        {
            "chief": [call("writer", input="Write."), say("Done.")],
            "writer": [hand_over("poet")],
            "poet": [say("A verse.")],
        }
    )
    run = await crew.run(chief(writer(sub_agents=(member("poet"),))))
    assert (run.output, "A verse." in one(run, ToolResult).content) == ("Done.", True)


async def test_a_called_agent_has_nobody_of_its_callers_team_to_hand_to() -> None:
    crew = Crew({"chief": [call("writer", input="Write."), say("Done.")], "writer": [say("Written.")]})
    root = member("chief", sub_agents=(called(writer()), member("clerk")))
    await crew.run(root)
    assert crew.asked("writer")[0].tools == ()


async def test_after_a_transfer_the_new_agents_called_ones_are_called() -> None:
    crew = Crew(
        {
            "root": [hand_over("chief")],
            "chief": [call("writer", input="Write."), say("Done.")],
            "writer": [say("Written.")],
        }
    )
    run = await crew.run(member("root", sub_agents=(chief(writer()),)))
    record = crew.record(child_ids(run)[0], root=run.run_id)
    assert (run.output, record.depth, record.parent_run_id) == ("Done.", 1, run.run_id)


# --- how it ends -----------------------------------------------------------------------------------------------------


async def test_a_run_below_that_does_not_complete_is_a_call_that_failed() -> None:
    run = await writes(say("")).run(chief(writer()))
    failed = one(run, ToolFailed)
    assert (run.output, failed.name, "empty_model_output" in failed.content) == ("Done.", "writer", True)


async def test_where_tools_failures_end_the_run_it_does_so_too() -> None:
    run = await writes(say("")).run(chief(writer(), on_tool_error="fail_run"))
    assert (run.state, run.error_code) == (RunState.FAILED, "tool_failed")


async def test_what_went_wrong_below_is_told_without_its_words() -> None:
    run = await writes(call("look"), tools={"look": Recorder(RuntimeError("hunter2"))}).run(
        chief(writer(tools=("look",), on_tool_error="fail_run"))
    )
    failed = one(run, ToolFailed)
    assert ("tool_failed" in failed.content, "hunter2" in failed.content) == (True, False)


async def test_the_called_agents_own_form_holds_for_its_answer() -> None:
    run = await writes(say("three")).run(chief(writer(output_schema=COUNT)))
    assert "schema_violation" in one(run, ToolFailed).content


async def test_the_callers_form_does_not_hold_for_the_answer_below() -> None:
    crew = Crew({"chief": [call("writer", input="Write."), say('{"n": 3}')], "writer": [say("three")]})
    run = await crew.run(chief(writer(), output_schema=COUNT))
    assert (run.output, len(every(run, ToolResult))) == ({"n": 3}, 1)


async def test_a_long_answer_is_cut_as_any_result_is() -> None:
    run = await writes(say("x" * 100)).run(chief(writer(), max_tool_result_chars=10))
    assert ("tool_result_truncated" in kinds(run), "x" * 11 in one(run, ToolResult).content) == (True, False)


# --- what it may, and what holds for it ------------------------------------------------------------------------------


async def test_a_called_agent_without_a_model_uses_its_callers() -> None:
    crew = writes(say("Written."), models=("model", "small"))
    await crew.run(chief(writer(), model="scripted:small"))
    assert [request.model for request in crew.provider.requests] == ["small", "small", "small"]


async def test_a_model_that_is_its_callers_needs_no_price_but_the_callers() -> None:
    price = Price(input=Decimal(1), output=Decimal(1))
    crew = writes(say("Written."), models=("model", "small"), prices={"scripted:small": price})
    run = await crew.run(chief(writer(), model="scripted:small", budget={"max_cost": "1"}))
    assert run.output == "Done."


async def test_a_called_agent_has_its_own_tools_and_not_its_callers() -> None:
    crew = writes(say("Written."), tools={"look": Recorder(), "pay": Recorder()})
    await crew.run(chief(writer(tools=("look",)), tools=("pay",)))
    assert [tool.name for tool in crew.asked("writer")[0].tools] == ["look"]


async def test_what_was_not_granted_ends_the_run_below() -> None:
    pay = Recorder()
    crew = writes(call("pay"), tools={"pay": pay})
    run = await crew.run(member("chief", sub_agents=(called(writer(tools=("pay",)), tools=()),)))
    assert (run.output, "tool_not_allowed" in one(run, ToolFailed).content, pay.calls) == ("Done.", True, [])


async def test_the_callers_guardrail_judges_what_is_said_below() -> None:
    guard = GuardSays(on_output=lambda text: BLOCK if "secret" in text else GuardrailDecision())
    crew = writes(say("The secret."), guardrails={"guard": guard})
    run = await crew.run(chief(writer(), guardrails=("guard",)))
    assert ("guardrail_refusal" in one(run, ToolFailed).content, run.output) == (True, "Done.")


async def test_the_callers_guardrail_judges_what_goes_in_below() -> None:
    guard = GuardSays()
    crew = writes(say("Written."), guardrails={"guard": guard})
    await crew.run(chief(writer(), guardrails=("guard",)))
    assert guard.checked.count("Write.") == 1


async def test_hooks_of_the_deployment_judge_the_calls_below() -> None:
    def decide(subject: Any) -> HookDecision:
        return HookDecision.refuse("no") if subject.tool == "look" else HookDecision.proceed()

    look = Recorder()
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=decide)
    crew = writes(call("look"), tools={"look": look}, hooks=HookChain([hook]))
    run = await crew.run(chief(writer(tools=("look",))))
    assert (look.calls, "hook_refusal" in one(run, ToolFailed).content) == ([], True)


async def test_what_the_caller_asks_people_about_is_asked_below_too() -> None:
    desk, pay = Desk(), Recorder()
    crew = writes(call("pay"), say("Paid."), tools={"pay": pay}, approvals=desk)
    run = await crew.run(chief(writer(tools=("pay",)), tools=("pay",), approval_required_tools=("pay",)))
    assert ([record.agent for record in desk.asked], len(pay.calls), run.output) == (["writer"], 1, "Done.")


async def test_it_is_asked_two_levels_below_past_one_that_has_no_such_tool() -> None:
    desk, pay = Desk(), Recorder()
    scripts = {
        "chief": [call("mid", input="Go."), say("Done.")],
        "mid": [call("writer", input="Write."), say("Did.")],
        "writer": [call("pay"), say("Paid.")],
    }
    crew = Crew(scripts, {"pay": pay}, approvals=desk)
    mid = member("mid", sub_agents=(called(writer(tools=("pay",))),))
    await crew.run(chief(mid, tools=("pay",), approval_required_tools=("pay",)))
    assert ([record.agent for record in desk.asked], len(pay.calls)) == (["writer"], 1)


async def test_it_is_asked_where_the_run_below_was_handed_over() -> None:
    desk, pay = Desk(), Recorder()
    scripts = {
        "chief": [call("mid", input="Go."), say("Done.")],
        "mid": [hand_over("writer")],
        "writer": [call("pay"), say("Paid.")],
    }
    crew = Crew(scripts, {"pay": pay}, approvals=desk)
    mid = member("mid", sub_agents=(writer(tools=("pay",)),))
    await crew.run(chief(mid, tools=("pay",), approval_required_tools=("pay",)))
    assert ([record.agent for record in desk.asked], len(pay.calls)) == (["writer"], 1)


async def test_the_usage_below_is_not_counted_twice_in_the_callers_record() -> None:
    usage = Usage(input_tokens=10, output_tokens=5)
    crew = Crew(
        {
            "chief": [call("writer", input="Write.").model_copy(update={"usage": usage}), say("Done.", usage=usage)],
            "writer": [say("Written.", usage=usage)],
        }
    )
    run = await crew.run(chief(writer()))
    assert (run.usage.input_tokens, run.usage.output_tokens, run.model_calls) == (20, 10, 2)


async def test_people_are_asked_below_about_what_the_called_agent_itself_asks() -> None:
    desk = Desk()
    crew = writes(call("pay"), say("Paid."), tools={"pay": Recorder()}, approvals=desk)
    run = await crew.run(chief(writer(tools=("pay",), approval_required_tools=("pay",))))
    assert (len(desk.asked), every(run, ApprovalRequired)) == (1, [])
