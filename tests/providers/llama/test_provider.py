"""The provider on the real default model."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app.conversation import Message, StopReason
from app.errors import ConfigurationError, ContextOverflowError, ProviderError
from app.ids import TenantId
from app.ports.model import ModelResponse, TextDelta
from app.providers import LlamaConfig, LlamaProvider
from app.providers.llama.weights import Weights
from tests.providers.conftest import SMALL_WINDOW
from tests.providers.support import ADD, ask, assistant, collect, result, system, user

SHORT = (system("Answer in one short sentence."), user("What is the capital of France?"))
LONG = (user("Count from one to one hundred in words."),)


async def test_text_arrives_in_deltas_that_make_up_the_response(llama: LlamaProvider) -> None:
    texts, response = await collect(llama, ask(*SHORT))

    assert len(texts) > 3
    assert response.content == "".join(texts) == "The capital of France is Paris."
    assert response.stop_reason is StopReason.STOP


async def test_complete_gives_the_same_response_as_the_stream(llama: LlamaProvider) -> None:
    _, streamed = await collect(llama, ask(*SHORT, tenant="streamed"))
    completed = await llama.complete(ask(*SHORT, tenant="completed"))

    assert (completed.content, completed.usage) == (streamed.content, streamed.usage)


async def test_usage_is_what_the_tokenizer_counts(llama: LlamaProvider, weights: Weights) -> None:
    response = await llama.complete(ask(*SHORT))
    prompt = (
        "<|im_start|>system\nAnswer in one short sentence.<|im_end|>\n<|im_start|>user\nWhat is the capital of France?"
        "<|im_end|>\n<|im_start|>assistant\n"
    )
    tokenizer = llama.tokenizer("default")

    assert response.usage.input_tokens == len(weights.tokenize_template(prompt))
    assert tokenizer is not None
    assert response.usage.output_tokens == tokenizer.count(response.content)


async def test_timing_tells_where_the_seconds_went(llama: LlamaProvider) -> None:
    timing = (await llama.complete(ask(*SHORT, tenant="timed"))).timing

    assert timing.queue_seconds >= 0
    assert timing.first_token_seconds > 0
    assert timing.generation_seconds > 0


async def test_generation_stops_at_the_limit(llama: LlamaProvider) -> None:
    before = llama.counters().output_tokens
    response = await llama.complete(ask(*LONG, max_output_tokens=20))

    assert response.stop_reason is StopReason.LENGTH
    assert response.usage.output_tokens == 20
    assert llama.counters().output_tokens == before + 20


async def test_closing_the_stream_stops_the_generation_and_the_next_one_starts(llama: LlamaProvider) -> None:
    stream = llama.stream(ask(*LONG, max_output_tokens=900))
    first_ten = [await anext(stream) for _ in range(10)]
    before = llama.counters().output_tokens
    await stream.aclose()
    response = await llama.complete(ask(*SHORT, max_output_tokens=3))

    assert all(isinstance(delta, TextDelta) for delta in first_ten)
    assert llama.counters().output_tokens <= before + 2 + response.usage.output_tokens


async def test_cancelling_the_task_stops_the_generation(llama: LlamaProvider) -> None:
    streaming = asyncio.Event()

    async def read() -> None:
        async for _ in llama.stream(ask(*LONG, max_output_tokens=900)):
            streaming.set()

    task = asyncio.ensure_future(read())
    await streaming.wait()
    before = llama.counters().output_tokens
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await llama.complete(ask(*SHORT, max_output_tokens=1))

    assert llama.counters().output_tokens <= before + 2 + 1


async def cancelled(tasks: Sequence[asyncio.Future[ModelResponse]]) -> list[object]:
    for task in tasks:
        task.cancel()
    return list(await asyncio.gather(*tasks, return_exceptions=True))


async def test_cancelled_tasks_that_wait_are_never_evaluated(single_llama: LlamaProvider) -> None:
    llama = single_llama
    first = llama.stream(ask(*LONG, tenant="first", max_output_tokens=900))
    await anext(first)
    evaluated = llama.counters().prompt_tokens_evaluated
    waiting = [asyncio.ensure_future(llama.complete(ask(user(f"Question {n}?")))) for n in range(4)]
    # Each piece of text is a turn of the event loop: the four get into the queue meanwhile.
    [await anext(first) for _ in range(8)]
    queued = llama.counters().queue_depth
    outcomes = await cancelled(waiting)
    await first.aclose()
    last = await llama.complete(ask(*SHORT, tenant="last", max_output_tokens=1))

    assert queued == 4
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 4
    assert llama.counters().prompt_tokens_evaluated == evaluated + last.usage.input_tokens
    assert llama.counters().queue_depth == 0


async def test_two_requests_at_once_both_complete_as_they_would_alone(llama: LlamaProvider) -> None:
    alone = [
        await llama.complete(ask(*SHORT, tenant="a")),
        await llama.complete(ask(*LONG, tenant="b", max_output_tokens=15)),
    ]
    together = await asyncio.gather(
        llama.complete(ask(*SHORT, tenant="c")), llama.complete(ask(*LONG, tenant="d", max_output_tokens=15))
    )

    assert [item.content for item in together] == [item.content for item in alone]


async def test_the_second_turn_finds_the_first_one_in_the_cache(llama: LlamaProvider) -> None:
    first = await llama.complete(ask(*SHORT, tenant="turns"))
    turn = [*SHORT, assistant(first.content), user("And of Italy?")]
    second = await llama.complete(ask(*turn, tenant="turns"))

    assert second.usage.cached_tokens >= first.usage.input_tokens
    assert second.usage.cached_tokens < second.usage.input_tokens


async def test_a_prefix_is_not_shared_over_tenants(llama: LlamaProvider) -> None:
    await llama.complete(ask(*SHORT, tenant="mine"))

    assert (await llama.complete(ask(*SHORT, tenant="theirs"))).usage.cached_tokens == 0


async def test_the_event_loop_turns_while_the_model_works(llama: LlamaProvider) -> None:
    loop = asyncio.get_running_loop()
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_later(0.001, turn)

    turn()
    response = await llama.complete(ask(*LONG, tenant="ticks", max_output_tokens=20))

    assert turns > response.usage.output_tokens


async def test_prompts_are_tokenized_off_the_event_loop(llama: LlamaProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    tokenize = Weights.tokenize_plain

    def recorded(weights: Weights, text: str) -> list[int]:
        threads.append(threading.current_thread().name)
        return tokenize(weights, text)

    monkeypatch.setattr(Weights, "tokenize_plain", recorded)
    await llama.complete(ask(*SHORT, max_output_tokens=1))

    assert {name.rpartition("_")[0] for name in threads} == {"llama-prepare"}


def filled(tokens: int) -> tuple[Message, ...]:
    """A message whose content has that many tokens."""
    return (user(" a" * tokens),)


async def test_a_prompt_over_the_window_is_refused_with_both_numbers_before_anything_is_evaluated(
    small_llama: LlamaProvider,
) -> None:
    overhead = (await small_llama.complete(ask(*filled(1), max_output_tokens=1))).usage.input_tokens - 1
    before = small_llama.counters().prompt_tokens_evaluated

    with pytest.raises(ContextOverflowError) as caught:
        await small_llama.complete(ask(*filled(SMALL_WINDOW + 5 - overhead)))
    assert (caught.value.prompt_tokens, caught.value.window_tokens) == (SMALL_WINDOW + 5, SMALL_WINDOW)
    assert small_llama.counters().prompt_tokens_evaluated == before


async def test_a_prompt_that_almost_fills_the_window_is_answered_until_it_is_full(small_llama: LlamaProvider) -> None:
    overhead = (await small_llama.complete(ask(*filled(1), max_output_tokens=1))).usage.input_tokens - 1
    response = await small_llama.complete(ask(*filled(SMALL_WINDOW - 5 - overhead)))

    assert response.usage.input_tokens == SMALL_WINDOW - 5
    assert response.usage.output_tokens <= 6
    assert response.stop_reason in {StopReason.LENGTH, StopReason.STOP}


async def test_a_generation_that_would_pass_the_window_ends_with_it(small_llama: LlamaProvider) -> None:
    # Two tokens of room: no machine's arithmetic makes an answer to this so short.
    asked = f" {LONG[0].content}"
    overhead = (await small_llama.complete(ask(user(f" a{asked}"), max_output_tokens=1))).usage.input_tokens - 1
    response = await small_llama.complete(ask(user(" a" * (SMALL_WINDOW - 1 - overhead) + asked)))

    assert response.stop_reason is StopReason.LENGTH
    assert response.usage.input_tokens + response.usage.output_tokens == SMALL_WINDOW + 1


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("one"), user("two")],
        [result("a result that nobody asked for"), user("q")],
        [user("q"), system("in the middle"), user("q")],
        [assistant(""), user("")],
        [system(""), assistant("first")],
        [user("\ud83d\0<|im_start|>")],
    ],
)
async def test_any_history_is_answered(llama: LlamaProvider, messages: Sequence[Message]) -> None:
    response = await llama.complete(ask(*messages, max_output_tokens=1))

    assert response.usage.output_tokens <= 1


async def test_a_second_turn_evaluates_what_is_new_and_nothing_that_the_model_wrote(llama: LlamaProvider) -> None:
    first = await llama.complete(ask(*SHORT, tenant="new tokens"))
    new = user("And of Italy?")
    second = await llama.complete(ask(*SHORT, assistant(first.content), new, tenant="new tokens"))
    tokenizer = llama.tokenizer("default")

    assert tokenizer is not None
    evaluated = second.usage.input_tokens - second.usage.cached_tokens
    assert evaluated <= tokenizer.count(new.content) + 16


async def test_a_turn_after_a_tool_call_evaluates_what_is_new(llama: LlamaProvider) -> None:
    question = user("What is 2 plus 3?")
    first = await llama.complete(ask(question, tools=(ADD,), tool_choice="add", tenant="call turn"))
    told = result("5", call_id=first.tool_calls[0].call_id, name="add")
    turn = [question, assistant(first.content, tool_calls=first.tool_calls), told]
    second = await llama.complete(ask(*turn, tools=(ADD,), tenant="call turn", max_output_tokens=3))

    new_tokens = second.usage.input_tokens - first.usage.input_tokens - first.usage.output_tokens
    assert 0 < new_tokens < 40
    assert second.usage.input_tokens - second.usage.cached_tokens <= new_tokens + 16


async def test_conversations_of_one_agent_share_its_prefix(llama: LlamaProvider) -> None:
    prefix = system("You are the assistant of a small library in the mountains. " * 6)
    fields: dict[str, Any] = {"tenant": "prefix", "fingerprint": "f" * 16, "prefix_length": 1, "max_output_tokens": 2}
    await llama.complete(ask(prefix, user("When do you open?"), **fields))
    second = await llama.complete(ask(prefix, user("Who are you?"), **fields))
    other = await llama.complete(ask(prefix, user("Who are you?"), **{**fields, "fingerprint": "0" * 16}))

    assert second.usage.cached_tokens > 60
    assert other.usage.cached_tokens == 0


async def test_stored_prefixes_survive_a_restart(tmp_path: Path) -> None:
    config = LlamaConfig(context_tokens=512, snapshot_folder=tmp_path / "kept", snapshot_key=SecretStr("k" * 32))
    answers = []
    for _ in range(2):
        provider = LlamaProvider(config)
        answers.append(await provider.complete(ask(*SHORT)))
        await provider.close()
    theirs = LlamaProvider(config.model_copy(update={"snapshot_key": SecretStr("x" * 32)}))
    answers.append(await theirs.complete(ask(*SHORT)))
    await theirs.close()

    tokens = answers[0].usage.input_tokens
    assert [answer.usage.cached_tokens for answer in answers] == [0, tokens - 1, 0]
    assert answers[0].content == answers[1].content == answers[2].content


async def test_what_is_kept_of_a_tenant_can_be_erased(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    config = LlamaConfig(context_tokens=512, snapshot_folder=folder, snapshot_key=SecretStr("k" * 32))
    provider = LlamaProvider(config)
    tenants = ["mine", "mine", "theirs"]
    before = [await provider.complete(ask(*SHORT, tenant=tenant, max_output_tokens=1)) for tenant in tenants]
    provider.erase_tenant(TenantId("mine"))
    after = [await provider.complete(ask(*SHORT, tenant=tenant, max_output_tokens=1)) for tenant in tenants[1:]]
    provider.erase_tenant(TenantId("mine"))
    provider.erase_tenant(TenantId("theirs"))
    await provider.complete(ask(*SHORT, tenant="last", max_output_tokens=1))
    await provider.close()

    assert [bool(answer.usage.cached_tokens) for answer in before + after] == [False, True, False, False, True]
    assert len({path.parent for path in folder.glob("*/*.prefix")}) == 1


async def test_a_deterministic_request_needs_a_context_of_its_own(llama: LlamaProvider) -> None:
    with pytest.raises(ProviderError) as caught:
        await llama.complete(ask(*SHORT, deterministic=True))

    assert caught.value.code == "deterministic_unavailable"


async def test_deterministic_requests_have_a_window_of_their_own() -> None:
    provider = LlamaProvider(LlamaConfig(context_tokens=512, deterministic_tokens=64))
    answer = await provider.complete(ask(*SHORT, deterministic=True, max_output_tokens=3))
    with pytest.raises(ContextOverflowError) as caught:
        await provider.complete(ask(*filled(100), deterministic=True))
    await provider.close()

    assert answer.usage.output_tokens == 3
    assert caught.value.window_tokens == 64


async def test_a_choice_that_names_no_tool_is_refused(llama: LlamaProvider) -> None:
    with pytest.raises(ProviderError) as caught:
        await llama.complete(ask(*SHORT, tools=(ADD,), tool_choice="subtract"))
    assert (caught.value.code, caught.value.retryable) == ("unknown_tool_choice", False)


async def test_the_model_has_two_names(llama: LlamaProvider, model_path: Path) -> None:
    models = llama.models()
    response = await llama.complete(ask(*SHORT, model=model_path.stem, max_output_tokens=1))

    assert [info.name for info in models] == ["default", model_path.stem]
    assert models[0].context_tokens == 1024
    assert models[0].supports_tools
    assert models[0].notes[:2] == ("Smollm2 135M 8k Lc100K Mix1 Ep2", "chat family chatml")
    assert response.usage.output_tokens == 1


async def test_an_unknown_model_is_refused_with_the_known_names(llama: LlamaProvider) -> None:
    with pytest.raises(ConfigurationError, match="llama:default"):
        await llama.complete(ask(*SHORT, model="other"))
