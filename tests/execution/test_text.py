"""Text as models and tools write it: U+0000 goes through unharmed, a lone surrogate becomes U+FFFD, what is no JSON
object is never dropped silently, and every event can be stored as ASCII JSON and read back.
"""

import json
import math
from typing import Any

import pytest

from app.conversation import StopReason, ToolCall
from app.errors import ConfigurationError, ProviderError
from app.events import (
    AttemptFailed,
    ModelResponded,
    RunState,
    SchemaViolation,
    Terminated,
    ToolCalled,
    ToolFailed,
    ToolResult,
    TurnCleared,
    decode_event,
)
from app.ids import CallId
from app.ports.hooks import GuardrailDecision, HookDecision, HookPoint
from app.ports.model import ModelResponse
from app.providers import ScriptedCall
from tests.execution.fakes import GuardSays, HookSays, Recorder, WholeProvider, call, calls, make_tool, say
from tests.execution.support import Bench, Story

NUL, LONE, MARK = "\x00", "\ud83d", "\ufffd"
REFUSES = HookDecision.refuse(LONE)


def respond(*made: ToolCall, content: str = "") -> ModelResponse:
    return ModelResponse(
        content=content, tool_calls=made, stop_reason=StopReason.TOOL_CALLS if made else StopReason.STOP
    )


def ask_for(name: str = "note", call_id: str = "c1", **fields: Any) -> ToolCall:
    return ToolCall(call_id=CallId(call_id), name=name, **fields)


def unreadable(story: Story) -> list[str]:
    """Payloads that don't hold what was written, or that a strict reader refuses."""
    return [
        event.kind
        for event in story.events
        if decode_event(event.kind, event.payload) != event.body or _is_refused(event.payload)
    ]


def _is_refused(payload: str) -> bool:
    try:
        json.dumps(json.loads(payload, parse_constant=lambda _: LONE), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


async def test_u0000_in_everything_goes_in_and_comes_out_unharmed() -> None:
    tool = Recorder(f"a{NUL}b")
    provider = WholeProvider(
        respond(ask_for(arguments={f"k{NUL}": f"v{NUL}"}), content=f"I{NUL}see"), respond(content=f"Do{NUL}ne")
    )
    story = await Bench(provider, tools=[make_tool("note", tool)]).run(input=f"H{NUL}i")
    assert tool.calls == [{f"k{NUL}": f"v{NUL}"}]
    assert f"a{NUL}b" in story.one(ToolResult).content
    assert story.record.output_text == f"Do{NUL}ne"
    assert provider.requests[0].messages[-1].content == f"H{NUL}i"
    assert unreadable(story) == []


async def test_lone_surrogates_in_everything_become_u_fffd() -> None:
    tool = Recorder(f"a{LONE}b")
    provider = WholeProvider(
        respond(ask_for(arguments={f"k{LONE}": [f"v{LONE}"]}), content=f"I{LONE}see"), respond(content=f"Do{LONE}ne")
    )
    story = await Bench(provider, tools=[make_tool("note", tool)]).run()
    assert tool.calls == [{f"k{MARK}": [f"v{MARK}"]}]
    assert f"a{MARK}b" in story.one(ToolResult).content
    assert [response.text for response in story.all(ModelResponded)] == [f"I{MARK}see", f"Do{MARK}ne"]
    assert unreadable(story) == []


async def test_a_surrogate_in_an_unknown_tools_name_is_told_and_stored() -> None:
    story = await Bench(WholeProvider(respond(ask_for(f"no{LONE}te", arguments={})))).run()
    assert (story.record.error_code, unreadable(story)) == ("tool_not_allowed", [])


async def test_a_surrogate_in_a_providers_call_id_is_stored() -> None:
    provider = WholeProvider(respond(ask_for(call_id=f"c{LONE}", arguments={})), respond(content="Done."))
    story = await Bench(provider, tools=[make_tool("note", Recorder())]).run()
    assert (story.record.state, unreadable(story)) == (RunState.COMPLETED, [])


async def test_a_surrogate_in_raw_arguments_is_stored() -> None:
    provider = WholeProvider(respond(ask_for(raw_arguments=f'{{"a": "{LONE}')))
    story = await Bench(provider, tools=[make_tool("note", Recorder())]).run()
    assert (story.record.error_code, unreadable(story)) == ("schema_violation", [])


async def test_a_surrogate_in_a_providers_error_is_stored() -> None:
    story = await Bench(WholeProvider(ProviderError(f"busy {LONE}", status=400))).run()
    assert (story.one(AttemptFailed).detail, unreadable(story)) == (f"busy {MARK}", [])


async def test_a_surrogate_in_a_tools_error_is_stored() -> None:
    bench = Bench([call("note"), say("Sorry.")], tools=[make_tool("note", Recorder(ValueError(LONE)))])
    story = await bench.run()
    assert MARK in story.one(ToolFailed).content
    assert unreadable(story) == []


async def test_a_surrogate_in_a_hooks_reason_is_stored() -> None:
    hook = HookSays(HookPoint.AFTER_MODEL_RESPONSE, HookPoint.ON_TERMINAL, says=lambda _: REFUSES)
    story = await Bench([say("Hello.")], hooks=[hook]).run()
    assert (story.record.error_detail, unreadable(story)) == (f"policy: {MARK}", [])


async def test_a_surrogate_in_a_guardrails_words_is_stored() -> None:
    decision = GuardrailDecision(allowed=False, reason=LONE, signals=(LONE,))
    story = await Bench([say("Hello.")], guardrails=[GuardSays(on_output=lambda _: decision)]).run()
    assert (story.record.error_code, unreadable(story)) == ("guardrail_refusal", [])


async def test_a_surrogate_that_a_hooks_rewrite_escapes_does_not_go_out() -> None:
    tool = Recorder()
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: HookDecision.rewrite('{"a": "\\ud83d"}'))
    story = await Bench([call("note"), say("Done.")], tools=[make_tool("note", tool)], hooks=[hook]).run()
    assert (tool.calls, story.one(TurnCleared).calls[0].arguments) == ([{"a": MARK}], {"a": MARK})
    assert unreadable(story) == []


async def test_a_surrogate_in_the_reason_of_a_cancel_is_stored() -> None:
    bench = Bench([say("Hello.")])
    run_id = await bench.submit()
    lease = await bench.claim()
    lease.cancellation.cancel(LONE, requested_by=LONE)
    await bench.drive(lease)
    story = bench.story(run_id)
    assert (story.record.state, unreadable(story)) == (RunState.CANCELLED, [])


async def test_a_surrogate_in_an_error_of_the_kit_is_stored() -> None:
    bench = Bench([say("Hello.")])
    bench.provider.tokenizer = raise_configuration_error  # type: ignore[method-assign]
    story = await bench.run()
    assert (story.one(Terminated).code, unreadable(story)) == ("configuration_error", [])


def raise_configuration_error(model: str) -> None:
    raise ConfigurationError(f"no tokenizer {LONE}")


MALFORMED = ['{"{"a":1}', '{"a": "tru', '{"a": 1,}', "null", "[]", '"x"', "NaN", '{"a": "\\x"}', '{"a": "\x00"}', ""]


@pytest.mark.parametrize("raw", MALFORMED)
async def test_arguments_that_are_no_json_object_fail_the_run_and_are_kept(raw: str) -> None:
    tool = Recorder()
    bench = Bench([calls(ScriptedCall(name="note", raw_arguments=raw))], tools=[make_tool("note", tool)])
    story = await bench.run()
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "schema_violation")
    assert story.one(ModelResponded).tool_calls[0].raw_arguments == raw
    assert story.one(SchemaViolation).problems == ("note: the arguments are not a JSON object",)
    assert tool.calls == []


async def test_one_malformed_call_of_a_turn_keeps_the_others_from_going_out() -> None:
    tool = Recorder()
    turn = calls(ScriptedCall(name="note", arguments={}), ScriptedCall(name="note", raw_arguments="{"))
    story = await Bench([turn], tools=[make_tool("note", tool)]).run()
    assert (story.record.error_code, story.all(ToolCalled), tool.calls) == ("schema_violation", [], [])


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_a_number_that_json_does_not_have_makes_arguments_malformed(number: float) -> None:
    tool = Recorder()
    provider = WholeProvider(respond(ask_for(arguments={"a": [number]})))
    story = await Bench(provider, tools=[make_tool("note", tool)]).run()
    assert (story.record.error_code, tool.calls, unreadable(story)) == ("schema_violation", [], [])


async def test_a_number_that_json_does_not_have_makes_a_hooks_rewrite_unusable() -> None:
    tool = Recorder()
    hook = HookSays(HookPoint.BEFORE_TOOL_DISPATCH, says=lambda _: HookDecision.rewrite('{"a": NaN}'))
    story = await Bench([call("note")], tools=[make_tool("note", tool)], hooks=[hook]).run()
    assert (story.record.error_code, tool.calls) == ("schema_violation", [])


async def test_of_calls_that_share_the_providers_id_the_first_one_goes_out() -> None:
    tool = Recorder()
    turn = calls(
        ScriptedCall(name="note", arguments={"n": 1}, call_id="same"),
        ScriptedCall(name="note", arguments={"n": 2}, call_id="same"),
        ScriptedCall(name="note", arguments={"n": 3}, call_id="other"),
    )
    story = await Bench([turn, say("Done.")], tools=[make_tool("note", tool)]).run()
    assert tool.calls == [{"n": 1}, {"n": 3}]
    minted = story.all(ModelResponded)[0].tool_calls
    assert [(made.call_id, made.provider_call_id) for made in minted] == [("call_1_1", "same"), ("call_1_2", "other")]


async def test_calls_without_a_providers_id_are_all_kept() -> None:
    tool = Recorder()
    made = [ask_for(call_id="", arguments={"n": n}) for n in (1, 2)]
    await Bench(WholeProvider(respond(*made), respond(content="Done.")), tools=[make_tool("note", tool)]).run()
    assert tool.calls == [{"n": 1}, {"n": 2}]


async def test_the_same_providers_id_in_the_next_turn_is_another_call() -> None:
    tool = Recorder()
    turns = [calls(ScriptedCall(name="note", arguments={"n": n}, call_id="call_1")) for n in (1, 2)]
    story = await Bench([*turns, say("Done.")], tools=[make_tool("note", tool)]).run()
    assert [called.call_id for called in story.all(ToolCalled)] == ["call_1_1", "call_2_1"]


async def test_a_call_of_a_tool_that_is_not_allowed_ends_the_run_and_dispatches_nothing() -> None:
    tool = Recorder()
    bench = Bench([calls(ScriptedCall(name="note"), ScriptedCall(name="rm"))], tools=[make_tool("note", tool)])
    story = await bench.run()
    assert (story.record.error_code, story.all(ToolCalled), tool.calls) == ("tool_not_allowed", [], [])


async def test_a_tool_that_is_here_but_not_on_the_agents_list_is_not_allowed() -> None:
    bench = Bench([call("note")], tools=[make_tool("note", Recorder())])
    assert (await bench.run(bench.agent(tools=()))).record.error_code == "tool_not_allowed"
