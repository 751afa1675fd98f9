"""Guardrails on what goes in and comes out: they fail closed."""

import pytest

from app.conversation.text import text_digest as digest
from app.events import DeadlineExceeded, GuardrailRedaction, GuardrailRefusal, ModelCall, ModelResponded, RunState
from app.policy import DeadlineConfig
from app.ports.hooks import GuardrailDecision, HookDecision, HookPoint
from app.providers import ScriptedCall
from app.testing import FakeClock
from tests.execution.fakes import GuardSays, HookSays, Recorder, Stall, calls, make_tool, say
from tests.execution.support import Bench

BLOCK = GuardrailDecision(allowed=False, reason="too secret", signals=("secret",))


def redact(text: str) -> GuardrailDecision:
    return GuardrailDecision(redacted=text.replace("4111", "****"))


def fail(text: str) -> GuardrailDecision:
    raise RuntimeError("password=hunter2")


async def test_a_blocked_input_never_reaches_the_model() -> None:
    story = await Bench([say("Hello.")], guardrails=[GuardSays(on_input=lambda _: BLOCK)]).run()
    refusal = story.one(GuardrailRefusal)
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "guardrail_refusal")
    assert (refusal.guardrail, refusal.subject, refusal.signals) == ("guard", "input", ("secret",))
    assert story.all(ModelCall) == []


async def test_a_blocked_output_is_paid_for_and_shown_to_nobody() -> None:
    story = await Bench([say("The code is 4111.")], guardrails=[GuardSays(on_output=lambda _: BLOCK)]).run()
    assert story.kinds[-3:] == ["model_response", "guardrail_refusal", "terminated"]
    assert (story.one(ModelResponded).text, story.record.output_text) == (None, None)
    assert story.record.usage.output_tokens > 0
    assert "4111" not in "".join(event.payload for event in story.events)


async def test_a_redacted_input_is_what_the_model_reads_and_the_row_keeps() -> None:
    bench = Bench([say("Hello.")], guardrails=[GuardSays(on_input=redact)])
    story = await bench.run(input="Card 4111")
    assert bench.provider.requests[0].messages[-1].content == "Card ****"  # type: ignore[attr-defined]
    assert story.record.input == "Card ****"


async def test_a_redacted_output_is_the_answer_and_the_original_is_nowhere() -> None:
    story = await Bench([say("Card 4111")], guardrails=[GuardSays(on_output=redact)]).run()
    redaction = story.one(GuardrailRedaction)
    assert (story.record.state, story.record.output_text) == (RunState.COMPLETED, "Card ****")
    assert (redaction.before, redaction.after) == (digest("Card 4111"), digest("Card ****"))
    assert "4111" not in "".join(event.payload for event in story.events)


async def test_a_redaction_that_leaves_nothing_is_an_empty_answer() -> None:
    story = await Bench(
        [say("Card 4111")], guardrails=[GuardSays(on_output=lambda _: GuardrailDecision(redacted=""))]
    ).run()
    assert (story.record.error_code, story.record.output_text) == ("empty_model_output", None)


async def test_the_text_beside_calls_is_checked_too() -> None:
    tool = Recorder()
    turn = calls(ScriptedCall(name="pay"), text="Card 4111")
    bench = Bench([turn], tools=[make_tool("pay", tool)], guardrails=[GuardSays(on_output=lambda _: BLOCK)])
    story = await bench.run()
    assert (story.record.error_code, tool.calls) == ("guardrail_refusal", [])


@pytest.mark.parametrize("side", ["on_input", "on_output"])
async def test_a_check_that_raises_is_a_denial_and_its_words_are_not_told(side: str) -> None:
    story = await Bench([say("Hello.")], guardrails=[GuardSays(**{side: fail})]).run()  # type: ignore[arg-type]
    assert (story.record.state, story.record.error_code) == (RunState.FAILED, "guardrail_refusal")
    assert story.record.error_detail == "guard: the check failed: RuntimeError"


async def test_a_check_that_forgets_to_answer_is_a_denial() -> None:
    story = await Bench([say("Hello.")], guardrails=[GuardSays(on_output=lambda _: None)]).run()  # type: ignore[arg-type, return-value]
    assert story.record.error_code == "guardrail_refusal"


async def test_guardrails_are_asked_in_the_agents_order_and_each_sees_the_redaction_before_it() -> None:
    first, second = GuardSays("first", on_output=redact), GuardSays("second")
    await Bench([say("Card 4111")], guardrails=[first, second]).run()
    assert (first.checked[-1], second.checked[-1]) == ("Card 4111", "Card ****")


async def test_the_first_guardrail_that_blocks_ends_it() -> None:
    second = GuardSays("second")
    bench = Bench([say("Hello.")], guardrails=[GuardSays("first", on_input=lambda _: BLOCK), second])
    await bench.run()
    assert second.checked == []


async def test_hooks_have_spoken_before_the_guardrail_checks_an_answer() -> None:
    guard = GuardSays()
    hook = HookSays(HookPoint.AFTER_MODEL_RESPONSE, says=lambda _: HookDecision.rewrite("rewritten"))
    await Bench([say("Hello.")], hooks=[hook], guardrails=[guard]).run()
    assert guard.checked == ["Hi", "rewritten"]


async def test_a_rewritten_input_replaces_the_original_also_when_a_guardrail_blocks() -> None:
    hook = HookSays(HookPoint.BEFORE_PROMPT_ASSEMBLY, says=lambda _: HookDecision.rewrite("Card ****"))
    bench = Bench([say("Hello.")], hooks=[hook], guardrails=[GuardSays(on_input=lambda _: BLOCK)])
    story = await bench.run(input="Card 4111")
    assert (story.record.error_code, story.record.input) == ("guardrail_refusal", "Card ****")


async def test_an_agent_is_not_asked_by_guardrails_that_it_does_not_declare() -> None:
    bench = Bench([say("Hello.")], guardrails=[GuardSays(on_input=lambda _: BLOCK)])
    assert (await bench.run(bench.agent(guardrails=()))).record.state is RunState.COMPLETED


class GuardStalls(GuardSays):
    """A guardrail that does not answer."""

    def __init__(self, stall: Stall) -> None:
        super().__init__()
        self._stall = stall

    async def check_input(self, text: str) -> GuardrailDecision:
        await self._stall.wait()
        return GuardrailDecision()


async def test_a_check_past_its_time_cancels_the_run_and_nothing_reaches_the_model() -> None:
    clock, stall = FakeClock(auto_advance=False), Stall()
    bench = Bench(
        [say("Hello.")], guardrails=[GuardStalls(stall)], clock=clock, deadlines=DeadlineConfig(hook_seconds=2)
    )
    run = await bench.begin()
    await stall.reached.wait()
    await clock.wait_for_sleepers()
    clock.advance(2)
    story = await run.end()
    assert (story.record.error_code, story.one(DeadlineExceeded).what) == ("deadline_exceeded", "guardrail")
    assert story.all(ModelCall) == []
