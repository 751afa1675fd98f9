"""What is stored in which order, and what shares an append: a step is one round trip."""

from app.conversation import Role, StopReason, Usage
from app.events import ModelCall, ModelResponded, RunQueued, RunStarted, RunState, Terminated, ToolCalled, ToolResult
from app.ports.hooks import HookDecision, HookPoint, HookSubject
from app.providers import ScriptedCall
from tests.execution.fakes import GuardSays, HookSays, Recorder, call, calls, make_tool, say
from tests.execution.support import Bench


def bench_with_tool() -> Bench:
    return Bench([call("pay", amount=3), say("Paid.")], tools=[make_tool("pay", Recorder("receipt"))])


async def test_a_run_without_calls_is_three_appends() -> None:
    bench = Bench([say("Hello.")])
    story = await bench.run()
    assert bench.store.appends == [
        ("run_started", "prompt_assembled", "model_call"),
        ("model_response", "terminated"),
    ]
    assert story.kinds[0] == "run_queued"


async def test_a_run_with_a_call_shares_each_append_with_what_comes_before_it() -> None:
    bench = bench_with_tool()
    await bench.run()
    assert bench.store.appends == [
        ("run_started", "prompt_assembled", "model_call"),
        ("model_response", "tool_call"),
        ("tool_result", "model_call"),
        ("model_response", "terminated"),
    ]


async def test_each_call_of_a_turn_goes_out_after_the_outcome_of_the_one_before() -> None:
    pay, look = Recorder(), Recorder()
    bench = Bench(
        [calls(ScriptedCall(name="pay"), ScriptedCall(name="look")), say("Done.")],
        tools=[make_tool("pay", pay), make_tool("look", look)],
    )
    await bench.run()
    assert bench.store.appends[1:4] == [
        ("model_response", "tool_call"),
        ("tool_result", "tool_call"),
        ("tool_result", "model_call"),
    ]


async def test_what_is_known_is_stored_before_a_hook_is_asked() -> None:
    hook = HookSays(*HookPoint, says=lambda _: HookDecision.proceed())
    bench = Bench([call("pay"), say("Paid.")], tools=[make_tool("pay", Recorder())], hooks=[hook])
    await bench.run()
    assert bench.store.appends == [
        ("run_started",),
        ("prompt_assembled",),
        ("model_call",),
        ("model_response",),
        ("turn_cleared", "tool_call"),
        ("tool_result",),
        ("model_call",),
        ("model_response",),
        ("terminated",),
    ]


async def test_hooks_are_asked_in_the_order_of_the_loop() -> None:
    hook = HookSays(*HookPoint, says=lambda _: HookDecision.proceed())
    bench = Bench([call("pay"), say("Paid.")], tools=[make_tool("pay", Recorder())], hooks=[hook])
    await bench.run()
    assert [subject.point for subject in hook.asked] == [
        HookPoint.BEFORE_PROMPT_ASSEMBLY,
        HookPoint.BEFORE_MODEL_CALL,
        HookPoint.AFTER_MODEL_RESPONSE,
        HookPoint.BEFORE_TOOL_DISPATCH,
        HookPoint.AFTER_TOOL_RESULT,
        HookPoint.BEFORE_MODEL_CALL,
        HookPoint.BEFORE_MODEL_CALL,
        HookPoint.AFTER_MODEL_RESPONSE,
        HookPoint.BEFORE_OUTPUT_VALIDATION,
        HookPoint.ON_TERMINAL,
    ]


async def test_the_input_hook_is_asked_before_the_input_guardrail() -> None:
    told: list[str] = []
    hook = HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=lambda _: HookDecision.rewrite("rewritten"))
    guard = GuardSays()
    guard.checked = told
    bench = Bench([say("Hello.")], hooks=[hook], guardrails=[guard])
    await bench.run(input="original")
    assert told == ["rewritten", "Hello."]


async def test_every_call_of_a_turn_is_asked_about_before_any_goes_out() -> None:
    pay = Recorder()
    went_out: list[int] = []

    def count(_: HookSubject) -> HookDecision:
        went_out.append(len(pay.calls))
        return HookDecision.proceed()

    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=count)
    two = calls(ScriptedCall(name="pay", arguments={"n": 1}), ScriptedCall(name="pay", arguments={"n": 2}))
    bench = Bench([two, say("Paid.")], tools=[make_tool("pay", pay)], hooks=[hook])
    await bench.run()
    assert (went_out, len(pay.calls)) == ([0, 0], 2)


async def test_each_event_says_whose_it_is_and_in_which_iteration() -> None:
    bench = bench_with_tool()
    story = await bench.run()
    assert [event.body.iteration for event in story.events] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert {event.body.author for event in story.events[1:]} == {"clerk"}


async def test_the_events_carry_what_happened() -> None:
    bench = bench_with_tool()
    story = await bench.run()
    first, second = story.all(ModelCall)
    assert story.one(RunQueued).path == ("clerk",)
    assert (story.one(RunStarted).worker_id, story.one(RunStarted).fence) == ("worker-1", 1)
    assert (first.attempt, first.model, first.max_output_tokens) == (1, "scripted:model", None)
    assert second.estimated_input_tokens > first.estimated_input_tokens > 0
    assert (story.one(ToolCalled).call_id, story.one(ToolCalled).arguments) == ("call_1_1", {"amount": 3})
    assert story.one(ToolResult).content == '<untrusted-data source="tool_result">\nreceipt\n</untrusted-data>'


async def test_the_end_sums_up_and_the_row_says_the_same() -> None:
    usages = [Usage(input_tokens=10, output_tokens=5), Usage(input_tokens=20, cached_tokens=10, output_tokens=7)]
    bench = Bench(
        [call("pay").model_copy(update={"usage": usages[0]}), say("Paid.", usage=usages[1])],
        tools=[make_tool("pay", Recorder())],
    )
    story = await bench.run()
    end, record = story.one(Terminated), story.record
    assert (end.state, end.code, end.model_calls, end.tool_calls) == (RunState.COMPLETED, None, 2, 1)
    assert end.usage == record.usage == Usage(input_tokens=30, cached_tokens=10, output_tokens=12)
    assert (record.state, record.output_text, record.error_code) == (RunState.COMPLETED, "Paid.", None)
    assert (record.model, record.model_calls, record.tool_calls) == ("scripted:model", 2, 1)


async def test_only_the_answer_is_final() -> None:
    story = await bench_with_tool().run()
    assert [event.kind for event in story.events if event.body.final] == ["model_response"]
    assert [response.final for response in story.all(ModelResponded)] == [False, True]


async def test_an_answer_that_was_cut_is_not_final() -> None:
    story = await Bench([say("Half an", stop_reason=StopReason.LENGTH)]).run()
    assert (story.record.error_code, story.one(ModelResponded).final) == ("output_truncated", False)
    assert story.record.output_text is None


async def test_content_and_calls_of_one_response_are_one_message() -> None:
    bench = Bench([calls(ScriptedCall(name="pay"), text="I pay."), say("Paid.")], tools=[make_tool("pay", Recorder())])
    await bench.run()
    asked = bench.provider.requests[1].messages  # type: ignore[attr-defined]  # it is the scripted one
    assert [message.role for message in asked] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL]
    assert (asked[2].content, asked[2].tool_calls[0].name) == ("I pay.", "pay")


async def test_an_answer_of_nothing_fails_at_the_first() -> None:
    bench = Bench([say("")])
    story = await bench.run()
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "empty_model_output")
    assert story.record.model_calls == 1


async def test_white_space_is_an_answer() -> None:
    story = await Bench([say(" ")]).run()
    assert (story.record.state, story.record.output_text) == (RunState.COMPLETED, " ")


async def test_every_stored_event_is_told_to_listeners_after_its_append() -> None:
    bench = bench_with_tool()
    story = await bench.run()
    assert bench.sink.kinds == story.kinds[1:]
    assert (bench.feed.stored_bells, bench.feed.forgotten) == (4, [story.record.run_id])
