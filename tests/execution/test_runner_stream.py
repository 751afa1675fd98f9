"""``AgentRunner.stream`` is the same run, event by event, at the consumer's pace."""

import asyncio
from contextlib import aclosing

import pytest

import app.execution.runner as runner_module
from app.errors import ConfigurationError
from app.events import RunEvent
from app.execution.runner import AgentRunner
from app.ports.cancellation import CancellationToken
from app.providers import ScriptedProvider
from app.testing import FakeClock, SequentialIds
from app.tools import ToolRegistry
from tests.execution.fakes import (
    InlineExecutor,
    Recorder,
    Stall,
    StreamingProvider,
    call,
    let_others_run,
    make_tool,
    say,
)
from tests.execution.support import clerk


def paying(turns: int = 1) -> tuple[AgentRunner, Recorder]:
    tool, registry = Recorder("receipt"), ToolRegistry()
    registry.register(make_tool("pay", tool))
    provider = ScriptedProvider({"model": [*[call("pay", n=n) for n in range(turns)], say("Paid.")]})
    return AgentRunner(provider=provider, tools=registry, clock=FakeClock(), ids=SequentialIds()), tool


CLERK = clerk(tools=("pay",), max_iterations=100)


async def collect(runner: AgentRunner) -> list[RunEvent]:
    return [event async for event in runner.stream(CLERK, "Pay.", tenant="acme")]


async def test_the_stream_tells_the_events_of_the_run() -> None:
    streamed = await collect(paying()[0])
    run = await paying()[0].run(CLERK, "Pay.", tenant="acme")
    assert tuple(streamed) == run.events


async def test_events_are_told_while_the_run_goes_on() -> None:
    stall = Stall()
    runner = AgentRunner(provider=StreamingProvider("Hello", stall=stall))
    async with aclosing(runner.stream(clerk(), "Hi", tenant="acme")) as events:
        first = [(await anext(events)).kind for _ in range(4)]
        assert first == ["run_queued", "run_started", "prompt_assembled", "model_call"]
        await stall.reached.wait()
        stall.go_on.set()
        assert [event.kind async for event in events] == ["model_response", "terminated"]


async def test_the_loop_waits_for_a_slow_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_BUFFERED_EVENTS", 8)
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    runner, tool = paying(turns=9)
    async with aclosing(runner.stream(CLERK, "Pay.", tenant="acme")) as events:
        await anext(events)
        await let_others_run()
        assert len(tool.calls) == 1
        rest = [event async for event in events]
    assert (len(tool.calls), rest[-1].kind) == (9, "terminated")


async def test_closing_the_stream_cancels_the_run() -> None:
    stall = Stall()
    provider = StreamingProvider("Hello", stall=stall)
    async with aclosing(AgentRunner(provider=provider).stream(clerk(), "Hi", tenant="acme")) as events:
        await anext(events)
        await stall.reached.wait()
    assert (stall.was_cut, provider.closed) == (True, 1)


async def test_closing_the_stream_while_the_loop_waits_for_room_cancels_the_run_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner_module, "_BUFFERED_EVENTS", 1)
    runner, tool = paying()
    async with aclosing(runner.stream(CLERK, "Pay.", tenant="acme")) as events:
        await anext(events)
        await let_others_run()
    assert tool.calls == []


async def test_a_consumer_that_is_cancelled_cancels_the_run() -> None:
    stall = Stall()
    provider = StreamingProvider("Hello", stall=stall)
    runner = AgentRunner(provider=provider)

    async def consume() -> None:
        async with aclosing(runner.stream(clerk(), "Hi", tenant="acme")) as events:
            async for _ in events:
                pass

    consuming = asyncio.create_task(consume())
    await stall.reached.wait()
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    assert (stall.was_cut, provider.closed) == (True, 1)


async def test_a_token_ends_the_stream_with_the_end_of_the_run() -> None:
    stall, token = Stall(), CancellationToken()
    runner = AgentRunner(provider=StreamingProvider("Hello", stall=stall))
    async with aclosing(runner.stream(clerk(), "Hi", tenant="acme", cancellation=token)) as events:
        await anext(events)
        await stall.reached.wait()
        token.cancel("enough")
        assert [event.kind async for event in events][-3:] == ["cancellation_requested", "attempt_failed", "terminated"]


async def test_what_was_not_wired_is_refused_before_the_first_event() -> None:
    runner = AgentRunner(provider=ScriptedProvider({"model": [say("Hello.")]}))
    with pytest.raises(ConfigurationError):
        await anext(runner.stream(clerk(hooks=("policy",)), "Hi", tenant="acme"))
