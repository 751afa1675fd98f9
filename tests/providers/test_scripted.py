import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from app.conversation import StopReason, ToolCall, Usage, UsageSource
from app.errors import ConfigurationError, ProviderError
from app.ids import CallId
from app.ports.model import ModelRequest
from app.providers import ScriptedCall, ScriptedDelta, ScriptedError, ScriptedProvider, ScriptedStep
from tests.providers.support import ask, assistant, collect, result, user

FILE = """
models:
  adder:
    - calls: [{name: add, arguments: {a: 2, b: 3}}]
    - text: "The sum is 5."
      delta_chars: 5
      delta_seconds: 0.25
      usage: {input_tokens: 40, output_tokens: 6}
"""


def play(*steps: ScriptedStep) -> ScriptedProvider:
    return ScriptedProvider({"default": steps})


async def test_a_text_is_streamed_and_comes_again_as_the_response() -> None:
    texts, response = await collect(play(ScriptedStep(text="Hello there", delta_chars=4)), ask(user("hi")))

    assert texts == ["Hell", "o th", "ere"]
    assert response.content == "Hello there"
    assert response.stop_reason is StopReason.STOP


async def test_every_delta_waits_for_its_own_time_through_the_injected_sleep() -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    deltas = (ScriptedDelta(text="a", seconds=0.5), ScriptedDelta(text="b"), ScriptedDelta(text="c", seconds=2))
    provider = ScriptedProvider({"default": [ScriptedStep(deltas=deltas, delay_seconds=3)]}, sleep=sleep)
    texts, response = await collect(provider, ask(user("hi")))

    assert waited == [3, 0.5, 2]
    assert texts == ["a", "b", "c"]
    assert response.content == "abc"


async def test_a_task_that_is_cancelled_between_deltas_stops_there() -> None:
    reached = asyncio.Event()

    async def sleep(_: float) -> None:
        reached.set()
        await asyncio.Event().wait()

    provider = ScriptedProvider({"default": [ScriptedStep(text="ab", delta_chars=1, delta_seconds=1)]}, sleep=sleep)
    task = asyncio.ensure_future(provider.complete(ask(user("hi"))))
    await reached.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("iteration", "expected"), [(1, "one"), (2, "two"), (3, "three")])
async def test_the_step_follows_from_the_request_alone(iteration: int, expected: str) -> None:
    steps = [ScriptedStep(text=text) for text in ("one", "two", "three")]
    request = replace(ask(user("q"), assistant("x"), user("told what was wrong")), iteration=iteration)

    first = await ScriptedProvider({"default": steps}).complete(request)
    provider = ScriptedProvider({"default": steps})
    await provider.complete(ask(user("something else")))
    later = await provider.complete(request)

    assert (first.content, later.content) == (expected, expected)


async def test_past_its_last_step_a_script_refuses_without_a_retry() -> None:
    with pytest.raises(ProviderError, match="has 1 steps") as caught:
        await play(ScriptedStep(text="one")).complete(replace(ask(user("q"), assistant("one")), iteration=2))

    assert (caught.value.code, caught.value.retryable) == ("script_exhausted", False)


async def test_a_script_may_be_a_function_of_the_request() -> None:
    def echo(request: ModelRequest) -> ScriptedStep:
        return ScriptedStep(text=request.messages[-1].content.upper())

    assert (await ScriptedProvider({"default": echo}).complete(ask(user("hi")))).content == "HI"


async def test_a_script_may_be_an_async_function() -> None:
    async def echo(request: ModelRequest) -> ScriptedStep:
        return ScriptedStep(text=request.model)

    assert (await ScriptedProvider({"default": echo}).complete(ask(user("hi")))).content == "default"


async def test_calls_carry_arguments_or_exactly_what_was_written() -> None:
    step = ScriptedStep(
        calls=(
            ScriptedCall(name="add", arguments={"a": 1}),
            ScriptedCall(name="add", raw_arguments='{"{"a":1}', call_id="mine"),
            ScriptedCall(name="now"),
        )
    )
    response = await play(step).complete(ask(user("hi")))

    assert response.tool_calls == (
        ToolCall(call_id=CallId("call_0"), name="add", arguments={"a": 1}),
        ToolCall(call_id=CallId("mine"), name="add", raw_arguments='{"{"a":1}'),
        ToolCall(call_id=CallId("call_2"), name="now", arguments={}),
    )
    assert response.stop_reason is StopReason.TOOL_CALLS


async def test_an_error_is_raised_as_scripted() -> None:
    error = ScriptedError(message="busy", status=503, retry_after_seconds=2, code="overloaded")

    with pytest.raises(ProviderError, match="busy") as caught:
        await play(ScriptedStep(error=error)).complete(ask(user("hi")))

    raised = caught.value
    assert (raised.status, raised.retry_after_seconds, raised.code, raised.retryable) == (503, 2, "overloaded", True)


async def test_an_error_comes_after_the_text_of_its_step() -> None:
    stream = play(ScriptedStep(text="partial", error=ScriptedError())).stream(ask(user("hi")))

    assert getattr(await anext(stream), "text", None) == "partial"
    with pytest.raises(ProviderError):
        await anext(stream)


async def test_an_error_for_the_first_attempts_ends_with_the_next_one() -> None:
    provider = play(ScriptedStep(text="through", error=ScriptedError(attempts=2)))

    with pytest.raises(ProviderError):
        await collect(provider, ask(user("hi"), attempt=2))
    assert (await provider.complete(ask(user("hi"), attempt=3))).content == "through"


async def test_an_explicit_usage_and_stop_reason_are_passed_on() -> None:
    usage = Usage(input_tokens=7, cached_tokens=3, output_tokens=9)
    response = await play(ScriptedStep(text="cut", usage=usage, stop_reason=StopReason.LENGTH)).complete(ask(user("q")))

    assert (response.usage, response.stop_reason) == (usage, StopReason.LENGTH)


async def test_without_a_usage_tokens_are_an_estimate_that_says_so() -> None:
    response = await play(ScriptedStep(text="12345")).complete(ask(user("123456789")))

    assert response.usage == Usage(input_tokens=3, output_tokens=2, source=UsageSource.HEURISTIC)


async def test_an_empty_answer_is_empty() -> None:
    texts, response = await collect(play(ScriptedStep()), ask(user("hi")))

    assert (texts, response.content, response.tool_calls) == ([], "", ())


async def test_requests_are_remembered() -> None:
    provider = play(ScriptedStep(text="hello"))
    request = ask(user("hi"))
    await provider.complete(request)

    assert list(provider.requests) == [request]


async def test_an_unknown_model_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigurationError, match="scripted:default"):
        await play().complete(ask(user("hi"), model="other"))


async def test_a_script_file_plays(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text(FILE)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    provider = ScriptedProvider.from_file(tmp_path / "script.yaml", sleep=sleep)
    first = await provider.complete(ask(user("2+3?"), model="adder"))
    texts, second = await collect(
        provider, replace(ask(user("2+3?"), assistant(), result("5"), model="adder"), iteration=2)
    )

    assert first.tool_calls[0].arguments == {"a": 2, "b": 3}
    assert texts == ["The s", "um is", " 5."]
    assert waited == [0.25, 0.25, 0.25]
    assert second.usage == Usage(input_tokens=40, output_tokens=6)


def test_the_example_in_the_docs_is_a_script_file(tmp_path: Path) -> None:
    from app.providers import scripted

    example = (scripted.__doc__ or "").partition("::\n")[2]
    (tmp_path / "script.yaml").write_text(example)

    models = ScriptedProvider.from_file(tmp_path / "script.yaml").models()
    assert [info.name for info in models] == ["greeter", "adder", "broken"]


@pytest.mark.parametrize(
    "text",
    [
        "models: {a: [{txt: hi}]}",
        "models: {a: [{text: hi, deltas: [{text: ho}]}]}",
        "models: {a: [{calls: [{name: f, arguments: {}, raw_arguments: '{'}]}]}",
        "models: {a: [{delta_chars: 0}]}",
        "[1, 2]",
        "models: {",
        "",
    ],
)
def test_a_script_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "script.yaml").write_text(text)

    with pytest.raises(ConfigurationError) as caught:
        ScriptedProvider.from_file(tmp_path / "script.yaml")
    assert caught.value.code == "script_invalid"


def test_a_missing_script_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        ScriptedProvider.from_file(tmp_path / "nowhere.yaml")
